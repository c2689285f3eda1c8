"""Scripted players of the foraging game, for opponent pools: each commits to a kind of target.

A committing player chooses a food at the episode's start, and again when that food is gone; it
walks there and loads, waiting for help where it is too weak. Foods that all players together
could not lift are chosen last. Ties go to the nearest food, then to the first row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from omg.envs.foraging.args import ForagingArgs
from omg.opponents.foraging_walk import (
    CLOCK,
    MEMORY_DIM,
    STOOD,
    TARGET,
    WAITED,
    WANTED,
    Field,
    walk,
)
from omg.registry import nearest
from omg.types import BoolArray, FloatArray, IntArray, OmgError

# The food with the smallest number is chosen, [R, F].
Preference = Callable[[Field], IntArray]

# How much longer each seat waits than the one before: two who give up at once would swap.
_SEAT_PATIENCE = 4
_HOPELESS = 1 << 50
_MISSING = 1 << 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Which food a scripted player goes for; None: it acts at random."""

    about: str
    prefers: Preference | None
    commits: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A scripted player for many rows at once; all it remembers is in `memory` [R, memory_dim].

    Rows of `memory` must be zero when an episode starts. With `patience`, a player that waits in
    vain beside its food while another waits beside a different one goes there after that many
    steps (lower seats first), so that committed players can finish a game among themselves.
    """

    memory_dim: ClassVar[int] = MEMORY_DIM

    name: str
    kind: Kind
    noise: float = 0.0  # probability of a uniformly random available action
    patience: int | None = None  # None: never gives a target up

    @property
    def role(self) -> None:
        """All foragers are alike."""

    def initial_memory(self, n_rows: int) -> IntArray:
        """The memory at an episode's start, [R, M]."""
        return np.zeros((n_rows, self.memory_dim), np.int64)

    def act(
        self,
        state: FloatArray,
        seats: IntArray,
        avail: BoolArray,
        memory: IntArray,
        rng: np.random.Generator,
        *,
        rows: int,
        cols: int,
        n_foods: int,
    ) -> tuple[IntArray, IntArray]:
        """Actions [R] and the memory for the next step.

        The generator is used only with `noise` or by `random`, as many draws for every row.
        """
        field = Field.read(state, seats, rows=rows, cols=cols, n_foods=n_foods)
        if self.kind.prefers is None:
            draws = rng.random(avail.shape)
            return _random_action(avail, draws), np.zeros_like(memory)
        after = np.zeros_like(memory)
        target, after[:, WAITED] = self._aim(self.kind.prefers, field, memory)
        actions, wanted = walk(field, target, avail, memory)
        possible = avail[np.arange(len(actions)), actions]
        actions = np.where(possible, actions, avail.argmax(axis=1))
        after[:, TARGET] = target
        after[:, STOOD] = field.cell
        after[:, WANTED] = np.where(possible, wanted, 0)
        after[:, CLOCK] = memory[:, CLOCK] + 1
        if self.noise > 0:
            draws = rng.random((avail.shape[0], avail.shape[1] + 1))
            noisy = draws[:, 0] < self.noise
            actions = np.where(noisy, _random_action(avail, draws[:, 1:]), actions)
            # What chance did says nothing about the way ahead.
            after[:, [STOOD, WANTED]] *= ~noisy[:, None]
        return actions, after

    def target(
        self,
        state: FloatArray,
        seats: IntArray,
        memory: IntArray,
        *,
        rows: int,
        cols: int,
        n_foods: int,
    ) -> IntArray:
        """The cell (row, col) that `act` goes for with this state and memory, -1 for none, [R, 2].

        Pass the memory that `act` is given, not the one it returns (without `patience` both do).
        """
        if self.kind.prefers is None:
            return np.full((len(state), 2), -1)
        field = Field.read(state, seats, rows=rows, cols=cols, n_foods=n_foods)
        cell = self._aim(self.kind.prefers, field, memory)[0]
        return np.where(cell[:, None] > 0, np.stack(np.divmod(cell - 1, cols), axis=1), -1)

    def _aim(
        self, prefers: Preference, field: Field, memory: IntArray
    ) -> tuple[IntArray, IntArray]:
        """The target's cell [R] (plus one, 0 for none), and how long it was waited for in vain."""
        foods = field.food_cell
        best = _least(field, prefers(field) * (field.rows + field.cols) + field.distance)
        waited = np.zeros(len(foods), np.int64)
        if not self.kind.commits:
            return best, waited
        remembered = memory[:, TARGET]
        there = (foods == remembered[:, None]) & (remembered > 0)[:, None]
        target = np.where(there.any(axis=1), remembered, best)
        if self.patience is None:
            return target, waited
        elsewhere = _waiting_elsewhere(field, target)
        vain = elsewhere.any(axis=1)
        waited = np.where(vain, memory[:, WAITED] + 1, 0)
        gives_up = vain & (waited > self.patience + _SEAT_PATIENCE * field.seats)
        helping = _least(field, np.where(elsewhere, field.distance, _HOPELESS))
        return np.where(gives_up, helping, target), np.where(gives_up, 0, waited)


