"""`types_am`: a classical belief over types. The types are the players of the training run; the
belief about each of the others follows from Bayes' rule and a learned model of what each type does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from omg.components.episodes import OneHot
from omg.config.schema import Config
from omg.functional import Packing
from omg.modules.opponent_models.base import (
    Inferred,
    ModelRows,
    OpponentModel,
    action_loss,
    check_others,
    of_present,
)
from omg.modules.opponent_models.beliefs import (
    NAMELESS,
    bayes,
    filtered,
    likelihood_of,
    read_names,
    written_names,
)
from omg.modules.opponent_models.moa import acted_together, prediction_accuracy, shares
from omg.types import EnvSpec, OmgError

ANYBODY = ("anybody",)  # the one type of a model that was told of no players


class TypesModel(OpponentModel):
    """π̂(a | view, type) of each of the others: two layers over the own observation, everybody's
    last actions and the own seat, and a head for every type. The policy is fed the most probable
    type of each of the others, or the belief. The carry is whether the episode has begun, the
    belief, and the predictions that the next action will be compared with."""

    training_kind = "types"
    reads_state = False
    resizable = ("names",)  # a file may know other players

    def __init__(self, *, spec: EnvSpec, own_dim: int, config: Config) -> None:
        super().__init__()
        check_others(spec, "types_am")
        hidden = config.am_hidden_dim
        self._others, self._actions = spec.n_agents - 1, spec.n_actions
        self._places, self._floor = config.types_max, config.types_belief_floor
        self._kind = config.types_feature
        self._one_hot = OneHot(spec.n_actions)
        seen = own_dim + spec.n_agents * spec.n_actions + spec.n_agents
        self.body = nn.Sequential(
            nn.Linear(seen, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.heads = nn.Linear(hidden, self._others * self._places * self._actions)
        self.feature_dim = self._others * self._places
        self.carry_dim = 1 + self._others * self._places * (1 + self._actions)
        self.register_buffer("names", torch.zeros(0, dtype=torch.uint8))
        self.names: Tensor
        self.types: tuple[str, ...] = ANYBODY
        self._told = False  # whether it knows players by name
        self.register_buffer("_seats", torch.eye(spec.n_agents), persistent=False)
        self._seats: Tensor

    # --- who is known ------------------------------------------------------------------------

    def meet(self, players: Sequence[str]) -> None:
        if not players:
            raise OmgError(
                "am_model=types_am tells the training opponents apart by their names, and nobody "
                "plays in this run but those who learn. Give opponent_pool=<folder> or a team "
                "string, or use another am_model."
            )
        names = tuple(dict.fromkeys(players))
        if len(names) > self._places:
            raise OmgError(
                f"There are {len(names)} training opponents, and am_model=types_am has places for "
                f"types_max={self._places}. Set types_max={len(names)}."
            )
        self._know(names)

    def _know(self, names: tuple[str, ...]) -> None:
        self.types, self._told = names or ANYBODY, bool(names)
        self.names = written_names(names, self._seats.device)

    def players(self, names: Sequence[str]) -> Tensor | None:
        if not self._told:
            return None
        found = [self.types.index(n) if n in self.types else NAMELESS for n in names]
        return torch.tensor(found, dtype=torch.int64)

    def true_types(self, rows: ModelRows) -> Tensor:
        """Which type each of the others is, [R, N-1]; -1 where nobody knows."""
        if rows.others_player is not None:
            return rows.others_player
        return torch.full_like(rows.others_last, NAMELESS if self._told else 0)

    # --- what they do ------------------------------------------------------------------------

    def logits(self, rows: ModelRows) -> Tensor:
        """Unnormalised log-probabilities of what each type would do, [R, N-1, types, A]."""
        others = self._one_hot(rows.others_last).flatten(1)
        parts = [rows.own, self._one_hot(rows.last_action), others, self._seats[rows.seats]]
        out: Tensor = self.heads(self.body(torch.cat(parts, -1)))
        every = out.view(-1, self._others, self._places, self._actions)
        return every[:, :, : len(self.types)]

    def chances(self, rows: ModelRows) -> Tensor:
        """π̂(a | view, type), [R, N-1, types, A]."""
        return self.logits(rows).softmax(-1)

    def _prior(self, rows: ModelRows) -> Tensor:
        """The belief before anything is seen: all types alike, [R, N-1, types]."""
        shape = (len(rows.own), self._others, len(self.types))
        return rows.own.new_full(shape, 1.0 / len(self.types))

    # --- beliefs -----------------------------------------------------------------------------

    @torch.no_grad()
    def beliefs(self, rows: ModelRows, packing: Packing) -> Tensor:
        """P(type | history) at every packed slot, [P, N-1, types]."""
        chances = self.chances(rows)
        before = packing.previous(chances)
        seen = likelihood_of(before, rows.others_last)
        prior = self._prior(rows)[: int(packing.sizes[0])]
        return filtered(prior, seen, packing.sizes, self._floor)

    def features(self, belief: Tensor, rows: ModelRows) -> Tensor:
        """What the policy is fed of a belief [R, N-1, types]; zeros of those who have left."""
        if self._kind == "most_probable":
            belief = functional.one_hot(belief.argmax(-1), belief.shape[-1]).to(belief.dtype)
        return of_present(self._padded(belief, 2), rows.others_alive).flatten(1)

    def taught(self, belief: Tensor, rows: ModelRows) -> Tensor:
        """The features of somebody who knows the true types; of others of no known type, what was
        inferred."""
        true = self.true_types(rows)
        sure = functional.one_hot(true.clamp(min=0), belief.shape[-1]).to(belief.dtype)
        return self.features(torch.where((true >= 0).unsqueeze(-1), sure, belief), rows)

    def _padded(self, per_type: Tensor, axis: int) -> Tensor:
        """Zeros in the places of types that there are not."""
        free = list(per_type.shape)
        free[axis] = self._places - free[axis]
        return torch.cat([per_type, per_type.new_zeros(free)], axis)

    @torch.no_grad()
    def infer(self, rows: ModelRows, carry: Tensor, generator: torch.Generator) -> Inferred:
        begun, belief, before = self._remembered(carry)
        chances = self.chances(rows)
        seen = bayes(belief, likelihood_of(before, rows.others_last), self._floor)
        belief = torch.where(begun.view(-1, 1, 1) > 0, seen, self._prior(rows))
        kept = [self._padded(belief, 2).flatten(1), self._padded(chances, 2).flatten(1)]
        predicted = (belief.unsqueeze(-1) * chances).sum(2)
        record = {
            "am_belief": of_present(self._padded(belief, 2), rows.others_alive).flatten(1),
            "am_prediction": of_present(predicted, rows.others_alive).flatten(1),
        }
        after = torch.cat([torch.ones_like(begun).unsqueeze(1), *kept], -1)
        return Inferred(self.features(belief, rows), after, record)

    def _remembered(self, carry: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Whether the episode has begun [R], belief [R, N-1, types] and predictions [R, N-1, types,
        A] of the step before."""
        others, places, known = self._others, self._places, len(self.types)
        split = 1 + others * places
        belief = carry[:, 1:split].reshape(-1, others, places)[:, :, :known]
        rest = carry[:, split:].reshape(-1, others, places, self._actions)[:, :, :known]
        return carry[:, 0], belief, rest

    @torch.no_grad()
    def unroll(self, rows: ModelRows, packing: Packing, generator: torch.Generator) -> Tensor:
        return self.features(self.beliefs(rows, packing), rows)

    # --- learning ----------------------------------------------------------------------------

    def episode_loss(self, rows: ModelRows, packing: Packing) -> Mapping[str, Tensor]:
        """Mean cross-entropy of what the others did under the model of their true type; those whose
        type nobody knows teach nothing."""
        acted = rows.take(packing.now)
        assert acted.others_actions is not None
        true = self.true_types(acted)
        at = true.clamp(min=0).view(*true.shape, 1, 1).expand(-1, -1, 1, self._actions)
        own = self.logits(acted).gather(2, at).squeeze(2)
        counted = true >= 0
        if acted.others_alive is not None:
            counted = counted & acted.others_alive
        loss, accuracy = action_loss(own, acted.others_actions, counted)
        return {"am_loss": loss, "am_accuracy": accuracy}

    def type_accuracy(self, belief: Tensor, rows: ModelRows, packing: Packing) -> Tensor:
        """How often the most probable type was the true one, over moments and others of known
        type; the chance of a guess where there are none."""
        true = self.true_types(rows)
        counted = acted_together(rows, packing) & (true >= 0)
        hits = ((belief.argmax(-1) == true) & counted).sum()
        guess = torch.full((), 1.0 / len(self.types), device=belief.device)
        return torch.where(counted.any(), hits / counted.sum().clamp(min=1), guess)

    def judge(
        self, rows: ModelRows, packing: Packing, recorded: Mapping[str, Tensor]
    ) -> Mapping[str, Tensor]:
        """How often the likeliest action was taken, and how often the most probable type was the
        true one. An episode with nobody of a known type counts as a guess, 1 / types."""
        predicted = recorded["am_prediction"].view(-1, self._others, self._actions)
        belief = recorded["am_belief"].view(-1, self._others, self._places)
        true = self.true_types(rows)
        counted = acted_together(rows, packing) & (true >= 0)
        hits, guess = belief.argmax(-1) == true, 1.0 / len(self.types)
        return {
            "prediction_accuracy": prediction_accuracy(predicted, rows, packing),
            "type_accuracy": shares(hits, counted, packing, otherwise=guess),
        }

    # --- files -------------------------------------------------------------------------------

    def files(self) -> Mapping[str, nn.Module]:
        return {"types_am": self}

    def describe(self) -> Mapping[str, Any]:
        return {
            "types_max": self._places,
            "types_feature": self._kind,
            "types_belief_floor": self._floor,
        }

    def believed(self) -> Sequence[str]:
        return self.types

    def record_dims(self) -> Mapping[str, int]:
        return {
            "am_belief": self._others * self._places,
            "am_prediction": self._others * self._actions,
        }

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """The types are those of the file: its heads and the policy's weights count on them. Other
        players of this run are of no known type."""
        names = tuple(read_names(state_dict[f"{prefix}names"], "types of opponents"))
        if len(names) > self._places:
            raise OmgError(
                f"The file names {len(names)} types of opponents, more than "
                f"types_max={self._places}. Use another model."
            )
        self._know(names)
        super()._load_from_state_dict(dict(state_dict), prefix, *args, **kwargs)
