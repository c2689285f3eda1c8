"""What every mixer offers."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor, nn


class Mixer(nn.Module):
    """Maps the agents' values [..., N] and the state [..., S] to the team's value [..., 1]."""

    @abstractmethod
    def __init__(
        self,
        *,
        n_agents: int,
        state_dim: int,
        embed_dim: int,
        hypernet_layers: int,
        hypernet_embed: int,
    ) -> None:
        super().__init__()

    @abstractmethod
    def forward(self, values: Tensor, state: Tensor) -> Tensor: ...
