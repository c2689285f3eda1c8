"""What a worker shows of its copies: named arrays in one block of bytes, shared between processes
or sent as it is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omg.envs.spawned import shared_memory
from omg.types import EnvSpec

Layout = dict[str, tuple[tuple[int, ...], type]]


def _layout(spec: EnvSpec, n: int) -> tuple[Layout, Layout]:
    """Shapes and kinds of what every step shows, and of what only the end of episodes does."""
    obs, state = (n, spec.n_agents, spec.obs_dim), (n, spec.state_dim)
    avail, seats = (n, spec.n_agents, spec.n_actions), (n, spec.n_agents)
    always: Layout = {
        "actions": (seats, np.int64),
        "obs": (obs, np.float32),
        "state": (state, np.float32),
        "avail": (avail, np.bool_),
        "reward": (seats, np.float32),
        "terminated": ((n,), np.bool_),
        "truncated": ((n,), np.bool_),
        "info": ((n, len(spec.statistics)), np.float32),
    }
    at_ends: Layout = {
        "final_copies": ((n,), np.int64),
        "final_obs": (obs, np.float32),
        "final_state": (state, np.float32),
        "final_avail": (avail, np.bool_),
    }
    if spec.leavers:
        always["alive"] = at_ends["final_alive"] = (seats, np.bool_)
    if spec.goals:
        always["reached"] = (seats, np.int64)
    return always, at_ends


class WorkerArrays:
    """Named arrays for `n` copies in one block of memory."""

    def __init__(self, spec: EnvSpec, n: int) -> None:
        always, at_ends = _layout(spec, n)
        layout = always | at_ends
        sizes = [math.prod(shape) * np.dtype(kind).itemsize for shape, kind in layout.values()]
        starts = np.cumsum([0, *(-(-size // 64) * 64 for size in sizes)]).tolist()
        self._always = starts[len(always)]
        self._block = self._memory_of(starts[-1])
        self._arrays: dict[str, NDArray[Any]] = {
            key: np.ndarray(shape, kind, self._block, start)
            for (key, (shape, kind)), start in zip(layout.items(), starts, strict=False)
        }

    def _memory_of(self, size: int) -> Any:
        """So many zeroed bytes."""
        return np.zeros(max(size, 1), np.uint8)

    def __getitem__(self, key: str) -> NDArray[Any]:
        return self._arrays[key]

    def packed(self, *, with_ends: bool) -> bytes:
        """The block to be sent, with or without the last views of ended episodes."""
        return bytes(self._block if with_ends else self._block[: self._always])

    def unpack(self, block: bytes) -> None:
        """Take over what `packed` gave elsewhere."""
        self._block[: len(block)] = np.frombuffer(block, np.uint8)

    def close(self) -> None:
        """Let go of the memory; no view of it may be in use."""
        self._arrays.clear()


class SharedArrays(WorkerArrays):
    """Named arrays in memory that two processes share."""

    def __init__(self, spec: EnvSpec, n: int, *, name: str | None = None) -> None:
        """Without a name, new zeroed memory; with one, the memory of that name."""
        self._wanted, self._game = name, spec.name
        super().__init__(spec, n)
        self.name = self._memory.name

    def _memory_of(self, size: int) -> Any:
        self._memory = shared_memory(
            self._wanted,
            size,
            what=f"what {self._game} shows",
            remedy="Correct the sizes it announces, or lower batch_size_run.",
        )
        return self._memory.buf

    def unlink(self) -> None:
        """Take the name away; the memory lives on until both sides have closed it."""
        self._memory.unlink()

    def close(self) -> None:
        super().close()
        self._block = None
        self._memory.close()
