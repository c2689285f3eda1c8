"""The contract between who acts (controllers) and who makes episodes (runners)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from omg.components.episode_batch import EpisodeBatch
from omg.components.scheme import Field
from omg.config.schema import Config
from omg.types import EnvSpec, FloatArray, IntArray, Snapshot

# Everything a controller remembers between two steps; the leading axis is the copy.
Carry: TypeAlias = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class StepView:
    """What may be used to choose the actions of B copies."""

    obs: Tensor  # [B, N, O]
    state: Tensor  # [B, S]
    avail: Tensor  # [B, N, A], bool
    last_actions: Tensor  # [B, N], -1 before the first action
    # Hands out the running games, for diagnostic models that look ahead; None: cannot be copied.
    snapshot: Callable[[], Snapshot] | None = None


@dataclass(frozen=True, slots=True)
class Acted:
    """Actions [B, N], the next carry, and what to store with this step (see record_fields)."""

    actions: Tensor
    carry: Carry
    extras: Mapping[str, NDArray[Any]] = field(default_factory=dict)


class Controller(ABC):
    """A team that acts. Networks live here; recurrent state is passed in and out."""

    # The seats whose rewards make up the team's; None: all.
    seats: tuple[int, ...] | None = None

    @abstractmethod
    def __init__(self, *, config: Config, spec: EnvSpec, device: torch.device) -> None: ...

    @abstractmethod
    def initial_carry(self, n_copies: int) -> Carry:
        """The carry of copies that are about to begin their first episode."""

    def skip_episodes(self, carry: Carry, episodes: int) -> None:  # noqa: B027 - optional
        """Count episodes as played that a fresh carry knows nothing of (rotating seats go on)."""

    def begin_episodes(
        self, carry: Carry, copies: IntArray, rng: np.random.Generator
    ) -> Mapping[str, NDArray[Any]]:
        """Reset the carry of copies that start an episode, in place; return their per-episode
        constants (named in `record_fields`), one row per copy."""
        rows = torch.from_numpy(copies)
        for value in carry.values():
            value[rows] = 0
        return {}

    @abstractmethod
    def act(
        self,
        view: StepView,
        carry: Carry,
        *,
        env_steps: int,
        greedy: bool,
        generator: torch.Generator,
    ) -> Acted:
        """Choose an action for every seat of every copy."""

    def record_fields(self) -> Mapping[str, Field]:
        """Fields this controller adds to the episodes: `Acted.extras` and constants."""
        return {}

    def recording(self) -> Controller:
        """The same players, storing all that `judge` needs; for tests."""
        return self

    def judge(self, episodes: EpisodeBatch) -> Mapping[str, FloatArray]:
        """Numbers of finished episodes that only the one who acted can tell, [E] each."""
        return {}

    @abstractmethod
    def networks(self) -> Mapping[str, nn.Module]:
        """Networks by the name of their file, e.g. {"agent": …} for agent.th."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Input settings and sizes, stored beside the weights and compared on loading."""

    def players(self) -> list[str]:
        """Who plays beside the learning agent; a continuation needs the same."""
        return []

    def metrics(self, env_steps: int) -> dict[str, float]:
        """Values worth logging, such as ε."""
        return {}
