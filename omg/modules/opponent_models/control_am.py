"""`control_am`: the others' current features as they stand, no inference.

Every study needs it: features of the same kind as a model's prediction, of the present instead of
the future. Without it, feature engineering passes for opponent modelling.
"""

from __future__ import annotations

from torch import Tensor, nn

from omg.config.schema import Config
from omg.modules.opponent_models.base import MemorylessModel, ModelRows
from omg.modules.opponent_models.source import SubgoalSource
from omg.types import EnvSpec, OmgError


class DiagnosticModel(MemorylessModel):
    """The other players' features relative to one's own, of some moment; learns nothing."""

    def __init__(self, *, spec: EnvSpec, own_dim: int, config: Config) -> None:
        nn.Module.__init__(self)
        if not spec.agent_features:
            raise OmgError(
                f"am_model={config.am_model} needs to know which features of {spec.name}'s state "
                "belong to which agent. Give EnvSpec.agent_features, or use another am_model."
            )
        self.source = SubgoalSource(spec, whole=True)
        self.feature_dim = self.source.place_dim


class ControlModel(DiagnosticModel):
    """The others where they are now: the truth about the present and nothing more."""

    def feature(self, rows: ModelRows) -> Tensor:
        return self.source.place(rows.state, rows.state, rows.seats)
