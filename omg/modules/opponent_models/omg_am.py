"""`omg_am`: infers the others' subgoal. Prior VAE over states, inference CVAE over histories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from omg.config.schema import Config
from omg.functional import Packing, gaussian_kl, hit_ratio, sample_gaussian
from omg.modules.kernels.given import with_gradient
from omg.modules.kernels.noise import draw_rows, noise
from omg.modules.kernels.subgoal import Drawn, Lessons, SubgoalKernel, subgoal_kernel
from omg.modules.opponent_models.base import HistoryModel, Inferred, ModelRows, SubgoalSource
from omg.types import EnvSpec, IntArray

# Width of a cell in which features that are no whole numbers are compared.
CELL = 0.1
DESCRIBED = (
    *("subgoal_dim", "subgoal_source", "subgoal_inference", "subgoal_feature"),
    "subgoal_posterior",
)


class PriorVAE(nn.Module):
    """p_ψ(g | s): encodes a state into a Gaussian over subgoals and decodes it back."""

    def __init__(self, state_dim: int, hidden_dim: int, subgoal_dim: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(state_dim, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, 2 * subgoal_dim),
        )
        self.decoder = nn.Sequential(
            nn.Linear(subgoal_dim, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, state_dim),
        )

    def encode(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance."""
        mean, log_var = self.encoder(state).chunk(2, -1)
        return mean, log_var.clamp(-10.0, 4.0)

    def decode(self, subgoal: Tensor) -> Tensor:
        out: Tensor = self.decoder(subgoal)
        return out

    def loss(
        self,
        state: Tensor,
        kl_weight: float,
        generator: torch.Generator,
        variance: Tensor | None = None,
    ) -> Mapping[str, Tensor]:
        """Reconstruction (mean square, as shares of `variance` where it is given, [C]) + weight ·
        KL to N(0, 1)."""
        mean, log_var = self.encode(state)
        decoded = self.decode(sample_gaussian(mean, log_var, generator))
        zeros = torch.zeros_like(mean)
        kl = gaussian_kl(mean, log_var, zeros, zeros).mean()
        error = (decoded - state).square()
        recon = (error if variance is None else error / variance).mean()
        return {"am_loss": recon + kl_weight * kl, "prior_recon": recon, "prior_kl": kl}


