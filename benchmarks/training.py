"""A training run in one process, built as `omg.experiment.run` does it, whose pieces are timed.

Environment, acting, sampling and updates are wrapped from outside; nothing in `omg/` knows of it.
Times are CPU seconds of this thread, so that a busy machine disturbs less.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import thread_time
from typing import Any

import torch

from omg.components.episodes import EpisodeBatch
from omg.components.seeding import SeedTree
from omg.components.trajectories import ReplayBuffer
from omg.config.loader import load_command_line
from omg.config.schema import Config
from omg.envs.registry import make_batched
from omg.experiment.learning import EffectiveNumbers
from omg.learners.base import Progress
from omg.modules.device import tune_allocator
from omg.opponents.lineups import LineUp
from omg.opponents.pool import OpponentPool
from omg.runners import runner_of
from omg.runners.assembly import build_learner, episode_scheme, make_controller
from omg.runners.rollout import Rollout
from omg.runners.waves import Waves

CPU = torch.device("cpu")


class Clock:
    """CPU seconds by name; pieces inside others count for both."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def timing(self, name: str) -> Iterator[None]:
        start = thread_time()
        try:
            yield
        finally:
            self.seconds[name] += thread_time() - start

    def wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, timed."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.timing(name):
                return call(*args, **kwargs)

        return timed


class Timed:
    """Stands for an object; some of its methods are timed, by the name they have in `pieces`."""

    def __init__(self, inner: Any, clock: Clock, pieces: dict[str, str]) -> None:
        self._inner, self._clock, self._pieces = inner, clock, pieces

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        piece = self._pieces.get(name)
        return value if piece is None else self._clock.wrapped(piece, value)


def config_of(words: Sequence[str]) -> Config:
    """The configuration of a command line."""
    return load_command_line(list(words)).config


def scripted_pool(folder: Path, scripts: Sequence[str]) -> str:
    """The words that name a new pool of scripted players."""
    pool = OpponentPool.create(folder)
    for name in scripts:
        pool.add_script(name)
    return f"--opponent_pool={folder}"


class Training:
    """Plays, stores and learns. `lineup`: the others of a mixed team, where no pool is named."""

    def __init__(self, config: Config, *, lineup: LineUp | None = None) -> None:
        tune_allocator()
        self.config, self.clock = config, Clock()
        copies = runner_of(config).n_training
        self.env = make_batched(config.env, config.env_args, n_copies=copies)
        spec = self.env.spec
        torch.manual_seed(0)
        mac = make_controller(config, spec, CPU, lineup=lineup)
        self.learner = build_learner(config, spec=spec, mac=mac, device=CPU)
        self.numbers = EffectiveNumbers.of(
            config, self.learner, mac, n_agents=spec.n_agents, wave=copies
        )
        self.on_policy = self.learner.able.on_policy
        scheme = episode_scheme(config, spec, mac)
        self.buffer = ReplayBuffer(
            scheme,
            capacity=self.numbers.batch_episodes if self.on_policy else config.buffer_size,
            max_seq_length=spec.episode_limit + 1,
        )
        rollout = Rollout(
            env=Timed(self.env, self.clock, {"step": "environment"}),  # type: ignore[arg-type]
            mac=Timed(mac, self.clock, {"act": "acting"}),  # type: ignore[arg-type]
            scheme=scheme,
            seeds=SeedTree(0),
            stream="train",
            device=CPU,
            common_reward=config.common_reward,
            reward_scalarisation=config.reward_scalarisation,
            gamma=config.gamma,
        )
        self.rollout = Waves(rollout) if self.on_policy else rollout
        self._sampler = SeedTree(0).numpy("replay")
        self._owed = 0.0
        self.env_steps = self.episodes = self.updates = 0

    def step(self) -> None:
        """One step of every copy, and the updates that are due after it."""
        with self.clock.timing("rollout"):
            finished = self.rollout.step(self.env_steps)
            self.env_steps += self.rollout.stepped_last
            if finished is None:
                return
            self.buffer.insert_episode_batch(finished.episodes)
        self.episodes += len(finished.episodes)
        if not self.buffer.can_sample(self.numbers.batch_episodes):
            return
        if self.on_policy:
            self.update(self.batch())
            return
        self._owed += len(finished.episodes) * self.numbers.updates_per_episode
        while self._owed >= 1.0:
            self._owed -= 1.0
            self.update(self.batch())

    def batch(self) -> EpisodeBatch:
        """The episodes of the next update."""
        with self.clock.timing("sampling"):
            if self.on_policy:
                return self.buffer.take_all()
            return self.buffer.sample(self.numbers.batch_episodes, self._sampler)

    def update(self, batch: EpisodeBatch) -> None:
        """One update."""
        with self.clock.timing("update"):
            self.learner.update(batch, Progress(self.env_steps, self.episodes, self.updates))
        self.updates += 1

    def warm(self, updates: int = 2) -> None:
        """Until so many updates were made; the clock starts again after them."""
        while self.updates < updates:
            self.step()
        self.clock.seconds.clear()

    def whole_batch(self) -> EpisodeBatch:
        """A batch of freshly played episodes, to be learned from repeatedly."""
        while not self.buffer.can_sample(self.numbers.batch_episodes):
            finished = self.rollout.step(self.env_steps)
            if finished is not None:
                self.buffer.insert_episode_batch(finished.episodes)
        return self.batch()

    def steps_per_second(self, seconds: float, clock: Callable[[], float]) -> float:
        """Environment steps per second of playing and learning, from update to update."""
        self.warm()
        first, start = self.env_steps, clock()
        while clock() - start < seconds:
            made = self.updates
            while self.updates == made:
                self.step()
        return (self.env_steps - first) / (clock() - start)
