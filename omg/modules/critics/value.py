"""`ac` and `cv`: state values V, from what an agent sees or from the state."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from omg.components.episode_batch import EpisodeBatch
from omg.components.transforms import OneHot
from omg.config.schema import Config
from omg.functional.packing import Packing
from omg.modules.critics.base import Critic
from omg.modules.opponent_models.present import PresentOthers
from omg.modules.recurrent import GRUCore
from omg.types import EnvSpec


class ValueCritic(Critic):
    """One network for all seats: ReLU layers of `critic_hidden_dims`, behind them a GRU layer of
    `rnn_hidden_dim` unless policy_model=mlp (a policy with a memory is valued by its history,
    and so are opponents whose kind only their play tells), then one number. An opponent model's
    feature is the last part of its inputs."""

    def __init__(self, *, config: Config, spec: EnvSpec, feature_dim: int = 0) -> None:
        nn.Module.__init__(self)
        self._scaled = config.scale_inputs
        self._spec = spec
        layers: list[nn.Module] = []
        width = self._own_dim(config, spec) + feature_dim
        for size in config.critic_hidden_dims:
            layers += [nn.Linear(width, size), nn.ReLU()]
            width = size
        self.body = nn.Sequential(*layers)
        recurrent = config.policy_model != "mlp"
        self.rnn = GRUCore(width, config.rnn_hidden_dim) if recurrent else None
        self.carry_dim = config.rnn_hidden_dim if recurrent else 0
        self.head = nn.Linear(self.carry_dim or width, 1)
        self._seat = OneHot(spec.n_agents)

    @abstractmethod
    def _own_dim(self, config: Config, spec: EnvSpec) -> int:
        """Width of the inputs without a feature."""

    @abstractmethod
    def _parts(self, batch: EpisodeBatch, packing: Packing, seats_PN: Tensor) -> list[Tensor]:
        """What the inputs are joined of, [P, n, …] each."""

    def inputs(
        self,
        batch: EpisodeBatch,
        packing: Packing,
        seats: Tensor | None = None,
        feature: Tensor | None = None,
    ) -> Tensor:
        if seats is None:
            agents = torch.arange(self._spec.n_agents, device=batch.device)
            seats_PN = agents.expand(len(packing.episode), -1)
        else:
            seats_PN = seats[packing.episode]
        parts = self._parts(batch, packing, seats_PN)
        return torch.cat(parts if feature is None else [*parts, feature], -1)

    def _state(self, batch: EpisodeBatch, packing: Packing, agents: int) -> Tensor:
        """The state for every agent, [P, n, S]."""
        state = packing.pack(batch.raw("state")).to(torch.float32)
        scale = self._spec.state_scale if self._scaled else 1.0
        return (state * scale).unsqueeze(1).expand(-1, agents, -1)

    def forward(self, inputs_PNI: Tensor, packing: Packing) -> Tensor:
        """V of whole episodes, [P, n]."""
        return self.unroll_states(inputs_PNI, packing)[0]

    def unroll_states(self, inputs_PNI: Tensor, packing: Packing) -> tuple[Tensor, Tensor]:
        """V [P, n] and the hidden state behind every slot, [P, n, carry_dim]."""
        slots, agents, _ = inputs_PNI.shape
        hidden = self.body(inputs_PNI.flatten(0, 1))
        carry = hidden.new_zeros(slots * agents, 0)
        if self.rnn is not None:
            sizes = packing.sizes * agents
            start = hidden.new_zeros(int(sizes[0]), self.carry_dim)
            carry = hidden = self.rnn.unroll_packed(hidden, sizes, start)
        values: Tensor = self.head(hidden)
        return values.view(slots, agents), carry.view(slots, agents, self.carry_dim)

    def variants(self, inputs_RI: Tensor, features_REF: Tensor, carry_RH: Tensor) -> Tensor:
        """V of E alternative features at the same R moments, [R, E]: inputs without a feature
        and the hidden state before each moment, both shared by its alternatives."""
        rows, kinds, _ = features_REF.shape
        shared = inputs_RI.unsqueeze(1).expand(-1, kinds, -1)
        hidden = self.body(torch.cat([shared, features_REF], -1).flatten(0, 1))
        if self.rnn is not None:
            hidden = self.rnn(hidden, carry_RH.repeat_interleave(kinds, 0))
        values: Tensor = self.head(hidden)
        return values.view(rows, kinds)


def _shown(config: Config) -> bool:
    """Whether the policy is fed the others' places; only a learning agent among others is."""
    return config.am_present and config.mac != "basic_mac"


class OwnCritic(ValueCritic):
    """`ac`: V of what the agent's policy sees: observation (or state), last action, seat, and with
    am_present the others' present places."""

    def __init__(self, *, config: Config, spec: EnvSpec, feature_dim: int = 0) -> None:
        super().__init__(config=config, spec=spec, feature_dim=feature_dim)
        self._of_state = config.obs_is_state
        self._last = OneHot(spec.n_actions) if config.obs_last_action else None
        self._told_seat = config.obs_agent_id
        self._present = PresentOthers(spec, scale=1.0) if _shown(config) else None

    def _own_dim(self, config: Config, spec: EnvSpec) -> int:
        seen = spec.state_dim if config.obs_is_state else spec.obs_dim
        last = spec.n_actions if config.obs_last_action else 0
        last += PresentOthers(spec, scale=1.0).dim if _shown(config) else 0
        return seen + last + (spec.n_agents if config.obs_agent_id else 0)

    def _parts(self, batch: EpisodeBatch, packing: Packing, seats_PN: Tensor) -> list[Tensor]:
        if self._of_state:
            parts = [self._state(batch, packing, seats_PN.shape[1])]
        else:
            scale = self._spec.obs_scale if self._scaled else 1.0
            parts = [packing.pack(batch.raw("obs")).to(torch.float32) * scale]
        if self._last is not None:
            actions = batch.raw("actions").to(torch.int16)
            parts.append(self._last(packing.pack_previous(actions, -1)))
        if self._told_seat:
            parts.append(self._seat(seats_PN))
        if self._present is not None:
            state = self._state(batch, packing, 1).squeeze(1)
            parts.append(self._present(state, seats_PN))
        return parts


class CentralCritic(ValueCritic):
    """`cv`: V of the state and the agent's seat, which only training knows."""

    def _own_dim(self, config: Config, spec: EnvSpec) -> int:
        return spec.state_dim + spec.n_agents

    def _parts(self, batch: EpisodeBatch, packing: Packing, seats_PN: Tensor) -> list[Tensor]:
        return [self._state(batch, packing, seats_PN.shape[1]), self._seat(seats_PN)]
