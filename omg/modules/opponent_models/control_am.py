"""`control_am`: the others' current features as they stand, no inference.

Every study needs it: features of the same kind as a model's prediction, of the present instead of
the future. Without it, feature engineering passes for opponent modelling.
"""

from __future__ import annotations

from torch import Tensor, nn

from omg.config.schema import Config
from omg.modules.opponent_models.base import MemorylessModel, ModelRows
from omg.modules.opponent_models.source import SubgoalSource, check_agent_features
from omg.types import EnvSpec


class DiagnosticModel(MemorylessModel):
    """The other players' features relative to one's own, of some moment; learns nothing."""

    def __init__(self, *, spec: EnvSpec, own_dim: int, config: Config) -> None:
        nn.Module.__init__(self)
        check_agent_features(spec, f"am_model={config.am_model}", "use another am_model")
        self.source = SubgoalSource(spec, whole=True)
        self.feature_dim = self.source.place_dim


class ControlModel(DiagnosticModel):
    """The others where they are now: the truth about the present and nothing more."""

    def feature(self, rows: ModelRows) -> Tensor:
        return self.source.place(rows.state, rows.state, rows.seats)
