"""Snowdrift: everybody profits from a drift that is removed, and only the remover pays.

Actions: stay, north, south, west, east, remove.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from omg.envs.goal_grid.env import GridArguments, GridEnv, Size, sides
from omg.envs.goal_grid.layout import GridSize
from omg.envs.goal_grid.render import DRIFT, Look
from omg.types import FloatArray, IntArray

REMOVE, N_ACTIONS = 5, 6


class SnowdriftArgs(GridArguments):
    """A field, the drifts on it, and what removing one brings and costs."""

    game = "Snowdrift"

    size: Size = 8
    players: int = 4
    drifts: int = Field(6, ge=1, le=100)
    reward: float = Field(6.0, ge=0.0, allow_inf_nan=False)  # to everybody
    cost: float = Field(4.0, ge=0.0, allow_inf_nan=False)  # of who removes it
    obstacles: int = 0
    max_episode_steps: int = Field(50, ge=1, le=2**31)

    @property
    def grid(self) -> GridSize:
        rows, cols = sides(self.size)
        return GridSize(
            rows=rows,
            cols=cols,
            n_players=self.players,
            n_targets=self.drifts,
            n_obstacles=self.obstacles,
        )

    @property
    def name(self) -> str:
        rows, cols = sides(self.size)
        return f"Snowdrift-{rows}x{cols}-{self.players}p-{self.drifts}d"


class SnowdriftEnv(GridEnv):
    """Who remove a drift in the same step share its cost, as in the matrix game."""

    statistics = ("drifts",)

    def __init__(
        self, *, args: SnowdriftArgs | Mapping[str, Any], n_copies: int, first_copy: int = 0
    ) -> None:
        self.args = args = SnowdriftArgs.parse(args)
        super().__init__(
            args=args,
            n_copies=n_copies,
            first_copy=first_copy,
            goals=[f"drift {i + 1}" for i in range(args.drifts)],
            kinds=[REMOVE] * args.drifts,
            n_actions=N_ACTIONS,
            limit=args.max_episode_steps,
            obs_format=f"drifts={args.drifts}, obstacles={args.obstacles}",
            leavers=False,
            look=Look("snowdrift", "Snowdrift", "drifts left", (DRIFT,) * args.drifts),
        )

    def _settle(
        self, copies: IntArray, tries: NDArray[np.bool_], reward: FloatArray, reached: IntArray
    ) -> None:
        args = self.args
        removers = tries.sum(axis=1)  # [E, K]
        gone = removers > 0
        count = gone.sum(axis=1)
        costs = (tries * (args.cost / np.maximum(removers, 1))[:, None]).sum(axis=-1)
        reward[copies] = args.reward * count[:, None] - costs
        reached[copies] = np.where(tries.any(axis=-1), tries.argmax(axis=-1), -1)
        self.games.there[copies] &= ~gone
        self._counts[copies, 0] += count
