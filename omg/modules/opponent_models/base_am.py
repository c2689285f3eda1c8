"""`base_am`: the naive opponent model, which predicts the others' actions from own observation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from omg.config.schema import Config
from omg.modules.opponent_models.base import Inferred, MemorylessModel, ModelRows
from omg.modules.opponent_models.prediction import action_loss
from omg.types import EnvSpec


class NaiveModel(MemorylessModel):
    """π̂_j(a | o) for every other seat j; the policy is fed these distributions. Loss: the mean
    cross-entropy of what the others really did at that moment."""

    def __init__(self, *, spec: EnvSpec, own_dim: int, config: Config) -> None:
        nn.Module.__init__(self)
        hidden_dim = config.am_hidden_dim
        self._others, self._actions = spec.n_agents - 1, spec.n_actions
        self.feature_dim = self._others * self._actions
        self.body = nn.Sequential(
            nn.Linear(own_dim + spec.n_agents, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, self.feature_dim),
        )
        self.register_buffer("_seats", torch.eye(spec.n_agents), persistent=False)
        self._seats: Tensor

    def logits(self, rows: ModelRows) -> Tensor:
        """Unnormalised log-probabilities, [R, N-1, A]."""
        out: Tensor = self.body(torch.cat([rows.own, self._seats[rows.seats]], -1))
        return out.view(-1, self._others, self._actions)

    def feature(self, rows: ModelRows) -> Tensor:
        with torch.no_grad():
            return self.logits(rows).softmax(-1).flatten(1)

    def infer(self, rows: ModelRows, carry: Tensor, generator: torch.Generator) -> Inferred:
        feature = self.feature(rows)
        return Inferred(feature, carry, {"am_prediction": feature})

    def record_dims(self) -> Mapping[str, int]:
        return {"am_prediction": self.feature_dim}

    def files(self) -> Mapping[str, nn.Module]:
        return {"base_am": self}

    def describe(self) -> Mapping[str, Any]:
        return {"am_history": False}

    def loss(self, rows: ModelRows) -> Mapping[str, Tensor]:
        assert rows.others_actions is not None
        loss, accuracy = action_loss(self.logits(rows), rows.others_actions)
        return {"am_loss": loss, "am_accuracy": accuracy}
