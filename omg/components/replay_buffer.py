"""A ring of whole episodes with uniform sampling."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from omg.components.episodes import EpisodeBatch, Scheme
from omg.types import OmgError


class ReplayBuffer:
    """Keeps the newest `capacity` episodes in their compact storage dtypes.

    Memory is reserved at once but taken only as episodes arrive. Padding is always zero, also
    where a longer episode lay before.
    """

    def __init__(
        self,
        scheme: Scheme,
        *,
        capacity: int,
        max_seq_length: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.capacity = capacity
        self.episodes_in_buffer = 0
        self._next = 0
        self._lengths = np.zeros(capacity, np.int64)
        self._store = EpisodeBatch(
            scheme, batch_size=capacity, max_seq_length=max_seq_length, device=device
        )

    @property
    def scheme(self) -> Scheme:
        return self._store.scheme

    @property
    def max_seq_length(self) -> int:
        return self._store.max_seq_length

    def insert_episode_batch(self, episodes: EpisodeBatch) -> None:
        """Add episodes, replacing the oldest ones when the ring is full."""
        if episodes.max_seq_length > self.max_seq_length:
            raise OmgError(
                f"Episodes of {episodes.max_seq_length} slots do not fit into a buffer made for "
                f"{self.max_seq_length}. Make it with the environment's episode limit + 1."
            )
        self._check_fields(episodes.scheme)
        if len(episodes) > self.capacity:
            episodes = episodes[len(episodes) - self.capacity :]
        room = self.capacity - self._next
        self._write(episodes[:room])
        if len(episodes) > room:
            self._write(episodes[room:])

    def _check_fields(self, given: Scheme) -> None:
        for name, spec in self.scheme.fields.items():
            if given.fields.get(name) != spec or given.item_shape(name) != self.scheme.item_shape(
                name
            ):
                raise OmgError(
                    f"The episodes' field '{name}' is not the buffer's. Give both one scheme."
                )

    def _write(self, episodes: EpisodeBatch) -> None:
        count, steps = len(episodes), episodes.max_seq_length
        rows = slice(self._next, self._next + count)
        stale = int(self._lengths[rows].max()) if count else 0
        store = self._store
        for name, spec in self.scheme.fields.items():
            target = store.raw(name)
            if spec.episode_const:
                target[rows] = episodes.raw(name).to(store.device)
                continue
            target[rows, :steps] = episodes.raw(name).to(store.device)
            if stale > steps:
                target[rows, steps:stale] = 0
        store.filled[rows, :steps] = episodes.filled.to(store.device)
        if stale > steps:
            store.filled[rows, steps:stale] = False
        self._lengths[rows] = episodes.lengths.cpu().numpy()
        self._next = (self._next + count) % self.capacity
        self.episodes_in_buffer = min(self.capacity, self.episodes_in_buffer + count)

    def can_sample(self, batch_size: int) -> bool:
        return self.episodes_in_buffer >= batch_size

    def sample(self, batch_size: int, rng: np.random.Generator) -> EpisodeBatch:
        """Different episodes, uniformly, cut to the longest of them."""
        if not self.can_sample(batch_size):
            raise OmgError(
                f"{batch_size} episodes are wanted but the buffer holds {self.episodes_in_buffer}."
            )
        chosen = rng.choice(self.episodes_in_buffer, batch_size, replace=False)
        steps = int(self._lengths[chosen].max())
        sampled: EpisodeBatch = self._store[torch.from_numpy(chosen), :steps]
        return sampled

    def take_all(self) -> EpisodeBatch:
        """All episodes, oldest first, cut to the longest; the buffer is empty afterwards."""
        count = self.episodes_in_buffer
        first = self._next if count == self.capacity else 0
        order = (first + np.arange(count)) % self.capacity
        steps = int(self._lengths[order].max()) if count else 0
        taken: EpisodeBatch = self._store[torch.from_numpy(order), :steps]
        self.episodes_in_buffer = self._next = 0
        return taken

    def byte_estimate(self) -> int:
        """Bytes of the full buffer."""
        return self.capacity * self.scheme.bytes_per_episode(self.max_seq_length)

    def state_dict(self) -> dict[str, Any]:
        """The episodes present, for an exact continuation."""
        used = slice(0, self.episodes_in_buffer)
        return {
            "next": self._next,
            "lengths": torch.from_numpy(self._lengths[used].copy()),
            "filled": self._store.filled[used].clone(),
            "data": {name: self._store.raw(name)[used].clone() for name in self.scheme.fields},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        count = len(state["lengths"])
        if count > self.capacity:
            raise OmgError(f"A buffer of {count} episodes does not fit into {self.capacity}.")
        steps = state["filled"].shape[1]
        if steps != self.max_seq_length:
            raise OmgError(
                f"A buffer of episodes of {steps} slots does not fit into one made for "
                f"{self.max_seq_length}. Use the environment it was filled in."
            )
        # Into a larger ring the episodes go oldest first, so that it goes on behind the newest.
        oldest = 0 if count == self.capacity else int(state["next"]) % max(count, 1)

        def put(place: torch.Tensor, saved: torch.Tensor) -> None:
            saved = saved.to(place.device)
            place[: count - oldest] = saved[oldest:]
            place[count - oldest : count] = saved[:oldest]

        for name, value in state["data"].items():
            put(self._store.raw(name), value)
        put(self._store.filled, state["filled"])
        put(torch.from_numpy(self._lengths), state["lengths"])
        self._next = (int(state["next"]) if count == self.capacity else count) % self.capacity
        self.episodes_in_buffer = count
