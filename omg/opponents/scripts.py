"""Scripted players by environment: what a module of them offers, and where it is."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from omg.registry import nearest
from omg.types import BoolArray, FloatArray, IntArray, OmgError

# Adding the players of another environment: one line, at the end. Of several that know a name
# (`random`) the first is meant where none is named, so the order is part of old command lines.
_MODULES = {
    "foraging": "omg.opponents.scripted_foraging",
    "predator_prey": "omg.opponents.scripted_predator_prey",
    "stag_hunt": "omg.opponents.scripted_stag_hunt",
    "snowdrift": "omg.opponents.scripted_snowdrift",
    "battle": "omg.opponents.scripted_battle",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a game's scripts of one name do, in words; games add how."""

    about: str
    role: str | None = None  # the role it plays; None: any


K = TypeVar("K", bound=Kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script(Generic[K]):
    """A player of a kind; what it remembers of an episode is zeros at its start."""

    name: str
    kind: K
    noise: float = 0.0  # probability of a uniformly random available action


def make_script(name: str, kinds: Mapping[str, K], *, what: str, noise: float) -> Script[K]:
    """A game's script by name, checked."""
    if name not in kinds:
        raise OmgError(
            f"There is no {what} called '{name}'{nearest(name, kinds) or '.'} "
            f"Choose one of: {', '.join(sorted(kinds))}."
        )
    if not 0.0 <= noise <= 1.0:
        raise OmgError(f"`noise` is {noise}. Choose a probability between 0 and 1.")
    return Script(name=name, kind=kinds[name], noise=noise)


def random_action(avail: BoolArray, draws: NDArray[np.float64]) -> IntArray:
    """A uniformly random available action [R]: the largest of independent draws [R, A] wins."""
    action: IntArray = np.where(avail, draws, -1.0).argmax(axis=1)
    return action


def by_chance(
    actions: IntArray, avail: BoolArray, chances: NDArray[np.float64], rng: np.random.Generator
) -> IntArray:
    """Actions [R], each replaced by a random one with its row's probability. The generator is used
    only where a row has any, as many draws for every row."""
    if not chances.any():
        return actions
    draws = rng.random((avail.shape[0], avail.shape[1] + 1))
    return np.where(draws[:, 0] < chances, random_action(avail, draws[:, 1:]), actions)


class ScriptedGame(Protocol):
    """A module of scripted players. A board is what they have to know of the game. Those of games
    with goals (`EnvSpec.goals`) also have `goals`, called as `headings`: [R] numbers of goals."""

    SCRIPTS: Mapping[str, Kind]
    MEMORY_DIM: int

    def make_script(self, name: str, *, noise: float = 0.0) -> Script[Any]: ...

    def board_of(self, env_args: Mapping[str, Any]) -> Any: ...

    def act_together(
        self,
        scripts: Sequence[Script[Any]],
        members: IntArray,
        state: FloatArray,
        seats: IntArray,
        avail: BoolArray,
        memory: IntArray,
        rng: np.random.Generator,
        board: Any,
    ) -> tuple[IntArray, IntArray]:
        """Actions [R] and the memory for the next step, of rows played by scripts[members[r]]."""

    def headings(
        self,
        scripts: Sequence[Script[Any]],
        members: IntArray,
        state: FloatArray,
        seats: IntArray,
        memory: IntArray,
        board: Any,
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
