"""Training on for a few episodes against one opponent, before the test against it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np

from omg.components.replay_buffer import ReplayBuffer
from omg.controllers.roster import Roster
from omg.evaluation.agent_runs import SeatedAgent
from omg.learners import LEARNERS
from omg.learners.base import Learner, Progress
from omg.runners import RUNNERS
from omg.runners.builders import copies_in_training
from omg.runners.rollout import Rollout
from omg.runners.waves import Waves
from omg.storage.files import load_tensors
from omg.storage.models import load_networks
from omg.types import OmgError, RunFailedError


class Finetuner:
    """Trains a seated agent on from its saved weights, for every opponent anew. Only the networks
    in memory change; the run's files are read once and never written."""

    def __init__(self, seated: SeatedAgent) -> None:
        config = seated.config
        self._seated = seated
        self.learner: Learner = LEARNERS[config.learner](
            config=config, spec=seated.spec, mac=seated.mac, device=seated.device
        )
        load_networks(seated.agent.model, self.learner.networks())
        self._load_optimiser()
        self.learner.after_load()
        self._saved: Mapping[str, Any] = copy.deepcopy(self.learner.state_dict())
        # Exploration and the mix of subgoals stand where their schedules end.
        self._env_steps = max(
            seated.agent.env_steps, config.epsilon_anneal_time, config.subgoal_epsilon_anneal_time
        )
        factor = seated.spec.n_agents if self.learner.learns_one_seat else 1
        self._batch_episodes = config.batch_size * factor
        self._updates_per_episode = config.updates_per_episode / factor
        self._on_policy = self.learner.able.on_policy

    def _load_optimiser(self) -> None:
        path = self._seated.agent.model / "opt.th"
        if not path.is_file():
            return
        try:
            self.learner.load_optimiser_state(load_tensors(path))
        except (ValueError, KeyError, TypeError) as error:
            raise OmgError(
                f"{path} does not fit optimizer={self._seated.config.optimizer}: {error}. Delete "
                "the file to start the optimiser anew."
            ) from error

    def restore(self) -> None:
        """The agent as it was saved."""
        self.learner.load_state_dict(copy.deepcopy(self._saved))

    def train(self, roster: Roster, *, episodes: int, stream: str) -> int:
        """Start from the saved weights, play `episodes` with these players and learn from them;
        the number of updates made."""
        self.restore()
        seated, config = self._seated, self._seated.config
        copies = min(copies_in_training(config), episodes)
        if self._on_policy:  # whole waves only: the first to end of a wave are its shortest
            copies = episodes // -(-episodes // copies)
            episodes -= episodes % copies
        env = RUNNERS[config.runner](config, copies)
        try:
            rollout = seated.rollout(
                roster,
                stream=stream,
                env=env,
                greedy=False,
                record=False,
                common_reward=config.common_reward,
            )
            source = Waves(rollout) if self._on_policy else rollout
            return self._learn(source, episodes, seated.seeds.numpy(f"{stream}.replay"))
        finally:
            env.close()

    def _learn(self, rollout: Rollout | Waves, episodes: int, sampler: np.random.Generator) -> int:
        seated, limit = self._seated, self._seated.spec.episode_limit
        buffer: ReplayBuffer | None = None
        played, updates, owed = 0, 0, 0.0
        # Twice the longest possible training: an environment that never ends is reported.
        budget = 2 * (episodes // rollout.env.n_copies + 1) * (limit + 1)
        while played < episodes:
            budget -= 1
            if budget < 0:
                raise RunFailedError(
                    f"{seated.spec.name} did not end its episodes within {limit} steps. Run 'omg "
                    "envs check' on it."
                )
            finished = rollout.step(self._env_steps)
            budget += rollout.dropped_last * (limit + 1)
            if finished is None:
                continue
            taken = finished.episodes[: episodes - played]
            if buffer is None:
                buffer = ReplayBuffer(taken.scheme, capacity=episodes, max_seq_length=limit + 1)
            buffer.insert_episode_batch(taken)
            played += len(taken)
            progress = Progress(self._env_steps, played, updates)
            if self._on_policy:
                ready = buffer.episodes_in_buffer >= self._batch_episodes
                if isinstance(rollout, Waves) and (
                    (rollout.complete and ready) or played == episodes
                ):
                    self.learner.train(buffer.take_all().to(seated.device), progress)
                    updates += 1
                continue
            owed += len(taken) * self._updates_per_episode
            while owed >= 1.0:
                owed -= 1.0
                batch = buffer.sample(min(self._batch_episodes, played), sampler)
                self.learner.train(batch.to(seated.device), progress)
                updates += 1
        return updates
