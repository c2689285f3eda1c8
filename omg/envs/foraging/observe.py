"""What the players see: the whole field, or what lies within their sight."""

from __future__ import annotations

import numpy as np

from omg.envs.foraging.args import ForagingRules
from omg.envs.foraging.layout import COL, FIELD, MISSING, ORDER, ROW, unpack
from omg.types import FloatArray, IntArray


class Observer:
    """Turns states [E, S] or places into observations [E, N, O]."""

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
        self._columns = columns[:, shown].ravel()
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
        seen = state.take(self._columns, axis=1)
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
