"""A counting game for tests in which who arrives leaves, while the others play on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from omg.envs.contract import MultiAgentEnv
from omg.types import FloatArray


class LeaverEnv(MultiAgentEnv):
    """Each of three agents holds a number from 1 to 6, drawn from the seed, and can keep it or
    lower it. Who reaches 0 earns 1, or 2 if its number was odd at the start, and leaves. The game
    ends when all have left; after 8 steps it is cut. Goals: an even and an odd beginning."""

    N_AGENTS, EPISODE_LIMIT = 3, 8

    def __init__(self, copy: int = 0) -> None:
        self._values = np.zeros(self.N_AGENTS, np.int64)
        self._odd = self._values > 0
        self._steps = 0

    def reset(self, seed: int | None = None) -> tuple[list[FloatArray], FloatArray]:
        self._steps = 0
        self._values = np.random.default_rng(seed).integers(1, 7, self.N_AGENTS)
        self._odd = self._values % 2 == 1
        return self.get_obs(), self.get_state()

    def step(self, actions: Sequence[int]) -> tuple[FloatArray, bool, dict[str, Any]]:
        self._steps += 1
        before = self._values
        self._values = np.maximum(before - np.asarray(actions), 0)
        arrived = (before > 0) & (self._values == 0)
        reward = (arrived * (1 + self._odd)).astype(np.float32)
        info: dict[str, Any] = {"reached": np.where(arrived, self._odd, -1)}
        over = not self._values.any()
        if not over and self._steps == self.EPISODE_LIMIT:
            info["episode_limit"] = True
        return reward, over or self._steps == self.EPISODE_LIMIT, info

    def get_obs(self) -> list[FloatArray]:
        told = np.stack([self._values, np.full(self.N_AGENTS, self._steps)], -1)
        return list((told * self.get_alive()[:, None]).astype(np.float32))

    def get_state(self) -> FloatArray:
        return np.array([*self._values, self._steps], np.float32)

    def get_avail_actions(self) -> list[list[int]]:
        return [[1, int(value > 0)] for value in self._values]

    def get_alive(self) -> Any:
        return self._values > 0

    def get_env_info(self) -> dict[str, Any]:
        return {
            "name": "leaver",
            "state_shape": self.N_AGENTS + 1,
            "obs_shape": 2,
            "n_actions": 2,
            "n_agents": self.N_AGENTS,
            "episode_limit": self.EPISODE_LIMIT,
            "shared_reward": False,
            "obs_dtype": "int8",
            "state_dtype": "int8",
            "agent_features": ((0,), (1,), (2,)),
            "leavers": True,
            "goals": ("even", "odd"),
        }
