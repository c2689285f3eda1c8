"""What our own batched environments share: checked arguments, counter-based randomness, and the
counters of episodes and steps.

What episode e of copy b draws is a pure function of (seed, b, e).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from omg.envs.contract import BatchedEnv
from omg.registry import nearest
from omg.types import EnvSpec, IntArray, Observation, OmgError

A = TypeVar("A", bound=BaseModel)
Keys = NDArray[np.uint64]

GOLDEN = np.array(0x9E3779B97F4A7C15, np.uint64)
WORD = (1 << 64) - 1


def parse_arguments(kind: type[A], values: A | Mapping[str, Any], *, game: str) -> A:
    """Arguments from a mapping; what does not fit is an OmgError that names the first of it."""
    if isinstance(values, kind):
        return values
    assert isinstance(values, Mapping)
    try:
        return kind(**values)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else ""
        if first["type"] == "extra_forbidden":
            known = kind.model_fields
            raise OmgError(
                f"{game} has no argument '{field}'{nearest(field, known) or '.'} "
                f"Choose among: {', '.join(known)}."
            ) from error
        raise OmgError(
            f"{game} argument '{field}' is {first['input']!r}. {first['msg']}."
        ) from error


def mix(keys: Keys) -> Keys:
    """The finaliser of splitmix64: neighbouring keys give unrelated words."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Keys = keys ^ (keys >> np.uint64(31))
    return mixed


def copy_keys(seed: int, copies: IntArray) -> Keys:
    """One key per copy, [B]."""
    root = mix(np.array([seed & WORD], np.uint64) + GOLDEN)
    return mix(root + (copies.astype(np.uint64) + np.uint64(1)) * GOLDEN)


def episode_keys(keys: Keys, episodes: IntArray) -> Keys:
    """One key per copy and episode, [B]."""
    return mix(keys ^ mix((episodes.astype(np.uint64) + np.uint64(1)) * GOLDEN))


def draw_words(keys: Keys, n_draws: int) -> Keys:
    """Independent words of 64 random bits, [B, n_draws]."""
    return mix(keys[:, None] + np.arange(1, n_draws + 1).astype(np.uint64) * GOLDEN)


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
