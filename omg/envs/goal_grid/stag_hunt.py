"""Stag Hunt: a stag that takes several hunters, hares that take one; who has caught goes home.

Actions: stay, north, south, west, east, hunt stag, hunt hare.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from omg.envs.goal_grid.env import GridArguments, GridEnv, Size, sides
from omg.envs.goal_grid.layout import GridSize
from omg.envs.goal_grid.render import HARE, STAG, Look
from omg.types import FloatArray, IntArray, OmgError

HUNT_STAG, HUNT_HARE, N_ACTIONS = 5, 6, 7


class StagHuntArgs(GridArguments):
    """A field, who hunts what on it, and what that brings."""

    game = "Stag Hunt"

    size: Size = 8
    players: int = 4
    stags: int = Field(1, ge=0, le=50)
    hares: int = Field(4, ge=0, le=50)
    stag_reward: float = Field(10.0, ge=0.0, allow_inf_nan=False)
    hare_reward: float = Field(1.0, ge=0.0, allow_inf_nan=False)
    stag_hunters: int = Field(2, ge=1)  # fewer catch no stag
    stag_strength: int = Field(2, ge=1)  # nor do hunters with less strength together
    min_strength: int = 1
    max_strength: int = 1
    obstacles: int = 0
    max_episode_steps: int = Field(35, ge=1, le=2**31)

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        if not self.stags + self.hares:
            raise OmgError("Stag Hunt without stags and hares is none. Give 'stags' or 'hares'.")
        if self.stags and (
            self.stag_hunters > self.players
            or self.stag_strength > self.players * self.max_strength
        ):
            raise OmgError(
                f"{self.players} players of strength {self.max_strength} at most never catch a "
                f"stag that takes {self.stag_hunters} hunters of strength {self.stag_strength}. "
                "Lower 'stag_hunters' or 'stag_strength', or set stags=0."
            )

    @property
    def grid(self) -> GridSize:
        rows, cols = sides(self.size)
        return GridSize(
            rows=rows,
            cols=cols,
            n_players=self.players,
            n_targets=self.stags + self.hares,
            n_obstacles=self.obstacles,
            min_strength=self.min_strength,
            max_strength=self.max_strength,
        )

    @property
    def name(self) -> str:
        rows, cols = sides(self.size)
        return f"StagHunt-{rows}x{cols}-{self.players}p-{self.stags}s-{self.hares}h"

    @property
    def goals(self) -> tuple[str, ...]:
        """The stags, then the hares; a single stag has no number."""
        stags = ["stag"] if self.stags == 1 else [f"stag {i + 1}" for i in range(self.stags)]
        return (*stags, *(f"hare {i + 1}" for i in range(self.hares)))


class StagHuntEnv(GridEnv):
    """Hunters on one cell who hunt its stag together share its reward; a hare takes one."""

    statistics = ("stags", "hares")

    def __init__(
        self, *, args: StagHuntArgs | Mapping[str, Any], n_copies: int, first_copy: int = 0
    ) -> None:
        self.args = args = StagHuntArgs.parse(args)
        kinds = (STAG,) * args.stags + (HARE,) * args.hares
        super().__init__(
            args=args,
            n_copies=n_copies,
            first_copy=first_copy,
            goals=args.goals,
            kinds=[HUNT_STAG] * args.stags + [HUNT_HARE] * args.hares,
            n_actions=N_ACTIONS,
            limit=args.max_episode_steps,
            obs_format=f"stags={args.stags}, hares={args.hares}, obstacles={args.obstacles}",
            leavers=True,
            look=Look("staghunt", "Stag Hunt", "left to catch", kinds),
        )
        is_stag = np.arange(args.stags + args.hares) < args.stags
        self._is_stag = is_stag
        self._value = np.where(is_stag, args.stag_reward, args.hare_reward)
        self._hunters = np.where(is_stag, args.stag_hunters, 1)
        self._strength = np.where(is_stag, args.stag_strength, 1)

    def _settle(
        self, copies: IntArray, tries: NDArray[np.bool_], reward: FloatArray, reached: IntArray
    ) -> None:
        games = self.games
        hunters = tries.sum(axis=1)  # [E, K]
        strength = (tries * games.strengths[copies][:, :, None]).sum(axis=1)
        caught = (hunters >= self._hunters) & (strength >= self._strength)
        got = tries & caught[:, None]  # a player stands on one target at most
        share = self._value / np.maximum(hunters, 1)
        reward[copies] = (got * share[:, None]).sum(axis=-1)
        done = got.any(axis=-1)
        reached[copies] = np.where(done, got.argmax(axis=-1), -1)
        games.alive[copies] &= ~done
        games.there[copies] &= ~caught
        self._counts[copies, 0] += (caught & self._is_stag).sum(axis=1)
        self._counts[copies, 1] += (caught & ~self._is_stag).sum(axis=1)
