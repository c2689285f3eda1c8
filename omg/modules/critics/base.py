"""What every critic offers."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from torch import Tensor, nn

from omg.components.episode_batch import EpisodeBatch
from omg.config.schema import Config
from omg.functional.packing import Packing
from omg.types import EnvSpec


class Critic(nn.Module):
    """Builds its own inputs from episodes and values them: one number per agent (V), or one per
    agent and action (Q). Only learners have critics; nobody acts by them."""

    per_action: ClassVar[bool] = False  # True: Q

    @abstractmethod
    def __init__(self, *, config: Config, spec: EnvSpec, feature_dim: int = 0) -> None:
        super().__init__()

    @abstractmethod
    def inputs(
        self,
        batch: EpisodeBatch,
        packing: Packing,
        seats: Tensor | None = None,
        feature: Tensor | None = None,
    ) -> Tensor:
        """[P, n, I] of every packed slot; `seats` [B, n] where the batch holds not all seats,
        `feature` [P, n, F] from an opponent model."""

    @abstractmethod
    def forward(self, inputs_PNI: Tensor, packing: Packing) -> Tensor:
        """V [P, n] or Q [P, n, A]."""
