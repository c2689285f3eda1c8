"""Finding foreign environments: packages, what is in them, and what to say when they are not."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import pkgutil
import re
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from omg.registry import EXTRAS, check_trusted, nearest
from omg.types import OmgError

# Packages of environments we know of, and the extra of the distribution that brings them.
PACKAGES = {package: EXTRAS[package] for package in ("mpe2", "lbforaging", "rware")}
# These run no code of whoever sent a run that names them.
KNOWN = (*PACKAGES, "gymnasium", "pettingzoo")
_VERSIONED = re.compile(r"_v\d+$")
_SHOWN = 8


def import_foreign(module: str) -> ModuleType:
    """Import a module of somebody else's; a package that is missing is named with its extra."""
    if module.partition(".")[0] not in KNOWN:
        check_trusted(module)
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        package = missing.partition(".")[0]
        if missing != package and module.startswith(missing):
            known = submodules(missing.rpartition(".")[0])
            raise OmgError(
                f"There is no module '{missing}'{_near(missing.rpartition('.')[2], known)}"
            ) from error
        extra = EXTRAS.get(package)
        install = f"pip install 'omg-marl[{extra}]'" if extra else f"pip install {package}"
        own = "" if extra else "; a module of your own is found from the folder it lies in"
        raise OmgError(
            f"'{module}' needs the package '{package}', which is not installed. Install it: "
            f"{install}{own if module.startswith(package) else ''}."
        ) from error
    except Exception as error:
        raise OmgError(
            f"'{module}' cannot be imported: {type(error).__name__}: {error} Correct what it "
            "names; --debug shows where it failed."
        ) from error


def submodules(package: str) -> list[str]:
    """Public modules of an importable package, without importing them."""
    path = getattr(importlib.import_module(package), "__path__", None) if package else None
    found = [] if path is None else pkgutil.iter_modules(path)
    return sorted(module.name for module in found if not module.name.startswith("_"))


def parallel_environments(package: str) -> list[str]:
    """Keys `package:module` of the PettingZoo environments of an installed package. They are
    known by their names, which end in a version: importing all of them may need more packages."""
    import_foreign(package)
    return [f"{package}:{name}" for name in submodules(package) if _VERSIONED.search(name)]


def gymnasium_environments(package: str) -> list[str]:
    """Keys `package:id` of the environments an installed package registers with Gymnasium."""
    gymnasium = import_foreign("gymnasium")
    import_foreign(package)
    return [
        f"{package}:{name}"
        for name, spec in gymnasium.registry.items()
        if origin(spec).partition(".")[0] == package
    ]


def environments_of(package: str) -> list[str]:
    """Keys of all environments of an installed package, for either adapter."""
    return parallel_environments(package) or gymnasium_environments(package)


def origin(spec: Any) -> str:
    """The module a registered Gymnasium environment comes from."""
    entry = spec.entry_point
    return entry.partition(":")[0] if isinstance(entry, str) else str(entry.__module__)


def parallel_maker(key: str) -> Callable[..., Any]:
    """What makes the PettingZoo environment `package:module` (its `parallel_env`), or
    `module:Class`."""
    package, _, name = key.partition(":")
    if not package or not name:
        raise OmgError(
            f"env_args.key={key} is incomplete. Write package:module, e.g. mpe2:simple_spread_v3, "
            "or package.module:Class for a class of your own."
        )
    module = import_foreign(package)
    if hasattr(module, "__path__") and _exists(f"{package}.{name}"):
        return _parallel_env(import_foreign(f"{package}.{name}"))
    own = vars(module).get(name)
    if isinstance(own, ModuleType):
        return _parallel_env(own)
    if (game := _game(own, key)) is not None:
        return game
    known = [name.partition(":")[2] for name in parallel_environments(package)]
    known = known or submodules(package) or _classes(module)
    if key in gymnasium_environments(package):
        raise OmgError(f"{key} is a Gymnasium game. Use --env-config=gymnasium.")
    raise OmgError(f"{package} has no environment '{name}'{_near(name, known)}")


def _game(found: Any, key: str) -> Callable[..., Any] | None:
    """A class of games; None where there is nothing that could be called. Anything else is
    refused before it is."""
    if isinstance(found, type) and hasattr(found, "reset") and hasattr(found, "step"):
        return found
    if callable(found):
        raise OmgError(f"env_args.key={key} is no class of games. Name one with reset and step.")
    return None


def _exists(module: str) -> bool:
    """Whether a module can be found; its parents may be missing or refuse to be imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _parallel_env(module: ModuleType) -> Callable[..., Any]:
    maker = getattr(module, "parallel_env", None)
    if callable(maker):
        return maker  # type: ignore[no-any-return]
    if hasattr(module, "env"):
        raise OmgError(
            f"{module.__name__} has no parallel_env: its agents move in turns. Choose an "
            "environment in which all act at once."
        )
    raise OmgError(
        f"{module.__name__} has no parallel_env. Name a module that has PettingZoo's parallel API."
    )


def registered(key: str) -> tuple[Any, Callable[..., Any] | None]:
    """The specification Gymnasium has of `package:id` or `id`; or None and the class that
    `module:Class` names."""
    gymnasium = import_foreign("gymnasium")
    package, colon, name = key.rpartition(":")
    module = import_foreign(package) if colon else None
    if name in gymnasium.registry:
        return gymnasium.registry[name], None
    if module is not None and (game := _game(vars(module).get(name), key)) is not None:
        return None, game
    if name.startswith("pz-"):
        raise OmgError(
            f"env_args.key={key} names a PettingZoo environment in EPyMARL's way. Use "
            "--env-config=pettingzoo with env_args.key=package:module, e.g. mpe2:simple_spread_v3."
        )
    if package and key in parallel_environments(package):
        raise OmgError(f"{key} is a PettingZoo game. Use --env-config=pettingzoo.")
    known = [
        name
        for name, spec in gymnasium.registry.items()
        if not package or origin(spec).partition(".")[0] == package.partition(".")[0]
    ]
    more = "" if colon else " Name the package that registers it: package:id."
    raise OmgError(
        f"{package or 'Gymnasium'} has no environment '{name}'"
        f"{_near(name, known or _classes(module))}{more}"
    )


def _classes(module: ModuleType | None) -> list[str]:
    own = vars(module).items() if module is not None else ()
    return [
        name
        for name, value in own
        if isinstance(value, type) and module and value.__module__ == module.__name__
    ]


def _near(name: str, known: Sequence[str]) -> str:
    """The end of a sentence about an unknown name, and the names that are nearest to it."""
    if not known:
        return ". Check the spelling."
    close = difflib.get_close_matches(name, known, n=_SHOWN)
    some = close or list(known[:_SHOWN])
    more = f" ({len(known)} in all)" if len(known) > len(some) else ""
    return f"{nearest(name, known) or '.'} There are: {', '.join(some)}{more}."