def _least(field: Field, numbers: IntArray) -> IntArray:
    """The cell [R] (plus one) of the food with the smallest number, what can be lifted first."""
    together = field.player_level.sum(axis=1, keepdims=True)
    numbers = numbers + np.where(field.food_level > together, _HOPELESS, 0)
    numbers = np.where(field.food_level > 0, numbers, _MISSING)
    slot = numbers.argmin(axis=1)
    cell: IntArray = field.food_cell[np.arange(len(slot)), slot]
    return cell


def _waiting_elsewhere(field: Field, target: IntArray) -> BoolArray:
    """Foods [R, F] that others stand beside, where the own target waits for more help."""
    beside = field.beside
    mine = (field.food_cell == target[:, None]) & (target > 0)[:, None]
    strength = (beside * field.player_level[:, :, None]).sum(axis=1)
    own_side = field.distance == 1
    in_vain = (mine & own_side & (strength < field.food_level)).any(axis=1)
    together = field.player_level.sum(axis=1, keepdims=True)
    others_there = (beside & field.others[:, :, None]).any(axis=1)
    waiting: BoolArray = others_there & ~mine & (field.food_level <= together) & in_vain[:, None]
    return waiting


def _random_action(avail: BoolArray, draws: NDArray[np.float64]) -> IntArray:
    """A uniformly random available action: the largest of independent draws wins."""
    action: IntArray = np.where(avail, draws, -1.0).argmax(axis=1)
    return action


def _to_others(field: Field) -> IntArray:
    """Steps from each food to the nearest other player; alike for all foods if there is none."""
    far = field.rows + field.cols
    nearest_other: IntArray = np.where(field.others[:, :, None], field.player_distance, far).min(1)
    return nearest_other


def _to_corner(*, bottom: bool, right: bool) -> Preference:
    def prefers(field: Field) -> IntArray:
        rows = field.rows - 1 - field.food_row if bottom else field.food_row
        return rows + (field.cols - 1 - field.food_col if right else field.food_col)

    return prefers


def _to_centre(field: Field) -> IntArray:
    rows = np.abs(2 * field.food_row - (field.rows - 1))
    return rows + np.abs(2 * field.food_col - (field.cols - 1))


SCRIPTS: dict[str, Kind] = {
    "nearest_food": Kind(
        about="the food nearest to itself",
        prefers=lambda field: field.distance,
    ),
    "farthest_food": Kind(
        about="the food farthest from itself",
        prefers=lambda field: -field.distance,
    ),
    "highest_level": Kind(
        about="the heaviest food",
        prefers=lambda field: -field.food_level,
    ),
    "lowest_level": Kind(
        about="the lightest food",
        prefers=lambda field: field.food_level,
    ),
    "nearest_loadable": Kind(
        about="the nearest food that it can lift alone, else the nearest",
        prefers=lambda field: (field.food_level > field.level[:, None]).astype(np.int64),
    ),
    "nearest_heavy": Kind(
        about="the nearest food that needs help, else the nearest",
        prefers=lambda field: (field.food_level <= field.level[:, None]).astype(np.int64),
    ),
    "near_others": Kind(
        about="the food nearest to another player",
        prefers=_to_others,
    ),
    "far_from_others": Kind(
        about="the food farthest from the other players",
        prefers=lambda field: -_to_others(field),
    ),
    "meeting_point": Kind(
        about="the food with the shortest way for all players together",
        prefers=lambda field: field.player_distance.sum(axis=1),
    ),
    "centre": Kind(about="the food nearest to the centre", prefers=_to_centre),
    "top_left": Kind(
        about="the food nearest to the upper left corner",
        prefers=_to_corner(bottom=False, right=False),
    ),
    "top_right": Kind(
        about="the food nearest to the upper right corner",
        prefers=_to_corner(bottom=False, right=True),
    ),
    "bottom_left": Kind(
        about="the food nearest to the lower left corner",
        prefers=_to_corner(bottom=True, right=False),
    ),
    "bottom_right": Kind(
        about="the food nearest to the lower right corner",
        prefers=_to_corner(bottom=True, right=True),
    ),
    "follow": Kind(
        about="at every step anew, the food nearest to another player",
        prefers=_to_others,
        commits=False,
    ),
    "random": Kind(about="no food: any available action", prefers=None, commits=False),
}
COMMITTED: tuple[str, ...] = tuple(name for name, kind in SCRIPTS.items() if kind.commits)


