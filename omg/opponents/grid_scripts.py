"""What scripted players of the grid games share: each has a goal, a target of the game, and walks
there. Games say which goal their scripts have at every step.

A row is one copy and one seat to act for. R rows, N players, K targets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from omg.envs.goal_grid.env import GridArguments
from omg.envs.goal_grid.games import DIRECTIONS, STAY, state_parts
from omg.opponents import scripts as base
from omg.opponents.scripts import Script
from omg.types import BoolArray, FloatArray, IntArray

NOTHING = -1  # no goal: the player stays where it is
# Columns of the memory: the goal plus one (0: none yet), steps so far, steps spent trying for it,
# targets got.
GOAL, CLOCK, TRIED, GOT = range(4)
MEMORY_DIM = 4
FAR = 1 << 20  # steps of who is not there


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The situation of every row."""

    seats: IntArray  # [R]
    alive: BoolArray  # [R], of the row's own player
    row: IntArray  # [R]
    col: IntArray  # [R]
    there: BoolArray  # [R, K], which targets are left
    target_row: IntArray  # [R, K]
    target_col: IntArray  # [R, K]
    others: IntArray  # [R, N, K], steps from every other living player to the targets; far: else
    clock: IntArray  # [R], steps so far
    goal: IntArray  # [R], the goal so far, -1 at the start
    tried: IntArray  # [R], steps spent trying for it
    got: IntArray  # [R], targets that the player got

    @classmethod
    def read(
        cls, state: FloatArray, seats: IntArray, memory: IntArray, board: GridArguments
    ) -> Scene:
        """From states [R, S], as the game describes them."""
        size = board.grid
        if state.ndim != 2 or state.shape[1] != 3 * size.n_things:
            raise ValueError(
                f"States of {size.n_things} things must be [R, {3 * size.n_things}], not "
                f"{state.shape}."
            )
        targets, players, _ = (
            part.astype(np.int64) for part in state_parts(np.ascontiguousarray(state), size)
        )
        own = players[np.arange(len(state)), seats]
        rows = np.abs(players[:, :, None, 0] - targets[:, None, :, 0])
        steps = rows + np.abs(players[:, :, None, 1] - targets[:, None, :, 1])
        other = (np.arange(size.n_players) != seats[:, None]) & (players[..., 2] > 0)
        return cls(
            seats=seats,
            alive=own[:, 2] > 0,
            row=own[:, 0],
            col=own[:, 1],
            there=targets[..., 2] > 0,
            target_row=targets[..., 0],
            target_col=targets[..., 1],
            others=np.where(other[:, :, None], steps, FAR),
            clock=memory[:, CLOCK],
            goal=memory[:, GOAL] - 1,
            tried=memory[:, TRIED],
            got=memory[:, GOT],
        )

    @property
    def steps(self) -> IntArray:
        """Steps from the own player to each target, as if nothing were in the way, [R, K]."""
        rows = np.abs(self.target_row - self.row[:, None])
        steps: IntArray = rows + np.abs(self.target_col - self.col[:, None])
        return steps

    @property
    def nearest_other(self) -> IntArray:
        """Steps from the nearest other living player to each target, [R, K]."""
        nearest: IntArray = self.others.min(axis=1)
        return nearest

    def least(self, numbers: IntArray, among: BoolArray | None = None) -> IntArray:
        """The target that is left (and `among` some, [R, K]) with the smallest number, ties to the
        nearest, then to the first, [R]; NOTHING where there is none."""
        wanted = self.there if among is None else self.there & among
        ranked = np.where(wanted, numbers * 1000 + self.steps, FAR << 30)
        best: IntArray = ranked.argmin(axis=1)
        return np.where(wanted.any(axis=1), best, NOTHING)

    def keeps(self) -> BoolArray:
        """Whether the goal so far is still there, [R]."""
        kept: BoolArray = self.there[np.arange(len(self.goal)), np.maximum(self.goal, 0)]
        return kept & (self.goal >= 0)

    def committed(self, first: IntArray) -> IntArray:
        """The goal so far as long as it is there, else `first` [R]."""
        return np.where(self.keeps(), self.goal, first)

    def on(self, goal: IntArray) -> BoolArray:
        """Whether the player stands on its goal, [R]."""
        at = np.arange(len(goal)), np.maximum(goal, 0)
        here = (self.target_row[at] == self.row) & (self.target_col[at] == self.col)
        standing: BoolArray = here & (goal >= 0) & self.there[at]
        return standing


