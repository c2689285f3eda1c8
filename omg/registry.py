"""From names to parts: lazy registries ("module:attribute"), and classes called with what they ask
for and with settings of their own."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
import os
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, Generic, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from omg.types import OmgError

T = TypeVar("T")

# Which extra of the distribution brings an optional package.
EXTRAS = {
    "lbforaging": "lbf",
    "mpe2": "mpe",
    "pettingzoo": "mpe",
    "rware": "rware",
    "pymongo": "mongo",
    "ray": "rllib",
    "optuna": "optuna",
    "wandb": "wandb",
    "onnx": "export",
    "onnxscript": "export",
    "onnxruntime": "export",
    "jax": "smax",
    "jaxmarl": "smax",
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


# Modules whose code may run although a saved file names them; inherited by processes we start.
TRUSTED = "OMG_TRUST"


def trust(*targets: str) -> None:
    """Let saved runs and pools name these modules ("module" or "module:Class"). Whatever the
    command line or the program itself names is trusted anyway."""
    known = trusted_modules()
    new = [target.partition(":")[0].strip() for target in targets]
    os.environ[TRUSTED] = ",".join(dict.fromkeys([*known, *filter(None, new)]))


def trusted_modules() -> list[str]:
    """Modules outside omg that the command line or the program has named."""
    return [name for name in os.environ.get(TRUSTED, "").split(",") if name]


def check_trusted(target: str) -> None:
    """Refuse to import what only a saved file names: importing a module runs its code. A module
    that the program has imported itself is not refused."""
    module = target.partition(":")[0]
    if module in sys.modules or module.partition(".")[0] == "omg":
        return
    if any(f"{module}.".startswith(f"{name}.") for name in trusted_modules()):
        _search_current_folder()
        return
    raise OmgError(
        f"'{target}' is code outside omg that a saved file names, and loading it would run it. If "
        f"you trust it, add --trust={module} to the command; in Python, import {module} first."
    )


def _search_current_folder() -> None:
    """Find the user's own modules where the command was started. Not before they are named: a
    file beside a received run could pass for a package that is imported later."""
    with contextlib.suppress(OSError):  # it is gone
        if (here := os.getcwd()) not in sys.path:
            sys.path.insert(0, here)


def import_path(target: str, base: type[Any] | None) -> Any:
    """What a user's "package.module:Class" stands for: a class and, where `base` is given, one
    derived from it that leaves nothing of it undefined."""
    module_name, _, name = target.partition(":")
    _check_spelling(target, module_name, name)
    check_trusted(target)
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
    elif not isinstance(found, type):
        raise OmgError(f"'{target}' is a {type(found).__name__}. Give a class.")
    return found


def import_path_of(named: Any) -> Any:
    """The import path of a class; anything else as it is."""
    if isinstance(named, type) and "<locals>" in named.__qualname__:
        raise OmgError(
            f"{named.__name__} is defined inside a function, where a saved run cannot find it "
            "again. Define it at the top level of a module."
        )
    return f"{named.__module__}:{named.__qualname__}" if isinstance(named, type) else named


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
    if module.__name__ == "__main__":
        return (
            f"it was a class of the program that trained the run. Define {name} in this one too, "
            "or keep it in a module of its own."
        )
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
            return cast(T, self._checked(name, import_path(name, self._base)))
        raise OmgError(
            f"There is no {self.kind} called '{name}'{nearest(name, self._targets) or '.'} "
            f"Choose one of: {', '.join(sorted(self._targets))}; or name your own as "
            "package.module:Class."
        )

    def _checked(self, name: str, found: Any) -> Any:
        """A class of the user's own; one of another kind is refused before it is called."""
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._targets)

    def __len__(self) -> int:
        return len(self._targets)


# What a kind of pydantic problem means in a user's words, by the start of its name.
_EXPECTED = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "string_type": "text",
    "string_too_short": "text that is not empty",
    "string_too_long": "a shorter text",
    "tuple": "a list",
    "too_short": "a list that is not empty",
    "dict": "a mapping, e.g. {'a': 1}",
    "finite": "a finite number",
}


def expected(kind: str, message: str) -> str:
    """What a value should have been, in words."""
    words = next((words for start, words in _EXPECTED.items() if kind.startswith(start)), message)
    return words.removeprefix("Input should be ").removeprefix("Value error, ")


class PartRegistry(Registry[type[T]]):
    """A registry of classes that are called with what they name of `given`, and with settings of
    their own from the key `args_key`; without one, they have none."""

    def __init__(
        self,
        kind: str,
        targets: Mapping[str, str],
        *,
        base: type[Any],
        given: tuple[str, ...],
        args_key: str = "",
    ) -> None:
        super().__init__(kind, targets, base=base)
        self._given, self._args_key = given, args_key

    def check(self, name: str, args: Mapping[str, Any]) -> None:
        """Refuse settings that a part does not take, before anything is built."""
        self._settings(name, args)

    def build(self, name: str, args: Mapping[str, Any], **given: Any) -> T:
        """The part called `name`."""
        settings = self._settings(name, args)
        parameters, takes_any = _signature(self[name])
        passed = {k: v for k, v in given.items() if takes_any or k in parameters}
        return self[name](**passed, **settings)

    def _settings(self, name: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """The part's own settings as its annotations have them."""
        named, key = f"{self.kind}={name}", self._args_key
        parameters, takes_any = _signature(self[name])
        own = {name: p for name, p in parameters.items() if name not in self._given}
        for setting in args:
            if setting in self._given:
                raise OmgError(
                    f"{key}.{setting} is set by omg itself. Call your setting otherwise."
                )
            if not (takes_any or setting in own):
                takes = f"It takes: {', '.join(own)}." if own else "It takes none."
                hint = nearest(setting, own) or "."
                raise OmgError(f"{named} does not take {key}.{setting}{hint} {takes}")
        missing = [name for name, p in own.items() if p.default is p.empty and name not in args]
        if missing and not key:
            raise OmgError(
                f"{named} asks for {', '.join(missing)}, which omg does not give. It gives: "
                f"{', '.join(self._given)}. Give the others a default in its __init__."
            )
        if missing:
            raise OmgError(
                f"{named} needs {key}.{f', {key}.'.join(missing)}. Give a value, or a default in "
                "its __init__."
            )
        return _typed(self[name], args, named, key)


def _signature(kind: Callable[..., Any]) -> tuple[dict[str, inspect.Parameter], bool]:
    """What a class can be given by name, and whether it takes anything."""
    parameters = inspect.signature(kind).parameters
    named = {
        name: p
        for name, p in parameters.items()
        if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)
    }
    return named, any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _typed(
    kind: Callable[..., Any], args: Mapping[str, Any], named: str, args_key: str
) -> dict[str, Any]:
    """The settings as the annotations of `kind` have them."""
    try:
        hints = typing.get_type_hints(getattr(kind, "__init__", kind))
    except Exception:  # names that exist for type checkers only
        hints = {}
    typed = {}
    for name, value in args.items():
        try:
            typed[name] = TypeAdapter(hints.get(name, Any)).validate_python(value)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            wanted = expected(problem["type"], str(problem["msg"]))
            raise OmgError(
                f"{args_key}.{name}={value!r} is not possible for {named}. Expected: {wanted}."
            ) from error
        except PydanticUserError:  # a type that only the part itself understands
            typed[name] = value
    return typed
