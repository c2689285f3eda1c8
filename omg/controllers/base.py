"""The contract between who acts (controllers) and who makes episodes (runners)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from omg.components.episodes import EpisodeBatch, Field
from omg.components.trajectories import Trajectories
from omg.policies.inputs import Carry, StepView
from omg.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Acted:
    """Actions [B, N], the next carry, and what to store with this step (see record_fields)."""

    actions: Tensor
    carry: Carry
    extras: Mapping[str, NDArray[Any]] = field(default_factory=dict)


class Controller(ABC):
    """A team that acts. Networks live here; recurrent state is passed in and out.

    Its `__init__` may name: config, spec, device, gathering (True: frozen players take every seat,
    see `Learner.gathers`), lineup (who sits where, in place of the configured; None: as that
    says)."""

    models: ClassVar[bool] = True  # whether its policy may have an opponent model

    @property
    def seats(self) -> tuple[int, ...] | None:
        """The learning seats, whose rewards make up the team's, where they are the same in every
        episode; None: one seat that changes, and everybody's rewards are the team's."""
        return None

    @property
    def learns_one_seat(self) -> bool:
        """Whether of every episode only one agent's part is learned from, so that n_agents
        episodes count as one (see `omg.experiment.learning.EffectiveNumbers`)."""
        return False

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

    def trajectories(self, batch: EpisodeBatch) -> Trajectories:
        """What is learned from stored episodes: the part of the seats that learn."""
        return Trajectories.of(batch)

    def file_name(self, network: str) -> str:
        """The name of a network's file, e.g. agent, or <alg>/agent in a team of several."""
        return network

    def record_fields(self) -> Mapping[str, Field]:
        """Fields this controller adds to the episodes: `Acted.extras` and constants."""
        return {}

    def recording(self) -> Controller:
        """The same players, storing all that `judge` needs."""
        return self

    def testing(self) -> Controller:
        """The same policy for the tests of a run: recording, among the opponents of tests."""
        return self.recording()

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
