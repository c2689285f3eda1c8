"""Mixers: the agents' chosen values to the value of the team."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from omg.modules.kernels.qmix import QMixKernel, mixed, qmix_kernel, run_qmix
from omg.registry import PartRegistry


class Mixer(nn.Module):
    """Maps the agents' values [..., N] and the state [..., S] to the team's value [..., 1].

    Its `__init__` may name: n_agents, n_actions, state_dim, feature_dim (width of what an agent
    remembers), config, the values of PyMARL's keys (embed_dim, hypernet_layers, hypernet_embed,
    arch); and settings of its own, given by `mixer_args`."""

    # Whether it also learns the value of joint actions, as `QtranBase` does.
    joint_values: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()

    @abstractmethod
    def forward(self, values: Tensor, state: Tensor) -> Tensor: ...


class VDNMixer(Mixer):
    """The sum over agents; the state is not used."""

    def forward(self, values: Tensor, state: Tensor) -> Tensor:
        return values.sum(-1, keepdim=True)


def _hypernet(layers: int, state_dim: int, hidden: int, out: int) -> nn.Module:
    if layers == 1:
        return nn.Linear(state_dim, out)
    return nn.Sequential(nn.Linear(state_dim, hidden), nn.ReLU(), nn.Linear(hidden, out))


class QMixer(Mixer):
    """Monotone in every agent's value because the mixing weights are absolute values of
    hyper-network outputs. Parameter names are PyMARL's. On a CPU with a C compiler rows of values
    go through our own kernel."""

    def __init__(
        self,
        *,
        n_agents: int,
        state_dim: int,
        embed_dim: int,
        hypernet_layers: int = 2,
        hypernet_embed: int = 64,
    ) -> None:
        super().__init__()
        self.n_agents = n_agents
        self.embed_dim = embed_dim
        self._two_layers, self._hidden = hypernet_layers == 2, hypernet_embed
        self.hyper_w_1 = _hypernet(hypernet_layers, state_dim, hypernet_embed, n_agents * embed_dim)
        self.hyper_w_final = _hypernet(hypernet_layers, state_dim, hypernet_embed, embed_dim)
        self.hyper_b_1 = nn.Linear(state_dim, embed_dim)
        self.V = nn.Sequential(nn.Linear(state_dim, embed_dim), nn.ReLU(), nn.Linear(embed_dim, 1))
        self._weights: list[Tensor] | None = None

    def kernel(self, *tensors: Tensor) -> QMixKernel | None:
        """The compiled kernel, where it takes this mixer and such values and states."""
        kernel = qmix_kernel()[0] if self._two_layers else None
        widths = {"embed": self.embed_dim, "hidden": self._hidden}
        return kernel if kernel is not None and kernel.fits(*tensors, **widths) else None

    @property
    def usual(self) -> bool:
        """Whether a kernel may compute it together with other things: no subclass mixes otherwise,
        and nobody wants to be told of calls."""
        return type(self).forward is QMixer.forward and not self._forward_hooks

    def weights(self) -> list[Tensor]:
        """In the order in which the kernel takes them."""
        if self._weights is None:
            self._weights = list(self.parameters())
        return self._weights

    def forward(self, values: Tensor, state: Tensor) -> Tensor:
        rows = values.shape == (len(state), self.n_agents) and state.ndim == 2
        kernel = self.kernel(values, state) if rows and not state.requires_grad else None
        if kernel is not None:
            return run_qmix(kernel, values, state, self.weights())
        nets = (self.hyper_w_1, self.hyper_b_1, self.hyper_w_final, self.V)
        return mixed(values, *(net(state) for net in nets))


Architecture = Literal["qtran_paper", "coma_critic"]


def _layers(inputs: int, hidden: int) -> nn.Sequential:
    """Two hidden layers, one value."""
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 1),
    )


class QtranBase(Mixer):
    """As a mixer: Q'_jt = Σ_n Q_n + V(s), the value that factorises. Beside it Q_jt(s, τ, a), which
    need not. `arch` says what Q_jt sees beside the state: `qtran_paper` the sum over agents of
    encoded (features, action), so that it does not depend on their order; `coma_critic` all
    actions, seat by seat. Parameter names are PyMARL's."""

    joint_values = True

    def __init__(
        self,
        *,
        n_agents: int,
        state_dim: int,
        embed_dim: int,
        n_actions: int,
        feature_dim: int,
        arch: Architecture = "qtran_paper",
    ) -> None:
        super().__init__()
        self._n_actions = n_actions
        encoded = feature_dim + n_actions
        self.action_encoding: nn.Sequential | None = None
        if arch == "qtran_paper":
            self.action_encoding = nn.Sequential(
                nn.Linear(encoded, encoded), nn.ReLU(), nn.Linear(encoded, encoded)
            )
            self.Q = _layers(state_dim + encoded, embed_dim)
        else:
            self.Q = _layers(state_dim + n_agents * n_actions, embed_dim)
        self.V = _layers(state_dim, embed_dim)

    def forward(self, values: Tensor, state: Tensor) -> Tensor:
        """Q'_jt: the agents' values [..., N] and the state [..., S] -> [..., 1]."""
        total: Tensor = values.sum(-1, keepdim=True) + self.V(state)
        return total

    def joint(
        self, state: Tensor, features: Tensor, actions: Tensor, alive: Tensor | None = None
    ) -> Tensor:
        """Q_jt of joint actions [..., N]; features [..., N, F] are what the agents remember. Agents
        who are not `alive` [..., N] have no part in it."""
        chosen = nn.functional.one_hot(actions, self._n_actions).to(state.dtype)
        present = None if alive is None else alive.unsqueeze(-1).to(state.dtype)
        if self.action_encoding is None:
            seen = (chosen if present is None else chosen * present).flatten(-2)
        else:
            encoded = self.action_encoding(torch.cat([features, chosen], -1))
            seen = (encoded if present is None else encoded * present).sum(-2)
        value: Tensor = self.Q(torch.cat([state, seen], -1))
        return value


MIXERS: PartRegistry[Mixer] = PartRegistry(
    "mixer",
    {
        "vdn": "omg.modules.mixers:VDNMixer",
        "qmix": "omg.modules.mixers:QMixer",
        "qtran_base": "omg.modules.mixers:QtranBase",
    },
    base=Mixer,
    given=(
        *("n_agents", "n_actions", "state_dim", "feature_dim", "embed_dim", "hypernet_layers"),
        *("hypernet_embed", "arch", "config"),
    ),
    args_key="mixer_args",
)
