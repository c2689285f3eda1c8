"""SMAC's maps: who fights whom, where each side begins, and where the ground ends.

Sizes, limits and races are `omg.envs.sc2.args.MAPS`, the same list as for the game itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from omg.envs.battle.units import UNITS, Unit
from omg.envs.sc2.args import MAPS, MapInfo
from omg.types import OmgError

Point = tuple[float, float]
Grid = NDArray[np.uint8]

SIDE = 32  # cells of every map, both ways
# What may be on a cell, by bits: 1 << units.GROUND and so on.
OPEN, CLIFF, PIT = 0b111, 0b110, 0b100

# What the enemy is told at the start: attack-move to where we begin, attack us wherever we are,
# or nothing.
TO_SPAWN, TO_UNITS, STAY = range(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class BattleMap:
    """One map. Units of a side are listed in the order of SMAC's ids."""

    name: str
    info: MapInfo
    allies: tuple[str, ...]
    enemies: tuple[str, ...]
    spawns: tuple[Point, Point] = ((9.0, 16.0), (23.0, 16.0))
    terrain: str = "field"
    orders: int = TO_SPAWN

    def units(self) -> list[Unit]:
        """All units, ours first."""
        return [UNITS[name] for name in (*self.allies, *self.enemies)]

    def type_bits(self, side: int) -> list[int]:
        """The type bit of every unit, ours first, as `side` is shown: 0 ours, 1 theirs. SMAC
        numbers the kinds of the two sides differently where stalkers meet zealots."""
        if not self.info.type_bits:
            return [0] * (len(self.allies) + len(self.enemies))
        kinds = list(dict.fromkeys(self.allies))
        if side == 1 and kinds == ["stalker", "zealot"]:
            kinds.reverse()
        return [kinds.index(name) for name in (*self.allies, *self.enemies)]

    @property
    def grid(self) -> Grid:
        """What may be on each cell, [SIDE, SIDE] by x and y."""
        return TERRAINS[self.terrain]()

    @property
    def heights(self) -> NDArray[np.float32]:
        """How high the ground is, from 0 to 1, [SIDE, SIDE]."""
        level = np.where(self.grid & 1, 0.6, 0.4).astype(np.float32)
        if self.terrain == "cliff":  # the plateau, and ramps half as high
            level[:, 14:] += np.where(self.grid[:, 14:] & 1, 0.2, 0.0).astype(np.float32)
            level[:, 12:14] += np.where(self.grid[:, 12:14] & 1, 0.1, 0.0).astype(np.float32)
        return level


def _many(*groups: tuple[int, str]) -> tuple[str, ...]:
    return tuple(name for count, name in groups for _ in range(count))


def _army(
    name: str,
    ours: Sequence[tuple[int, str]],
    theirs: Sequence[tuple[int, str]] = (),
    **more: object,
) -> BattleMap:
    allies, enemies = _many(*ours), _many(*(theirs or ours))
    return BattleMap(name=name, info=MAPS[name], allies=allies, enemies=enemies, **more)  # type: ignore[arg-type]


BATTLES = {
    found.name: found
    for found in (
        _army("3m", [(3, "marine")]),
        _army("8m", [(8, "marine")]),
        _army("25m", [(25, "marine")]),
        _army("5m_vs_6m", [(5, "marine")], [(6, "marine")]),
        _army("8m_vs_9m", [(8, "marine")], [(9, "marine")]),
        _army("10m_vs_11m", [(10, "marine")], [(11, "marine")]),
        _army("27m_vs_30m", [(27, "marine")], [(30, "marine")]),
        _army("MMM", [(2, "marauder"), (7, "marine"), (1, "medivac")]),
        _army(
            "MMM2",
            [(2, "marauder"), (7, "marine"), (1, "medivac")],
            [(3, "marauder"), (8, "marine"), (1, "medivac")],
        ),
        _army("2s3z", [(2, "stalker"), (3, "zealot")]),
        _army("3s5z", [(3, "stalker"), (5, "zealot")]),
        _army("3s5z_vs_3s6z", [(3, "stalker"), (5, "zealot")], [(3, "stalker"), (6, "zealot")]),
        _army("3s_vs_3z", [(3, "stalker")], [(3, "zealot")]),
        _army("3s_vs_4z", [(3, "stalker")], [(4, "zealot")]),
        _army("3s_vs_5z", [(3, "stalker")], [(5, "zealot")]),
        _army("1c3s5z", [(1, "colossus"), (3, "stalker"), (5, "zealot")]),
        _army("2m_vs_1z", [(2, "marine")], [(1, "zealot")]),
        _army(
            "corridor",
            [(6, "zealot")],
            [(24, "zergling")],
            spawns=((19.0, 19.1), (27.9, 28.2)),
            terrain="corridor",
        ),
        _army(
            "6h_vs_8z",
            [(6, "hydralisk")],
            [(8, "zealot")],
            spawns=((14.6, 9.5), (14.4, 16.8)),
            terrain="square",
        ),
        _army("2s_vs_1sc", [(2, "stalker")], [(1, "spine_crawler")], orders=STAY),
        _army("so_many_baneling", [(7, "zealot")], [(32, "baneling")]),
        _army("bane_vs_bane", [(4, "baneling"), (20, "zergling")]),
        _army(
            "2c_vs_64zg",
            [(2, "colossus")],
            [(64, "zergling")],
            spawns=((16.0, 16.0), (16.0, 9.0)),
            terrain="cliff",
            orders=TO_UNITS,
        ),
    )
}


