"""`base_am`: the naive opponent model, which predicts the others' actions from own observation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from omg.config.schema import Config
from omg.functional import Packing
from omg.modules.opponent_models.base import (
    HistoryModel,
    Inferred,
    ModelRows,
    action_loss,
    of_present,
)
from omg.types import EnvSpec


class NaiveModel(HistoryModel):
    """π̂_j(a | o) for every other seat j; the policy is fed these distributions. Loss: the mean
    cross-entropy of what the others really did at that moment. With `am_history` it is π̂_j(a | τ,
    o): observation and history go through the same layers as in `omg_am`, so both know the same."""

    reads_state = False

    def __init__(self, *, spec: EnvSpec, own_dim: int, config: Config) -> None:
        super().__init__()
        hidden = config.am_hidden_dim
        self._others, self._actions = spec.n_agents - 1, spec.n_actions
        self.feature_dim = self._others * self._actions
        self._remembers = config.am_history
        if self._remembers:
            self._build_history(spec, own_dim, hidden)
            layers: list[nn.Module] = [nn.Linear(hidden + spec.n_agents, hidden), nn.ReLU()]
        else:
            layers = [nn.Linear(own_dim + spec.n_agents, hidden), nn.ReLU()]
            layers += [nn.Linear(hidden, hidden), nn.ReLU()]
        self.body = nn.Sequential(*layers, nn.Linear(hidden, self.feature_dim))
        self.register_buffer("_seats", torch.eye(spec.n_agents), persistent=False)
        self._seats: Tensor

    def logits(self, rows: ModelRows, condition: Tensor | None = None) -> Tensor:
        """Unnormalised log-probabilities, [R, N-1, A]; `condition` is the history's."""
        seen = [rows.own] if condition is None else [self._embed(rows), condition]
        out: Tensor = self.body(torch.cat([*seen, self._seats[rows.seats]], -1))
        return out.view(-1, self._others, self._actions)

    @torch.no_grad()
    def infer(self, rows: ModelRows, carry: Tensor, generator: torch.Generator) -> Inferred:
        condition, carry = self._advance(rows, carry) if self._remembers else (None, carry)
        feature = self._told(rows, condition)
        return Inferred(feature, carry, {"am_prediction": feature})

    @torch.no_grad()
    def unroll(self, rows: ModelRows, packing: Packing, generator: torch.Generator) -> Tensor:
        condition = self._conditions(rows, packing) if self._remembers else None
        return self._told(rows, condition)

    def _told(self, rows: ModelRows, condition: Tensor | None) -> Tensor:
        """What the policy is fed."""
        chances = self.logits(rows, condition).softmax(-1)
        return of_present(chances, rows.others_alive).flatten(1)

    def episode_loss(self, rows: ModelRows, packing: Packing) -> Mapping[str, Tensor]:
        condition = self._conditions(rows, packing)[packing.now] if self._remembers else None
        acted = rows.take(packing.now)
        assert acted.others_actions is not None
        loss, accuracy = action_loss(
            self.logits(acted, condition), acted.others_actions, acted.others_alive
        )
        return {"am_loss": loss, "am_accuracy": accuracy}

    def files(self) -> Mapping[str, nn.Module]:
        return {"base_am": self}

    def describe(self) -> Mapping[str, Any]:
        return {"am_history": self._remembers}

    def record_dims(self) -> Mapping[str, int]:
        return {"am_prediction": self.feature_dim}
