"""The running games: positions, foods, and what a step does to them."""

from __future__ import annotations

import numpy as np

from omg.envs.foraging.args import ForagingRules
from omg.envs.foraging.board import Board
from omg.envs.foraging.layout import COL, FIELD, MISSING, Layout, pack, unpack
from omg.envs.foraging.observe import Observer
from omg.types import BoolArray, FloatArray, IntArray


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
        """Begin anew in some copies, with the layout's rows in the same order."""
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
        self._here = self._code.take(self._pos)

    def view(self, copies: IntArray | None = None) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Fresh arrays of observations, states and possible actions, of all or some copies."""
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
        self._pos = wanted
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
