"""Scripted foragers that differ in behaviour: they change their mind, wait, lead, follow, dodge.

Each is a function of the situation and the memory of its rows. What is "drawn" follows from the
board of the episode's first step and the seat, so that headings are known before anybody acts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from omg.opponents.foraging_field import (
    CLOCK,
    COUNT,
    N_PAST,
    NOTE,
    PAST,
    SEED,
    SINCE,
    TARGET,
    WATCHED,
    Field,
)
from omg.types import BoolArray, IntArray

PATIENCE = 6  # steps that `waits` spends beside a food in vain
CLOSE = 3  # steps within which `leads` has company
LOOKS_BACK = 10  # steps in a row that `leads` stands and waits
SHORTEST, LONGEST = 6, 15  # steps after which `changes_mind` does
TURN = 12  # step at which `switches` changes what it is after
SHY, CALM = 2, 8  # `dodges` leaves a food so near to the watched player, and then not for so long
EXPECTS = 10  # steps in a row that `joins` stands and waits
REST = 8  # steps that `returns` spends on its way to the middle, and there
_LAST = 1 << 40  # a number for foods to choose when there is no other


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where rows go now, and what they note for the next step."""

    target: IntArray  # [R], the cell (plus one) of a food, or of a place to walk to; 0: none
    memory: IntArray  # [R, M]
    stands: BoolArray | None = None  # [R], who stays where it is, unless beside its food


Behaviour = Callable[[Field, IntArray], Plan]


def changes_mind(field: Field, memory: IntArray) -> Plan:
    """A drawn food, dropped after a drawn number of steps for another one, again and again."""
    memory = _seeded(field, memory)
    seed, target, count = memory[:, SEED], memory[:, TARGET], memory[:, COUNT]
    patience = SHORTEST + _drawn(seed, count) % (LONGEST - SHORTEST + 1)
    change = ~field.holds(target) | (memory[:, CLOCK] - memory[:, SINCE] >= patience)
    numbers = _drawn(seed[:, None], (count + change)[:, None], field.food_cell)
    other = field.least(numbers + _LAST * (field.food_cell == target[:, None]))
    memory[:, COUNT] += change
    memory[:, SINCE] = np.where(change, memory[:, CLOCK], memory[:, SINCE])
    return Plan(target=np.where(change, other, target), memory=memory)


def waits(field: Field, memory: IntArray) -> Plan:
    """The nearest food; whoever has loaded there in vain gives it up for the nearest other one."""
    memory = memory.copy()
    before, tried = memory[:, TARGET].copy(), memory[:, COUNT].copy()
    there = field.holds(before)
    memory[:, NOTE] = np.where(there & (tried >= PATIENCE), before, memory[:, NOTE])
    given_up = field.food_cell == memory[:, NOTE, None]
    other = field.least(field.distance + _LAST * given_up)
    target = np.where(there & (tried < PATIENCE), before, other)
    beside = (target > 0) & (field.steps_between(field.cell, target) == 1)
    memory[:, COUNT] = np.where(target == before, tried, 0) + beside
    return Plan(target=target, memory=memory)


def leads(field: Field, memory: IntArray) -> Plan:
    """A drawn food that needs help, if there is one. Walks while the watched player is close or
    its last move brought it nearer; else waits for it, then goes on until it is followed again."""
    memory, watched = _watching(field, _seeded(field, memory))
    light = field.food_level <= field.level[:, None]
    order = _drawn(memory[:, SEED, None], field.food_cell) + _LAST * light
    target = _kept(field, memory, field.least(order))
    now = field.steps_between(field.cell, watched)
    first = memory[:, PAST + 1] == 0
    nearer = now < field.steps_between(field.cell, memory[:, PAST + 1])
    followed = (watched == 0) | first | (now <= CLOSE) | nearer
    stands = ~followed & (memory[:, COUNT] < LOOKS_BACK)
    memory[:, COUNT] = np.where(followed, 0, memory[:, COUNT] + stands)
    return Plan(target=target, memory=memory, stands=stands)


def follows_moves(field: Field, memory: IntArray) -> Plan:
    """The food that the watched player seems to head for, by its last moves."""
    memory, watched = _watching(field, memory)
    likely = _heading(field, memory, watched)
    return Plan(target=np.where(likely > 0, likely, field.least(field.distance)), memory=memory)


def avoids(field: Field, memory: IntArray) -> Plan:
    """A food that the watched player does not head for: what it can lift alone first, the nearest
    of them. Kept until it is gone or the watched player comes."""
    memory, watched = _watching(field, memory)
    likely = _heading(field, memory, watched)
    heavy = field.food_level > field.level[:, None]
    taken = field.food_cell == likely[:, None]
    other = field.least(field.distance + field.span * heavy + _LAST * taken)
    keeps = field.holds(memory[:, TARGET]) & (memory[:, TARGET] != likely)
    return Plan(target=np.where(keeps, memory[:, TARGET], other), memory=memory)


