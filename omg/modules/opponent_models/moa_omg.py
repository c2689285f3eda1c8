"""`moa` with `moa_goal=subgoal`: what the others do, given the subgoal that OMG infers for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from omg.config.schema import Config
from omg.functional import Packing
from omg.modules.opponent_models.base import Inferred, ModelRows, check_others
from omg.modules.opponent_models.moa import (
    of_the_present,
    prediction_accuracy,
    seen_by,
)
from omg.modules.opponent_models.moa_nets import PairNets
from omg.modules.opponent_models.omg_am import SubgoalModel
from omg.types import EnvSpec


class MoaSubgoalModel(SubgoalModel):
    """OMG's model, whose features of a subgoal also hold what each of the others would do if it
    pursued it, π(a | o, t, g). The carry is the time, then OMG's."""

    training_kind = "moa_subgoals"
    needs_others = True

    def __init__(self, *, spec: EnvSpec, own_dim: int, config: Config) -> None:
        super().__init__(spec=spec, own_dim=own_dim, config=config)
        check_others(spec, "moa")
        self._others, self._actions = spec.n_agents - 1, spec.n_actions
        self.limit = float(spec.episode_limit)
        self.nets = PairNets(spec, goal_dim=self._subgoal_dim, hidden_dim=config.am_hidden_dim)
        self.feature_dim += self._others * self._actions
        self.carry_dim += 1

    @property
    def feeds_subgoals(self) -> bool:
        """Features depend on what the others see, too."""
        return False

    @torch.no_grad()
    def predicted(self, subgoal: Tensor, rows: ModelRows) -> Tensor:
        """What each of the others does, given a subgoal per row [R, G], side by side."""
        obs, avail = seen_by(rows)
        assert rows.time is not None
        chances = self.nets.given(obs, rows.time / self.limit, avail, rows.seats, subgoal)
        return of_the_present(chances, rows)

    def features(
        self,
        subgoal: Tensor,
        rows: ModelRows,
        context: Tensor | None = None,
        decoded: Tensor | None = None,
    ) -> Tensor:
        fed = super().features(subgoal, rows, context, decoded)
        return torch.cat([fed, self.predicted(subgoal, rows)], -1)

    @torch.no_grad()
    def infer(self, rows: ModelRows, carry: Tensor, generator: torch.Generator) -> Inferred:
        time = carry[:, 0]
        found = super().infer(replace(rows, time=time), carry[:, 1:], generator)
        predicted = found.feature[:, -self._others * self._actions :]
        return Inferred(
            found.feature,
            torch.cat([time.unsqueeze(1) + 1.0, found.carry], -1),
            {**found.record, "am_prediction": predicted},
        )

    def exchanged(
        self, inferred: Inferred, donor: Tensor, rows: ModelRows, generator: torch.Generator
    ) -> Tensor:
        """The donor's subgoal, and what the others before one's eyes would do if it were theirs."""
        now = replace(rows, time=inferred.carry[:, 0] - 1.0)
        return super().exchanged(inferred, donor, now, generator)

    def judge(
        self, rows: ModelRows, packing: Packing, recorded: Mapping[str, Tensor]
    ) -> Mapping[str, Tensor]:
        predicted = recorded["am_prediction"].view(-1, self._others, self._actions)
        accuracy = prediction_accuracy(predicted, rows, packing)
        return {**super().judge(rows, packing, recorded), "prediction_accuracy": accuracy}

    def files(self) -> Mapping[str, nn.Module]:
        nets = self.nets.members(range(len(self.nets)))
        return {**super().files(), **dict(zip(self.nets.names(), nets, strict=True))}

    def describe(self) -> Mapping[str, Any]:
        return {**super().describe(), "moa_goal": "subgoal"}

    def record_dims(self) -> Mapping[str, int]:
        return {**super().record_dims(), "am_prediction": self._others * self._actions}
