"""A pretended installation: the stand-ins on the path, and a folder that looks like the game's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from omg.config.loader import CONFIG_DIR
from omg.envs.sc2.args import MAPS

STANDINS = Path(__file__).parents[1] / "standins"
PACKAGES = ("smac", "smacv2", "pysc2")


def forget_packages() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in PACKAGES]:
        del sys.modules[name]


def make_game_folder(folder: Path) -> Path:
    """As the game's: a build, and every map."""
    (folder / "Versions" / "Base75689").mkdir(parents=True)
    (folder / "Maps" / "SMAC_Maps").mkdir(parents=True)
    for name in (*MAPS, "32x32_flat"):
        (folder / "Maps" / "SMAC_Maps" / f"{name}.SC2Map").touch()
    return folder


@pytest.fixture
def standin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The stand-ins can be imported and the game is found; gives the module that breaks things."""
    forget_packages()
    monkeypatch.syspath_prepend(STANDINS)
    monkeypatch.setenv("SC2PATH", str(make_game_folder(tmp_path / "StarCraftII")))
    import smac.standin as module

    module.calm()
    yield module
    left, module.alive = set(module.alive), set()
    for process in left:
        process.ended.set()
    forget_packages()
    assert not left, "games were left running"


def shipped(name: str) -> dict[str, Any]:
    """A file of config/envs."""
    content: dict[str, Any] = yaml.safe_load((CONFIG_DIR / "envs" / f"{name}.yaml").read_text())
    return content
