"""All environments: shipped configurations, registered names, and those of installed packages."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path

from omg.config.loader import CONFIG_DIR, available, read_yaml
from omg.envs.adapters.packages import PACKAGES, environments_of, parallel_environments
from omg.envs.registry import ENVS, environment_class
from omg.envs.sc2.install import package_version
from omg.registry import EXTRAS
from omg.types import OmgError

# What an environment cannot do without; those not named here are our own.
NEEDS = {
    "gymnasium": "gymnasium",
    "pettingzoo": "pettingzoo",
    "sc2": "smac",
    "smax": "jaxmarl",
    "smacv2": "smacv2",
}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what foreign packages warn of when they are imported or made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True, slots=True)
class Entry:
    """One --env-config (empty: none names this environment)."""

    env_config: str
    env: str
    about: str
    package: str  # empty: our own
    installed: bool
    install: str  # what to do if it is not


def entries() -> list[Entry]:
    """Every shipped configuration, and the registered environments without one."""
    found: list[Entry] = []
    for name in available("envs"):
        path = CONFIG_DIR / "envs" / f"{name}.yaml"
        env = str(read_yaml(path, name).get("env"))
        found.append(_entry(name, env, _first_sentence(path) or _docstring(env)))
    named = {entry.env for entry in found}
    return [*found, *(_entry("", env, _docstring(env)) for env in ENVS if env not in named)]


def _entry(name: str, env: str, about: str) -> Entry:
    package = NEEDS.get(env, "")
    installed = not package or find_spec(package) is not None
    install = "" if installed else _install(package)
    return Entry(name, env, about, package, installed, install)


def _install(package: str) -> str:
    if package in EXTRAS:
        return f"pip install 'omg-marl[{EXTRAS[package]}]'"
    if package == "gymnasium":  # what the extras of its games bring
        return "pip install 'omg-marl[lbf]'"
    return "omg doctor says how"


def head_comment(path: Path) -> str:
    """The comment at the head of a file, as one line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return " ".join(
        line.strip("# ") for line in takewhile(lambda line: line.startswith("#"), lines)
    )


def _first_sentence(path: Path) -> str:
    """What the comment at the head of a configuration begins with."""
    text = head_comment(path)
    for end in (". ", ": docs/", "; see ", " (docs/", ", see docs/"):
        text = text.partition(end)[0]
    return text.rstrip(".")


def _docstring(env: str) -> str:
    try:
        return (environment_class(env).__doc__ or "").strip().partition("\n")[0].rstrip(".")
    except OmgError as missing:  # an optional package
        return str(missing)


@dataclass(frozen=True, slots=True)
class Foreign:
    """A package of environments for one of the adapters."""

    package: str
    version: str  # empty: not installed
    env_config: str
    keys: tuple[str, ...]  # for env_args.key
    problem: str  # why there are none


def foreign() -> list[Foreign]:
    """The packages of environments that are known, with all that each installed one offers."""
    return [_foreign(package) for package in PACKAGES]


def _foreign(package: str) -> Foreign:
    if find_spec(package) is None:
        return Foreign(package, "", "", (), f"not installed: {_install(package)}")
    version = package_version(package) or "version unknown"
    try:
        with quiet():
            return Foreign(
                package, version, adapter_of(package), tuple(environments_of(package)), ""
            )
    except Exception as error:  # somebody else's package, in whatever state
        return Foreign(package, version, "", (), f"{type(error).__name__}: {error}")


def adapter_of(package: str) -> str:
    """The --env-config for the games of a package."""
    return "pettingzoo" if parallel_environments(package) else "gymnasium"
