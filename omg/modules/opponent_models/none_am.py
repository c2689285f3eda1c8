"""`none_am`: no opponent model, a feature of width zero."""

from __future__ import annotations

from torch import Tensor, nn

from omg.config.schema import Config
from omg.modules.opponent_models.base import MemorylessModel, ModelRows
from omg.types import EnvSpec


class NoModel(MemorylessModel):
    """Contributes nothing."""

    feature_dim = 0

    def __init__(self, *, spec: EnvSpec, own_dim: int, config: Config) -> None:
        nn.Module.__init__(self)

    def feature(self, rows: ModelRows) -> Tensor:
        return rows.own.new_zeros(len(rows.own), 0)
