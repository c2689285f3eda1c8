"""What our own batched environments share: seeds, the counters of episodes and steps, restarts."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from omg.envs.contract import BatchedEnv
from omg.envs.keys import WORD, copy_keys
from omg.types import EnvSpec, IntArray, Observation, OmgError


class NativeEnv(BatchedEnv):
    """Copies whose episodes follow from a seed, the copy's number and the episode's."""

    exact_snapshots = True

    def __init__(self, *, spec: EnvSpec, n_copies: int, first_copy: int) -> None:
        if n_copies < 1:
            raise OmgError(f"n_copies is {n_copies}. Ask for at least one copy.")
        self.spec = spec
        self.n_copies, self.first_copy = n_copies, first_copy
        self._all = np.arange(n_copies)
        self._seed: int | None = None
        self._keys = np.zeros(n_copies, np.uint64)
        self._episode = np.zeros(n_copies, np.int64)
        self._steps = np.zeros(n_copies, np.int64)

    @abstractmethod
    def observe(self) -> Observation:
        """What the agents see now."""

    @abstractmethod
    def _begin(self, copies: IntArray) -> None:
        """Start the next episode of some copies."""

    def reset(self, seed: int) -> Observation:
        """Seed every copy and start its episode 0."""
        self._set_seed(seed)
        self._episode[:] = -1
        return self.restart()

    def restart(self) -> Observation:
        """Abandon every running episode and start the next one of each copy."""
        self._require_reset()
        self._begin(self._all)
        return self.observe()

    def _set_seed(self, seed: int) -> None:
        self._seed = seed & WORD
        self._keys = copy_keys(self._seed, self.first_copy + self._all)

    def _require_reset(self) -> int:
        if self._seed is None:
            raise RuntimeError("Call reset before anything else.")
        return self._seed

    def _checked_actions(self, actions: IntArray) -> IntArray:
        """Actions [B, N] as integers, all of which exist."""
        found = np.asarray(actions, np.int64)
        wanted, last = (self.n_copies, self.spec.n_agents), self.spec.n_actions - 1
        if found.shape != wanted or found.view(np.uint64).max() > last:
            raise ValueError(f"Actions must be an array {wanted} of integers from 0 to {last}.")
        return found

    def _snapshot_refused(self) -> OmgError:
        return OmgError(
            f"The snapshot does not fit {self.n_copies} copies of {self.spec.name}. "
            f"Restore it with the arguments it was made with."
        )