def act_together(
    scripts: Sequence[Script],
    members: IntArray,
    state: FloatArray,
    seats: IntArray,
    avail: BoolArray,
    memory: IntArray,
    rng: np.random.Generator,
    *,
    rows: int,
    cols: int,
    n_foods: int,
) -> tuple[IntArray, IntArray]:
    """`Script.act` of many rows, each played by scripts[members[row]]: kinds that differ only in
    what they prefer walk in one call."""
    alike: dict[tuple[bool, bool, float, int | None], list[int]] = {}
    for number in np.unique(members).tolist():
        kind, script = scripts[number].kind, scripts[number]
        key = (kind.prefers is None, kind.commits, script.noise, script.patience)
        alike.setdefault(key, []).append(number)
    actions = np.zeros(len(members), np.int64)
    after = np.zeros_like(memory)
    for numbers in alike.values():
        chosen = np.isin(members, numbers).nonzero()[0]
        one = _joined([scripts[number] for number in numbers], numbers, members[chosen])
        actions[chosen], after[chosen] = one.act(
            state[chosen],
            seats[chosen],
            avail[chosen],
            memory[chosen],
            rng,
            rows=rows,
            cols=cols,
            n_foods=n_foods,
        )
    return actions, after


def _joined(scripts: Sequence[Script], numbers: Sequence[int], members: IntArray) -> Script:
    """One script in which every row prefers what its own kind does."""
    first = scripts[0]
    if first.kind.prefers is None or len(scripts) == 1:
        return first

    def prefers(field: Field) -> IntArray:
        out = np.zeros(field.food_cell.shape, np.int64)
        for script, number in zip(scripts, numbers, strict=True):
            assert script.kind.prefers is not None
            out = np.where((members == number)[:, None], script.kind.prefers(field), out)
        return out

    return replace(first, name="several", kind=replace(first.kind, prefers=prefers))


def board_of(env_args: Mapping[str, Any]) -> dict[str, int]:
    """The keyword arguments of `act`, `target` and `act_together`, from a run's env_args."""
    rules = ForagingArgs.parse(env_args).resolve()
    return {"rows": rules.rows, "cols": rules.cols, "n_foods": rules.max_num_food}


def headings(
    scripts: Sequence[Script],
    members: IntArray,
    state: FloatArray,
    seats: IntArray,
    memory: IntArray,
    *,
    rows: int,
    cols: int,
    n_foods: int,
) -> FloatArray:
    """The food each row goes for (row, column, level), [R, 3]; its own place if for none."""
    things = state.reshape(len(state), -1, 3)
    found: FloatArray = things[np.arange(len(seats)), n_foods + seats].copy()
    for number in np.unique(members).tolist():
        chosen = (members == number).nonzero()[0]
        cell = scripts[number].target(
            state[chosen], seats[chosen], memory[chosen], rows=rows, cols=cols, n_foods=n_foods
        )
        foods = things[chosen, :n_foods]
        there = (foods[..., :2] == cell[:, None]).all(-1) & (cell >= 0).all(-1)[:, None]
        row, slot = there.nonzero()
        found[chosen[row]] = foods[row, slot]
    return found


def make_script(name: str, *, noise: float = 0.0, patience: int | None = None) -> Script:
    """A scripted player by its name in SCRIPTS."""
    if name not in SCRIPTS:
        raise OmgError(
            f"There is no scripted forager called '{name}'{nearest(name, SCRIPTS) or '.'} "
            f"Choose one of: {', '.join(sorted(SCRIPTS))}."
        )
    if not 0.0 <= noise <= 1.0:
        raise OmgError(f"`noise` is {noise}. Choose a probability between 0 and 1.")
    if patience is not None and patience < 0:
        raise OmgError(f"`patience` is {patience}. Choose a number of steps from 0, or None.")
    return Script(name=name, kind=SCRIPTS[name], noise=noise, patience=patience)
