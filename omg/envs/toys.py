"""Tiny PyMARL-style games: two classics of value decomposition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from omg.envs.contract import MultiAgentEnv
from omg.types import FloatArray, OmgError

_TABLE = "Give numbers in lists in lists, one level per agent, all lists of the same length."


class TwoStepEnv(MultiAgentEnv):
    """The two-step game of the QMIX paper: 7 for sure, or 8 if both agents agree.

    Agent 0's first action chooses the matrix of the second step: all 7, or 0 1 / 1 8."""

    PAYOFFS = np.array([[[7, 7], [7, 7]], [[0, 1], [1, 8]]], np.float32)
    # The game ends by itself after two steps, so nothing is ever cut at this limit.
    episode_limit = 3

    def __init__(self, copy: int = 0) -> None:
        self._room = 0

    def reset(self, seed: int | None = None) -> tuple[list[FloatArray], FloatArray]:
        self._room = 0
        return self.get_obs(), self.get_state()

    def step(self, actions: Sequence[int]) -> tuple[float, bool, dict[str, Any]]:
        if self._room == 0:
            self._room = 1 + int(actions[0])
            return 0.0, False, {}
        reward = float(self.PAYOFFS[self._room - 1, actions[0], actions[1]])
        self._room = 3
        return reward, True, {}

    def get_obs(self) -> list[FloatArray]:
        return [self.get_state(), self.get_state()]

    def get_state(self) -> FloatArray:
        return np.array(np.arange(4) == self._room, np.float32)

    def get_avail_actions(self) -> list[list[int]]:
        return [[1, 1], [1, 1]]

    def get_env_info(self) -> dict[str, Any]:
        return {
            "name": "two_step",
            "state_shape": 4,
            "obs_shape": 4,
            "n_actions": 2,
            "n_agents": 2,
            "episode_limit": self.episode_limit,
            "shared_reward": True,
            "obs_dtype": "int8",
            "state_dtype": "int8",
        }


class MatrixGameEnv(MultiAgentEnv):
    """A matrix game of one step, by default that of the QTRAN paper.

    `payoff[a_0][a_1]…` has an axis per agent. No sum and no monotone mix of the agents' values can
    represent the default: an agent's best action depends on the other's."""

    PAYOFF = ((8, -12, -12), (-12, 0, 0), (-12, 0, 0))
    # It ends by itself after one step.
    episode_limit = 2

    def __init__(self, payoff: Sequence[Any] = PAYOFF) -> None:
        try:
            self.payoff = np.array(payoff, np.float32)
        except (ValueError, TypeError) as error:
            raise OmgError(f"env_args.payoff={payoff} is no table of a game. {_TABLE}") from error
        even = len(set(self.payoff.shape)) == 1 and self.payoff.size > 0
        if not even or not np.isfinite(self.payoff).all():
            raise OmgError(f"env_args.payoff={payoff} is no table of a game. {_TABLE}")
        self._over = False

    def reset(self, seed: int | None = None) -> tuple[list[FloatArray], FloatArray]:
        self._over = False
        return self.get_obs(), self.get_state()

    def step(self, actions: Sequence[int]) -> tuple[float, bool, dict[str, Any]]:
        self._over = True
        return float(self.payoff[tuple(int(action) for action in actions)]), True, {}

    def get_obs(self) -> list[FloatArray]:
        return [self.get_state()] * self.payoff.ndim

    def get_state(self) -> FloatArray:
        return np.array([not self._over], np.float32)

    def get_avail_actions(self) -> list[list[int]]:
        return [[1] * len(self.payoff)] * self.payoff.ndim

    def get_env_info(self) -> dict[str, Any]:
        return {
            "name": "matrix_game",
            "state_shape": 1,
            "obs_shape": 1,
            "n_actions": len(self.payoff),
            "n_agents": self.payoff.ndim,
            "episode_limit": self.episode_limit,
            "shared_reward": True,
            "obs_dtype": "int8",
            "state_dtype": "int8",
        }
