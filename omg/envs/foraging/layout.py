"""How an episode begins: a pure function of (seed, copy, episode), for many copies at once.

A place is one integer, `row + 1 | col + 1 | level` in 16 bits each, so that sorting places sorts
them row by row; `MISSING` sorts last and unpacks to row -1, column -1, level 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from omg.envs.foraging.args import ForagingRules
from omg.envs.keys import Keys, draw_words
from omg.types import IntArray

ROW, COL, ORDER = 32, 16, 48
FIELD = 0xFFFF
MISSING = 1 << 62


def pack(rows: IntArray, cols: IntArray, levels: IntArray) -> IntArray:
    """Places as single integers."""
    return ((rows + 1) << ROW) + ((cols + 1) << COL) + levels


def unpack(places: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Rows, columns and levels."""
    return ((places >> ROW) & FIELD) - 1, ((places >> COL) & FIELD) - 1, places & FIELD


@dataclass(frozen=True, slots=True)
class Layout:
    """The beginnings of E episodes."""

    cells: IntArray  # [E, N], row * cols + col
    levels: IntArray  # [E, N]
    foods: IntArray  # [E, F], packed and ascending


class Spawner:
    """Draws layouts with the reference's distribution, without its rejection loops."""

    def __init__(self, rules: ForagingRules) -> None:
        self.rules = rules
        self._player_low = np.array(rules.min_player_level)
        self._player_span = np.array(rules.max_player_level) - self._player_low + 1
        self._food_low = np.array(rules.min_food_level)
        top = rules.max_food_level
        self._food_high = None if top is None else np.array(top)
        self._n_draws = 3 * (rules.n_players + rules.max_num_food)
        # A board with a margin of one cell: marking around interior cells stays inside it.
        self._width = rules.cols + 2
        board = np.zeros((rules.rows + 2, self._width), np.bool_)
        board[2:-2, 2:-2] = True
        self._interior = board.ravel()
        reach = [
            (row, col)
            for row in range(-2, 3)
            for col in range(-2, 3)
            if max(abs(row), abs(col)) <= 1 or (abs(row) + abs(col) == 2 and row * col == 0)
        ]
        self._reach = np.array([row * self._width + col for row, col in reach])

    def spawn(self, keys: Keys) -> Layout:
        """One layout for each episode key [E]."""
        rules, n, f = self.rules, self.rules.n_players, self.rules.max_num_food
        words = draw_words(keys, self._n_draws)
        draws = (words >> np.uint64(32)).astype(np.int64)
        position, level, shuffle = draws[:, :n], draws[:, n : 2 * n], draws[:, 2 * n : 3 * n]
        low, span = _permuted(shuffle, self._player_low, self._player_span)
        levels = low + ((level * span) >> 32)
        cells = self._player_cells(position)
        foods = draws[:, 3 * n :]
        high = self._food_high
        if high is None:
            high = np.sort(levels, axis=1)[:, :3].sum(1, keepdims=True).repeat(f, axis=1)
        low, high = _permuted(foods[:, 2 * f :], self._food_low, high)
        if rules.force_coop:
            low = high
        food_levels = low + ((foods[:, f : 2 * f] * (high - low + 1)) >> 32)
        return Layout(cells, levels, self._food_places(foods[:, :f], food_levels, cells))

    def _player_cells(self, draws: IntArray) -> IntArray:
        """Distinct cells, each uniform among those left over by the seats before."""
        cells = np.empty_like(draws)
        for seat in range(draws.shape[1]):
            pick = (draws[:, seat] * (self.rules.rows * self.rules.cols - seat)) >> 32
            taken = np.sort(cells[:, :seat], axis=1)
            for other in range(seat):
                pick += pick >= taken[:, other]
            cells[:, seat] = pick
        return cells

    def _food_places(self, draws: IntArray, levels: IntArray, players: IntArray) -> IntArray:
        """Foods one by one, uniform among interior cells away from players and other foods."""
        episodes = np.arange(len(draws))
        free = np.repeat(self._interior[None], len(draws), axis=0)
        rows, cols = np.divmod(players, self.rules.cols)
        free[episodes[:, None], (rows + 1) * self._width + cols + 1] = False
        places = np.full(draws.shape, MISSING)
        for slot in range(draws.shape[1]):
            rank = np.cumsum(free, axis=1, dtype=np.int32)
            count = rank[:, -1]
            pick = (draws[:, slot] * count) >> 32
            cell = (rank > pick[:, None]).argmax(axis=1)
            row, col = np.divmod(cell, self._width)
            places[:, slot] = np.where(count > 0, pack(row - 1, col - 1, levels[:, slot]), MISSING)
            if slot + 1 < draws.shape[1]:
                # Where nothing was free, `cell` is 0 and nothing changes that matters.
                free[episodes[:, None], np.maximum(cell[:, None] + self._reach, 0)] = False
        return np.sort(places, axis=1)


def _permuted(shuffle: IntArray, *ranges: IntArray) -> tuple[IntArray, ...]:
    """The same random order for each row of every range, left out where it cannot matter."""
    if all((values == values[..., :1]).all() for values in ranges):
        return ranges
    order = shuffle.argsort(axis=1)
    wide = (np.broadcast_to(values, shuffle.shape) for values in ranges)
    return tuple(np.take_along_axis(values, order, axis=1) for values in wide)
