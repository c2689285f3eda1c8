"""`meliba_am`: MeLIBA, a belief about who the others are and what they are up to, learned as a
hierarchical VAE of their actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from omg.components.episodes import OneHot
from omg.config.schema import Config
from omg.functional import Packing, gaussian_kl, sample_gaussian
from omg.modules.kernels.gru import GRUCore
from omg.modules.opponent_models.base import (
    Inferred,
    ModelRows,
    OpponentModel,
    action_loss,
    check_others,
)
from omg.modules.opponent_models.moa import prediction_accuracy
from omg.types import EnvSpec


@dataclass(frozen=True, slots=True)
class Gaussian:
    """A diagonal Gaussian per row."""

    mean: Tensor  # [..., D]
    log_var: Tensor  # [..., D]

    @classmethod
    def of(cls, told: Tensor) -> Gaussian:
        """From a layer's outputs, [..., 2D]."""
        mean, log_var = told.chunk(2, -1)
        return cls(mean, log_var.clamp(-10.0, 4.0))

    def draw(self, generator: torch.Generator) -> Tensor:
        """One sample of each, with gradient."""
        return sample_gaussian(self.mean, self.log_var, generator)

    def kl(self, other: Gaussian) -> Tensor:
        """KL(self ‖ other), [...]."""
        return gaussian_kl(self.mean, self.log_var, other.mean, other.log_var)

    def flat(self) -> Tensor:
        """Mean and log-variance side by side, [..., 2D]."""
        return torch.cat([self.mean, self.log_var], -1)


def later_slots(packing: Packing, count: int, generator: torch.Generator) -> Tensor:
    """For every transition, `count` transitions drawn from the rest of its episode, itself
    included: their packed slots, [K, count]."""
    now = packing.now
    time, episode = packing.time[now], packing.episode[now]
    last = torch.zeros(packing.shape[0], dtype=time.dtype, device=time.device)
    last = last.scatter_reduce(0, episode, time, "amax")
    left = (last[episode] - time).unsqueeze(1)
    draws = torch.rand(len(now), count, generator=generator).to(time.device)
    ahead = (draws * (left + 1)).long().minimum(left)
    sizes = packing.sizes.to(time.device)
    offsets = torch.cumsum(sizes, 0) - sizes
    return offsets[time.unsqueeze(1) + ahead] + packing.rank[now].unsqueeze(1)


