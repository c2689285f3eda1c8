"""`none_am`: no opponent model, a feature of width zero."""

from __future__ import annotations

from torch import Tensor

from omg.modules.opponent_models.base import MemorylessModel, ModelRows


class NoModel(MemorylessModel):
    """Contributes nothing."""

    feature_dim = 0
    reads_state = False

    def feature(self, rows: ModelRows) -> Tensor:
        return rows.own.new_zeros(len(rows.own), 0)
