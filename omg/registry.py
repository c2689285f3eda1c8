"""Lazy registries: a name stands for "module:attribute", imported when it is asked for."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, Generic, TypeVar, cast

from omg.types import OmgError

T = TypeVar("T")

# Which extra of the distribution brings an optional package.
EXTRAS = {
    "lbforaging": "lbf",
    "mpe2": "mpe",
    "pettingzoo": "mpe",
    "rware": "rware",
    "pymongo": "mongo",
}


def nearest(name: str, known: Iterable[str]) -> str:
    """`, did you mean 'x'?` when something similar exists, else an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f", did you mean '{close[0]}'?" if close else ""


def load_attribute(target: str) -> Any:
    """Import "module:attribute"; a missing optional package names the extra to install."""
    return getattr(_module_of(target), target.partition(":")[2])


def _module_of(target: str) -> ModuleType:
    module_name = target.partition(":")[0]
    try:
        return importlib.import_module(module_name)
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


def import_path(target: str, base: type[Any] | None) -> Any:
    """What a user's "package.module:Name" stands for: something callable and, where `base` is
    given, a class derived from it that leaves nothing of it undefined."""
    module_name, _, name = target.partition(":")
    _check_spelling(target, module_name, name)
    try:
        module = _module_of(target)
    except OmgError:
        raise
    except Exception as error:
        raise OmgError(
            f"'{target}' cannot be imported: {type(error).__name__}: {error}. Correct the module; "
            "--debug shows where it failed."
        ) from error
    if not hasattr(module, name):
        raise OmgError(f"'{target}': {_what_is_there(module, name, base)}")
    found = getattr(module, name)
    if base is not None:
        _check_class(target, found, base)
    elif not callable(found):
        raise OmgError(f"'{target}' is a {type(found).__name__}. Give a class or a function.")
    return found


def _check_class(target: str, found: Any, base: type[Any]) -> None:
    if not (isinstance(found, type) and issubclass(found, base)):
        raise OmgError(
            f"'{target}' is no {base.__name__}. Derive the class from "
            f"{base.__module__}.{base.__name__}."
        )
    open_members = [
        member
        for member in dir(found)
        if getattr(getattr(found, member, None), "__isabstractmethod__", False)
    ]
    if open_members:
        raise OmgError(
            f"'{target}' lacks {', '.join(open_members)}. Define what {base.__name__} leaves open."
        )


def _check_spelling(target: str, module_name: str, name: str) -> None:
    """A path of a file, or a missing half, is answered with how to write it."""
    if module_name.endswith(".py") or "/" in module_name or "\\" in module_name:
        dotted = module_name.removesuffix(".py").replace("\\", "/").strip("./").replace("/", ".")
        raise OmgError(
            f"'{target}' is the path of a file. Name the module as Python imports it: "
            f"{dotted}:{name or '<class>'}."
        )
    if not module_name or not name:
        raise OmgError(f"'{target}' is incomplete. Write package.module:Class.")


def _what_is_there(module: ModuleType, name: str, base: type[Any] | None) -> str:
    own = [
        key
        for key, value in vars(module).items()
        if isinstance(value, type)
        and value.__module__ == module.__name__
        and (base is None or issubclass(value, base))
    ]
    there = f"Classes in it: {', '.join(own)}." if own else "Check the spelling."
    return f"the module {module.__name__} has no '{name}'{nearest(name, own) or '.'} {there}"


class Registry(Generic[T], Mapping[str, T]):
    """Name -> class or function. Adding one is one file and one line here; one of the user's own
    needs no line and is named by its import path, `package.module:Class`."""

    def __init__(
        self, kind: str, targets: Mapping[str, str], *, base: type[Any] | None = None
    ) -> None:
        self.kind = kind
        self._targets = dict(targets)
        self._base = base

    def __getitem__(self, name: str) -> T:
        if name in self._targets:
            return cast(T, load_attribute(self._targets[name]))
        if ":" in name or name.endswith(".py"):
            return cast(T, import_path(name, self._base))
        raise OmgError(
            f"There is no {self.kind} called '{name}'{nearest(name, self._targets) or '.'} "
            f"Choose one of: {', '.join(sorted(self._targets))}; or name your own as "
            "package.module:Class."
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._targets)

    def __len__(self) -> int:
        return len(self._targets)
