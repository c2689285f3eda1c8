"""`omg_am`: infers the others' subgoal. Prior VAE over states, inference CVAE over histories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from omg.config.schema import Config
from omg.functional import Packing, gaussian_kl, sample_gaussian
from omg.modules.kernels.given import with_gradient
from omg.modules.kernels.noise import draw_rows, noise
from omg.modules.kernels.subgoal import Drawn, Lessons, SubgoalKernel, subgoal_kernel
from omg.modules.opponent_models.base import HistoryModel, Inferred, ModelRows, SubgoalSource
from omg.modules.opponent_models.others_decoder import OthersDecoder
from omg.modules.opponent_models.subgoal_hits import subgoal_hits
from omg.modules.opponent_models.subgoal_modes import likeliest_first, loss_of_modes
from omg.modules.opponent_models.subgoal_nets import InferenceCVAE, InferenceMLP, PriorVAE
from omg.types import EnvSpec

# Width of a cell in which features that are no whole numbers are compared.
CELL = 0.1
DESCRIBED = (
    *("subgoal_dim", "subgoal_source", "subgoal_inference", "subgoal_feature"),
    *(
        "subgoal_posterior",
        "subgoal_horizons",
        "subgoal_modes",
        "subgoal_spread",
        "subgoal_condition",
    ),
)


def _weights_of(part: nn.Module) -> list[nn.Parameter]:
    """As `parameters()` lists them, which takes ten times as long: asked for in every update."""
    own = [weight for weight in part._parameters.values() if weight is not None]
    children = [child for child in part._modules.values() if child is not None]
    return own + [weight for child in children for weight in _weights_of(child)]


@dataclass(frozen=True, slots=True)
class Posterior:
    """q_φ of R rows, and ĝ. Where the kernel made it, only the condition has a gradient, and
    `drawn` holds what the loss needs; else all of it has one."""

    mean: Tensor  # [R, G]
    log_var: Tensor  # [R, G]
    condition: Tensor
    subgoal: Tensor  # [R, G]
    drawn: Drawn | None = None
    chances: Tensor | None = None  # [R, M], log-probabilities of the modes, falling

    @property
    def beside(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """What `SubgoalModel.context` takes."""
        return self.log_var, self.condition, self.chances


class SubgoalModel(HistoryModel):
    """Acting uses ĝ_t of the inference at every step; the prior is frozen after pre-training.
    Files: vae.th (prior), cvae.th or mlp.th, cond_rnn.th, fc.th (inference)."""

    training_kind = "subgoals"

    def __init__(self, *, spec: EnvSpec, own_dim: int, config: Config) -> None:
        super().__init__()
        hidden = config.am_hidden_dim
        self.supervised = config.subgoal_inference == "mlp"
        self.modes = config.subgoal_modes
        self.heads = self.modes + len(config.subgoal_horizons)
        self.head_dim = config.subgoal_dim
        self._subgoal_dim = self.heads * self.head_dim
        self._sampled = config.subgoal_posterior == "sample"
        self.source = SubgoalSource(spec, part=config.subgoal_source)
        self.vae = PriorVAE(self.source.dim, hidden, config.subgoal_dim)
        self._build_history(spec, own_dim, hidden)
        kind = InferenceMLP if self.supervised else InferenceCVAE
        self.inference = kind(self._embed_dim, self._cond_dim, hidden, self._subgoal_dim)
        self.others: OthersDecoder | None = None
        if config.am_others_weight:
            told = self._embed_dim + self._cond_dim
            self.others = OthersDecoder(spec, embed_dim=told, hidden_dim=hidden)
        self._others_weight = config.am_others_weight
        self._action_weight = config.liam_action_weight
        fed = config.subgoal_feature
        self._latent, self._decoded = fed in ("latent", "both"), fed in ("decoded", "both")
        subgoal = self._latent * self._subgoal_dim
        subgoal += self._decoded * self.heads * self.source.place_dim
        self.chances: nn.Sequential | None = None
        if self.modes > 1:
            told = self._embed_dim + self._cond_dim
            self.chances = nn.Sequential(
                nn.Linear(told, hidden), nn.ReLU(), nn.Linear(hidden, self.modes)
            )
        self._feeds = config.subgoal_spread, config.subgoal_condition
        context = self._feeds[0] * self._subgoal_dim + self._feeds[1] * self._cond_dim
        self._context_dim = context + (self.modes if self.modes > 1 else 0)
        self.feature_dim = subgoal + self._context_dim
        self.reads_state = self._decoded
        # Features count as equal within half a cell; those that are no whole numbers have none.
        scale = spec.state_scale if config.scale_inputs else 1.0
        self.cell = scale if "int" in spec.state_dtype else CELL
        self._described = {key: getattr(config, key) for key in DESCRIBED}
        self._described["subgoal_horizons"] = list(config.subgoal_horizons)

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
        mean, log_var, chances = self._encode(rows, condition)
        drawn = self.inferred(mean, log_var, generator)
        record = {"am_mean": mean, "am_log_var": log_var, "am_subgoal": drawn}
        if self._feeds[1]:
            record["am_condition"] = condition
        if chances is not None:
            record["am_chances"] = chances
        context = self.context(log_var, condition, chances)
        return Inferred(self.features(drawn, rows, context), carry, record)

    def exchanged(
        self, inferred: Inferred, donor: Tensor, rows: ModelRows, generator: torch.Generator
    ) -> Tensor:
        """The donor's subgoal, seen from one's own place."""
        given = {name: value[donor] for name, value in inferred.record.items()}
        mean, log_var = given["am_mean"], given["am_log_var"]
        context = self.context(log_var, given.get("am_condition"), given.get("am_chances"))
        return self.features(self.inferred(mean, log_var, generator), rows, context)

    def record_dims(self) -> Mapping[str, int]:
        widths = dict.fromkeys(("am_mean", "am_log_var", "am_subgoal"), self._subgoal_dim)
        widths |= {"am_condition": self._cond_dim} if self._feeds[1] else {}
        return widths | ({"am_chances": self.modes} if self.modes > 1 else {})

    def judge(
        self, rows: ModelRows, packing: Packing, recorded: Mapping[str, Tensor]
    ) -> Mapping[str, Tensor]:
        """The hit ratio of the mean subgoals."""
        return {"hit_ratio": subgoal_hits(self, rows, packing, self._main(recorded))}

    def _main(self, recorded: Mapping[str, Tensor]) -> Tensor:
        """The mean of the subgoal that subgoal_mode selects."""
        return recorded["am_mean"][:, : self.head_dim]

    def places_ahead(self, recorded: Mapping[str, Tensor], seats: Tensor) -> Tensor | None:
        """The places that the mean subgoals decode to."""
        return self.source.places(self.vae.decode(self._main(recorded)), seats)

    def inferred(self, mean: Tensor, log_var: Tensor, generator: torch.Generator) -> Tensor:
        """ĝ of a posterior; the ablation has no distribution to draw from."""
        return mean if self.supervised else self.draw(mean, log_var, generator)

    def _encode(self, rows: ModelRows, condition: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Mean and log-variance of ĝ, and the log-probabilities of its modes, most likely first."""
        embedding = self._embed(rows)
        mean, log_var = self.inference.encode(embedding, condition)
        if self.chances is None:
            return mean, log_var, None
        logits: Tensor = self.chances(torch.cat([embedding, condition], -1))
        chances, mean, log_var = likeliest_first(logits, mean, log_var, heads=self.heads)
        return mean, log_var, chances

    def posterior(self, rows: ModelRows, packing: Packing) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and log-variance of ĝ at every packed slot, and the condition; with gradient
        through all steps of the condition."""
        condition = self._conditions(rows, packing)
        mean, log_var, _ = self._encode(rows, condition)
        return mean, log_var, condition

    def stored(self, rows: ModelRows, packing: Packing, generator: torch.Generator) -> Posterior:
        """`posterior` of whole episodes with ĝ, for `loss`."""
        kernel = self._kernel(rows.own, self._weights()) if self._usual else None
        if kernel is None:
            condition = self._conditions(rows, packing)
            mean, log_var, chances = self._encode(rows, condition)
            if self._usual and self._sampled:  # the kernel's noise
                made = noise(tuple(mean.shape), generator).to(mean.device)
                subgoal = mean + torch.exp(0.5 * log_var) * made
            else:
                subgoal = self.inferred(mean, log_var, generator)
            return Posterior(mean, log_var, condition, subgoal, chances=chances)
        condition = self._conditions(rows, packing)
        shape = len(condition), self._subgoal_dim
        with torch.no_grad():
            given = noise(shape, generator) if self._sampled else None
            drawn = kernel.forward(rows.own, condition, given, self._weights())
        return Posterior(drawn.mean, drawn.log_var, condition, drawn.subgoal, drawn)

    def told_loss(self, rows: ModelRows, found: Posterior, now: Tensor) -> Mapping[str, Tensor]:
        """LIAM's loss of the rows that learn: the others are told from the embedding of s_t and
        the condition; weighted, as `told_loss`. Empty where nothing is asked of it."""
        if self.others is None:
            return {}
        acted = rows.take(now)
        known = torch.cat([self._embed(acted), found.condition.index_select(0, now)], -1)
        terms = dict(self.others.loss(known, acted, weight=self._action_weight))
        return {**terms, "am_loss": self._others_weight * terms["am_loss"]}

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
        shape = len(now), self.heads, self.head_dim
        kl = gaussian_kl(*(value.reshape(shape) for value in (mean, log_var, *wanted)))
        recon = self.reconstruction(rows.take(now), subgoal, condition)
        if found.chances is None:
            summed = kl.sum(-1).mean()
            return {"am_loss": recon + kl_weight * summed, "am_recon": recon, "am_kl": summed}
        modes, further = kl[:, : self.modes], kl[:, self.modes :].sum(-1)
        cost, share = loss_of_modes(kl_weight * modes, found.chances.index_select(0, now))
        loss = recon + (cost + kl_weight * further).mean()
        learned = (share * modes).sum(-1) + further
        return {"am_loss": loss, "am_recon": recon, "am_kl": learned.mean()}

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
        return self.prior_of(self.source(rows.state, rows.seats))

    @torch.no_grad()
    def prior_of(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """Its mean and log-variance of parts of states (see `source`)."""
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
        return _weights_of(self.vae.encoder)

    @property
    def _usual(self) -> bool:
        """Whether the kernel computes what this class does: nothing of it was replaced."""
        own = ("posterior", "inferred", "draw", "reconstruction", "_embed", "_conditions")
        kind = type(self)
        return (
            type(self.inference) is InferenceCVAE
            and self.modes == 1
            and all(getattr(kind, name) is getattr(SubgoalModel, name) for name in own)
        )

    def _weights(self) -> list[nn.Parameter]:
        """In the kernel's order: embedding, encoder, decoder."""
        assert isinstance(self.inference, InferenceCVAE)
        parts = (self.fc, self.inference.encoder, self.inference.decoder)
        return [weight for part in parts for weight in _weights_of(part)]

    @staticmethod
    def _kernel(inputs: Tensor, weights: Sequence[Tensor]) -> SubgoalKernel | None:
        kernel, _ = subgoal_kernel()
        return kernel if kernel is not None and kernel.fits(inputs, weights) else None

    def unroll(self, rows: ModelRows, packing: Packing, generator: torch.Generator) -> Tensor:
        with torch.no_grad():
            found = self.stored(rows, packing, generator)
            return self.features(found.subgoal, rows, self.context(*found.beside))

    def decoded(self, subgoal: Tensor) -> Tensor | None:
        """What `features` needs of the decoder, head by head [R, heads · dim]; None where the
        policy is fed the latent only."""
        if not self._decoded:
            return None
        return self.vae.decode(subgoal.reshape(-1, self.head_dim)).view(len(subgoal), -1)

    def context(
        self, log_var: Tensor, condition: Tensor | None, chances: Tensor | None = None
    ) -> Tensor | None:
        """What the policy is fed beside a subgoal: the posterior's log-variance, the condition,
        the probabilities of the modes, or nothing."""
        parts = [log_var] if self._feeds[0] else []
        if chances is not None:
            parts.append(chances.exp())
        if self._feeds[1]:
            assert condition is not None
            parts.append(condition)
        return torch.cat(parts, -1).detach() if parts else None

    def features(
        self,
        subgoal: Tensor,
        rows: ModelRows,
        context: Tensor | None = None,
        decoded: Tensor | None = None,
    ) -> Tensor:
        """What the policy is fed of a subgoal [R, G]: itself, the places it decodes to, or both,
        and the context; `decoded` saves decoding it again."""
        parts = []
        if self._latent:
            parts.append(subgoal)
        if self._decoded:
            decoded = self.decoded(subgoal) if decoded is None else decoded
            assert decoded is not None
            for head in decoded.chunk(self.heads, -1):
                parts.append(self.source.place(head, rows.state, rows.seats, rows.others_alive))
        if context is not None:
            parts.append(context)
        return torch.cat(parts, -1).detach()

    @property
    def feeds_subgoals(self) -> bool:
        """Whether the features are the subgoal itself, wherever one stands."""
        return self._latent and not (self._decoded or self._context_dim)

    def reconstruction(self, rows: ModelRows, subgoal: Tensor, condition: Tensor) -> Tensor:
        """Mean square error of the decoded embedding of s_t; the embedding itself is the target
        and gets no gradient from here, lest it shrink to zero."""
        assert isinstance(self.inference, InferenceCVAE)
        target = self._embed(rows).detach()
        return (self.inference.decode(subgoal, condition) - target).square().mean()

    def inference_parameters(self) -> list[nn.Parameter]:
        """What `omg_learner` trains; the prior is not among them."""
        parts = [self.fc, self.cond_rnn, self.inference]
        parts += [part for part in (self.others, self.chances) if part is not None]
        return [parameter for part in parts for parameter in part.parameters()]

    def files(self) -> Mapping[str, nn.Module]:
        name = "mlp" if self.supervised else "cvae"
        more = {"others": self.others, "chances": self.chances}
        return {
            "vae": self.vae,
            name: self.inference,
            "cond_rnn": self.cond_rnn,
            "fc": self.fc,
            **{key: part for key, part in more.items() if part is not None},
        }

    def describe(self) -> Mapping[str, Any]:
        return self._described
