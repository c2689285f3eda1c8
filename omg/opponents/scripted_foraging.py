"""Scripted players of the foraging game, for opponent pools: most commit to a kind of target, some
differ in behaviour (omg/opponents/foraging_behaviours.py).

A committing player chooses a food at the episode's start, and again when that food is gone; it
walks there and loads, waiting for help where it is too weak. Foods that all players together
could not lift are chosen last. Ties go to the nearest food, then to the first row by row.

A row is one copy and one seat to act for. R rows, F food slots, N players.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from omg.envs.foraging.args import ForagingArgs, ForagingRules
from omg.envs.foraging.game import LOAD
from omg.opponents import foraging_behaviours as behaviours
from omg.opponents import scripts as base
from omg.opponents.foraging_behaviours import Behaviour, Plan
from omg.opponents.foraging_field import CLOCK, MEMORY_DIM, STOOD, TARGET, WANTED, Field
from omg.opponents.scripts import Script
from omg.types import BoolArray, FloatArray, IntArray

__all__ = ["MEMORY_DIM", "SCRIPTS", "act_together", "board_of", "headings", "make_script"]

NONE = 0
# Rows and columns that north, south, west and east (actions 1 to 4) lead to.
DIRECTIONS = ((-1, 0), (1, 0), (0, -1), (0, 1))

# Steps after which a player prefers the other side, so that nobody walks in circles for ever.
_HABIT = 11
# What a step costs, cheapest first; a step that a neighbour may be about to allow beats a detour.
_CLOSER, _PUSH, _WAIT, _ASIDE, _AWAY, _BACK, _BLOCKED = 0, 16, 32, 48, 64, 256, 1024


# The food with the smallest number is chosen, [R, F].
Preference = Callable[[Field], IntArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(base.Kind):
    """Which food a scripted player goes for: one it prefers, or as it behaves; with neither it acts
    at random."""

    prefers: Preference | None = None
    commits: bool = True
    behaves: Behaviour | None = None

    @property
    def is_random(self) -> bool:
        return self.prefers is None and self.behaves is None


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


def _to_foods(field: Field) -> IntArray:
    """Steps from each food to the nearest other one; alike for all if there is none."""
    there, slots = field.food_level > 0, np.arange(field.food_level.shape[1])
    steps = field.steps_between(field.food_cell[:, :, None], field.food_cell[:, None])
    counted = there[:, None] & (slots[:, None] != slots)
    nearest: IntArray = np.where(counted, steps, field.span).min(axis=2)
    return nearest


def _to_edge(field: Field) -> IntArray:
    rows = np.minimum(field.food_row, field.rows - 1 - field.food_row)
    cols = np.minimum(field.food_col, field.cols - 1 - field.food_col)
    edge: IntArray = np.minimum(rows, cols)
    return edge


def _behaving(about: str, behaves: Behaviour) -> Kind:
    return Kind(about=about, behaves=behaves, commits=False)


def _to_centre(field: Field) -> IntArray:
    rows = np.abs(2 * field.food_row - (field.rows - 1))
    return rows + np.abs(2 * field.food_col - (field.cols - 1))


SCRIPTS: dict[str, Kind] = {
    "nearest_food": Kind(about="the food nearest to itself", prefers=lambda field: field.distance),
    "farthest_food": Kind(
        about="the food farthest from itself", prefers=lambda field: -field.distance
    ),
    "highest_level": Kind(about="the heaviest food", prefers=lambda field: -field.food_level),
    "lowest_level": Kind(about="the lightest food", prefers=lambda field: field.food_level),
    "nearest_loadable": Kind(
        about="the nearest food that it can lift alone, else the nearest",
        prefers=lambda field: (field.food_level > field.level[:, None]).astype(np.int64),
    ),
    "nearest_heavy": Kind(
        about="the nearest food that needs help, else the nearest",
        prefers=lambda field: (field.food_level <= field.level[:, None]).astype(np.int64),
    ),
    "near_others": Kind(about="the food nearest to another player", prefers=_to_others),
    "far_from_others": Kind(
        about="the food farthest from the other players", prefers=lambda field: -_to_others(field)
    ),
    "meeting_point": Kind(
        about="the food with the shortest way for all players together",
        prefers=lambda field: field.player_distance.sum(axis=1),
    ),
    "centre": Kind(about="the food nearest to the centre", prefers=_to_centre),
    "edge": Kind(about="the food nearest to a side of the field", prefers=_to_edge),
    "crowded": Kind(about="the food nearest to another food", prefers=_to_foods),
    "lonely": Kind(
        about="the food farthest from the other foods", prefers=lambda field: -_to_foods(field)
    ),
    **{
        f"{side}_{hand}": Kind(
            about=f"the food nearest to the {word} {hand} corner",
            prefers=_to_corner(bottom=side == "bottom", right=hand == "right"),
        )
        for side, word in (("top", "upper"), ("bottom", "lower"))
        for hand in ("left", "right")
    },
    "follow": Kind(
        about="at every step the food nearest to another player",
        prefers=_to_others,
        commits=False,
    ),
    "random": Kind(about="no food: any available action", commits=False),
    "changes_mind": _behaving(
        "a drawn food, dropped for another after 6 to 15 steps, again and again",
        behaviours.changes_mind,
    ),
    "waits": _behaving(
        "the nearest food; given up for another after 6 steps beside it in vain", behaviours.waits
    ),
    "leads": _behaving(
        "a drawn heavy food; walks only while another player stays close or comes nearer",
        behaviours.leads,
    ),
    "follows_moves": _behaving(
        "the food that another player seems to head for, by its last moves",
        behaviours.follows_moves,
    ),
    "deceives": _behaving(
        "a drawn food, but first half way towards the one farthest from it", behaviours.deceives
    ),
    "avoids": _behaving(
        "a food that another player does not seem to head for, by its last moves",
        behaviours.avoids,
    ),
    "alternates": _behaving(
        "the nearest food in the other half of the field than its last pick-up",
        behaviours.alternates,
    ),
    "dawdles": _behaving(
        "the nearest food, but it stands still at every second step", behaviours.dawdles
    ),
    "gives_way": _behaving(
        "the nearest food that no other player is nearer to, chosen again at every step",
        behaviours.gives_way,
    ),
    "helps": _behaving(
        "no food of its own: walks to another player and loads where that one stands beside a food",
        behaviours.helps,
    ),
    "switches": _behaving(
        "what it can lift alone; from step 12 on the food nearest to another player",
        behaviours.switches,
    ),
    "dodges": _behaving(
        "a drawn food, left for another when another player comes within two steps of it",
        behaviours.dodges,
    ),
    "joins": _behaving(
        "stands until another player stands beside a food, then goes there", behaviours.joins
    ),
    "returns": _behaving(
        "the nearest food; after its own pick-up to the middle of the field for a while",
        behaviours.returns,
    ),
    "patrols": _behaving(
        "no food: round the field; loads what it passes and can be lifted", behaviours.patrols
    ),
}


def make_script(name: str, *, noise: float = 0.0) -> Script[Kind]:
    """A scripted player by its name in SCRIPTS."""
    return base.make_script(name, SCRIPTS, what="scripted forager", noise=noise)


def board_of(env_args: Mapping[str, Any]) -> ForagingRules:
    """What players have to know of the game, from a run's env_args."""
    return ForagingArgs.parse(env_args).resolve()


