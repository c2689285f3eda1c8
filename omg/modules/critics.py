"""Critics: values of whole episodes' slots, for policy-gradient learners, and the unit of what
they predict: the mean and deviation of returns."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from omg.components.episodes import OneHot
from omg.components.trajectories import Sequences, Trajectories
from omg.config.schema import Config
from omg.modules.agents import AGENTS
from omg.modules.kernels.given import GivenLoss
from omg.modules.kernels.gru import BlockLoss, GRUCore
from omg.registry import PartRegistry
from omg.types import EnvSpec

# Numbers that never vary are not blown up.
SMALLEST = 1e-4


class RunningStats(nn.Module):
    """Merges each batch's mean and variance into those of everything before (Chan et al. 1979).
    It counts what it is given: hand it packed values, which hold no padding. Saved with the
    network whose unit it is."""

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("variance", torch.ones(()))
        self.register_buffer("count", torch.zeros(()))

    @torch.no_grad()
    def update(self, values: Tensor) -> None:
        """Take in all numbers of a tensor of any shape."""
        if not values.numel():
            return
        variance, mean = torch.var_mean(values, correction=0)
        total = self.count + values.numel()
        share = values.numel() / total
        gap = mean - self.mean
        spread = (1 - share) * self.variance + share * variance
        self.variance.copy_(spread + share * (1 - share) * gap.square())
        self.mean.add_(share * gap)
        self.count.copy_(total)

    @property
    def deviation(self) -> Tensor:
        return self.variance.sqrt().clamp(min=SMALLEST)

    def normalised(self, values: Tensor) -> Tensor:
        """(values - mean) / deviation."""
        return (values - self.mean) / self.deviation

    def restored(self, normalised: Tensor) -> Tensor:
        """The inverse of `normalised`."""
        return normalised * self.deviation + self.mean


class Critic(nn.Module):
    """Values episodes: one number per agent (V), or one per agent and action (Q). Only learners
    have critics; nobody acts by them.

    Its `__init__` may name: spec, config, input_dim (width of the policy's inputs), feature_dim
    (of those, what an opponent model adds); and settings of its own, given by `critic_args`."""

    per_action: ClassVar[bool] = False  # True: Q

    def __init__(self) -> None:
        super().__init__()

    @abstractmethod
    def inputs(self, played: Trajectories, fed: Tensor, feature: Tensor | None = None) -> Tensor:
        """What it values at every slot, [P, n, I]. `fed` [P, n, …] is what the policy is fed,
        whose last part is the opponent model's `feature` [P, n, F], if there is one."""

    @abstractmethod
    def forward(self, inputs_PNI: Tensor, arranged: Sequences) -> Tensor:
        """V [P, n] or Q [P, n, A]."""


class ComaCritic(Critic):
    """Q_n(s, o_n, a^-n, ·): fed [state | own observation | the others' actions | last joint action
    | seat], PyMARL's order and layer names (fc1, fc2 …). The agent's own action is no input but an
    output, so that one pass values all its alternatives. ReLU layers without memory."""

    per_action = True
    others: Tensor

    def __init__(self, *, config: Config, spec: EnvSpec) -> None:
        super().__init__()
        self._n_agents, self._with_last = spec.n_agents, config.obs_last_action
        self._state_scale = spec.state_scale if config.scale_inputs else 1.0
        self._obs_scale = spec.obs_scale if config.scale_inputs else 1.0
        self._one_hot = OneHot(spec.n_actions)
        others = (1 - torch.eye(spec.n_agents)).repeat_interleave(spec.n_actions, 1)
        self.register_buffer("others", others, persistent=False)  # [N, N·A]
        joint = spec.n_agents * spec.n_actions
        self.input_dim = spec.state_dim + spec.obs_dim + joint + spec.n_agents
        self.input_dim += joint if self._with_last else 0
        widths = (self.input_dim, *config.critic_hidden_dims, spec.n_actions)
        self._layers = [f"fc{number}" for number in range(1, len(widths))]
        for name, width, following in zip(self._layers, widths[:-1], widths[1:], strict=True):
            self.add_module(name, nn.Linear(width, following))

    def inputs(self, played: Trajectories, fed: Tensor, feature: Tensor | None = None) -> Tensor:
        """[P, N, I] with the actions as they were taken."""
        return self.joint_inputs(played, played.pack("actions"))

    def joint_inputs(self, played: Trajectories, actions_PN: Tensor) -> Tensor:
        """[P, N, I] with any joint actions, e.g. where none were taken."""
        state = played.pack("state") * self._state_scale
        parts = [
            self._for_all(state),
            played.pack("obs") * self._obs_scale,
            self._for_all(self._joint(actions_PN, played.alive)) * self.others,
        ]
        if self._with_last:
            last = self._joint(played.last_actions(), played.alive)
            parts.append(self._for_all(last))
        seat = torch.eye(self._n_agents, device=state.device)
        parts.append(seat.expand(len(state), -1, -1))
        return torch.cat(parts, -1)

    def _joint(self, actions_PN: Tensor, alive_PN: Tensor | None) -> Tensor:
        """Everybody's actions, [P, N·A]; zeros of who has left."""
        chosen = self._one_hot(actions_PN)
        return (chosen if alive_PN is None else chosen * alive_PN.unsqueeze(-1)).flatten(1)

    def _for_all(self, shared_PI: Tensor) -> Tensor:
        return shared_PI.unsqueeze(1).expand(-1, self._n_agents, -1)

    def forward(self, inputs_PNI: Tensor, arranged: Sequences | None = None) -> Tensor:
        """Q of every own action, [P, N, A]; any rows will do, in any order."""
        values = inputs_PNI
        for name in self._layers[:-1]:
            values = torch.relu(self.get_submodule(name)(values))
        output: Tensor = self.get_submodule(self._layers[-1])(values)
        return output


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
        inputs = inputs_PNI.flatten(0, 1)
        if self.rnn is None:
            values: Tensor = self.head(self.body(inputs))
            return values.view(slots, agents), inputs.new_zeros(slots, agents, 0)
        last, head, inputs = self._between(inputs)
        sizes = arranged.packing.sizes * agents
        start = inputs.new_zeros(int(sizes[0]), self.carry_dim)
        carry, values = self.rnn.unroll_between(last, head, inputs, sizes, start)
        return values.view(slots, agents), carry.view(slots, agents, self.carry_dim)

    def _between(self, inputs: Tensor) -> tuple[nn.Linear, tuple[Tensor, Tensor], Tensor]:
        """The layers before and after the GRU, and what the first of these is fed."""
        *before, last, _ = self.body
        assert isinstance(last, nn.Linear)
        for layer in before:
            inputs = layer(inputs)
        return last, (self.head.weight, self.head.bias), inputs

    def fit(self, inputs_PNI: Tensor, arranged: Sequences, loss: BlockLoss) -> GivenLoss | None:
        """The loss of all values, with its gradients in the same call; None where that does not
        exist, or a subclass computes them otherwise."""
        kind = type(self)
        own = kind.forward is ValueCritic.forward
        if self.rnn is None or not own or kind.unroll_states is not ValueCritic.unroll_states:
            return None
        last, head, inputs = self._between(inputs_PNI.flatten(0, 1))
        sizes = arranged.packing.sizes * inputs_PNI.shape[1]
        return self.rnn.fit_between(last, head, inputs, sizes, loss)

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


class TrunkCritic(Critic):
    """V by a layer on the policy's own hidden state, which it shapes, too (`share_trunk`). Fed what
    the policy is fed; `WithValue` computes both in one pass."""

    def __init__(self, hidden_dim: int) -> None:
        super().__init__()
        self.head = nn.Linear(hidden_dim, 1)

    def inputs(self, played: Trajectories, fed: Tensor, feature: Tensor | None = None) -> Tensor:
        return fed

    def forward(self, inputs_PNI: Tensor, arranged: Sequences) -> Tensor:
        """V [P, n] of hidden states [P, n, H]."""
        values: Tensor = self.head(inputs_PNI)
        return values.squeeze(-1)


class ValueFunction(nn.Module):
    """A critic and the unit of what it predicts: its output is (V - mean) / deviation of the
    returns seen so far, or V itself. One file, because neither means anything alone."""

    def __init__(self, critic: Critic, *, standardise: bool) -> None:
        super().__init__()
        self.critic = critic
        self.returns = RunningStats() if standardise else None

    def forward(self, inputs_PNI: Tensor, arranged: Sequences) -> Tensor:
        """In the critic's unit, [P, n]."""
        out: Tensor = self.critic(inputs_PNI, arranged)
        return out

    def restored(self, predicted: Tensor) -> Tensor:
        """In rewards."""
        return predicted if self.returns is None else self.returns.restored(predicted)

    def normalised(self, values: Tensor) -> Tensor:
        """In the critic's unit."""
        return values if self.returns is None else self.returns.normalised(values)


CRITICS: PartRegistry[Critic] = PartRegistry(
    "critic",
    {
        "coma": "omg.modules.critics:ComaCritic",
        "ac": "omg.modules.critics:OwnCritic",
        "cv": "omg.modules.critics:CentralCritic",
    },
    base=Critic,
    given=("config", "spec", "input_dim", "feature_dim"),
    args_key="critic_args",
)


def build_critic(config: Config, spec: EnvSpec, *, input_dim: int, feature_dim: int = 0) -> Critic:
    """The configured critic of the seats in `spec` with fresh weights."""
    return CRITICS.build(
        str(config.critic),
        config.critic_args,
        config=config,
        spec=spec,
        input_dim=input_dim,
        feature_dim=feature_dim,
    )
