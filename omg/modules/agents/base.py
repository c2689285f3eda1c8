"""What every agent network offers."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn


class AgentNetwork(nn.Module):
    """Maps inputs to one output per action. `carry_dim` is the width of the recurrent state
    handed in and out (0 for a network that is not `recurrent`); it is never kept in the module. An
    `individual` network has separate weights for each of `n_agents` seats and must be told the
    seat of every row; the others work in any seat and ignore it.

    Its `__init__` may name: input_dim, n_actions, hidden_dim, mlp_hidden_dims, dueling, n_agents,
    config; and settings of its own, given by `agent_args`."""

    recurrent: ClassVar[bool] = True
    carry_dim: int
    individual: bool = False

    def __init__(self) -> None:
        super().__init__()

    @abstractmethod
    def step(
        self, inputs: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """inputs [R, I], carry [R, carry_dim], seats [R] -> outputs [R, A], carry."""

    def variants(
        self, inputs_RI: Tensor, features_REF: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> Tensor:
        """Outputs [R, E, A] of E alternative steps from the same carry [R, carry_dim]: inputs
        that all of them share, each followed by features of its own."""
        rows, kinds, _ = features_REF.shape
        shared = inputs_RI.unsqueeze(1).expand(rows, kinds, inputs_RI.shape[-1])
        each = torch.cat([shared, features_REF], -1).flatten(0, 1)
        chosen = None if seats is None else seats.repeat_interleave(kinds)
        outputs, _ = self.step(each, carry.repeat_interleave(kinds, 0), chosen)
        return outputs.view(rows, kinds, -1)

    def variants_of(
        self,
        inputs_RI: Tensor,
        table_PF: Tensor,
        places_RE: Tensor,
        carry: Tensor,
        seats: Tensor | None = None,
    ) -> Tensor:
        """The same where the features are rows of a table: `variants` with table[places]."""
        features = table_PF.index_select(0, places_RE.flatten())
        return self.variants(inputs_RI, features.view(*places_RE.shape, -1), carry, seats)

    @abstractmethod
    def unroll_packed(
        self, inputs_PI: Tensor, sizes: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Whole sequences without padding: step t has sizes[t] of the P rows, never more than
        the step before (`functional.packing`); carry [sizes[0], carry_dim] and the seats of the
        sequences [sizes[0]] -> outputs [P, A] and the carry behind every row [P, carry_dim]."""

    def unroll(self, inputs_TRI: Tensor, carry: Tensor, seats: Tensor | None = None) -> Tensor:
        """Sequences of equal length: inputs [T, R, I], seats [R] -> outputs [T, R, A]."""
        steps, rows, _ = inputs_TRI.shape
        sizes = torch.full((steps,), rows, dtype=torch.int64)
        outputs, _ = self.unroll_packed(inputs_TRI.flatten(0, 1), sizes, carry, seats)
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
