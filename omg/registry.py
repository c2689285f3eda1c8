"""Lazy registries: a name stands for "module:attribute", imported when it is asked for."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar, cast

from omg.types import OmgError

T = TypeVar("T")

# Which extra of the distribution brings an optional package.
EXTRAS = {"lbforaging": "lbf", "pymongo": "mongo"}


def nearest(name: str, known: Iterable[str]) -> str:
    """`, did you mean 'x'?` when something similar exists, else an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f", did you mean '{close[0]}'?" if close else ""


def load_attribute(target: str) -> Any:
    """Import "module:attribute"; a missing optional package names the extra to install."""
    module_name, _, attribute = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = (error.name or module_name).split(".")[0]
        if missing == "omg":
            raise
        if module_name.split(".")[0] == missing and missing not in EXTRAS:
            raise OmgError(
                f"'{target}': there is no module '{error.name}'. Check the spelling, or run from "
                "the folder it lies in."
            ) from error
        extra = EXTRAS.get(missing)
        hint = f"pip install 'omg-marl[{extra}]'" if extra else f"pip install {missing}"
        raise OmgError(f"'{target}' needs the package '{missing}'. Install it: {hint}") from error
    return getattr(module, attribute)


class Registry(Generic[T], Mapping[str, T]):
    """Name -> class or function. Adding one is one file and one line here."""

    def __init__(self, kind: str, targets: Mapping[str, str]) -> None:
        self.kind = kind
        self._targets = dict(targets)

    def __getitem__(self, name: str) -> T:
        if name not in self._targets:
            raise OmgError(
                f"There is no {self.kind} called '{name}'{nearest(name, self._targets) or '.'} "
                f"Choose one of: {', '.join(sorted(self._targets))}."
            )
        return cast(T, load_attribute(self._targets[name]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._targets)

    def __len__(self) -> int:
        return len(self._targets)

    def register(self, name: str, target: str) -> None:
        """Add an entry at run time (plug-ins, tests)."""
        self._targets[name] = target
