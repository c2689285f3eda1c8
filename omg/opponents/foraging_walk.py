"""How a scripted forager sees the field and walks it, many rows at once.

A row is one copy and one seat to act for. R rows, F food slots, N players.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from omg.envs.foraging.board import LOAD
from omg.types import BoolArray, FloatArray, IntArray

NONE = 0
# Rows and columns that north, south, west and east (actions 1 to 4) lead to.
DIRECTIONS = ((-1, 0), (1, 0), (0, -1), (0, 1))

# Columns of the memory. Cells are stored plus one, so that 0 means none. The clock counts steps:
# it is the same for all players of an episode, so that they can take turns.
TARGET, STOOD, WANTED, WAITED, CLOCK = range(5)
MEMORY_DIM = 5

# Steps after which a player prefers the other side, so that nobody walks in circles for ever.
_HABIT = 11
# What a step costs, cheapest first; a step that a neighbour may be about to allow beats a detour.
_CLOSER, _PUSH, _WAIT, _ASIDE, _AWAY, _BACK, _BLOCKED = 0, 16, 32, 48, 64, 256, 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """The situation of every row, as integers."""

    rows: int
    cols: int
    seats: IntArray  # [R]
    food_row: IntArray  # [R, F], -1 where food is missing
    food_col: IntArray  # [R, F]
    food_level: IntArray  # [R, F], 0 where food is missing
    player_row: IntArray  # [R, N]
    player_col: IntArray  # [R, N]
    player_level: IntArray  # [R, N]
    row: IntArray  # [R], of the row's own player
    col: IntArray  # [R]
    level: IntArray  # [R]
    others: BoolArray  # [R, N], every player but the row's own

    @classmethod
    def read(
        cls, state: FloatArray, seats: IntArray, *, rows: int, cols: int, n_foods: int
    ) -> Field:
        """From states [R, S]: (row, col, level) of each food, then of each player."""
        if state.ndim != 2 or state.shape[1] <= 3 * n_foods or state.shape[1] % 3:
            raise ValueError(
                f"States of {n_foods} foods must be [R, 3 * (foods + players)], not {state.shape}."
            )
        things = state.astype(np.int64).reshape(len(state), -1, 3)
        foods, players = things[:, :n_foods], things[:, n_foods:]
        own = players[np.arange(len(state)), seats]
        return cls(
            rows=rows,
            cols=cols,
            seats=seats,
            food_row=foods[..., 0],
            food_col=foods[..., 1],
            food_level=foods[..., 2],
            player_row=players[..., 0],
            player_col=players[..., 1],
            player_level=players[..., 2],
            row=own[:, 0],
            col=own[:, 1],
            level=own[:, 2],
            others=np.arange(players.shape[1]) != seats[:, None],
        )

    @property
    def cell(self) -> IntArray:
        """The number of the own cell plus one, [R]."""
        return self.row * self.cols + self.col + 1

    @property
    def food_cell(self) -> IntArray:
        """The number of each food's cell plus one, 0 where food is missing, [R, F]."""
        cells = self.food_row * self.cols + self.food_col + 1
        return np.where(self.food_level > 0, cells, 0)

    @property
    def distance(self) -> IntArray:
        """Steps from the own player to each food, as if nothing were in the way, [R, F]."""
        rows = np.abs(self.food_row - self.row[:, None])
        distance: IntArray = rows + np.abs(self.food_col - self.col[:, None])
        return distance

    @property
    def player_distance(self) -> IntArray:
        """The same from every player, [R, N, F]."""
        rows = np.abs(self.food_row[:, None] - self.player_row[:, :, None])
        cols = np.abs(self.food_col[:, None] - self.player_col[:, :, None])
        distance: IntArray = rows + cols
        return distance

    @property
    def beside(self) -> BoolArray:
        """Which player stands beside which food, [R, N, F]."""
        beside: BoolArray = (self.player_distance == 1) & (self.food_level > 0)[:, None]
        return beside


def walk(
    field: Field, target: IntArray, avail: BoolArray, memory: IntArray
) -> tuple[IntArray, IntArray]:
    """One step towards a target cell [R] (plus one; 0 for none), or loading beside it.

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
    beside = np.abs(gap[0]) + np.abs(gap[1]) == 1
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
