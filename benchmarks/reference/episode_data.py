"""Episodes as a dictionary of zero-initialised tensors [episodes, T+1, ...], and their buffer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What decides every shape: N agents, O features, S state features, A actions, T steps."""

    n_agents: int
    obs_size: int
    state_size: int
    n_actions: int
    episode_limit: int

    def scheme(self) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Shape per time slot and dtype of each stored quantity."""
        n, a = self.n_agents, self.n_actions
        return {
            "state": ((self.state_size,), torch.float32),
            "obs": ((n, self.obs_size), torch.float32),
            "actions": ((n, 1), torch.int64),
            "avail_actions": ((n, a), torch.int32),
            "reward": ((1,), torch.float32),
            "terminated": ((1,), torch.uint8),
            "filled": ((1,), torch.int64),
            "actions_onehot": ((n, a), torch.float32),
        }


def bytes_per_transition(sizes: Sizes) -> int:
    """Bytes of one time slot of one episode, all quantities together."""
    return sum(prod(shape) * dtype.itemsize for shape, dtype in sizes.scheme().values())


def buffer_bytes(sizes: Sizes, *, capacity: int = 5_000) -> int:
    """Bytes of a whole buffer; every episode takes T+1 slots, however short it was."""
    return capacity * (sizes.episode_limit + 1) * bytes_per_transition(sizes)


class EpisodeBatch:
    """A number of episodes of equal allocated length, written step by step."""

    def __init__(self, *, sizes: Sizes, n_episodes: int, data: dict[str, Tensor] | None = None):
        self.sizes = sizes
        self.n_episodes = n_episodes
        if data is None:
            data = {
                key: torch.zeros((n_episodes, sizes.episode_limit + 1, *shape), dtype=dtype)
                for key, (shape, dtype) in sizes.scheme().items()
            }
        self.data = data

    def __getitem__(self, key: str) -> Tensor:
        return self.data[key]

    @property
    def length(self) -> int:
        """Allocated time slots."""
        return self.data["filled"].shape[1]

    @property
    def nbytes(self) -> int:
        return sum(value.nbytes for value in self.data.values())

    def update(self, data: Mapping[str, Any], t: int) -> None:
        """Write what is known at step ``t``; values have a leading axis over the episodes."""
        self.data["filled"][:, t] = 1
        for key, value in data.items():
            target = self.data[key][:, t]
            if not isinstance(value, Tensor):
                value = torch.tensor(np.asarray(value), dtype=target.dtype)
            target.copy_(value.view_as(target))
            if key == "actions":
                onehot = self.data["actions_onehot"][:, t]
                onehot.zero_().scatter_(-1, target, 1.0)

    def max_t_filled(self) -> int:
        return int(self.data["filled"].sum(1).max())

    def cut(self, length: int) -> EpisodeBatch:
        """The first ``length`` time slots, as views."""
        data = {key: value[:, :length] for key, value in self.data.items()}
        return EpisodeBatch(sizes=self.sizes, n_episodes=self.n_episodes, data=data)


class ReplayBuffer(EpisodeBatch):
    """A ring of whole episodes, sampled uniformly without replacement."""

    def __init__(self, *, sizes: Sizes, capacity: int = 5_000, seed: int = 0):
        super().__init__(sizes=sizes, n_episodes=capacity)
        self.capacity = capacity
        self.index = 0
        self.count = 0
        self._rng = np.random.default_rng(seed)

    def insert(self, batch: EpisodeBatch) -> None:
        for episode in range(batch.n_episodes):
            for key, value in batch.data.items():
                self.data[key][self.index] = value[episode]
            self.index = (self.index + 1) % self.capacity
            self.count = min(self.count + 1, self.capacity)

    def can_sample(self, batch_size: int) -> bool:
        return self.count >= batch_size

    def sample(self, batch_size: int) -> EpisodeBatch:
        """Copies of ``batch_size`` different episodes, cut to the longest filled one."""
        chosen = torch.from_numpy(self._rng.choice(self.count, batch_size, replace=False))
        data = {key: value[chosen] for key, value in self.data.items()}
        batch = EpisodeBatch(sizes=self.sizes, n_episodes=batch_size, data=data)
        return batch.cut(batch.max_t_filled())