def deceives(field: Field, memory: IntArray) -> Plan:
    """A drawn food, but first half way towards the one farthest from it. NOTE is the food it
    wants, COUNT the steps to the other one at first (0: not deceiving)."""
    memory = _seeded(field, memory)
    fresh = ~field.holds(memory[:, NOTE])
    drawn = field.least(_drawn(memory[:, SEED, None], field.food_cell))
    wanted = np.where(fresh, drawn, memory[:, NOTE])
    is_wanted = field.food_cell == wanted[:, None]
    away = field.steps_between(field.food_cell, wanted[:, None])
    decoy = np.where(fresh, field.least(_LAST * is_wanted - away), memory[:, TARGET])
    left = field.steps_between(field.cell, decoy)
    start = np.where(fresh, left, memory[:, COUNT])
    since = np.where(fresh, memory[:, CLOCK], memory[:, SINCE])
    on_the_way = (2 * left > start) & (left > 1) & (memory[:, CLOCK] - since < start)
    deceiving = field.holds(decoy) & (decoy != wanted) & (start > 0) & on_the_way
    memory[:, NOTE], memory[:, SINCE] = wanted, since
    memory[:, COUNT] = np.where(deceiving, start, 0)
    return Plan(target=np.where(deceiving, decoy, wanted), memory=memory)


def alternates(field: Field, memory: IntArray) -> Plan:
    """The nearest food; after its own pick-up in one half of the field (left, right) the nearest
    in the other half. NOTE is where it picked up last."""
    memory = memory.copy()
    before = memory[:, TARGET]
    picked = (before > 0) & ~field.holds(before)
    picked &= field.steps_between(field.cell, before) == 1
    memory[:, NOTE] = np.where(picked, before, memory[:, NOTE])
    last = memory[:, NOTE, None]
    left = 2 * ((last - 1) % field.cols) < field.cols
    same = (last > 0) & ((2 * field.food_col < field.cols) == left)
    return Plan(
        target=_kept(field, memory, field.least(field.distance + field.span * same)), memory=memory
    )


def dawdles(field: Field, memory: IntArray) -> Plan:
    """The nearest food, with a rest at every second step."""
    target = _kept(field, memory, field.least(field.distance))
    return Plan(target=target, memory=memory, stands=memory[:, CLOCK] % 2 == 1)


def gives_way(field: Field, memory: IntArray) -> Plan:
    """The nearest food that no other player is nearer to; the nearest of all if there is none."""
    others = np.where(field.others[:, :, None], field.player_distance, field.span).min(axis=1)
    taken = others < field.distance
    return Plan(target=field.least(field.distance + field.span * taken), memory=memory)


def helps(field: Field, memory: IntArray) -> Plan:
    """Walks to the watched player; where that one stands beside a food, to this food. Alone: the
    nearest food."""
    memory, watched = _watching(field, memory)
    far = field.steps_between(field.food_cell, watched[:, None])
    there = ((far == 1) & (field.food_level > 0)).any(axis=1)
    beside = field.least(np.where(far == 1, field.food_level, _LAST))
    alone = field.least(field.distance)
    target = np.where(watched == 0, alone, np.where(there, beside, watched))
    waits_there = (watched > 0) & ~there & (field.steps_between(field.cell, watched) == 1)
    return Plan(target=target, memory=memory, stands=waits_there)


def switches(field: Field, memory: IntArray) -> Plan:
    """What it can lift alone first, the nearest of that; from step TURN on the food nearest to the
    watched player."""
    memory, watched = _watching(field, memory)
    early = memory[:, CLOCK] < TURN
    heavy = field.food_level > field.level[:, None]
    alone = field.distance + field.span * heavy
    together = field.steps_between(field.food_cell, watched[:, None])
    first = field.least(np.where((early | (watched == 0))[:, None], alone, together))
    turns = memory[:, CLOCK] == TURN
    return Plan(target=np.where(turns, first, _kept(field, memory, first)), memory=memory)


def dodges(field: Field, memory: IntArray) -> Plan:
    """A drawn food, left for another when the watched player comes near to it; the next CALM steps
    it stays with that one."""
    memory, watched = _watching(field, _seeded(field, memory))
    target, gone = memory[:, TARGET], ~field.holds(memory[:, TARGET])
    calm = memory[:, CLOCK] - memory[:, SINCE] < CALM
    near = (watched > 0) & (field.steps_between(target, watched) <= SHY) & ~calm
    change = gone | near
    numbers = _drawn(memory[:, SEED, None], (memory[:, COUNT] + change)[:, None], field.food_cell)
    other = field.least(numbers + _LAST * (field.food_cell == target[:, None]))
    memory[:, COUNT] += change
    memory[:, SINCE] = np.where(near & ~gone, memory[:, CLOCK], memory[:, SINCE])
    return Plan(target=np.where(change, other, target), memory=memory)


def joins(field: Field, memory: IntArray) -> Plan:
    """Stands until the watched player stands beside a food, then goes there. Who has waited in
    vain takes the nearest food."""
    memory, watched = _watching(field, memory)
    far = field.steps_between(field.food_cell, watched[:, None])
    beside = (far == 1) & (field.food_level > 0) & (watched > 0)[:, None]
    alone = (watched == 0) | (memory[:, COUNT] >= EXPECTS)
    nearest = np.where(alone, field.least(field.distance), 0)
    chosen = field.least(np.where(beside, field.food_level, _LAST))
    target = _kept(field, memory, np.where(beside.any(axis=1), chosen, nearest))
    memory[:, COUNT] = np.where(target == 0, memory[:, COUNT] + 1, 0)
    return Plan(target=target, memory=memory, stands=target == 0)


