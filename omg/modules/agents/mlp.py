"""A feed-forward agent, as used by DQN-style methods on fully observed games."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from omg.modules.agents.base import ActionHead, AgentNetwork


class MLPAgent(AgentNetwork):
    """ReLU layers of `mlp_hidden_dims`, then the action head; no recurrent state."""

    recurrent = False
    carry_dim = 0

    def __init__(
        self,
        *,
        input_dim: int,
        n_actions: int,
        mlp_hidden_dims: Sequence[int],
        dueling: bool = False,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = input_dim
        for size in mlp_hidden_dims:
            layers += [nn.Linear(width, size), nn.ReLU()]
            width = size
        self.body = nn.Sequential(*layers)
        self.head = ActionHead(width, n_actions, dueling=dueling)

    def step(
        self, inputs: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        return self.head(self.body(inputs)), carry

    def unroll_packed(
        self, inputs_PI: Tensor, sizes: Tensor, carry: Tensor, seats: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        return self.head(self.body(inputs_PI)), inputs_PI.new_zeros(len(inputs_PI), 0)
