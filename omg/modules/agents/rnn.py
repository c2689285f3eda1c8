"""PyMARL's recurrent agent: fc1, GRU, fc2."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from omg.modules.agents.base import ActionHead, AgentNetwork
from omg.modules.recurrent import GRUCore


class RNNAgent(AgentNetwork):
    """Parameters `fc1 rnn fc2` (and `fc2.value` when dueling), shared by all agents."""

    def __init__(
        self,
        *,
        input_dim: int,
        n_actions: int,
        hidden_dim: int,
        mlp_hidden_dims: Sequence[int] = (),
        dueling: bool = False,
    ) -> None:
        nn.Module.__init__(self)
        self.carry_dim = hidden_dim
        self.fc1 = nn.Linear(input_dim, hidden_dim)
        self.rnn = GRUCore(hidden_dim, hidden_dim)
        self.fc2 = ActionHead(hidden_dim, n_actions, dueling=dueling)

    def step(self, inputs: Tensor, carry: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.rnn(torch.relu(self.fc1(inputs)), carry)
        return self.fc2(hidden), hidden

    def unroll_packed(
        self, inputs_PI: Tensor, sizes: Tensor, carry: Tensor
    ) -> tuple[Tensor, Tensor]:
        hidden = self.rnn.unroll_packed(torch.relu(self.fc1(inputs_PI)), sizes, carry)
        return self.fc2(hidden), hidden
