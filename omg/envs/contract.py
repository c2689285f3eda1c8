"""What an environment is: one game (`MultiAgentEnv`) or many stepped together (`BatchedEnv`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omg.types import EnvSpec, IntArray, Observation, Snapshot, TimeStep


class MultiAgentEnv(ABC):
    """One environment with PyMARL's method names, so that an existing one plugs in unchanged.

    `step` returns `(reward, terminated, info)`. `reward` is one number for the team or one per
    agent. An episode cut by a limit returns `terminated=True` with `info["episode_limit"]` true,
    and is stored as a truncation. `reset` may take a `seed`; a class that takes its seed when it
    is made gets one per copy there, but its episodes cannot be reproduced one by one.
    """

    @abstractmethod
    def reset(self, seed: int | None = None) -> tuple[Any, Any]:
        """Start an episode; return (list of observations, state)."""

    @abstractmethod
    def step(self, actions: Sequence[int]) -> tuple[Any, bool, dict[str, Any]]:
        """Act with every agent; return (reward or rewards, terminated, info)."""

    @abstractmethod
    def get_obs(self) -> Any:
        """Observations of all agents, [N, O]."""

    @abstractmethod
    def get_state(self) -> Any:
        """Global state, [S]."""

    @abstractmethod
    def get_avail_actions(self) -> Any:
        """1 where an action is possible, [N, A]."""

    @abstractmethod
    def get_env_info(self) -> dict[str, Any]:
        """`state_shape`, `obs_shape`, `n_actions`, `n_agents`, `episode_limit`."""

    def save_replay(self) -> None:  # noqa: B027 - optional by contract
        """Write a replay of the last episode, where the game itself can."""

    def render(self) -> NDArray[np.uint8]:
        """An RGB picture, where the game has one."""
        raise RuntimeError(f"{type(self).__name__} draws no pictures.")

    def close(self) -> None:  # noqa: B027 - optional by contract
        """Free what the game holds."""


class BatchedEnv(ABC):
    """B copies of one environment, stepped together with arrays.

    Episode e of copy b depends only on (seed, first_copy + b, e) and on the actions in it: not
    on the other copies, nor on how copies are spread over processes. Arrays handed out are never
    written to afterwards.
    """

    spec: EnvSpec
    n_copies: int
    # True: `snapshot` can be taken in mid-episode. False: only right after `reset` or `restart`.
    exact_snapshots: bool = False

    @abstractmethod
    def reset(self, seed: int) -> Observation:
        """Seed every copy and start its episode 0."""

    @abstractmethod
    def step(self, actions: IntArray) -> TimeStep:
        """Act in every copy, actions [B, N]; copies that end are restarted at once."""

    @abstractmethod
    def restart(self) -> Observation:
        """Abandon every running episode and start the next one of each copy."""

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Everything `restore` needs, as arrays."""

    @abstractmethod
    def restore(self, snapshot: Snapshot) -> Observation:
        """Continue from a snapshot of an environment made with the same arguments."""

    def render(self, copy: int = 0) -> NDArray[np.uint8]:
        """An RGB picture [height, width, 3] of one copy, where the game has one."""
        raise RuntimeError(f"{self.spec.name} draws no pictures.")

    def close(self) -> None:  # noqa: B027 - optional by contract
        """Free processes and memory."""
