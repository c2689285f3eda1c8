"""What a model knows of the past: own observations and everybody's actions, in a GRU."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from omg.components.transforms import OneHot
from omg.functional.packing import Packing
from omg.modules.opponent_models.base import ModelRows, OpponentModel
from omg.modules.recurrent import GRUCore
from omg.types import EnvSpec


class HistoryModel(OpponentModel):
    """A model that sees `fc`: s_t → hidden/4 and `cond_rnn`: a GRU over (s_{t-1}, a⁻ⁱ_{t-1},
    a_{t-1}) → 3·hidden/4. Its memory is s_{t-1} and the GRU's state."""

    def _build_history(self, spec: EnvSpec, own_dim: int, hidden: int) -> None:
        self._embed_dim = hidden // 4
        self._cond_dim = hidden - self._embed_dim
        self._own_dim = own_dim
        self._one_hot = OneHot(spec.n_actions)
        self.fc = nn.Linear(own_dim, self._embed_dim)
        self.cond_rnn = GRUCore(own_dim + spec.n_agents * spec.n_actions, self._cond_dim)
        self.carry_dim = own_dim + self._cond_dim

    def _history(self, rows: ModelRows, previous: Tensor) -> Tensor:
        """(s_{t-1}, a⁻ⁱ_{t-1}, a_{t-1}); all zero before the first step."""
        others = self._one_hot(rows.others_last).flatten(1)
        return torch.cat([previous, others, self._one_hot(rows.last_action)], -1)

    def _embed(self, rows: ModelRows) -> Tensor:
        return torch.relu(self.fc(rows.own))

    def _advance(self, rows: ModelRows, carry: Tensor) -> tuple[Tensor, Tensor]:
        """Acting: the condition at this moment, and the next carry."""
        previous, hidden = carry.split([self._own_dim, self._cond_dim], -1)  # type: ignore[no-untyped-call]
        condition = self.cond_rnn(self._history(rows, previous), hidden)
        return condition, torch.cat([rows.own, condition], -1)

    def _conditions(self, rows: ModelRows, packing: Packing) -> Tensor:
        """The condition at every packed slot, with gradient through all steps."""
        history = self._history(rows, packing.previous(rows.own))
        start = rows.own.new_zeros(int(packing.sizes[0]), self._cond_dim)
        return self.cond_rnn.unroll_packed(history, packing.sizes, start)
