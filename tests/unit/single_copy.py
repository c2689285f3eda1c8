"""One copy of a `BatchedEnv` behind PyMARL's method names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omg.envs.contract import BatchedEnv, MultiAgentEnv
from omg.types import BoolArray, FloatArray, OmgError


class SingleCopyEnv(MultiAgentEnv):
    """Lets PyMARL code use a native game. After an episode's end the getters show its last view
    until `reset` is called."""

    def __init__(self, env: BatchedEnv, *, seed: int = 0) -> None:
        """`seed` is used by a first `reset()` that gives none."""
        if env.n_copies != 1:
            raise OmgError(f"A batch of {env.n_copies} copies was given. Make it with one copy.")
        self._env = env
        self._seed = seed
        self._started = False
        self._running = False
        self.n_agents = env.spec.n_agents
        self.episode_limit = env.spec.episode_limit
        self._obs: FloatArray
        self._state: FloatArray
        self._avail: BoolArray
        self._next: tuple[FloatArray, FloatArray, BoolArray] | None = None

    def reset(self, seed: int | None = None) -> tuple[list[FloatArray], FloatArray]:
        """Episode 0 of `seed`; without a seed the next episode of the last one."""
        if seed is None and self._next is not None:
            self._obs, self._state, self._avail = self._next
        else:
            if seed is not None or not self._started:
                first = self._env.reset(self._seed if seed is None else seed)
            else:
                first = self._env.restart()
            self._obs, self._state, self._avail = first.obs[0], first.state[0], first.avail[0]
        self._next = None
        self._started = self._running = True
        return self.get_obs(), self.get_state()

    def step(self, actions: Sequence[int]) -> tuple[Any, bool, dict[str, Any]]:
        """One reward per agent, or one number where the game's reward is shared."""
        if not self._running:
            raise OmgError("The episode is over or was never begun. Call reset() first.")
        step = self._env.step(np.asarray([list(actions)], np.int64))
        truncated, lost = bool(step.truncated[0]), step.dropped.size > 0
        ended = bool(step.terminated[0]) or truncated or lost
        view = step.obs[0], step.state[0], step.avail[0]
        info: dict[str, Any] = {}
        if ended:
            self._running = False
            self._next = view
            if step.final is not None:
                view = step.final.obs[0], step.final.state[0], step.final.avail[0]
            if lost:
                info["dropped"] = True
            else:
                info.update({name: float(values[0]) for name, values in step.info.items()})
        if truncated:
            info["episode_limit"] = True
        self._obs, self._state, self._avail = view
        shared = self._env.spec.shared_reward
        return float(step.reward[0, 0]) if shared else step.reward[0], ended, info

    def get_obs(self) -> list[FloatArray]:
        return list(self._obs)

    def get_obs_agent(self, agent: int) -> FloatArray:
        """Observation of one agent, [O]."""
        return self.get_obs()[agent]

    def get_state(self) -> FloatArray:
        return self._state

    def get_avail_actions(self) -> list[list[int]]:
        return [[int(possible) for possible in row] for row in self._avail]

    def get_avail_agent_actions(self, agent: int) -> list[int]:
        """1 where an action of one agent is possible, [A]."""
        return self.get_avail_actions()[agent]

    def get_env_info(self) -> dict[str, Any]:
        spec = self._env.spec
        return {
            "name": spec.name,
            "state_shape": spec.state_dim,
            "obs_shape": spec.obs_dim,
            "n_actions": spec.n_actions,
            "n_agents": spec.n_agents,
            "episode_limit": spec.episode_limit,
            "shared_reward": spec.shared_reward,
            "statistics": spec.statistics,
            "obs_dtype": spec.obs_dtype,
            "state_dtype": spec.state_dtype,
            "obs_format": spec.obs_format,
            "obs_scale": spec.obs_scale,
            "state_scale": spec.state_scale,
            "agent_features": spec.agent_features,
            "roles": spec.roles,
            "obs_dims": spec.obs_dims,
            "event_actions": spec.event_actions,
        }

    def render(self) -> NDArray[np.uint8]:
        return self._env.render(0)

    def close(self) -> None:
        self._env.close()
