"""What every critic offers."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor, nn

from omg.components.trajectories import Sequences, Trajectories


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
