"""What every mixer offers."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor, nn


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
