"""What every agent network offers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn


class AgentNetwork(nn.Module):
    """Maps inputs to one output per action. `carry_dim` is the width of the recurrent state
    handed in and out (0 for a feed-forward network); it is never kept in the module."""

    carry_dim: int

    @abstractmethod
    def __init__(
        self,
        *,
        input_dim: int,
        n_actions: int,
        hidden_dim: int,
        mlp_hidden_dims: Sequence[int],
        dueling: bool,
    ) -> None:
        super().__init__()

    @abstractmethod
    def step(self, inputs: Tensor, carry: Tensor) -> tuple[Tensor, Tensor]:
        """inputs [R, I], carry [R, carry_dim] -> outputs [R, A], carry."""

    @abstractmethod
    def unroll_packed(
        self, inputs_PI: Tensor, sizes: Tensor, carry: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Whole sequences without padding: step t has sizes[t] of the P rows, never more than
        the step before (`functional.packing`); carry [sizes[0], carry_dim] -> outputs [P, A] and
        the carry behind every row [P, carry_dim]."""

    def unroll(self, inputs_TRI: Tensor, carry: Tensor) -> Tensor:
        """Sequences of equal length: inputs [T, R, I] -> outputs [T, R, A]."""
        steps, rows, _ = inputs_TRI.shape
        sizes = torch.full((steps,), rows, dtype=torch.int64)
        outputs, _ = self.unroll_packed(inputs_TRI.flatten(0, 1), sizes, carry)
        return outputs.view(steps, rows, -1)


class ActionHead(nn.Linear):
    """Hidden features to one value per action: a plain linear layer, or with `dueling` the
    state value plus advantages centred on their mean."""

    def __init__(self, hidden_dim: int, n_actions: int, *, dueling: bool) -> None:
        super().__init__(hidden_dim, n_actions)
        self.value = nn.Linear(hidden_dim, 1) if dueling else None

    def forward(self, hidden: Tensor) -> Tensor:
        advantage = super().forward(hidden)
        if self.value is None:
            return advantage
        value: Tensor = self.value(hidden)
        return value + advantage - advantage.mean(-1, keepdim=True)
