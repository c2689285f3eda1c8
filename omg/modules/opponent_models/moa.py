"""`moa`: models each of the others by a network of its own, π(a | o, t, g): what it does at time t
when it sees o and wants g. What it wants is inferred from what it did.

MOA assumes that one sees what the others see and may do, as the program it comes from does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from omg.config.schema import Config
from omg.functional import Packing
from omg.modules.opponent_models.base import (
    Inferred,
    ModelRows,
    OpponentModel,
    check_others,
    of_present,
)
from omg.modules.opponent_models.beliefs import GoalCounts, bayes, filtered, likelihood_of
from omg.modules.opponent_models.moa_nets import PairNets
from omg.types import EnvSpec, OmgError

COUNTS = "moa_counts"  # the file of the goals reached so far


def seen_by(rows: ModelRows) -> tuple[Tensor, Tensor]:
    """What the others see and may do."""
    assert rows.others_obs is not None, "MOA sees what the others see"
    assert rows.others_avail is not None
    return rows.others_obs, rows.others_avail


def of_the_present(values_RJW: Tensor, rows: ModelRows) -> Tensor:
    """Features about the others, side by side; zeros about those who have left."""
    return of_present(values_RJW, rows.others_alive).flatten(1)


def acted_together(rows: ModelRows, packing: Packing) -> Tensor:
    """At which rows oneself and which of the others acted, [R, N-1]."""
    acted = torch.zeros(len(rows.seats), dtype=torch.bool, device=rows.seats.device)
    acted[packing.now] = True
    both = acted.unsqueeze(1).expand_as(rows.others_last)
    return both if rows.others_alive is None else both & rows.others_alive


def prediction_accuracy(predicted_RJA: Tensor, rows: ModelRows, packing: Packing) -> Tensor:
    """Per episode, how often the likeliest action of the others was taken."""
    assert rows.others_actions is not None
    hits = predicted_RJA.argmax(-1) == rows.others_actions
    return shares(hits, acted_together(rows, packing), packing, otherwise=0.0)


def shares(hits: Tensor, counted: Tensor, packing: Packing, *, otherwise: float) -> Tensor:
    """The share of hits among what counts, per episode; `otherwise` where nothing counts."""
    sums = torch.zeros(2, packing.shape[0], device=hits.device)
    sums[0].index_add_(0, packing.episode, (hits & counted).sum(1).to(torch.float32))
    sums[1].index_add_(0, packing.episode, counted.sum(1).to(torch.float32))
    return torch.where(sums[1] > 0, sums[0] / sums[1].clamp(min=1.0), otherwise)


class MoaModel(OpponentModel):
    """Discrete goals or none. The policy is fed, for each of the others, the belief over its goals
    b(g) and the predicted actions Σ b(g)·π(a | o, t, g). The carry is the time, the belief, and
    the predictions that the next action will be compared with."""

    training_kind = "moa"
    needs_others = True
    reads_state = False

    def __init__(self, *, spec: EnvSpec, own_dim: int, config: Config) -> None:
        super().__init__()
        check_others(spec, "moa")
        if config.moa_goal == "discrete" and not spec.goals:
            raise OmgError(
                f"moa_goal=discrete needs an environment that declares goals, and {spec.name} "
                "declares none. Set moa_goal=none, or moa_goal=subgoal with a prior."
            )
        self.goals = spec.goals if config.moa_goal == "discrete" else ()
        self._others, self._actions = spec.n_agents - 1, spec.n_actions
        self.limit, self._floor = float(spec.episode_limit), config.moa_belief_floor
        self._goal_kind = config.moa_goal
        n_goals = len(self.goals)
        self.nets = PairNets(spec, goal_dim=n_goals, hidden_dim=config.am_hidden_dim)
        self.counts = GoalCounts(spec.n_agents, n_goals, discount=config.moa_count_discount)
        self.feature_dim = self._others * (n_goals + self._actions)
        self.carry_dim = 1 + self._others * n_goals * (1 + self._actions)

    def time_feature(self, time: Tensor) -> Tensor:
        """The time as the networks see it: 0 at the start, 1 at the environment's limit."""
        return time / self.limit

    def meet(self, players: Sequence[str]) -> None:
        self.counts.meet(players)

    def players(self, names: Sequence[str]) -> Tensor | None:
        return self.counts.rows_of(names) if self.goals else None

    def chances(self, rows: ModelRows, time: Tensor) -> Tensor:
        """π(a | o, t, g) of each of the others for every goal, [R, N-1, G, A]; without goals, G is
        1."""
        obs, avail = seen_by(rows)
        moment = self.time_feature(time)
        if self.goals:
            return self.nets.each_goal(obs, moment, avail, rows.seats)
        return self.nets.given(obs, moment, avail, rows.seats, None).unsqueeze(2)

    def _prior(self, rows: ModelRows) -> Tensor:
        """The belief before anything is seen, [R, N-1, G]."""
        return self.counts.prior(self.nets.order(rows.seats), rows.others_player)

    def _features(self, belief: Tensor, chances: Tensor, rows: ModelRows) -> dict[str, Tensor]:
        """Belief and predicted actions, side by side for all others, by the name of the record."""
        if not self.goals:
            return {"am_prediction": of_the_present(chances.squeeze(2), rows)}
        predicted = (belief.unsqueeze(-1) * chances).sum(2)
        return {
            "am_belief": of_the_present(belief, rows),
            "am_prediction": of_the_present(predicted, rows),
        }

    @torch.no_grad()
    def infer(self, rows: ModelRows, carry: Tensor, generator: torch.Generator) -> Inferred:
        time, belief, before = self._remembered(carry)
        chances = self.chances(rows, time)
        if self.goals:
            seen = bayes(belief, likelihood_of(before, rows.others_last), self._floor)
            belief = torch.where(time.view(-1, 1, 1) > 0, seen, self._prior(rows))
        record = self._features(belief, chances, rows)
        parts = [time.unsqueeze(1) + 1.0]
        if self.goals:
            parts += [belief.flatten(1), chances.flatten(1)]
        return Inferred(torch.cat([*record.values()], -1), torch.cat(parts, -1), record)

    def _remembered(self, carry: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Time [R], belief [R, N-1, G] and predictions [R, N-1, G, A] of the step before."""
        others, goals = self._others, len(self.goals)
        belief = carry[:, 1 : 1 + others * goals].reshape(len(carry), others, goals)
        rest = carry[:, 1 + others * goals :].reshape(len(carry), others, goals, self._actions)
        return carry[:, 0], belief, rest

    def exchanged(
        self, inferred: Inferred, donor: Tensor, rows: ModelRows, generator: torch.Generator
    ) -> Tensor:
        """The donor's beliefs, and what the others before one's eyes would do if they were true;
        without goals the donor's predictions."""
        if not self.goals:
            return inferred.feature[donor]
        _, belief, chances = self._remembered(inferred.carry)
        return torch.cat([*self._features(belief[donor], chances, rows).values()], -1)

    @torch.no_grad()
    def unroll(self, rows: ModelRows, packing: Packing, generator: torch.Generator) -> Tensor:
        assert rows.time is not None
        chances = self.chances(rows, rows.time)
        belief = chances.new_zeros(0)
        if self.goals:
            before = packing.previous(chances.flatten(1)).view(chances.shape)
            likelihood = likelihood_of(before, rows.others_last)
            first = slice(0, int(packing.sizes[0]))
            prior = self._prior(rows)[first]
            belief = filtered(prior, likelihood, packing.sizes, self._floor)
        return torch.cat([*self._features(belief, chances, rows).values()], -1)

    def judge(
        self, rows: ModelRows, packing: Packing, recorded: Mapping[str, Tensor]
    ) -> Mapping[str, Tensor]:
        """How often the likeliest action was taken, and how often the likeliest goal was the next
        one reached. An episode in which no other reaches a goal counts as a guess, 1 / goals."""
        predicted = recorded["am_prediction"].view(-1, self._others, self._actions)
        found = {"prediction_accuracy": prediction_accuracy(predicted, rows, packing)}
        if not self.goals or rows.others_goal is None:
            return found
        counted = acted_together(rows, packing) & (rows.others_goal >= 0)
        belief = recorded["am_belief"].view(-1, self._others, len(self.goals))
        hits = belief.argmax(-1) == rows.others_goal
        chance = 1.0 / len(self.goals)
        return {**found, "belief_accuracy": shares(hits, counted, packing, otherwise=chance)}

    def files(self) -> Mapping[str, nn.Module]:
        """One file per pair of players, and the counts of goals."""
        nets = dict(zip(self.nets.names(), self.nets.members(range(len(self.nets))), strict=True))
        return {**nets, **({COUNTS: self.counts} if self.goals else {})}

    def describe(self) -> Mapping[str, Any]:
        return {"moa_goal": self._goal_kind, "moa_belief_floor": self._floor}

    def believed(self) -> Sequence[str]:
        return self.goals

    def record_dims(self) -> Mapping[str, int]:
        belief = {"am_belief": self._others * len(self.goals)} if self.goals else {}
        return {**belief, "am_prediction": self._others * self._actions}
