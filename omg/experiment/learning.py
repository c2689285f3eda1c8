"""Episodes in, updates out: what training and fine-tuning have in common."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from omg.components.episodes import EpisodeBatch
from omg.components.trajectories import ReplayBuffer
from omg.config.schema import Config
from omg.controllers.base import Controller
from omg.learners.base import Learner, Metrics, Progress, set_rates
from omg.types import OmgError


@dataclass(slots=True)
class Counters:
    """Where a run stands."""

    env_steps: int = 0
    episodes: int = 0
    updates: int = 0
    tests: int = 0
    owed: float = 0.0  # updates due but not yet made
    last_test: int = 0
    last_save: int = 0
    last_resume: int = 0
    last_runner_log: int = 0
    last_learner_log: int = 0
    best_return: float = -math.inf
    best_step: int = 0
    seconds: float = 0.0

    def progress(self) -> Progress:
        return Progress(self.env_steps, self.episodes, self.updates)


@dataclass(frozen=True, slots=True)
class EffectiveNumbers:
    """What a run really uses. Where only one seat of every episode learns, n_agents episodes are
    needed instead of one: so many more are sampled and collected per update, and the run is so
    much longer. The configuration itself is not touched; these are shown at the start."""

    t_max: int
    batch_episodes: int
    updates_per_episode: float

    @classmethod
    def of(
        cls, config: Config, learner: Learner, mac: Controller, *, n_agents: int, wave: int
    ) -> EffectiveNumbers:
        """`wave`: how many copies play side by side."""
        factor = n_agents if mac.learns_one_seat and not learner.gathers else 1
        batch_episodes = config.batch_size * factor
        if learner.able.on_policy:  # whole waves, each episode used once
            batch_episodes = -(-batch_episodes // wave) * wave
            return cls(config.t_max * factor, batch_episodes, 1 / batch_episodes)
        if batch_episodes > config.buffer_size:
            raise OmgError(
                f"learner={config.learner} samples batch_size x agents = {batch_episodes} "
                f"episodes, more than buffer_size={config.buffer_size}. Raise buffer_size."
            )
        return cls(config.t_max * factor, batch_episodes, config.updates_per_episode / factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """Keeps episodes and makes the updates that are due."""

    learner: Learner
    buffer: ReplayBuffer
    numbers: EffectiveNumbers
    sampler: np.random.Generator
    device: torch.device
    lr_finish: float = 1.0  # the share of every learning rate that is left at the end
    patient: bool = True  # wait for a whole batch before the first update

    def take(self, episodes: EpisodeBatch, counters: Counters) -> None:
        """Keep episodes, which makes updates due."""
        self.buffer.insert_episode_batch(episodes)
        self.learner.receive(episodes.to(self.device))
        counters.episodes += len(episodes)
        counters.owed += len(episodes) * self.numbers.updates_per_episode

    def learn(self, counters: Counters, *, last: bool = False) -> Iterator[Metrics]:
        """Make the updates that are due, one after the other; on-policy one on all that was kept,
        when that is a batch, or when these are the `last` episodes."""
        stored, wanted = self.buffer.episodes_in_buffer, self.numbers.batch_episodes
        if self.learner.able.on_policy:
            counters.owed = 0.0
            if stored >= wanted or last:
                yield self._update(self.buffer.take_all(), counters)
            return
        if stored < wanted and self.patient:
            counters.owed = 0.0
            return
        while counters.owed >= 1.0:
            counters.owed -= 1.0
            yield self._update(self.buffer.sample(min(wanted, stored), self.sampler), counters)

    def _update(self, batch: EpisodeBatch, counters: Counters) -> Metrics:
        if self.lr_finish != 1.0:
            done = min(1.0, counters.env_steps / self.numbers.t_max)
            set_rates(self.learner.optimisers(), 1.0 - done * (1.0 - self.lr_finish))
        metrics = self.learner.update(batch.to(self.device), counters.progress())
        counters.updates += 1
        return metrics
