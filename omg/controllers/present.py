"""`am_present`: the others' present features beside whatever an opponent model infers."""

from __future__ import annotations

import torch
from torch import Tensor

from omg.modules.opponent_models.source import SubgoalSource, check_agent_features
from omg.types import EnvSpec


class PresentOthers:
    """Every other agent's features in the state minus one's own, the next seat first: what
    `control_am` feeds, as plain inputs of the policy. So they stay what they are when the inferred
    features are exchanged between games."""

    def __init__(self, spec: EnvSpec, *, scale: float, device: torch.device) -> None:
        check_agent_features(spec, "am_present=true", "leave am_present off")
        self._source = SubgoalSource(spec, whole=True).to(device)
        self._scale = scale
        self.dim = self._source.place_dim

    def __call__(self, state: Tensor, seats: Tensor) -> Tensor:
        """state [..., S], seats [..., n] -> [..., n, dim]."""
        scaled = (state * self._scale).unsqueeze(-2).expand(*seats.shape, state.shape[-1])
        rows = scaled.reshape(-1, state.shape[-1])
        places = self._source.place(rows, rows, seats.reshape(-1))
        return places.view(*seats.shape, self.dim)
