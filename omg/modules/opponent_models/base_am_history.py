"""`base_am` with `am_history`: the naive model, predicting from what OMG's inference sees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from omg.config.schema import Config
from omg.functional.packing import Packing
from omg.modules.opponent_models.base import Inferred, ModelRows
from omg.modules.opponent_models.history import HistoryModel
from omg.modules.opponent_models.prediction import action_loss
from omg.types import EnvSpec


class NaiveHistoryModel(HistoryModel):
    """π̂_j(a | τ, o) for every other seat j. As `NaiveModel`, but the present observation and the
    history go through the same layers as in `omg_am`, so that both know the same."""

    def __init__(self, *, spec: EnvSpec, own_dim: int, config: Config) -> None:
        nn.Module.__init__(self)
        hidden = config.am_hidden_dim
        self._others, self._actions = spec.n_agents - 1, spec.n_actions
        self.feature_dim = self._others * self._actions
        self._build_history(spec, own_dim, hidden)
        self.body = nn.Sequential(
            nn.Linear(hidden + spec.n_agents, hidden),
            nn.ReLU(),
            nn.Linear(hidden, self.feature_dim),
        )
        self.register_buffer("_seats", torch.eye(spec.n_agents), persistent=False)
        self._seats: Tensor

    def _logits(self, rows: ModelRows, condition: Tensor) -> Tensor:
        """Unnormalised log-probabilities, [R, N-1, A]."""
        seen = torch.cat([self._embed(rows), condition, self._seats[rows.seats]], -1)
        out: Tensor = self.body(seen)
        return out.view(-1, self._others, self._actions)

    def infer(self, rows: ModelRows, carry: Tensor, generator: torch.Generator) -> Inferred:
        with torch.no_grad():
            condition, carry = self._advance(rows, carry)
            feature = self._logits(rows, condition).softmax(-1).flatten(1)
        return Inferred(feature, carry, {"am_prediction": feature})

    def unroll(self, rows: ModelRows, packing: Packing, generator: torch.Generator) -> Tensor:
        with torch.no_grad():
            logits = self._logits(rows, self._conditions(rows, packing))
            return logits.softmax(-1).flatten(1)

    def episode_loss(self, rows: ModelRows, packing: Packing) -> Mapping[str, Tensor]:
        condition = self._conditions(rows, packing)[packing.now]
        acted = rows.take(packing.now)
        assert acted.others_actions is not None
        loss, accuracy = action_loss(self._logits(acted, condition), acted.others_actions)
        return {"am_loss": loss, "am_accuracy": accuracy}

    def files(self) -> Mapping[str, nn.Module]:
        return {"base_am": self}

    def describe(self) -> Mapping[str, Any]:
        return {"am_history": True}

    def record_dims(self) -> Mapping[str, int]:
        return {"am_prediction": self.feature_dim}
