"""What scripted foragers see and remember: the situation of every row, and the memory's columns.

A row is one copy and one seat to act for. R rows, F food slots, N players.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from omg.envs.foraging.args import ForagingRules
from omg.types import BoolArray, FloatArray, IntArray

# Columns of the memory, zeros at an episode's start. Cells are stored plus one, so that 0 means
# none. The clock counts steps: it is the same for all players of an episode, so that they take
# turns. From SEED on: kept by behaviours only (omg/opponents/foraging_behaviours.py).
TARGET, STOOD, WANTED, SEED, CLOCK, SINCE, COUNT, NOTE, WATCHED, PAST = range(10)
N_PAST = 3  # cells where the watched player stood, the latest first
MEMORY_DIM = PAST + N_PAST

_HOPELESS = 1 << 50
_MISSING = 1 << 60


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
    def read(cls, state: FloatArray, seats: IntArray, rules: ForagingRules) -> Field:
        """From states [R, S]: (row, col, level) of each food, then of each player."""
        n_foods = rules.max_num_food
        if state.ndim != 2 or state.shape[1] <= 3 * n_foods or state.shape[1] % 3:
            raise ValueError(
                f"States of {n_foods} foods must be [R, 3 * (foods + players)], not {state.shape}."
            )
        things = state.astype(np.int64).reshape(len(state), -1, 3)
        foods, players = things[:, :n_foods], things[:, n_foods:]
        own = players[np.arange(len(state)), seats]
        return cls(
            rows=rules.rows,
            cols=rules.cols,
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

    @property
    def span(self) -> int:
        """More than any distance."""
        return self.rows + self.cols

    def take(self, rows: IntArray | BoolArray) -> Field:
        """The situation of some of the rows."""
        arrays: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        taken: dict[str, Any] = {
            name: v[rows] if isinstance(v, np.ndarray) else v for name, v in arrays.items()
        }
        return Field(**taken)

    def holds(self, cell: IntArray) -> BoolArray:
        """Whether there is food on a cell (plus one; 0: none), [R]."""
        there: BoolArray = ((self.food_cell == cell[:, None]) & (cell > 0)[:, None]).any(axis=1)
        return there

    def steps_between(self, one: IntArray, other: IntArray) -> IntArray:
        """Steps between cells (plus one), of shapes that go together."""
        rows = np.abs((one - 1) // self.cols - (other - 1) // self.cols)
        steps: IntArray = rows + np.abs((one - 1) % self.cols - (other - 1) % self.cols)
        return steps

    def least(self, numbers: IntArray) -> IntArray:
        """The cell [R] (plus one) of the food with the smallest number [R, F], what all together
        can lift first; 0 without food."""
        together = self.player_level.sum(axis=1, keepdims=True)
        numbers = numbers + np.where(self.food_level > together, _HOPELESS, 0)
        numbers = np.where(self.food_level > 0, numbers, _MISSING)
        slot = numbers.argmin(axis=1)
        cell: IntArray = self.food_cell[np.arange(len(slot)), slot]
        return cell
