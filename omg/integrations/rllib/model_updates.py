"""How an opponent model learns beside an RLlib learner: from whole episodes of the current play,
with the same code as in our own learners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from omg.components.episodes import EpisodeBatch, environment_scheme
from omg.components.trajectories import ReplayBuffer, Trajectories, seats_part
from omg.controllers.team import TeamMAC
from omg.experiment.trained import model_meta
from omg.functional import mean_over_available
from omg.integrations.rllib.modules import OmgModule, OmgPPOModule
from omg.learners.base import Progress, restore, state_of
from omg.learners.model_training import MODEL_TRAININGS, Alternatives
from omg.opponents.lineups import EveryoneLearns
from omg.types import OmgError


class ModelUpdates:
    """The buffer and the training of one module's opponent model. Every new episode is received
    once (MOA keeps what it needs of it), and for each `updates_per_episode` updates are made on
    `batch_size` episodes of the buffer, as many as our own learners make."""

    def __init__(self, module: OmgModule) -> None:
        settings = module.settings
        config, spec = settings.config, settings.spec
        self._module, self._config, self._seats = module, config, settings.seats
        self._everybody = len(settings.seats) == spec.n_agents
        self._mac = TeamMAC(
            config=config,
            spec=spec,
            device=torch.device("cpu"),
            policy=module.policy,
            lineup=EveryoneLearns(spec),
        )
        assert module.policy.model is not None
        kind = MODEL_TRAININGS[module.policy.model.training_kind]
        self._training = kind(config=config, mac=self._mac, on_policy=True)
        self.buffer = ReplayBuffer(
            environment_scheme(spec, common_reward=False),
            capacity=config.buffer_size,
            max_seq_length=spec.episode_limit + 1,
        )
        self._rng = np.random.default_rng(config.seed)
        self._owed = 0.0
        self.updates = 0
        self.episodes = 0

    def start(self) -> None:
        """Load what the model begins with (a prior), unless it has weights of a trained run."""
        if not self._module.settings.weights:
            meta = model_meta(self._config, self._module.settings.spec, self._mac)
            self._training.start(meta)

    def learn(self, episodes: Sequence[EpisodeBatch], env_steps: int) -> dict[str, float]:
        """Take new episodes in, then make the updates that are due; means over them."""
        for episode in episodes:
            self.buffer.insert_episode_batch(episode)
            self._training.receive(self.trajectories(episode))
        self.episodes += len(episodes)
        self._owed += len(episodes) * self._config.updates_per_episode
        found: list[Mapping[str, Tensor]] = []
        while self._owed >= 1.0 and self.buffer.can_sample(self._config.batch_size):
            self._owed -= 1.0
            found.append(self._update(env_steps))
        if not self.buffer.can_sample(self._config.batch_size):
            self._owed = 0.0  # as in our own training loop: nothing is owed before that
        names = dict.fromkeys(name for terms in found for name in terms)
        return {
            name: float(torch.stack([terms[name] for terms in found if name in terms]).mean())
            for name in names
        }

    def _update(self, env_steps: int) -> Mapping[str, Tensor]:
        self.updates += 1
        progress = Progress(env_steps=env_steps, episodes=self.episodes, updates=self.updates)
        played = self.trajectories(self.buffer.sample(self._config.batch_size, self._rng))
        lesson = self._training.prepare(
            played, progress, lambda alternatives: self._values(played, alternatives)
        )
        return {**self._training.train(lesson), **self._training.finish(lesson)}

    def trajectories(self, batch: EpisodeBatch) -> Trajectories:
        """Episodes as this module's seats played them."""
        return (
            Trajectories.of(batch)
            if self._everybody
            else Trajectories.of(batch, *seats_part(batch, self._seats))
        )

    @torch.no_grad()
    def _values(self, played: Trajectories, alternatives: Alternatives) -> Tensor:
        """What the host's network says of other features at every transition, [K·n, H]: PPO's value
        or the mean of DQN's over available actions."""
        policy, now = self._module.policy, played.rows.now
        critic = isinstance(self._module, OmgPPOModule)
        network = self._module.critic if critic else self._module.network
        plain = policy.inputs.packed(played)
        seats = played.seats_PN.flatten()[now]
        before = plain.new_zeros(len(now), network.carry_dim)
        if network.carry_dim:
            fed = alternatives.fed.view(*plain.shape[:2], -1)
            hidden = policy.unroll_states(torch.cat([plain, fed], -1), played, network).hidden
            before = played.rows.previous(hidden.flatten(0, 1))[now]
        shared = plain.flatten(0, 1)[now]
        found = network.variants(shared, alternatives.each(), before, seats)
        if critic:
            return found.squeeze(-1)
        avail = played.now("avail_actions").flatten(0, 1).unsqueeze(1)
        return mean_over_available(found, avail)

    def state_dict(self) -> dict[str, Any]:
        """Everything a continuation needs beside the module's weights."""
        return {
            "training": state_of(self._training.saved()),
            "buffer": self.buffer.state_dict(),
            "rng": self._rng.bit_generator.state,
            "owed": self._owed,
            "updates": self.updates,
            "episodes": self.episodes,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The opposite of `state_dict`."""
        missing = sorted(self.state_dict().keys() - state.keys())
        if missing:
            raise OmgError(
                f"The learner's state lacks '{missing[0]}' of the opponent model. Restore a "
                "checkpoint that was made with the same settings."
            )
        restore(self._training.saved(), state["training"])
        self.buffer.load_state_dict(state["buffer"])
        self._rng.bit_generator.state = state["rng"]
        self._owed, self.updates = float(state["owed"]), int(state["updates"])
        self.episodes = int(state["episodes"])
