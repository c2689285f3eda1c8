"""QTRAN: an unrestricted value of the joint action, and the sum of the agents' values that is to
agree with it where it matters."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from omg.modules.mixers.base import Mixer

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

    def joint(self, state: Tensor, features: Tensor, actions: Tensor) -> Tensor:
        """Q_jt of joint actions [..., N]; features [..., N, F] are what the agents remember."""
        chosen = nn.functional.one_hot(actions, self._n_actions).to(state.dtype)
        if self.action_encoding is None:
            seen = chosen.flatten(-2)
        else:
            seen = self.action_encoding(torch.cat([features, chosen], -1)).sum(-2)
        value: Tensor = self.Q(torch.cat([state, seen], -1))
        return value
