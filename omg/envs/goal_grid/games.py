"""The running games: who stands where, what is left, what players see and may do.

B copies, N players, K targets, O obstacles, M = K + N + O things. A state is (row, column, mark) of
every target, player and obstacle; the mark of a player is its strength, of other things 1; a thing
that is gone is all zeros.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from omg.envs.goal_grid.layout import GridSize, Layout
from omg.types import BoolArray, FloatArray, IntArray

STAY = 0
# Rows and columns that north, south, west and east (actions 1 to 4) lead to.
DIRECTIONS = ((-1, 0), (1, 0), (0, -1), (0, 1))
FIRST_SPECIAL = 5  # actions from here on are for targets


class Field:
    """Look-up tables of an empty field: where actions lead, and which of them stay inside."""

    def __init__(self, size: GridSize, n_actions: int) -> None:
        rows, cols = np.divmod(np.arange(size.n_cells), size.cols)
        self.places = (rows.astype(np.int8), cols.astype(np.int8))  # [cells] each
        self.leads: IntArray = np.repeat(np.arange(size.n_cells)[:, None], n_actions, 1)
        self.avail: BoolArray = np.zeros((size.n_cells, n_actions), np.bool_)
        self.avail[:, STAY] = True
        for side, (down, right) in enumerate(DIRECTIONS):
            row, col = rows + down, cols + right
            inside = (row >= 0) & (row < size.rows) & (col >= 0) & (col < size.cols)
            self.leads[inside, 1 + side] = (row * size.cols + col)[inside]
            self.avail[:, 1 + side] = inside


class GridGames:
    """B games as arrays. Players share cells; walls and obstacles stop them."""

    def __init__(self, size: GridSize, n_copies: int, *, kinds: IntArray, n_actions: int) -> None:
        """`kinds` [K]: the action that is for each target."""
        self.size, self.field = size, Field(size, n_actions)
        self._n_actions, self._kinds = n_actions, kinds
        b, n, k = n_copies, size.n_players, size.n_targets
        self._all: IntArray = np.arange(b)
        self.cells: IntArray = np.zeros((b, n), np.int64)
        self.strengths: IntArray = np.ones((b, n), np.int64)
        self.alive: BoolArray = np.ones((b, n), np.bool_)
        self.targets: IntArray = np.zeros((b, k), np.int64)
        self.there: BoolArray = np.ones((b, k), np.bool_)
        self.obstacles: IntArray = np.zeros((b, size.n_obstacles), np.int64)
        self._blocked: BoolArray = np.zeros((b, size.n_cells), np.bool_)
        self._on: BoolArray = np.zeros((b, n, k), np.bool_)  # as of the last look at all copies

    @property
    def obs_dim(self) -> int:
        return 3 * self.size.n_things

    @property
    def over(self) -> BoolArray:
        """Copies in which nobody or nothing is left, [B]."""
        over: BoolArray = np.logical_not(self.there.any(axis=1) & self.alive.any(axis=1))
        return over

    def place(self, copies: IntArray, layout: Layout) -> None:
        """Begin an episode in some copies, with the layout's rows in the same order."""
        self.cells[copies], self.strengths[copies] = layout.players, layout.strengths
        self.targets[copies], self.obstacles[copies] = layout.targets, layout.obstacles
        self.alive[copies], self.there[copies] = True, True
        self.block(copies)

    def block(self, copies: IntArray) -> None:
        """Note where the obstacles of some copies stand."""
        if self.size.n_obstacles:
            self._blocked[copies] = False
            self._blocked[copies[:, None], self.obstacles[copies]] = True

    def act(self, actions: IntArray) -> tuple[IntArray, BoolArray]:
        """Move who moves, actions [B, N] in range, all copies having been looked at. Returns the
        copies [E] in which somebody tries for a target, and who tries for which there, [E, N, K].
        Impossible actions do nothing."""
        tries = self._on & (actions[:, :, None] == self._kinds)
        copies = np.unique(tries.ravel().nonzero()[0] // tries[0].size)
        wanted = self.field.leads.take(self.cells * self._n_actions + actions)
        if self.size.n_obstacles:
            stopped = self._blocked[self._all[:, None], wanted]
            wanted = np.where(stopped, self.cells, wanted)
        self.cells = np.where(self.alive, wanted, self.cells)
        return copies, tries[copies]

    def view(
        self, copies: IntArray | None = None
    ) -> tuple[FloatArray, FloatArray, BoolArray, BoolArray]:
        """Fresh arrays of observations, states, possible actions and who is alive, of all or some
        copies."""
        pick = slice(None) if copies is None else copies
        alive = self.alive[pick].copy()
        cells = self.cells[pick]
        on: BoolArray = cells[:, :, None] == self.targets[pick][:, None]
        on &= self.there[pick][:, None]
        on &= alive[:, :, None]
        if copies is None:
            self._on = on
        obs, state = self._show(pick, alive)
        return obs, state, self._avail(self._all[pick], cells, on, alive), alive

    def _show(self, pick: IntArray | slice, alive: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Observations [E, N, O] and states [E, S]. A player sees its own place and strength, then
        the other seats from the next on, targets and obstacles, relative to its place."""
        size = self.size
        n, k, o = size.n_players, size.n_targets, size.n_obstacles
        strengths, there = self.strengths[pick].astype(np.int8) * alive, self.there[pick]
        state = np.empty((len(alive), size.n_things, 3), np.float32)
        obs = np.empty((len(alive), n, size.n_things, 3), np.float32)
        mark = _following(strengths)  # [E, N, N - 1]
        here = alive[:, :, None]
        seen_player, seen_target = (mark > 0) & here, there[:, None] & here
        for axis, of_cell in enumerate(self.field.places):
            own = of_cell.take(self.cells[pick]) * alive
            target = of_cell.take(self.targets[pick]) * there
            state[:, :k, axis], state[:, k : k + n, axis] = target, own
            obs[:, :, 0, axis] = own
            obs[:, :, 1:n, axis] = (_following(own) - own[:, :, None]) * seen_player
            obs[:, :, n : n + k, axis] = (target[:, None] - own[:, :, None]) * seen_target
            if o:
                obstacle = of_cell.take(self.obstacles[pick])
                state[:, k + n :, axis] = obstacle
                obs[:, :, n + k :, axis] = (obstacle[:, None] - own[:, :, None]) * here
        state[:, :k, 2], state[:, k : k + n, 2], state[:, k + n :, 2] = there, strengths, 1
        obs[:, :, 0, 2], obs[:, :, 1:n, 2] = strengths, mark * seen_player
        obs[:, :, n : n + k, 2], obs[:, :, n + k :, 2] = seen_target, here
        return obs.reshape(len(obs), n, -1), state.reshape(len(state), -1)

    def _avail(
        self, copies: IntArray, cells: IntArray, on: BoolArray, alive: BoolArray
    ) -> BoolArray:
        avail: BoolArray = self.field.avail.take(cells, axis=0)
        if self.size.n_obstacles:
            around = self.field.leads.take(cells, axis=0)[..., 1:FIRST_SPECIAL]
            avail[..., 1:FIRST_SPECIAL] &= ~self._blocked[copies[:, None, None], around]
        for target, action in enumerate(self._kinds.tolist()):
            avail[..., action] |= on[..., target]
        avail &= alive[:, :, None]
        avail[..., STAY] = True
        return avail


def _following(of_seats: NDArray[np.int8]) -> NDArray[np.int8]:
    """The values [E, N] of the other seats, from the next on: [E, N, N - 1]."""
    n = of_seats.shape[1]
    twice = np.concatenate((of_seats, of_seats), axis=1)
    return sliding_window_view(twice, n, axis=1)[:, :n, 1:]


def state_parts(
    state: NDArray[np.float32], size: GridSize
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Targets [R, K, 3], players [R, N, 3] and obstacles [R, O, 3] of states [R, S]."""
    things = state.reshape(len(state), size.n_things, 3)
    k, n = size.n_targets, size.n_players
    return things[:, :k], things[:, k : k + n], things[:, k + n :]