class InferenceCVAE(nn.Module):
    """q_φ(g | τ, s): encoder of (embedding of s_t, condition) and decoder of (g, condition)."""

    def __init__(self, embed_dim: int, cond_dim: int, hidden_dim: int, subgoal_dim: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(embed_dim + cond_dim, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, 2 * subgoal_dim),
        )
        self.decoder = nn.Sequential(
            nn.Linear(subgoal_dim + cond_dim, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, embed_dim),
        )

    def encode(self, embedding: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_var = self.encoder(torch.cat([embedding, condition], -1)).chunk(2, -1)
        return mean, log_var.clamp(-10.0, 4.0)

    def decode(self, subgoal: Tensor, condition: Tensor) -> Tensor:
        out: Tensor = self.decoder(torch.cat([subgoal, condition], -1))
        return out


class InferenceMLP(nn.Module):
    """The supervised ablation: (embedding of s_t, condition) to one subgoal, no distribution."""

    def __init__(self, embed_dim: int, cond_dim: int, hidden_dim: int, subgoal_dim: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(embed_dim + cond_dim, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, subgoal_dim),
        )

    def encode(self, embedding: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        """The subgoal, and a log-variance of zero."""
        mean: Tensor = self.body(torch.cat([embedding, condition], -1))
        return mean, torch.zeros_like(mean)


@dataclass(frozen=True, slots=True)
class Posterior:
    """q_φ of R rows, and ĝ. Where the kernel made it, only the condition has a gradient, and
    `drawn` holds what the loss needs; else all of it has one."""

    mean: Tensor  # [R, G]
    log_var: Tensor  # [R, G]
    condition: Tensor
    subgoal: Tensor  # [R, G]
    drawn: Drawn | None = None


class SubgoalModel(HistoryModel):
    """Acting uses ĝ_t of the inference at every step; the prior is frozen after pre-training.
    Files: vae.th (prior), cvae.th or mlp.th, cond_rnn.th, fc.th (inference)."""

    training_kind = "subgoals"

    def __init__(self, *, spec: EnvSpec, own_dim: int, config: Config) -> None:
        super().__init__()
        hidden = config.am_hidden_dim
        self.supervised = config.subgoal_inference == "mlp"
        self._subgoal_dim = config.subgoal_dim
        self._sampled = config.subgoal_posterior == "sample"
        self.source = SubgoalSource(spec, whole=config.subgoal_source == "state")
        self.vae = PriorVAE(self.source.dim, hidden, config.subgoal_dim)
        self._build_history(spec, own_dim, hidden)
        kind = InferenceMLP if self.supervised else InferenceCVAE
        self.inference = kind(self._embed_dim, self._cond_dim, hidden, config.subgoal_dim)
        self._kind = config.subgoal_feature
        latent = 0 if self._kind == "decoded" else config.subgoal_dim
        decoded = 0 if self._kind == "latent" else self.source.place_dim
        self.feature_dim = latent + decoded
        self.reads_state = not self.feeds_subgoals
        # Features count as equal within half a cell; those that are no whole numbers have none.
        scale = spec.state_scale if config.scale_inputs else 1.0
        self.cell = scale if "int" in spec.state_dtype else CELL
        self._described = {key: getattr(config, key) for key in DESCRIBED}

    def draw(self, mean: Tensor, log_var: Tensor, generator: torch.Generator) -> Tensor:
        """A subgoal from a Gaussian: a sample or its mean, as configured."""
        return sample_gaussian(mean, log_var, generator) if self._sampled else mean

    def draw_rows(
        self, mean: Tensor, log_var: Tensor, rows: Tensor, generator: torch.Generator
    ) -> Tensor:
        """`draw` of some rows [R] of a table of Gaussians, without gradients."""
        if self._sampled and type(self).draw is SubgoalModel.draw:
            return draw_rows(mean, log_var, rows, generator)
        return self.draw(mean.index_select(0, rows), log_var.index_select(0, rows), generator)

    def infer(self, rows: ModelRows, carry: Tensor, generator: torch.Generator) -> Inferred:
        condition, carry = self._advance(rows, carry)
        mean, log_var = self.inference.encode(self._embed(rows), condition)
        drawn = self.inferred(mean, log_var, generator)
        record = {"am_mean": mean, "am_log_var": log_var, "am_subgoal": drawn}
        return Inferred(self.features(drawn, rows), carry, record)

    def exchanged(
        self, inferred: Inferred, donor: Tensor, rows: ModelRows, generator: torch.Generator
    ) -> Tensor:
        """The donor's subgoal, seen from one's own place."""
        mean, log_var = (inferred.record[name][donor] for name in ("am_mean", "am_log_var"))
        return self.features(self.inferred(mean, log_var, generator), rows)

    def record_dims(self) -> Mapping[str, int]:
        return dict.fromkeys(("am_mean", "am_log_var", "am_subgoal"), self._subgoal_dim)

    def judge(
        self, rows: ModelRows, packing: Packing, recorded: Mapping[str, Tensor]
    ) -> Mapping[str, Tensor]:
        """The hit ratio of the mean subgoals."""
        return {"hit_ratio": subgoal_hits(self, rows, packing, recorded["am_mean"])}

    def places_ahead(self, recorded: Mapping[str, Tensor], seats: Tensor) -> Tensor | None:
        """The places that the mean subgoals decode to."""
        return self.source.places(self.vae.decode(recorded["am_mean"]), seats)

    def inferred(self, mean: Tensor, log_var: Tensor, generator: torch.Generator) -> Tensor:
        """ĝ of a posterior; the ablation has no distribution to draw from."""
        return mean if self.supervised else self.draw(mean, log_var, generator)

    def posterior(self, rows: ModelRows, packing: Packing) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and log-variance of ĝ at every packed slot, and the condition; with gradient
        through all steps of the condition."""
        condition = self._conditions(rows, packing)
        mean, log_var = self.inference.encode(self._embed(rows), condition)
        return mean, log_var, condition

    def stored(self, rows: ModelRows, packing: Packing, generator: torch.Generator) -> Posterior:
        """`posterior` of whole episodes with ĝ, for `loss`."""
        kernel = self._kernel(rows.own, self._weights()) if self._usual else None
        if kernel is None:
            mean, log_var, condition = self.posterior(rows, packing)
            if not (self._usual and self._sampled):
                return Posterior(mean, log_var, condition, self.inferred(mean, log_var, generator))
            scaled = torch.exp(0.5 * log_var) * noise(tuple(mean.shape), generator).to(mean.device)
            return Posterior(mean, log_var, condition, mean + scaled)
        condition = self._conditions(rows, packing)
        shape = len(condition), self._subgoal_dim
        with torch.no_grad():
            made = noise(shape, generator) if self._sampled else None
            drawn = kernel.forward(rows.own, condition, made, self._weights())
        return Posterior(drawn.mean, drawn.log_var, condition, drawn.subgoal, drawn)

    def loss(
        self, rows: ModelRows, found: Posterior, lessons: Lessons, kl_weight: float
    ) -> Mapping[str, Tensor]:
        """Of the rows that learn, towards the prior of the selected states: reconstruction +
        weight · KL, or the square error of the subgoal itself in the supervised ablation."""
        now, chosen, *prior = lessons
        if found.drawn is not None:
            return self._loss_by_kernel(rows, found, lessons, kl_weight)
        mean, log_var, condition, subgoal = (
            value.index_select(0, now)
            for value in (found.mean, found.log_var, found.condition, found.subgoal)
        )
        wanted = [value.index_select(0, chosen) for value in prior]
        if self.supervised:
            error = (mean - wanted[0]).square().mean()
            return {"am_loss": error, "am_recon": error}
        kl = gaussian_kl(mean, log_var, *wanted).mean()
        recon = self.reconstruction(rows.take(now), subgoal, condition)
        return {"am_loss": recon + kl_weight * kl, "am_recon": recon, "am_kl": kl}

    def _loss_by_kernel(
        self, rows: ModelRows, found: Posterior, lessons: Lessons, kl_weight: float
    ) -> Mapping[str, Tensor]:
        weights = self._weights()
        kernel = self._kernel(rows.own, weights)
        assert kernel is not None
        assert found.drawn is not None
        (recon, kl), slope, slopes = kernel.fit(
            rows.own, found.drawn, lessons, weights, kl_weight=kl_weight
        )
        of = [found.condition, *weights]
        loss = with_gradient(recon + kl_weight * kl, of, [slope, *slopes])
        return {"am_loss": loss, "am_recon": recon, "am_kl": kl}

    @torch.no_grad()
    def prior(self, rows: ModelRows) -> tuple[Tensor, Tensor]:
        """The frozen prior's mean and log-variance of every row's state."""
        encoded = self.source(rows.state, rows.seats)
        weights = self.prior_weights()
        kernel = self._kernel(encoded, weights) if self.prior_by_kernel else None
        return self.vae.encode(encoded) if kernel is None else kernel.prior(encoded, weights)

    @property
    def prior_by_kernel(self) -> bool:
        """Whether the kernel encodes states, every row for itself."""
        weights = self.prior_weights()
        return type(self.vae) is PriorVAE and self._kernel(weights[0], weights) is not None

    def prior_weights(self) -> list[nn.Parameter]:
        """Of its encoder."""
        return list(self.vae.encoder.parameters())

    @property
    def _usual(self) -> bool:
        """Whether the kernel computes what this class does: nothing of it was replaced."""
        own = ("posterior", "inferred", "draw", "reconstruction", "_embed", "_conditions")
        kind = type(self)
        return type(self.inference) is InferenceCVAE and all(
            getattr(kind, name) is getattr(SubgoalModel, name) for name in own
        )

    def _weights(self) -> list[nn.Parameter]:
        """In the kernel's order: embedding, encoder, decoder."""
        assert isinstance(self.inference, InferenceCVAE)
        parts = (self.fc, self.inference.encoder, self.inference.decoder)
        return [weight for part in parts for weight in part.parameters()]

    @staticmethod
    def _kernel(inputs: Tensor, weights: Sequence[Tensor]) -> SubgoalKernel | None:
        kernel, _ = subgoal_kernel()
        return kernel if kernel is not None and kernel.fits(inputs, weights) else None

    def unroll(self, rows: ModelRows, packing: Packing, generator: torch.Generator) -> Tensor:
        with torch.no_grad():
            mean, log_var, _ = self.posterior(rows, packing)
            return self.features(self.inferred(mean, log_var, generator), rows)

    def decoded(self, subgoal: Tensor) -> Tensor | None:
        """What `features` needs of the decoder; None where the policy is fed the latent only."""
        return None if self._kind == "latent" else self.vae.decode(subgoal)

    def features(self, subgoal: Tensor, rows: ModelRows, decoded: Tensor | None = None) -> Tensor:
        """What the policy is fed of a subgoal [R, G]: itself, the place it decodes to, or both;
        `decoded` saves decoding it again."""
        parts = []
        if self._kind != "decoded":
            parts.append(subgoal)
        if self._kind != "latent":
            decoded = self.vae.decode(subgoal) if decoded is None else decoded
            parts.append(self.source.place(decoded, rows.state, rows.seats, rows.others_alive))
        return torch.cat(parts, -1).detach()

    @property
    def feeds_subgoals(self) -> bool:
        """Whether the features are the subgoal itself, wherever one stands."""
        return self._kind == "latent"

    def reconstruction(self, rows: ModelRows, subgoal: Tensor, condition: Tensor) -> Tensor:
        """Mean square error of the decoded embedding of s_t; the embedding itself is the target
        and gets no gradient from here, lest it shrink to zero."""
        assert isinstance(self.inference, InferenceCVAE)
        target = self._embed(rows).detach()
        return (self.inference.decode(subgoal, condition) - target).square().mean()

    def inference_parameters(self) -> list[nn.Parameter]:
        """What `omg_learner` trains; the prior is not among them."""
        parts = (self.fc, self.cond_rnn, self.inference)
        return [parameter for part in parts for parameter in part.parameters()]

    def files(self) -> Mapping[str, nn.Module]:
        name = "mlp" if self.supervised else "cvae"
        parts = {"vae": self.vae, name: self.inference}
        return {**parts, "cond_rnn": self.cond_rnn, "fc": self.fc}

    def describe(self) -> Mapping[str, Any]:
        return self._described


@torch.no_grad()
def subgoal_hits(model: SubgoalModel, rows: ModelRows, packing: Packing, mean: Tensor) -> Tensor:
    """Per episode: decode every inferred subgoal to the nearest places of the other players (the
    whole state where the environment does not say whose features are whose), and count as in
    `functional.hit_ratio`."""
    predicted = _cells(model, model.vae.decode(mean), rows.seats)
    reached = _cells(model, model.source(rows.state, rows.seats), rows.seats)
    episode, time = packing.episode.cpu().numpy(), packing.time.cpu().numpy()
    order = np.lexsort((time, episode))
    order = order[(packing.time < packing.length).cpu().numpy()[order]]  # until one leaves
    ends = np.flatnonzero(np.diff(episode[order])) + 1
    ratios = [
        hit_ratio([tuple(p) for p in predicted[slots][:-1]], [tuple(s) for s in reached[slots]])
        for slots in np.split(order, ends)
    ]
    return torch.tensor(ratios, dtype=torch.float32)


def _cells(model: SubgoalModel, encoded: Tensor, seats: Tensor) -> IntArray:
    """The nearest cell of every feature that counts, [P, C]."""
    if model.source.width:
        encoded = model.source.places(encoded, seats).flatten(1)
    cells: IntArray = np.rint(encoded.cpu().numpy() / model.cell).astype(np.int64)
    return cells
