"""`liam_am`: LIAM, an embedding of the own history from which the others can be told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from omg.components.episodes import OneHot
from omg.config.schema import Config
from omg.functional import Packing
from omg.modules.kernels.gru import GRUCore
from omg.modules.opponent_models.base import (
    Inferred,
    ModelRows,
    OpponentModel,
    SubgoalSource,
    action_loss,
    mean_over_present,
    of_present,
)
from omg.types import EnvSpec


def _decoder(embed_dim: int, hidden_dim: int, out_dim: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(embed_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, out_dim)
    )


class LiamModel(OpponentModel):
    """z_t of (o_1, a_0, … o_t, a_{t-1}), own ones only. Decoders tell from z_t what every other
    agent sees and does at t; they are needed for learning, and for `am_feature` decoded or both.
    Then a third one tells the others' features in the state, where the environment declares them.
    With `liam_others_actions` the encoder also sees a⁻ⁱ_{t-1}, as OMG's inference does.
    """

    def __init__(self, *, spec: EnvSpec, own_dim: int, config: Config) -> None:
        super().__init__()
        hidden, embed_dim = config.am_hidden_dim, config.liam_embed_dim
        self._others, self._actions = spec.n_agents - 1, spec.n_actions
        self._embed_dim, self._kind = embed_dim, config.am_feature
        self.reads_state = self._kind != "latent"
        self._action_weight = config.liam_action_weight
        self._one_hot = OneHot(spec.n_actions)
        self._sees_actions = config.liam_others_actions
        seen_actions = spec.n_agents if self._sees_actions else 1
        self.fc = nn.Linear(own_dim + seen_actions * spec.n_actions + spec.n_agents, hidden)
        self.rnn = GRUCore(hidden, hidden)
        self.embedding = nn.Linear(hidden, embed_dim)
        self.obs_decoder = _decoder(embed_dim, hidden, self._others * spec.obs_dim)
        self.action_decoder = _decoder(embed_dim, hidden, self._others * spec.n_actions)
        self.source = SubgoalSource(spec)
        placed = bool(spec.agent_features) and self._kind != "latent"
        width = self.source.place_dim if placed else self._others * spec.obs_dim
        self.place_decoder = _decoder(embed_dim, hidden, width) if placed else None
        self.carry_dim = hidden
        latent = 0 if self._kind == "decoded" else embed_dim
        decoded = 0 if self._kind == "latent" else self._others * spec.n_actions + width
        self.feature_dim = latent + decoded
        self.register_buffer("_seats", torch.eye(spec.n_agents), persistent=False)
        self._seats: Tensor

    def _inputs(self, rows: ModelRows) -> Tensor:
        seen = [rows.own, self._one_hot(rows.last_action), self._seats[rows.seats]]
        if self._sees_actions:
            seen.append(self._one_hot(rows.others_last).flatten(1))
        return torch.relu(self.fc(torch.cat(seen, -1)))

    def embed(self, rows: ModelRows, packing: Packing) -> Tensor:
        """z of every packed slot, [P, E], with gradient through all steps."""
        start = rows.own.new_zeros(int(packing.sizes[0]), self.carry_dim)
        hidden = self.rnn.unroll_packed(self._inputs(rows), packing.sizes, start)
        out: Tensor = self.embedding(hidden)
        return out

    def logits(self, embedding: Tensor) -> Tensor:
        """Unnormalised log-probabilities of the others' actions, [R, N-1, A]."""
        out: Tensor = self.action_decoder(embedding)
        return out.view(-1, self._others, self._actions)

    def _seen(self, embedding: Tensor) -> Tensor:
        """What the others see, [R, N-1, O]."""
        out: Tensor = self.obs_decoder(embedding)
        return out.view(len(embedding), self._others, -1)

    def _places(self, embedding: Tensor) -> Tensor:
        """The others' features in the state, [R, N-1, W]."""
        assert self.place_decoder is not None
        out: Tensor = self.place_decoder(embedding)
        return out.view(len(embedding), self._others, self.source.width)

    def _decoded(self, embedding: Tensor, rows: ModelRows) -> Tensor:
        """What the others do, and where they are relative to oneself; what they see where the
        environment does not say whose features are whose."""
        alive = rows.others_alive
        if self.place_decoder is None:
            where = of_present(self._seen(embedding), alive).flatten(1)
        else:
            where = self.source.ahead(self._places(embedding), rows.state, rows.seats, alive)
        does = of_present(self.logits(embedding).softmax(-1), alive)
        return torch.cat([does.flatten(1), where], -1)

    @torch.no_grad()
    def features(self, embedding: Tensor, rows: ModelRows) -> Tensor:
        """What the policy is fed of an embedding: itself, what it decodes to, or both."""
        parts = [] if self._kind == "decoded" else [embedding]
        if self._kind != "latent":
            parts.append(self._decoded(embedding, rows))
        return torch.cat(parts, -1)

    @torch.no_grad()
    def infer(self, rows: ModelRows, carry: Tensor, generator: torch.Generator) -> Inferred:
        hidden = self.rnn(self._inputs(rows), carry)
        embedding = self.embedding(hidden)
        prediction = self.logits(embedding).softmax(-1).flatten(1)
        record = {"am_embedding": embedding, "am_prediction": prediction}
        return Inferred(self.features(embedding, rows), hidden, record)

    def exchanged(
        self, inferred: Inferred, donor: Tensor, rows: ModelRows, generator: torch.Generator
    ) -> Tensor:
        """The donor's embedding, its decoded places seen from one's own."""
        return self.features(inferred.record["am_embedding"][donor], rows)

    @torch.no_grad()
    def unroll(self, rows: ModelRows, packing: Packing, generator: torch.Generator) -> Tensor:
        return self.features(self.embed(rows, packing), rows)

    def episode_loss(self, rows: ModelRows, packing: Packing) -> Mapping[str, Tensor]:
        """Means over transitions and others: the square error of what they see (and where they
        are) + liam_action_weight · cross-entropy of what they do."""
        embedding = self.embed(rows, packing)[packing.now]
        acted = rows.take(packing.now)
        assert acted.others_obs is not None
        assert acted.others_actions is not None
        alive = acted.others_alive
        missed = (self._seen(embedding) - acted.others_obs).square()
        obs_loss = mean_over_present(missed, alive)
        cross_entropy, accuracy = action_loss(self.logits(embedding), acted.others_actions, alive)
        loss = obs_loss + self._action_weight * cross_entropy
        terms = {"am_obs_loss": obs_loss, "am_action_loss": cross_entropy, "am_accuracy": accuracy}
        if self.place_decoder is not None:
            places = self.source.places(acted.state, acted.seats)
            place_loss = mean_over_present((self._places(embedding) - places).square(), alive)
            loss = loss + place_loss
            terms["am_place_loss"] = place_loss
        return {"am_loss": loss, **terms}

    def files(self) -> Mapping[str, nn.Module]:
        return {"liam_am": self}

    def describe(self) -> Mapping[str, Any]:
        return {
            "am_feature": self._kind,
            "liam_embed_dim": self._embed_dim,
            "liam_others_actions": self._sees_actions,
        }

    def record_dims(self) -> Mapping[str, int]:
        return {
            "am_embedding": self._embed_dim,
            "am_prediction": self._others * self._actions,
        }
