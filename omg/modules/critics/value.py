"""`ac` and `cv`: state values V, from what an agent sees or from the state."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from omg.components.episodes import OneHot
from omg.components.trajectories import Sequences, Trajectories
from omg.config.schema import Config
from omg.modules.agents import AGENTS
from omg.modules.critics.base import Critic
from omg.modules.kernels.gru import GRUCore
from omg.types import EnvSpec


class ValueCritic(Critic):
    """One network for all seats: ReLU layers of `critic_hidden_dims`, then a GRU layer of
    `rnn_hidden_dim` if the policy has one (a policy with a memory is valued by its history,
    and so are opponents whose kind only their play tells), then one number. An opponent model's
    feature is the last part of its inputs."""

    def __init__(self, *, config: Config, spec: EnvSpec, input_dim: int, feature_dim: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = self._width(spec, input_dim, feature_dim)
        for size in config.critic_hidden_dims:
            layers += [nn.Linear(width, size), nn.ReLU()]
            width = size
        self.body = nn.Sequential(*layers)
        recurrent = AGENTS[config.policy_model].recurrent
        self.rnn = GRUCore(width, config.rnn_hidden_dim) if recurrent else None
        self.carry_dim = config.rnn_hidden_dim if recurrent else 0
        self.head = nn.Linear(self.carry_dim or width, 1)

    @abstractmethod
    def _width(self, spec: EnvSpec, input_dim: int, feature_dim: int) -> int:
        """Of its inputs."""

    def forward(self, inputs_PNI: Tensor, arranged: Sequences) -> Tensor:
        """V of every slot, [P, n]; memory starts at zero with each episode."""
        return self.unroll_states(inputs_PNI, arranged)[0]

    def unroll_states(self, inputs_PNI: Tensor, arranged: Sequences) -> tuple[Tensor, Tensor]:
        """V [P, n] and the hidden state after every slot, [P, n, carry_dim]."""
        slots, agents, _ = inputs_PNI.shape
        hidden = self.body(inputs_PNI.flatten(0, 1))
        carry = hidden.new_zeros(slots * agents, 0)
        if self.rnn is not None:
            sizes = arranged.packing.sizes * agents
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


class OwnCritic(ValueCritic):
    """`ac`: V of what the agent's policy is fed."""

    def _width(self, spec: EnvSpec, input_dim: int, feature_dim: int) -> int:
        return input_dim

    def inputs(self, played: Trajectories, fed: Tensor, feature: Tensor | None = None) -> Tensor:
        return fed


class CentralCritic(ValueCritic):
    """`cv`: V of the state and the agent's seat, which only training knows."""

    def __init__(self, *, config: Config, spec: EnvSpec, input_dim: int, feature_dim: int) -> None:
        super().__init__(config=config, spec=spec, input_dim=input_dim, feature_dim=feature_dim)
        self._scale = spec.state_scale if config.scale_inputs else 1.0
        self._seat = OneHot(spec.n_agents)

    def _width(self, spec: EnvSpec, input_dim: int, feature_dim: int) -> int:
        return spec.state_dim + spec.n_agents + feature_dim

    def inputs(self, played: Trajectories, fed: Tensor, feature: Tensor | None = None) -> Tensor:
        state = (played.pack("state") * self._scale).unsqueeze(1).expand(-1, played.n_seats, -1)
        parts = [state, self._seat(played.seats_PN)]
        return torch.cat(parts if feature is None else [*parts, feature], -1)
