"""A counting game for tests, which can be made to crash or hang."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from omg.envs.contract import MultiAgentEnv
from omg.types import FloatArray


class CounterEnv(MultiAgentEnv):
    """Each agent holds a number from 0 to 9, drawn from the seed, and can lower, keep or raise
    it. An agent earns 1 for reaching 0, where it stays; the game ends when all are there.

    `fault` is called before step `fault_step` (of copy `fault_copy` and of the episode seeded
    with `fault_seed`, where given), to see what happens when a game crashes or hangs.
    """

    N_AGENTS, HIGHEST, EPISODE_LIMIT = 2, 9, 12

    def __init__(
        self,
        copy: int = 0,
        *,
        fault: Callable[[], object] | None = None,
        fault_step: int = 3,
        fault_copy: int | None = None,
        fault_seed: int | None = None,
    ) -> None:
        self._copy, self._seed = copy, 0
        self._fault, self._fault_step = fault, fault_step
        self._fault_copy, self._fault_seed = fault_copy, fault_seed
        self._values = np.zeros(self.N_AGENTS, np.int64)
        self._steps = 0

    def reset(self, seed: int | None = None) -> tuple[list[FloatArray], FloatArray]:
        self._seed, self._steps = -1 if seed is None else seed, 0
        self._run_fault()
        draw = np.random.default_rng(seed).integers(1, self.HIGHEST, self.N_AGENTS, endpoint=True)
        self._values = draw
        return self.get_obs(), self.get_state()

    def step(self, actions: Sequence[int]) -> tuple[FloatArray, bool, dict[str, Any]]:
        self._steps += 1
        self._run_fault()
        before = self._values
        self._values = before + np.asarray(actions) - 1
        reward = ((before > 0) & (self._values == 0)).astype(np.float32)
        solved = not self._values.any()
        info: dict[str, Any] = {"solved": solved}
        if not solved and self._steps == self.EPISODE_LIMIT:
            info["episode_limit"] = True
        return reward, solved or self._steps == self.EPISODE_LIMIT, info

    def get_obs(self) -> list[FloatArray]:
        return [np.array([value, self._steps], np.float32) for value in self._values]

    def get_state(self) -> FloatArray:
        return np.array([*self._values, self._steps, self._copy], np.float32)

    def get_avail_actions(self) -> list[list[int]]:
        return [[int(v > 0), 1, int(0 < v < self.HIGHEST)] for v in self._values]

    def get_env_info(self) -> dict[str, Any]:
        return {
            "name": "counter",
            "state_shape": (self.N_AGENTS + 2,),
            "obs_shape": 2,
            "n_actions": 3,
            "n_agents": self.N_AGENTS,
            "episode_limit": self.EPISODE_LIMIT,
            "shared_reward": False,
            "statistics": ("solved",),
            "obs_dtype": "int8",
        }

    def _run_fault(self) -> None:
        here = self._fault_copy in (None, self._copy) and self._fault_seed in (None, self._seed)
        if self._fault is not None and here and self._steps == self._fault_step:
            self._fault()
