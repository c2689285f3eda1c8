"""Diagnostic models, which know what no agent knows.

`control_am`: the others' current features as they stand. Without it, feature engineering passes
for opponent modelling. `oracle_am`: their features to come, as they really will be. What an agent
gains by them is the most that any opponent model can gain in that game. The controller looks ahead
for it (`oracle_kind`).
"""

from __future__ import annotations

from torch import Tensor

from omg.config.schema import Config
from omg.modules.opponent_models.base import (
    MemorylessModel,
    ModelRows,
    SubgoalSource,
    check_agent_features,
)
from omg.types import EnvSpec


class DiagnosticModel(MemorylessModel):
    """The other players' features relative to one's own, of some moment; learns nothing."""

    def __init__(self, *, spec: EnvSpec, own_dim: int, config: Config) -> None:
        super().__init__()
        check_agent_features(spec, f"am_model={config.am_model}", "use another am_model")
        self.source = SubgoalSource(spec)
        self.feature_dim = self.source.place_dim


class ControlModel(DiagnosticModel):
    """The others where they are now: the truth about the present and nothing more."""

    def feature(self, rows: ModelRows) -> Tensor:
        return self.source.place(rows.state, rows.state, rows.seats, rows.others_alive)


class OracleModel(DiagnosticModel):
    """The others where they are heading to, in place of a prediction."""

    needs_foresight = True

    def feature(self, rows: ModelRows) -> Tensor:
        assert rows.foresight is not None, "the controller must look ahead for the oracle"
        return self.source.ahead(rows.foresight, rows.state, rows.seats, rows.others_alive)
