"""What an environment is: one game (`MultiAgentEnv`) or many stepped together (`BatchedEnv`). And
what our own batched ones share (`NativeEnv`): checked arguments, randomness by counting, so that
what episode e of copy b draws is a pure function of (seed, b, e), and the counters of both."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from omg.registry import nearest
from omg.types import EnvSpec, IntArray, Observation, OmgError, Snapshot, TimeStep


class MultiAgentEnv(ABC):
    """One environment with PyMARL's method names, so that an existing one plugs in unchanged.

    `step` returns `(reward, terminated, info)`. `reward` is one number for the team or one per
    agent. An episode cut by a limit returns `terminated=True` with `info["episode_limit"]` true,
    and is stored as a truncation. `reset` may take a `seed`; a class that takes its seed when it
    is made gets one per copy there, but its episodes cannot be reproduced one by one.

    A game whose env info says `leavers: True` also has `get_alive` (1 for every agent that still
    acts, [N]); one that lists `goals` gives `info["reached"]` ([N], -1: none) with every step.
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


A = TypeVar("A", bound="GameArguments")
Keys = NDArray[np.uint64]

GOLDEN = np.array(0x9E3779B97F4A7C15, np.uint64)
WORD = (1 << 64) - 1


class GameArguments(BaseModel):
    """The arguments of one of our games."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    game: ClassVar[str]  # what messages call it

    @classmethod
    def parse(cls: type[A], values: A | Mapping[str, Any]) -> A:
        """From a mapping; what does not fit is an OmgError that names the first of it."""
        if isinstance(values, cls):
            return values
        assert isinstance(values, Mapping)
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors()[0]
            field = str(first["loc"][0]) if first["loc"] else ""
            if first["type"] == "extra_forbidden":
                known = cls.model_fields
                raise OmgError(
                    f"{cls.game} has no argument '{field}'{nearest(field, known) or '.'} "
                    f"Choose among: {', '.join(known)}."
                ) from error
            raise OmgError(
                f"{cls.game} argument '{field}' is {first['input']!r}. {first['msg']}."
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


def address(array: NDArray[Any]) -> int:
    """Where an array lies, for C; NumPy's own way takes four times as long."""
    if not array.flags.writeable:
        return int(array.ctypes.data)
    return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]


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
        self._keys[:] = copy_keys(self._seed, self.first_copy + self._all)

    def _require_reset(self) -> int:
        if self._seed is None:
            raise RuntimeError("Call reset before anything else.")
        return self._seed

    def _checked_actions(self, actions: IntArray) -> IntArray:
        """Actions [B, N] as integers, all of which exist."""
        given = np.asarray(actions)
        wanted, last = (self.n_copies, self.spec.n_agents), self.spec.n_actions - 1
        if given.dtype.kind in "iu" and given.shape == wanted:
            found: IntArray = np.ascontiguousarray(given, np.int64)
            if found.view(np.uint64).max() <= last:
                return found
            told = f"from {found.min()} to {found.max()}"
        else:
            told = f"{given.dtype} of shape {given.shape}"
        raise OmgError(
            f"The actions are {told}. Give an array {wanted} of integers from 0 to {last}."
        )

    def _snapshot_refused(self) -> OmgError:
        return OmgError(
            f"The snapshot does not fit {self.n_copies} copies of {self.spec.name}. "
            f"Restore it with the arguments it was made with."
        )
