"""`control_am`: the others' current features as they stand, no inference.

Every study needs it: features of the same kind as a model's prediction, of the present instead of
the future. Without it, feature engineering passes for opponent modelling.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from omg.config.schema import Config
from omg.modules.opponent_models.base import MemorylessModel, ModelRows
from omg.types import EnvSpec, OmgError


class ControlModel(MemorylessModel):
    """The other players' part of the state, relative to the own one where the environment says
    which features are whose; the agent sees the truth about the present and nothing more."""

    def __init__(self, *, spec: EnvSpec, own_dim: int, config: Config) -> None:
        nn.Module.__init__(self)
        if not spec.agent_features:
            raise OmgError(
                f"am_model=control_am needs to know which features of {spec.name}'s state belong "
                "to which agent. Give EnvSpec.agent_features, or use another am_model."
            )
        self._others = spec.n_agents - 1
        self.feature_dim = self._others * len(spec.agent_features[0])
        self.register_buffer("_columns", torch.tensor(spec.agent_features), persistent=False)
        self._columns: Tensor

    def feature(self, rows: ModelRows) -> Tensor:
        agents = self._others + 1
        blocks = rows.state[:, self._columns.flatten()].view(len(rows.state), agents, -1)
        at = torch.arange(len(blocks), device=blocks.device)
        own = blocks[at, rows.seats].unsqueeze(1)
        steps = torch.arange(1, agents, device=blocks.device)
        order = (rows.seats.unsqueeze(1) + steps) % agents
        return (blocks[at.unsqueeze(1), order] - own).flatten(1)
