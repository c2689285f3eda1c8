"""`am_present`: the others' present features beside whatever an opponent model infers."""

from __future__ import annotations

from torch import Tensor, nn

from omg.modules.opponent_models.source import SubgoalSource, check_agent_features
from omg.types import EnvSpec


class PresentOthers(nn.Module):
    """Every other agent's features in the state minus one's own, the next seat first: what
    `control_am` feeds, as plain inputs of the policy. So they stay what they are when the inferred
    features are exchanged between games."""

    def __init__(self, spec: EnvSpec, *, scale: float) -> None:
        super().__init__()
        check_agent_features(spec, "am_present=true", "leave am_present off")
        self._source = SubgoalSource(spec, whole=True)
        self._scale = scale
        self.dim = self._source.place_dim

    def forward(self, state: Tensor, seats: Tensor) -> Tensor:
        """state [..., S], seats [..., n] -> [..., n, dim]."""
        scaled = (state * self._scale).unsqueeze(-2).expand(*seats.shape, state.shape[-1])
        rows = scaled.reshape(-1, state.shape[-1])
        places = self._source.place(rows, rows, seats.reshape(-1))
        return places.view(*seats.shape, self.dim)
