"""A game whose sizes are nobody's favourites: 3 agents, 5 actions, observation 4, state 11, and
episodes of unequal lengths, some of which end by themselves and some at the limit.

Every agent has three features (two places and a level); two more describe the table. An agent sees
its own features and the time, so that observation and state differ in width and content.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from omg.envs.contract import MultiAgentEnv
from omg.envs.registry import SerialVectorEnv
from omg.types import FloatArray

AGENTS, ACTIONS, OWN, COMMON, LIMIT = 3, 5, 3, 2, 9
OBS, STATE = OWN + 1, AGENTS * OWN + COMMON
ODD = f"{__name__}:OddEnv"


class OddGame(MultiAgentEnv):
    """Agents shift their places by their actions; the game ends at a step drawn from the seed."""

    def __init__(self) -> None:
        self._own = np.zeros((AGENTS, OWN), np.float32)
        self._steps, self._end = 0, LIMIT

    def reset(self, seed: int | None = None) -> tuple[list[FloatArray], FloatArray]:
        rng = np.random.default_rng(seed)
        self._own = rng.random((AGENTS, OWN), np.float32) + 1
        self._steps, self._end = 0, int(rng.integers(3, 2 * LIMIT))
        return self.get_obs(), self.get_state()

    def step(self, actions: Sequence[int]) -> tuple[FloatArray, bool, dict[str, Any]]:
        self._steps += 1
        self._own[:, 0] += np.asarray(actions, np.float32) / ACTIONS
        self._own[:, 1] *= -1
        reward = np.asarray(actions, np.float32) / ACTIONS
        return reward, self._steps == self._end, {}

    def get_obs(self) -> list[FloatArray]:
        return [np.append(own, np.float32(self._steps)) for own in self._own]

    def get_state(self) -> FloatArray:
        table = np.array([self._steps, self._own.sum()], np.float32)
        return np.concatenate([self._own.ravel(), table])

    def get_avail_actions(self) -> list[list[int]]:
        return [[1, 1, 1, 1, int((self._steps + agent) % 2)] for agent in range(AGENTS)]

    def get_env_info(self) -> dict[str, Any]:
        return {
            "state_shape": STATE,
            "obs_shape": OBS,
            "n_actions": ACTIONS,
            "n_agents": AGENTS,
            "episode_limit": LIMIT,
            "shared_reward": False,
        }


class OddEnv(SerialVectorEnv):
    """Copies of it that also say whose features are whose."""

    def __init__(self, *, args: Mapping[str, Any], n_copies: int, first_copy: int = 0) -> None:
        super().__init__(
            factory=lambda copy: OddGame(), n_copies=n_copies, first_copy=first_copy, name="odd"
        )
        blocks = np.arange(AGENTS * OWN).reshape(AGENTS, OWN)
        self.spec = replace(self.spec, agent_features=tuple(map(tuple, blocks.tolist())))