def act_together(
    scripts: Sequence[Script[Kind]],
    members: IntArray,
    state: FloatArray,
    seats: IntArray,
    avail: BoolArray,
    memory: IntArray,
    rng: np.random.Generator,
    board: ForagingRules,
) -> tuple[IntArray, IntArray]:
    """Actions [R] and the memory for the next step, of rows played by scripts[members[row]].

    Kinds that differ only in what they prefer walk in one call. The generator is used only with
    `noise` or by `random`, as many draws for every row.
    """
    alike: dict[tuple[bool, bool, float], list[int]] = {}
    for number in np.unique(members).tolist():
        script = scripts[number]
        key = (script.kind.is_random, script.kind.commits, script.noise)
        alike.setdefault(key, []).append(number)
    actions = np.zeros(len(members), np.int64)
    after = np.zeros_like(memory)
    for (is_random, _, noise), numbers in alike.items():
        rows = np.isin(members, numbers).nonzero()[0]
        possible = avail[rows]
        if is_random:
            actions[rows] = base.random_action(possible, rng.random(possible.shape))
            continue
        field = Field.read(state[rows], seats[rows], board)
        plan = _plan(scripts, members[rows], field, memory[rows])
        chosen, kept = _go(field, plan, possible, memory[rows])
        if noise > 0:
            draws = rng.random((len(rows), possible.shape[1] + 1))
            noisy = draws[:, 0] < noise
            chosen = np.where(noisy, base.random_action(possible, draws[:, 1:]), chosen)
            # What chance did says nothing about the way ahead.
            kept[:, [STOOD, WANTED]] *= ~noisy[:, None]
        actions[rows], after[rows] = chosen, kept
    return actions, after