# The goal of every row now, [R], NOTHING for none; `board` are the game's arguments.
Aim = Callable[[Scene, Any], IntArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(base.Kind):
    """How a script chooses its goal; None: it acts at random."""

    aim: Aim | None


class GridScripts:
    """The scripted players of one grid game, as `ScriptedGame` wants them."""

    memory_dim: ClassVar[int] = MEMORY_DIM

    def __init__(
        self,
        kinds: Mapping[str, Kind],
        *,
        what: str,
        arguments: type[GridArguments],
        action_for: Callable[[IntArray, Any], IntArray],
    ) -> None:
        """`action_for(goal [R], board)`: the action that gets a goal on whose cell one stands."""
        self.kinds, self._what = dict(kinds), what
        self._arguments, self._action_for = arguments, action_for

    def make_script(self, name: str, *, noise: float = 0.0) -> Script[Kind]:
        """A script by its name."""
        return base.make_script(name, self.kinds, what=self._what, noise=noise)

    def board_of(self, env_args: Mapping[str, Any]) -> GridArguments:
        """What players have to know of the game, from a run's env_args."""
        return self._arguments.parse(env_args)

    def act_together(
        self,
        scripts: Sequence[Script[Kind]],
        members: IntArray,
        state: FloatArray,
        seats: IntArray,
        avail: BoolArray,
        memory: IntArray,
        rng: np.random.Generator,
        board: GridArguments,
    ) -> tuple[IntArray, IntArray]:
        """Actions [R] and the memory for the next step, of rows played by scripts[members[r]]. The
        generator is used only with `noise` or by `random`."""
        scene = Scene.read(state, seats, memory, board)
        goal = self._aims(scripts, members, scene, board)
        there, get = scene.on(goal), self._action_for(goal, board)
        actions = np.where(there, get, _walk(scene, goal, avail))
        chances = np.array([_chance(script) for script in scripts])[members]
        actions = base.by_chance(actions, avail, chances, rng)
        trying = there & (actions == get)
        same = goal + 1 == memory[:, GOAL]
        after = np.empty_like(memory)
        after[:, GOAL], after[:, CLOCK] = goal + 1, memory[:, CLOCK] + 1
        after[:, TRIED] = np.where(same, memory[:, TRIED], 0) + trying
        after[:, GOT] = memory[:, GOT] + trying  # true of targets that take one player
        return np.where(scene.alive, actions, STAY), after

    def goals(
        self,
        scripts: Sequence[Script[Kind]],
        members: IntArray,
        state: FloatArray,
        seats: IntArray,
        memory: IntArray,
        board: GridArguments,
    ) -> IntArray:
        """The goal of each row, [R], a number of EnvSpec.goals; -1 for none."""
        scene = Scene.read(state, seats, memory, board)
        return np.where(scene.alive, self._aims(scripts, members, scene, board), NOTHING)

    def headings(
        self,
        scripts: Sequence[Script[Kind]],
        members: IntArray,
        state: FloatArray,
        seats: IntArray,
        memory: IntArray,
        board: GridArguments,
    ) -> FloatArray:
        """The place of each row's goal (row, column, 1), [R, 3]; its own features without one."""
        goal = self.goals(scripts, members, state, seats, memory, board)
        targets, players, _ = state_parts(np.ascontiguousarray(state), board.grid)
        rows = np.arange(len(goal))
        own, there = players[rows, seats], targets[rows, np.maximum(goal, 0)]
        return np.where((goal >= 0)[:, None], there, own)

    def _aims(
        self, scripts: Sequence[Script[Kind]], members: IntArray, scene: Scene, board: GridArguments
    ) -> IntArray:
        goal = np.full(len(members), NOTHING)
        for number in np.unique(members).tolist():
            aim = scripts[number].kind.aim
            if aim is not None:
                goal = np.where(members == number, aim(scene, board), goal)
        return goal


def _chance(script: Script[Kind]) -> float:
    """Of a random action."""
    return 1.0 if script.kind.aim is None else script.noise


def _walk(scene: Scene, goal: IntArray, avail: BoolArray) -> IntArray:
    """One step towards the goal [R], the longer way first, round obstacles (which never touch each
    other, so that one step aside is enough); no step without a goal."""
    at = np.arange(len(goal)), np.maximum(goal, 0)
    down, right = scene.target_row[at] - scene.row, scene.target_col[at] - scene.col
    cost = np.empty((len(goal), len(DIRECTIONS)), np.int64)
    vertical = np.abs(down) > np.abs(right)
    # Where both ways are equally long, seats differ.
    vertical |= (np.abs(down) == np.abs(right)) & (scene.seats % 2 == 0)
    for side, (south, east) in enumerate(DIRECTIONS):
        along = down * south + right * east
        towards = np.where(vertical == bool(south), 0, 1)
        aside = np.where((down if south else right) == 0, 2, 3)
        cost[:, side] = np.where(along > 0, towards, aside)
    cost = np.where(avail[:, 1 : 1 + len(DIRECTIONS)], cost, 9)
    moving = (goal >= 0) & (cost.min(axis=1) < 9)
    return np.where(moving, 1 + cost.argmin(axis=1), STAY)