class MelibaModel(OpponentModel):
    """q(m | τ_t) of a permanent latent and q(m_t | τ_t, m) of a temporal one, from a GRU over the
    own observations and everybody's last actions; a decoder of the others' actions p(a | o, m,
    m_t). The policy is fed the belief: means and log-variances of both."""

    reads_state = False

    def __init__(self, *, spec: EnvSpec, own_dim: int, config: Config) -> None:
        super().__init__()
        check_others(spec, "meliba_am")
        hidden = config.am_hidden_dim
        self._permanent_dim, self._temporal_dim = (
            config.meliba_permanent_dim,
            config.meliba_temporal_dim,
        )
        self._others, self._actions = spec.n_agents - 1, spec.n_actions
        self._kl_weight, self._decodes = config.meliba_kl_weight, config.meliba_decodes
        self._one_hot = OneHot(spec.n_actions)
        seen = own_dim + spec.n_agents * spec.n_actions + spec.n_agents
        self.fc = nn.Linear(seen, hidden)
        self.rnn = GRUCore(hidden, hidden)
        self.permanent = nn.Linear(hidden, 2 * self._permanent_dim)
        self.temporal = _two_layers(hidden + self._permanent_dim, hidden, 2 * self._temporal_dim)
        latents = self._permanent_dim + self._temporal_dim
        self.decoder = _two_layers(own_dim + latents, hidden, self._others * spec.n_actions)
        self.carry_dim = hidden
        self.feature_dim = 2 * latents
        self.register_buffer("_seats", torch.eye(spec.n_agents), persistent=False)
        self._seats: Tensor

    def _inputs(self, rows: ModelRows) -> Tensor:
        others = self._one_hot(rows.others_last).flatten(1)
        parts = [rows.own, self._one_hot(rows.last_action), others, self._seats[rows.seats]]
        return torch.relu(self.fc(torch.cat(parts, -1)))

    def encode(self, rows: ModelRows, packing: Packing) -> Tensor:
        """The GRU's state at every packed slot, [P, H], with gradient through all steps."""
        start = rows.own.new_zeros(int(packing.sizes[0]), self.carry_dim)
        return self.rnn.unroll_packed(self._inputs(rows), packing.sizes, start)

    def character(self, hidden: Tensor) -> Gaussian:
        """q(m | τ_t), who the others are."""
        return Gaussian.of(self.permanent(hidden))

    def mood(self, hidden: Tensor, permanent: Tensor) -> Gaussian:
        """q(m_t | τ_t, m), what they are up to now."""
        return Gaussian.of(self.temporal(torch.cat([hidden, permanent], -1)))

    def logits(self, own: Tensor, permanent: Tensor, temporal: Tensor) -> Tensor:
        """Unnormalised log-probabilities of the others' actions, [R, N-1, A]."""
        out: Tensor = self.decoder(torch.cat([own, permanent, temporal], -1))
        return out.view(-1, self._others, self._actions)

    def _belief(self, hidden: Tensor) -> tuple[Gaussian, Gaussian]:
        """What the policy is fed: the temporal latent's is given the permanent one's mean."""
        who = self.character(hidden)
        return who, self.mood(hidden, who.mean)

    @torch.no_grad()
    def infer(self, rows: ModelRows, carry: Tensor, generator: torch.Generator) -> Inferred:
        hidden = self.rnn(self._inputs(rows), carry)
        who, mood = self._belief(hidden)
        predicted = self.logits(rows.own, who.mean, mood.mean).softmax(-1).flatten(1)
        record = {
            "am_permanent": who.flat(),
            "am_temporal": mood.flat(),
            "am_prediction": predicted,
        }
        return Inferred(torch.cat([who.flat(), mood.flat()], -1), hidden, record)

    @torch.no_grad()
    def unroll(self, rows: ModelRows, packing: Packing, generator: torch.Generator) -> Tensor:
        who, mood = self._belief(self.encode(rows, packing))
        return torch.cat([who.flat(), mood.flat()], -1)

    def sampled_loss(
        self, rows: ModelRows, packing: Packing, generator: torch.Generator
    ) -> Mapping[str, Tensor]:
        """Cross-entropy of what the others do now, and at steps drawn from the rest of the episode,
        given one sample of m at every t; + meliba_kl_weight · (KL of m to the belief one step
        before, N(0, 1) at the start, + KL of m_t to N(0, 1))."""
        assert rows.others_actions is not None
        now, hidden = packing.now, self.encode(rows, packing)
        who = self.character(hidden)
        before = Gaussian(packing.previous(who.mean), packing.previous(who.log_var))
        drawn = who.draw(generator)[now]
        slots = torch.cat([now.unsqueeze(1), later_slots(packing, self._decodes, generator)], 1)
        at, each = slots.flatten(), drawn.repeat_interleave(slots.shape[1], 0)
        mood = self.mood(hidden[at], each)
        told = self.logits(rows.own[at], each, mood.draw(generator))
        told = told.view(*slots.shape, self._others, self._actions)
        actions, alive = rows.others_actions[slots], None
        if rows.others_alive is not None:
            alive = rows.others_alive[slots]
        present = None if alive is None else alive[:, 0]
        loss, accuracy = action_loss(told[:, 0], actions[:, 0], present)
        terms = {"am_action_loss": loss, "am_accuracy": accuracy}
        if self._decodes:
            present = None if alive is None else alive[:, 1:].flatten(0, 1)
            rest, _ = action_loss(told[:, 1:].flatten(0, 1), actions[:, 1:].flatten(0, 1), present)
            loss = loss + rest
            terms["am_rest_loss"] = rest
        nothing = torch.zeros_like(mood.mean)
        kl_permanent = who.kl(before)[now].mean()
        kl_temporal = mood.kl(Gaussian(nothing, nothing)).mean()
        loss = loss + self._kl_weight * (kl_permanent + kl_temporal)
        terms |= {"am_kl_permanent": kl_permanent, "am_kl_temporal": kl_temporal}
        return {"am_loss": loss, **terms}

    def judge(
        self, rows: ModelRows, packing: Packing, recorded: Mapping[str, Tensor]
    ) -> Mapping[str, Tensor]:
        predicted = recorded["am_prediction"].view(-1, self._others, self._actions)
        return {"prediction_accuracy": prediction_accuracy(predicted, rows, packing)}

    def files(self) -> Mapping[str, nn.Module]:
        return {"meliba_am": self}

    def describe(self) -> Mapping[str, Any]:
        return {
            "meliba_permanent_dim": self._permanent_dim,
            "meliba_temporal_dim": self._temporal_dim,
        }

    def record_dims(self) -> Mapping[str, int]:
        return {
            "am_permanent": 2 * self._permanent_dim,
            "am_temporal": 2 * self._temporal_dim,
            "am_prediction": self._others * self._actions,
        }


def _two_layers(in_dim: int, hidden_dim: int, out_dim: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(in_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, out_dim))
