"""The running games: the field, what players see of it, and what a step does.

A place is one integer, `row + 1 | col + 1 | level` in 16 bits each, so that sorting places sorts
them row by row; `MISSING` sorts last and unpacks to row -1, column -1, level 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omg.envs.foraging.args import ForagingRules
from omg.envs.foraging.kernel import ForagingKernel, KernelGames
from omg.types import BoolArray, FloatArray, IntArray

ROW, COL, ORDER = 32, 16, 48
FIELD = 0xFFFF
MISSING = 1 << 62

N_ACTIONS = 6
LOAD = 5
_STEP = 8
_CODES = 16 * 5


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


class Board:
    """Look-up tables of a field of `rows` x `cols` cells, numbered row by row: which actions a
    cell allows and where they lead.

    Each cell of each copy has a code: which of its four neighbours can be entered (4 bits), and in
    which direction food lies (0 for none, else 1 to 4). Foods keep their distance from one another,
    so a cell never touches two. Codes are stored times 8, which makes code + action an index.
    """

    def __init__(self, rows: int, cols: int) -> None:
        self.n_cells = rows * cols
        row, col = np.divmod(np.arange(self.n_cells), cols)
        self.rows_i: IntArray = row
        self.cols_i: IntArray = col
        self.rows_f = row.astype(np.float32)
        self.cols_f = col.astype(np.float32)
        # North, south, west, east.
        self.offsets: IntArray = np.array([-cols, cols, -1, 1])
        inside = np.stack([row > 0, row < rows - 1, col > 0, col < cols - 1])
        self.empty: NDArray[np.int16] = ((1 << np.arange(4)) @ inside * _STEP).astype(np.int16)
        # What food in each direction changes in the code of a cell.
        direction = np.arange(4)
        self.beside_food = (((direction + 1) * 16 - (1 << direction)) * _STEP).astype(np.int16)

        self.moves: IntArray = np.zeros(_CODES * _STEP, np.int64)
        self.loads: BoolArray = np.zeros(_CODES * _STEP, np.bool_)
        self.food_offset: IntArray = np.zeros(_CODES * _STEP, np.int64)
        self.avail: BoolArray = np.zeros((_CODES * _STEP, N_ACTIONS), np.bool_)
        self.avail[:, 0] = True
        for code in range(_CODES):
            food, free = divmod(code, 16)
            for side in range(4):
                if free >> side & 1:
                    self.moves[code * _STEP + 1 + side] = self.offsets[side]
                    self.avail[code * _STEP, 1 + side] = True
            if food:
                self.loads[code * _STEP + LOAD] = True
                self.food_offset[code * _STEP] = self.offsets[food - 1]
                self.avail[code * _STEP, LOAD] = True


class Observer:
    """What players see, the whole field or what lies within their sight: turns states [E, S] or
    places into observations [E, N, O]."""

    def __init__(self, rules: ForagingRules) -> None:
        self.rules = rules
        n, f, sight = rules.n_players, rules.max_num_food, rules.sight
        # What each player is told of, in order: foods, itself, the other seats.
        seats = [[me, *(seat for seat in range(n) if seat != me)] for me in range(n)]
        things = np.array([[*range(f), *(f + seat for seat in order)] for order in seats])
        self._things = things.ravel()
        columns = (3 * things[:, :, None] + np.arange(3)).reshape(n, -1)
        shown = np.arange(3 * (f + n))
        if not rules.observe_agent_levels:
            shown = shown[(shown < 3 * f) | (shown % 3 < 2)]
        self._shown = shown
        self.columns = columns[:, shown].ravel()
        # Where rows and columns stand in an observation; the own ones stay as they are.
        own = 3 * f
        kind = np.where(shown < own, shown % 3, (shown - own) % 3)
        others = (shown < own) | (shown >= own + 3)
        self._own = own
        self._rows_shown = np.flatnonzero(others & (kind == 0))
        self._cols_shown = np.flatnonzero(others & (kind == 1))

        # By the player's cell: the corner of what it sees, and how far from there it sees things.
        row, col = np.divmod(np.arange(rules.rows * rules.cols), rules.cols)
        top, left = np.maximum(row - sight, 0), np.maximum(col - sight, 0)
        self._top, self._left = top + 1, left + 1
        self._corner = (top << ROW) + (left << COL)
        # Foods up to `sight` cells away; players up to coordinate 2 * sight, which near the upper
        # and left walls is further. That is how the reference does it.
        is_food = np.arange(f + n) < f
        self._row_limit = np.where(is_food, (row - top + sight)[:, None], 2 * sight)
        self._col_limit = np.where(is_food, (col - left + sight)[:, None], 2 * sight)
        # Keeps foods, then unseen foods, then players by seat, then unseen players.
        order = np.where(is_food, 0, np.arange(f + n) - f + 2)
        self._order: IntArray = order << ORDER
        self._unseen: IntArray = np.where(is_food, 1 << ORDER, MISSING)

    def whole(self, state: FloatArray) -> FloatArray:
        """Observations of players who see everything: the state, each player first in its own."""
        seen = state.take(self.columns, axis=1)
        return self._relative(seen.reshape(len(state), self.rules.n_players, self.rules.obs_dim))

    def near(self, *, cells: IntArray, players: IntArray, foods: IntArray) -> FloatArray:
        """Observations within sight, of players [E, N] and foods [E, F] as packed places.

        Coordinates count from the corner of what is seen, which is cut at the walls.
        """
        things = np.concatenate((foods, players), axis=1).take(self._things, axis=1)
        things = things.reshape(*cells.shape, -1)
        # Unsigned, so that what lies before the corner is as far away as missing foods are.
        rows = ((things >> ROW) - self._top.take(cells)[:, :, None]).view(np.uint64)
        cols = (((things >> COL) & FIELD) - self._left.take(cells)[:, :, None]).view(np.uint64)
        seen = rows <= self._row_limit.take(cells, axis=0).view(np.uint64)
        seen &= cols <= self._col_limit.take(cells, axis=0).view(np.uint64)
        things += self._order - self._corner.take(cells)[:, :, None]
        places = np.where(seen, things, self._unseen)
        places.sort(axis=-1)
        obs = np.empty((*places.shape, 3), np.float32)
        obs[..., 0], obs[..., 1], obs[..., 2] = unpack(places)
        flat = obs.reshape(*cells.shape, -1)
        if not self.rules.observe_agent_levels:
            flat = flat.take(self._shown, axis=-1)
        return self._relative(flat)

    def _relative(self, obs: FloatArray) -> FloatArray:
        """With `relative_obs`: places of foods and other players as steps from the own place;
        what is missing or unseen (-1) stands at no distance, its level says that it is none."""
        if not self.rules.relative_obs:
            return obs
        for own, columns in ((self._own, self._rows_shown), (self._own + 1, self._cols_shown)):
            places = obs[..., columns]
            obs[..., columns] = np.where(places < 0, 0, places - obs[..., own : own + 1])
        return obs


class Games:
    """B games as arrays.

    Players stand at flat positions, copy * cells + cell. `_code` holds what each cell of each copy
    allows (see `Board`) and changes only where food comes or goes.
    """

    def __init__(self, rules: ForagingRules, n_copies: int) -> None:
        self.rules = rules
        self.board = board = Board(rules.rows, rules.cols)
        self._observer = Observer(rules)
        b, n, f = n_copies, rules.n_players, rules.max_num_food
        self.copies = np.arange(b)
        self._base: IntArray = self.copies[:, None] * board.n_cells
        self._pos = self._base.repeat(n, axis=1)
        self.levels = np.zeros((b, n), np.int64)
        self.foods = np.full((b, f), MISSING)
        self.spawned = np.zeros(b, np.int64)
        self.collected = np.zeros(b, np.float32)
        self.score = np.zeros((b, n))
        # Per cell of every copy: code, food level, and a scratch sum that is 0 between uses.
        self._code = np.tile(board.empty, b)
        self._field = np.zeros(b * board.n_cells, np.int64)
        self._strength = np.zeros(b * board.n_cells, np.int64)
        self._here = self._code.take(self._pos)
        self._location = pack(board.rows_i, board.cols_i, np.zeros(1, np.int64)) >> COL
        # The current states; columns of foods first, then of players.
        self._state = np.zeros((b, rules.state_dim), np.float32)
        self._food_columns = tuple(self._state[:, part : 3 * f : 3] for part in range(3))
        self._player_columns = tuple(self._state[:, 3 * f + part :: 3] for part in range(3))

        self._plain = rules.sees_everything and not rules.relative_obs
        self._in_c: KernelGames | None = None

    def use(self, kernel: ForagingKernel | None) -> None:
        """Act and look in C, or in NumPy."""
        rules, board, self._in_c = self.rules, self.board, None
        if kernel is None or rules.n_players > kernel.max_players:
            return
        names = ("moves", "food_offset", "loads", "avail", "empty", "rows_f", "cols_f")
        arrays: dict[str, NDArray[Any]] = {
            **{name: getattr(board, name) for name in names},
            **{name: getattr(self, name) for name in ("levels", "foods", "spawned", "score")},
            "columns": self._observer.columns,
            "collected": self.collected,
            "pos": self._pos,
            "state": self._state,
            "code": self._code,
            "here": self._here,
            "field": self._field,
        }
        numbers = {
            "n_copies": len(self.copies),
            "n_players": rules.n_players,
            "n_foods": rules.max_num_food,
            "n_cells": board.n_cells,
            "cols": rules.cols,
            "state_dim": rules.state_dim,
            "obs_dim": rules.obs_dim,
            "normalize": int(rules.normalize_reward),
            "penalty": float(rules.penalty),
        }
        self._in_c = KernelGames(kernel, arrays, numbers)

    @property
    def cells(self) -> IntArray:
        """Where the players stand, [B, N], row * cols + col."""
        return self._pos - self._base

    @property
    def no_food_left(self) -> BoolArray:
        """Copies in which everything has been collected, [B]."""
        left: BoolArray = self.foods[:, 0] == MISSING
        return left

    def place(self, copies: IntArray, layout: Layout) -> None:
        """Begin again in some copies, with the layout's rows in the same order."""
        board = self.board
        self._pos[copies] = layout.cells + self._base[copies]
        self.levels[copies] = layout.levels
        self.foods[copies] = layout.foods
        self.spawned[copies] = (layout.foods & FIELD).sum(1)
        self.collected[copies] = 0.0
        self.score[copies] = 0.0
        self._code.reshape(-1, board.n_cells)[copies] = board.empty
        self._field.reshape(-1, board.n_cells)[copies] = 0
        which, slot = (layout.foods != MISSING).nonzero()
        rows, cols, levels = unpack(layout.foods[which, slot])
        cells = rows * self.rules.cols + cols
        at = cells + self._base[copies[which], 0]
        self._field[at] = levels
        around = cells[:, None] - board.offsets
        self._code[at[:, None] - board.offsets] = board.empty[around] + board.beside_food
        self._show_foods(copies)
        rows_of_state, cols_of_state, levels_of_state = self._player_columns
        rows_of_state[copies] = board.rows_f[layout.cells]
        cols_of_state[copies] = board.cols_f[layout.cells]
        levels_of_state[copies] = layout.levels

    def act(self, actions: IntArray) -> FloatArray:
        """Move and load in every copy, actions [B, N] in range; returns rewards [B, N]."""
        if self._in_c is not None:
            return self._in_c.act(actions)
        board = self.board
        choice = self._here + actions
        self._move(board.moves.take(choice))
        reward = np.zeros(choice.shape, np.float32)
        loading = board.loads.take(choice).ravel().nonzero()[0]
        if loading.size:
            self._load(loading, reward.reshape(-1))
        return reward

    def look(self) -> None:
        """Find out what the cells under the players allow; before `view` and `act`."""
        self._here[...] = self._code.take(self._pos)

    def view(self, copies: IntArray | None = None) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Fresh arrays of observations, states and possible actions, of all or some copies."""
        if copies is None and self._in_c is not None and self._plain:
            obs, avail = self._in_c.view()
            return obs, self._state.copy(), avail
        pick = slice(None) if copies is None else copies
        state = self._state.copy() if copies is None else self._state[copies]
        here = self._here if copies is None else self._here[copies]
        if self.rules.sees_everything:
            obs = self._observer.whole(state)
        else:
            cells = self.cells[pick]
            players = (self._location.take(cells) << COL) + self.levels[pick]
            obs = self._observer.near(cells=cells, players=players, foods=self.foods[pick])
        return obs, state, self.board.avail.take(here, axis=0)

    def count_collected(self, copies: IntArray) -> None:
        """Bring the collected share of the spawned food up to date."""
        left = (self.foods[copies] & FIELD).sum(1)
        spawned = self.spawned[copies]
        self.collected[copies] = (spawned - left) / np.maximum(spawned, 1)

    def _move(self, moves: IntArray) -> None:
        """Players go where nobody else wants to be; those who stay want their own cell.

        A player may thus enter the cell of one who failed to leave it.
        """
        n = self.rules.n_players
        wanted = self._pos + moves
        if n == 2:
            clash = wanted == wanted[:, ::-1]
        else:
            around = np.concatenate((wanted, wanted), axis=1)
            clash = np.zeros(wanted.shape, np.bool_)
            for shift in range(1, n):
                clash |= wanted == around[:, shift : shift + n]
        stay = clash.ravel().nonzero()[0]
        if stay.size:
            wanted.reshape(-1)[stay] = self._pos.reshape(-1)[stay]
        self._pos[...] = wanted
        cells = self._pos - self._base
        self._player_columns[0][...] = self.board.rows_f.take(cells)
        self._player_columns[1][...] = self.board.cols_f.take(cells)

    def _load(self, loading: IntArray, reward: FloatArray) -> None:
        """Players [K] (flat copy and seat) lift what lies beside them, together or not at all."""
        copies = loading // self.rules.n_players
        at = self._pos.reshape(-1)[loading]
        at = at + self.board.food_offset[self._here.reshape(-1)[loading]]
        level = self.levels.reshape(-1)[loading]
        np.add.at(self._strength, at, level)
        strength = self._strength[at]
        self._strength[at] = 0
        food = self._field[at]
        lifted = strength >= food
        gain = (level * food).astype(np.float64)
        if self.rules.normalize_reward:
            gain /= strength * self.spawned[copies]
        gain = np.where(lifted, gain, 0.0 - self.rules.penalty)
        reward[loading] = gain
        self.score.reshape(-1)[loading] += gain
        if lifted.any():
            self._remove(at[lifted], copies[lifted])

    def _remove(self, at: IntArray, copies: IntArray) -> None:
        """Take away foods at flat positions; the same food may be named more than once."""
        board = self.board
        cells = at - self._base[copies, 0]
        self._field[at] = 0
        self._code[at[:, None] - board.offsets] = board.empty[cells[:, None] - board.offsets]
        slots = (self.foods[copies] >> COL == self._location[cells, None]).argmax(axis=1)
        self.foods[copies, slots] = MISSING
        self.foods[copies] = np.sort(self.foods[copies], axis=1)
        self._show_foods(copies)
        self.count_collected(copies)

    def _show_foods(self, copies: IntArray) -> None:
        for column, values in zip(self._food_columns, unpack(self.foods[copies]), strict=True):
            column[copies] = values