def battle_map(name: str) -> BattleMap:
    """A map by its name."""
    if name not in BATTLES:
        spelled = {known.lower(): known for known in BATTLES}
        near = [spelled[low] for low in get_close_matches(name.lower(), spelled, n=3, cutoff=0.5)]
        hint = f" Nearest: {', '.join(near)}." if near else ""
        raise OmgError(
            f"There is no map called '{name}'.{hint} Choose one of: {', '.join(BATTLES)}."
        )
    return BATTLES[name]


def _closed() -> Grid:
    return np.full((SIDE, SIDE), PIT, np.uint8)


@lru_cache(maxsize=1)
def _field() -> Grid:
    """The band in the middle of most maps."""
    grid = _closed()
    grid[1:31, 8:24] = OPEN
    return grid


@lru_cache(maxsize=1)
def _square() -> Grid:
    """The whole map but its rim."""
    grid = _closed()
    grid[1:31, 1:31] = OPEN
    return grid


@lru_cache(maxsize=1)
def _corridor() -> Grid:
    """Two rooms and a narrow way between their corners."""
    grid = _closed()
    grid[6:23, 6:23] = OPEN
    grid[25:31, 25:31] = OPEN
    for step in range(21, 27):
        grid[step : step + 3, step : step + 3] = OPEN
    return grid


@lru_cache(maxsize=1)
def _cliff() -> Grid:
    """A plateau above, where we begin, a plain below, and a ramp at either end of the cliff."""
    grid = _closed()
    grid[2:30, 4:28] = OPEN
    grid[4:28, 12:14] = CLIFF
    return grid


TERRAINS = {"field": _field, "square": _square, "corridor": _corridor, "cliff": _cliff}


Routes = NDArray[np.int16]  # [cells, cells]: which cell to walk to next; -1: straight on
NO_ROUTES: Routes = np.zeros((0, 0), np.int16)
FAR = np.iinfo(np.int16).max


@lru_cache(maxsize=8)
def routes_of(terrain: str) -> Routes:
    """Ways from each cell to each other round what is no ground; empty where all are straight."""
    if terrain in ("field", "square"):
        return NO_ROUTES
    ground = (TERRAINS[terrain]() & 1).astype(np.bool_)
    places = ground.ravel().nonzero()[0]
    steps = _distances(ground, places)
    around = np.full((SIDE + 2, SIDE + 2, len(places)), FAR, np.int16)
    around[1:-1, 1:-1] = steps
    best = steps.copy()
    chosen = np.full(steps.shape, -1, np.int16)
    own = np.arange(SIDE * SIDE, dtype=np.int16).reshape(SIDE, SIDE, 1)
    for dx, dy in [(0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, -1), (1, -1), (-1, 1)]:
        there = around[1 + dx : 1 + dx + SIDE, 1 + dy : 1 + dy + SIDE]
        nearer = there < best
        best = np.where(nearer, there, best)
        chosen = np.where(nearer, own + np.int16(dx * SIDE + dy), chosen)
    routes = np.full((SIDE * SIDE, SIDE * SIDE), -1, np.int16)
    routes[:, places] = chosen.reshape(SIDE * SIDE, -1)
    first, second = _in_view(ground, places)
    routes[first, second] = routes[second, first] = -1
    return routes


def _distances(ground: NDArray[np.bool_], places: NDArray[np.int64]) -> NDArray[np.int16]:
    """A king's moves from every cell to each of `places`, [x, y, places]; FAR where none lead."""
    found = np.full((SIDE + 2, SIDE + 2, len(places)), FAR, np.int16)
    inside = found[1:-1, 1:-1]
    inside[places // SIDE, places % SIDE, np.arange(len(places))] = 0
    edge = found == 0
    step = 0
    while edge.any():
        step += 1
        near = np.zeros(inside.shape, np.bool_)
        for dx in (0, 1, 2):
            for dy in (0, 1, 2):
                near |= edge[dx : dx + SIDE, dy : dy + SIDE]
        near &= ground[:, :, None] & (inside == FAR)
        inside[near] = step
        edge = np.zeros_like(edge)
        edge[1:-1, 1:-1] = near
    return inside


def _in_view(
    ground: NDArray[np.bool_], places: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of cells with only ground on the straight way between them."""
    one, other = np.triu_indices(len(places))
    first, second = places[one], places[other]
    for share in np.linspace(0.0, 1.0, 41, dtype=np.float32):
        x = (first // SIDE) * (1 - share) + (second // SIDE) * share
        y = (first % SIDE) * (1 - share) + (second % SIDE) * share
        free = np.ones(len(first), np.bool_)
        for shift in (0.2, 0.8):  # a body is no point
            for aside in (0.2, 0.8):
                free &= ground[(x + shift).astype(np.int32), (y + aside).astype(np.int32)]
        first, second = first[free], second[free]
    return first, second
