"""Training on for a few episodes against one opponent, before the test against it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from omg.components.trajectories import ReplayBuffer
from omg.evaluation.agent_runs import SeatedAgent
from omg.experiment.learning import Counters, EffectiveNumbers, Learning
from omg.experiment.trained import load_optimiser
from omg.learners import Learner
from omg.opponents.lineups import OneLearns
from omg.runners.assembly import build_learner
from omg.runners.rollout import finished_episodes
from omg.runners.waves import Waves
from omg.storage.models import load_networks
from omg.types import OmgError


class Finetuner:
    """Trains a seated agent on from its saved weights, for every opponent again. Only the networks
    in memory change; the run's files are read once and never written."""

    def __init__(self, seated: SeatedAgent) -> None:
        config = seated.config
        if config.mixer:
            raise OmgError(
                f"{seated.agent.folder} learned through mixer={config.mixer}, and one agent is "
                "fine-tuned alone. Leave out finetune_episodes, or the run."
            )
        self._seated = seated
        self.learner: Learner = build_learner(
            config, spec=seated.spec, mac=seated.mac, device=seated.device
        )
        load_networks(seated.agent.model, self.learner.weights())
        load_optimiser(seated.agent.model, self.learner, config)
        self.learner.after_load()
        self._saved: Mapping[str, Any] = copy.deepcopy(self.learner.state_dict())
        # Exploration and the mix of subgoals stand where their schedules end.
        self._env_steps = max(
            seated.agent.env_steps, config.epsilon_anneal_time, config.subgoal_epsilon_anneal_time
        )

    def restore(self) -> None:
        """The agent as it was saved."""
        self.learner.load_state_dict(copy.deepcopy(self._saved))

    def train(self, lineup: OneLearns, *, episodes: int, stream: str) -> int:
        """Start from the saved weights, play `episodes` with these players and learn from them;
        the number of updates made."""
        self.restore()
        seated, config = self._seated, self._seated.config
        on_policy = self.learner.able.on_policy
        copies = min(seated.runner.n_training, episodes)
        if on_policy:  # whole waves only: the first to end of a wave are its shortest
            copies = episodes // -(-episodes // copies)
            episodes -= episodes % copies
        env = seated.runner.copies(copies)
        try:
            rollout = seated.rollout(
                lineup,
                stream=stream,
                env=env,
                greedy=False,
                record=False,
                common_reward=config.common_reward,
                learns=True,
            )
            learning = Learning(
                learner=self.learner,
                buffer=ReplayBuffer(
                    rollout.scheme,
                    capacity=episodes,
                    max_seq_length=seated.spec.episode_limit + 1,
                ),
                numbers=EffectiveNumbers.of(
                    config, self.learner, seated.mac, n_agents=seated.spec.n_agents, wave=copies
                ),
                sampler=seated.seeds.numpy(f"{stream}.replay"),
                device=seated.device,
                patient=False,
            )
            counters = Counters(env_steps=self._env_steps)
            source = Waves(rollout) if on_policy else rollout
            for finished in finished_episodes(source, episodes, self._env_steps):
                learning.take(finished.episodes[: episodes - counters.episodes], counters)
                last = counters.episodes == episodes
                for _ in learning.learn(counters, last=last):
                    pass
                if last:
                    break
            return counters.updates
        finally:
            env.close()