def returns(field: Field, memory: IntArray) -> Plan:
    """The nearest food; after its own pick-up to the middle of the field, for REST steps in all.
    NOTE is the food it wants."""
    memory, wanted = memory.copy(), memory[:, NOTE].copy()
    middle = field.rows // 2 * field.cols + field.cols // 2 + 1
    there = field.holds(wanted)
    picked = (wanted > 0) & ~there & (field.steps_between(field.cell, wanted) == 1)
    rest = np.where(picked, REST, memory[:, COUNT])
    food = np.where(there, wanted, field.least(field.distance))
    memory[:, NOTE] = np.where(rest > 0, 0, food)
    memory[:, COUNT] = np.maximum(rest - 1, 0)
    at_rest = (rest > 0) & (field.cell == middle)
    return Plan(target=np.where(rest > 0, middle, food), memory=memory, stands=at_rest)


def patrols(field: Field, memory: IntArray) -> Plan:
    """Round the field, a quarter of it away from its sides, clockwise, from the nearest corner of
    that way. Loads what it passes if those who stand there can lift it. COUNT is the corner, plus
    one."""
    memory = memory.copy()
    top, left = field.rows // 4, field.cols // 4
    bottom, right = field.rows - 1 - top, field.cols - 1 - left
    corners = [(top, left), (top, right), (bottom, right), (bottom, left)]
    cells = np.array([row * field.cols + col + 1 for row, col in corners])
    steps = field.steps_between(field.cell[:, None], cells[None])
    corner = np.where(memory[:, COUNT] > 0, memory[:, COUNT] - 1, steps.argmin(axis=1))
    corner = (corner + (steps[np.arange(len(corner)), corner] <= 1)) % len(corners)
    memory[:, COUNT] = corner + 1
    power = (field.beside * field.player_level[:, :, None]).sum(axis=1)
    liftable = (field.distance == 1) & (field.food_level > 0) & (field.food_level <= power)
    passed = field.least(np.where(liftable, field.food_level, _LAST))
    return Plan(target=np.where(liftable.any(axis=1), passed, cells[corner]), memory=memory)


def _kept(field: Field, memory: IntArray, first: IntArray) -> IntArray:
    """The target so far as long as it is there, else `first` [R]."""
    return np.where(field.holds(memory[:, TARGET]), memory[:, TARGET], first)


def _watching(field: Field, memory: IntArray) -> tuple[IntArray, IntArray]:
    """The memory with the watched player's cell [R] noted, and that cell; 0 without another. The
    one nearest at the episode's start is watched."""
    memory, rows = memory.copy(), np.arange(len(memory))
    cells = field.player_row * field.cols + field.player_col + 1
    steps = field.steps_between(cells, field.cell[:, None])
    nearest = np.where(field.others, steps, field.span).argmin(axis=1) + 1
    nearest = np.where(field.others.any(axis=1), nearest, 0)
    memory[:, WATCHED] = np.where(memory[:, WATCHED] > 0, memory[:, WATCHED], nearest)
    watched = np.where(memory[:, WATCHED] > 0, cells[rows, memory[:, WATCHED] - 1], 0)
    memory[:, PAST + 1 : PAST + N_PAST] = memory[:, PAST : PAST + N_PAST - 1]
    memory[:, PAST] = watched
    return memory, watched


def _heading(field: Field, memory: IntArray, watched: IntArray) -> IntArray:
    """The food that the watched player came nearer to most, of equals the nearest to it, [R]."""
    past = memory[:, PAST : PAST + N_PAST]
    oldest = past[np.arange(len(past)), np.maximum((past > 0).sum(axis=1) - 1, 0)]
    foods = field.food_cell
    before = field.steps_between(foods, oldest[:, None])
    now = field.steps_between(foods, watched[:, None])
    likely = field.least((now - before) * 2 * field.span + now)
    return np.where(watched > 0, likely, 0)


def _seeded(field: Field, memory: IntArray) -> IntArray:
    """The memory with a number that differs between episodes and seats, made at the start."""
    memory, fresh = memory.copy(), memory[:, SEED] == 0
    if not fresh.any():
        return memory
    things = (field.player_row, field.player_col, field.food_row, field.food_col, field.food_level)
    seed = _drawn(field.seats, *(thing[:, i] for thing in things for i in range(thing.shape[1])))
    memory[:, SEED] = np.where(fresh, seed + 1, memory[:, SEED])
    return memory


def _drawn(*parts: IntArray) -> IntArray:
    """Numbers below 2**30 that look random, each made from those of its place (splitmix64)."""
    mixed = np.zeros(np.broadcast_shapes(*(part.shape for part in parts)), np.uint64)
    for part in parts:
        mixed = (mixed ^ part.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    drawn: IntArray = (mixed >> np.uint64(34)).astype(np.int64)
    return drawn
