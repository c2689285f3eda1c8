"""What StarCraft II needs and what of it is there: packages, the game, its maps."""

from __future__ import annotations

import importlib
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from omg.envs.sc2.args import MAPS
from omg.registry import nearest
from omg.types import OmgError

PAGE = "docs/environments/starcraft2.md"
ALTERNATIVE = (
    "Without the game, --env-config=battle plays SMAC's maps with its interface; "
    "--env-config=foraging and --env-config=predator_prey run at once, too."
)
# Where the game is looked for without SC2PATH.
DEFAULT_FOLDERS = {
    "Linux": "~/StarCraftII",
    "Darwin": "/Applications/StarCraft II",
    "Windows": "C:/Program Files (x86)/StarCraft II",
}
# Builds that results are usually reported with.
KNOWN_BUILDS = {69232: "4.6.2", 75689: "4.10"}


@dataclass(frozen=True, slots=True)
class Package:
    """A package that drives the game; none is on a package index."""

    module: str
    distribution: str
    repository: str


SMAC = Package("smac", "SMAC", "oxwhirl/smac")
SMACV2 = Package("smacv2", "SMACv2", "oxwhirl/smacv2")


@dataclass(frozen=True, slots=True)
class Finding:
    """One line for `omg doctor`; `advice` says what to do where something is missing."""

    what: str
    found: bool
    detail: str
    advice: str = ""


def import_package(package: Package) -> ModuleType:
    """The package's module `env`, which holds its environment classes."""
    name = package.module
    try:
        module = importlib.import_module(f"{name}.env")
    except ModuleNotFoundError as error:
        missing = (error.name or name).split(".")[0]
        if missing == name:
            raise OmgError(
                f"StarCraft II needs the package '{name}', which is not installed. Install it from "
                f"its source repository ({package.repository}), the game itself, and point SC2PATH "
                f"to the game's folder: {PAGE}. {ALTERNATIVE}"
            ) from error
        raise OmgError(
            f"The package '{name}' is installed but needs the package '{missing}'. Install it: "
            f"pip install {missing}"
        ) from error
    except Exception as error:
        raise OmgError(
            f"The package '{name}' is installed but cannot be imported: {type(error).__name__}: "
            f"{error}. Its own requirements (pysc2, protobuf) do not fit each other; install it "
            f"anew as its repository ({package.repository}) says."
        ) from error
    _parse_flags()
    return module


def _parse_flags() -> None:
    """pysc2 reads absl's command-line flags, which have to be parsed once; ours are not theirs."""
    flags: Any = sys.modules.get("absl.flags")
    if flags is not None and not flags.FLAGS.is_parsed():
        flags.FLAGS(["omg"])


def game_folder() -> Path:
    """Where the game should lie: SC2PATH, or the system's usual place."""
    named = os.environ.get("SC2PATH") or DEFAULT_FOLDERS.get(platform.system(), "~/StarCraftII")
    return Path(named).expanduser()


def installed_builds(folder: Path) -> list[int]:
    """Builds of the game in a folder (Versions/Base<build>), ascending."""
    names = [path.name.removeprefix("Base") for path in folder.glob("Versions/Base*")]
    return sorted(int(name) for name in names if name.isdecimal())


def installed_maps(folder: Path) -> list[str]:
    """Names of the map files in the game's folder, at any depth."""
    return sorted({path.stem for path in folder.glob("Maps/**/*.SC2Map")})


def check_game() -> Path:
    """The game's folder; an error where no game lies there."""
    folder = game_folder()
    if not installed_builds(folder):
        told = "SC2PATH points to" if os.environ.get("SC2PATH") else "SC2PATH is not set, and"
        there = "holds no game" if folder.is_dir() else "does not exist"
        raise OmgError(
            f"StarCraft II was not found: {told} {folder}, which {there} (no Versions/Base<build> "
            f"in it). Install the game (4.6.2 or 4.10, {PAGE}) and set SC2PATH to its folder. "
            f"{ALTERNATIVE}"
        )
    return folder


def known_maps(package: Package) -> dict[str, Mapping[str, Any]]:
    """The maps the installed package knows, with what it says of them."""
    module = importlib.import_module(f"{package.module}.env.starcraft2.maps.smac_maps")
    return dict(module.get_smac_map_registry())


def check_map(package: Package, name: Any) -> str:
    """The name of a map's file; a map that the package does not know is refused."""
    known = known_maps(package)
    if name not in known:
        raise OmgError(
            f"There is no map '{name}'{nearest(str(name), known) or '.'} "
            f"Choose one of: {', '.join(known)}."
        )
    return str(known[name].get("map_name", name))


def check_map_file(package: Package, file: str, folder: Path) -> None:
    """Refuse a map that does not lie in the game's folder."""
    if file.lower() not in (found.lower() for found in installed_maps(folder)):
        raise OmgError(
            f"A map is not installed: {file}.SC2Map lies nowhere in {folder / 'Maps'}. Copy "
            f"the folder SMAC_Maps of {package.repository} there: {PAGE}."
        )


def package_version(distribution: str) -> str:
    """Of an installed distribution; empty where there is none."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def installed_versions(package: Package, args: Mapping[str, Any]) -> dict[str, str]:
    """What to write beside results: the game's version (the one asked for, else the newest build,
    which is the one that is started) and the packages'."""
    builds = installed_builds(game_folder())
    asked = args.get("game_version")
    game = str(asked) if asked else _named_build(builds[-1]) if builds else "not found"
    return {
        "StarCraft II": game,
        package.module: package_version(package.distribution) or "unknown",
        "pysc2": package_version("pysc2") or "unknown",
    }


def _named_build(build: int) -> str:
    return f"{KNOWN_BUILDS[build]}.{build}" if build in KNOWN_BUILDS else f"build {build}"


def describe_installation() -> list[Finding]:
    """For `omg doctor`: what of StarCraft II is there, and what to do about the rest. Imports
    nothing and starts nothing."""
    folder = game_folder()
    builds, maps = installed_builds(folder), installed_maps(folder)
    origin = "SC2PATH" if os.environ.get("SC2PATH") else "SC2PATH is not set; the usual place"
    lacking = [name for name in MAPS if name not in maps]
    return [
        *(_package_finding(package) for package in (SMAC, SMACV2)),
        Finding(
            "StarCraft II",
            bool(builds),
            f"{', '.join(map(_named_build, builds)) or 'no game'} in {folder} ({origin})",
            "" if builds else f"install the game and set SC2PATH to its folder: {PAGE}",
        ),
        Finding(
            "SMAC maps",
            bool(maps) and not lacking,
            f"{len(MAPS) - len(lacking)} of {len(MAPS)}"
            + (f" (without {', '.join(lacking)})" if maps and lacking else ""),
            f"copy the folder SMAC_Maps of {SMAC.repository} into {folder / 'Maps'}"
            if lacking
            else "",
        ),
    ]


def _package_finding(package: Package) -> Finding:
    found = find_spec(package.module) is not None
    shown = package_version(package.distribution) or "version unknown"
    advice = f"install it from its source repository, {package.repository}: {PAGE}"
    return Finding(
        f"package {package.module}",
        found,
        shown if found else "not installed",
        "" if found else advice,
    )
