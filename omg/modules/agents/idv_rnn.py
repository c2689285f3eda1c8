"""PyMARL-OMG's `idv_rnn`: a recurrent agent whose seats share no weights."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from omg.modules.agents.base import AgentNetwork
from omg.modules.agents.rnn import RNNAgent


class IndividualRNNAgent(AgentNetwork):
    """One `RNNAgent` per seat, parameters `agents.<seat>.fc1 …`. Every row or sequence is computed
    by the network of its seat, and only that network gets its gradient."""

    individual = True

    def __init__(
        self,
        *,
        input_dim: int,
        n_actions: int,
        hidden_dim: int,
        dueling: bool = False,
        n_agents: int = 1,
    ) -> None:
        super().__init__()
        self.carry_dim = hidden_dim
        self.agents = nn.ModuleList(
            RNNAgent(
                input_dim=input_dim, n_actions=n_actions, hidden_dim=hidden_dim, dueling=dueling
            )
            for _ in range(n_agents)
        )

    def step(
        self, inputs: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        rows = self._rows_of(seats)
        parts = [
            agent.step(inputs[own], carry[own]) if len(own) else _nothing(agent, carry)
            for agent, own in zip(self._networks(), rows, strict=True)
        ]
        return self._joined(parts, rows)

    def unroll_packed(
        self, inputs_PI: Tensor, sizes: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        sequences = self._rows_of(seats)
        steps = torch.repeat_interleave(torch.cumsum(sizes, 0) - sizes, sizes)
        rank = torch.arange(len(inputs_PI), device=inputs_PI.device) - steps.to(inputs_PI.device)
        assert seats is not None
        rows = self._rows_of(seats[rank])
        parts = [
            agent.unroll_packed(inputs_PI[own], _sizes_of(chosen, sizes), carry[chosen])
            if len(own)
            else _nothing(agent, carry)
            for agent, chosen, own in zip(self._networks(), sequences, rows, strict=True)
        ]
        return self._joined(parts, rows)

    def _networks(self) -> list[RNNAgent]:
        return [cast(RNNAgent, agent) for agent in self.agents]

    def _rows_of(self, seats: Tensor | None) -> list[Tensor]:
        """The rows of each seat, in their order."""
        if seats is None:
            raise ValueError("a network with weights per seat needs the seat of every row")
        return [(seats == seat).nonzero(as_tuple=True)[0] for seat in range(len(self.agents))]

    @staticmethod
    def _joined(parts: list[tuple[Tensor, Tensor]], rows: list[Tensor]) -> tuple[Tensor, Tensor]:
        """The seats' results in the order of the rows."""
        places = torch.argsort(torch.cat(rows))
        outputs, carries = zip(*parts, strict=True)
        return torch.cat(outputs)[places], torch.cat(carries)[places]


def _nothing(agent: RNNAgent, carry: Tensor) -> tuple[Tensor, Tensor]:
    """The result of no rows, without a call: nothing of the agent gets a gradient."""
    return carry.new_zeros(0, agent.fc2.out_features), carry[:0]


def _sizes_of(sequences: Tensor, sizes: Tensor) -> Tensor:
    """How many of these sequences (ascending numbers) reach each step."""
    reached = torch.searchsorted(sequences.cpu(), sizes)
    return reached[reached > 0]
