"""Scripted players by environment: what a module of them offers, and where it is."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np

from omg.registry import nearest
from omg.types import BoolArray, FloatArray, IntArray, OmgError

# Adding the players of another environment: one line.
_MODULES = {
    "foraging": "omg.opponents.scripted_foraging",
    "predator_prey": "omg.opponents.scripted_predator_prey",
}


class Script(Protocol):
    """A player; what it remembers of an episode is zeros at its start, [R, memory_dim]."""

    @property
    def memory_dim(self) -> int: ...

    @property
    def role(self) -> str | None:
        """The role it plays; None: any."""


class ScriptedGame(Protocol):
    """A module of scripted players. `board` is what they have to know of the game's sizes."""

    SCRIPTS: Mapping[str, Any]

    def make_script(self, name: str, *, noise: float = 0.0) -> Script: ...

    def board_of(self, env_args: Mapping[str, Any]) -> dict[str, int]: ...

    def act_together(
        self,
        scripts: Sequence[Any],
        members: IntArray,
        state: FloatArray,
        seats: IntArray,
        avail: BoolArray,
        memory: IntArray,
        rng: np.random.Generator,
        **board: int,
    ) -> tuple[IntArray, IntArray]:
        """Actions [R] and the memory for the next step, of rows played by scripts[members[r]]."""

    def headings(
        self,
        scripts: Sequence[Any],
        members: IntArray,
        state: FloatArray,
        seats: IntArray,
        memory: IntArray,
        **board: int,
    ) -> FloatArray:
        """Where each row is heading to, as features of an agent [R, W]; its own if nowhere."""


def scripted_envs() -> tuple[str, ...]:
    """The environments that have scripted players."""
    return tuple(_MODULES)


def scripted_game(env: str) -> ScriptedGame:
    """The scripted players of an environment."""
    if env not in _MODULES:
        raise OmgError(
            f"env={env} has no scripted players; {' and '.join(_MODULES)} have. Use trained "
            "opponents."
        )
    return cast(ScriptedGame, importlib.import_module(_MODULES[env]))


def env_of_script(name: str) -> str:
    """The environment that knows a script of this name; the first of them, if several do."""
    for env in _MODULES:
        if name in scripted_game(env).SCRIPTS:
            return env
    known = [script for env in _MODULES for script in scripted_game(env).SCRIPTS]
    hint = nearest(name, known)
    each = "; ".join(f"{env}: {', '.join(sorted(scripted_game(env).SCRIPTS))}" for env in _MODULES)
    raise OmgError(f"There is no scripted player called '{name}'{hint or '.'} There are {each}.")