def headings(
    scripts: Sequence[Script[Kind]],
    members: IntArray,
    state: FloatArray,
    seats: IntArray,
    memory: IntArray,
    board: ForagingRules,
) -> FloatArray:
    """The food each row goes for now (row, column, level), [R, 3]; its own place if for none. The
    level of a place without food is 0."""
    field = Field.read(state, seats, board)
    target = _plan(scripts, members, field, memory).target[:, None]
    things = state.reshape(len(state), -1, 3)
    found: FloatArray = things[np.arange(len(seats)), board.max_num_food + seats].copy()
    place = np.concatenate([(target - 1) // field.cols, (target - 1) % field.cols, 0 * target], 1)
    found = np.where(target > 0, place.astype(found.dtype), found)
    row, slot = ((field.food_cell == target) & (target > 0)).nonzero()
    found[row] = things[row, slot]
    return found


def _plan(
    scripts: Sequence[Script[Kind]], members: IntArray, field: Field, memory: IntArray
) -> Plan:
    """Where each row goes, and what behaviours note."""
    target = _aim(scripts, members, field, memory)
    noted, stands = memory.copy(), np.zeros(len(members), np.bool_)
    for number in np.unique(members).tolist():
        behaves = scripts[number].kind.behaves
        if behaves is None:
            continue
        mine = (members == number).nonzero()[0]
        plan = behaves(field.take(mine), memory[mine])
        target[mine], noted[mine] = plan.target, plan.memory
        if plan.stands is not None:
            stands[mine] = plan.stands
    return Plan(target=target, memory=noted, stands=stands)


def _aim(
    scripts: Sequence[Script[Kind]], members: IntArray, field: Field, memory: IntArray
) -> IntArray:
    """The cell of the food that each row prefers, plus one, 0 for none, [R]."""
    numbers = np.zeros(field.food_cell.shape, np.int64)
    commits, aimless = np.zeros((2, len(members)), np.bool_)
    for number in np.unique(members).tolist():
        mine, kind = members == number, scripts[number].kind
        if kind.prefers is None:
            aimless |= mine
            continue
        numbers = np.where(mine[:, None], kind.prefers(field), numbers)
        commits |= mine & kind.commits
    best = field.least(numbers * field.span + field.distance)
    remembered = memory[:, TARGET]
    return np.where(aimless, 0, np.where(commits & field.holds(remembered), remembered, best))


def _go(field: Field, plan: Plan, avail: BoolArray, memory: IntArray) -> tuple[IntArray, IntArray]:
    """Available actions [R] towards the targets, and the memory for the next step."""
    actions, wanted = _walk(field, plan.target, avail, memory)
    if plan.stands is not None:
        stands = plan.stands & (actions != LOAD)
        actions, wanted = np.where(stands, NONE, actions), np.where(stands, 0, wanted)
    possible = avail[np.arange(len(actions)), actions]
    after = plan.memory.copy()
    after[:, TARGET] = plan.target
    after[:, STOOD] = field.cell
    after[:, WANTED] = np.where(possible, wanted, 0)
    after[:, CLOCK] = memory[:, CLOCK] + 1
    return np.where(possible, actions, avail.argmax(axis=1)), after


def _walk(
    field: Field, target: IntArray, avail: BoolArray, memory: IntArray
) -> tuple[IntArray, IntArray]:
    """One step towards a target cell [R] (plus one; 0 for none), or loading beside a food.

    Returns the actions [R] and, plus one, the cells [R] that the rows want to enter (0: none).
    """
    gap = (target - 1) // field.cols - field.row, (target - 1) % field.cols - field.col
    offsets: IntArray = np.array([row * field.cols + col for row, col in DIRECTIONS])
    cells = field.cell[:, None] + offsets
    cost = _way(gap, field.seats + memory[:, CLOCK] // _HABIT)
    enterable = avail[:, 1:5]
    occupied, parked = _neighbours(field, cells)
    # Still beside the cell it wanted: someone stands there, or wanted it as well.
    refused = enterable & (memory[:, WANTED, None] == cells)
    my_turn = (memory[:, CLOCK] % field.others.shape[1] == field.seats)[:, None]
    blocked = (
        ~enterable | parked | (occupied & (cost >= _ASIDE)) | (refused & (occupied | ~my_turn))
    )
    came_from = memory[:, STOOD, None] == cells
    cost += _PUSH * occupied + _BACK * came_from
    cost = np.where(blocked, _BLOCKED, cost)

    side = cost.argmin(axis=1)
    # Rather than go a longer way, let the one whose turn it is have a cell that several want.
    contested = (refused & ~occupied & ~my_turn).any(axis=1)
    moving = cost.min(axis=1) < np.where(contested, _WAIT, _BLOCKED)
    beside = (np.abs(gap[0]) + np.abs(gap[1]) == 1) & field.holds(target)
    walking = (target > 0) & ~beside
    moving &= walking
    actions = np.where(moving, side + 1, np.where(beside & (target > 0), LOAD, NONE))
    wanted = np.where(moving, cells[np.arange(len(side)), side], memory[:, WANTED] * contested)
    return actions, np.where(walking, wanted, 0)


def _way(gap: tuple[IntArray, IntArray], habit: IntArray) -> IntArray:
    """What the four directions cost on an empty field, the longer axis first, [R, 4]."""
    rows, cols = gap
    vertical = np.abs(rows) >= np.abs(cols)
    cost = np.empty((len(habit), 4), np.int64)
    for side, (down, right) in enumerate(DIRECTIONS):
        along = rows * down + cols * right
        closer = np.where(vertical == bool(down), _CLOSER, _CLOSER + 4)
        aside = np.where((rows if down else cols) == 0, _ASIDE, _AWAY)
        # By habit, ties go one way or the other: two who meet do not dodge alike for long.
        order = np.where(habit % 2 == 1, 3 - side, side)
        cost[:, side] = np.where(along > 0, closer, aside) + order
    return cost


def _neighbours(field: Field, cells: IntArray) -> tuple[BoolArray, BoolArray]:
    """Whether another player stands on the four cells around, and whether it seems to stay there.

    Whoever stands beside food stays, by all appearances; others may move on or swap places.
    """
    others = np.where(field.others, field.player_row * field.cols + field.player_col + 1, 0)
    waits: BoolArray = np.asarray(field.beside.any(axis=2))
    occupied = np.zeros(cells.shape, np.bool_)
    parked = np.zeros(cells.shape, np.bool_)
    for player in range(others.shape[1]):
        there = others[:, player, None] == cells
        occupied |= there
        parked |= there & waits[:, player, None]
    return occupied, parked
