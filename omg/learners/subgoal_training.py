"""What OMG learns beside a policy: the inference's part of an update, the same for every policy
learner. The prior is trained before (`omg.learners.prior_training`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from omg.components.action_selectors import DecayThenFlat
from omg.components.trajectories import Trajectories
from omg.config.schema import Config
from omg.controllers.team import TeamMAC
from omg.functional import Packing, select_subgoal
from omg.learners.base import Metrics, Progress, descend_model
from omg.learners.model_training import Alternatives, Lesson, ModelTraining, ValuesAlternatives
from omg.learners.prior_memory import Encoded, PriorMemory
from omg.learners.prior_training import find_prior, load_prior
from omg.learners.subgoal_events import rows_of_next_events
from omg.modules.kernels.optimiser import FastAdam
from omg.modules.kernels.subgoal import Lessons
from omg.modules.opponent_models import ModelRows
from omg.modules.opponent_models.omg_am import Posterior, SubgoalModel
from omg.types import OmgError

SUBGOAL = "am_subgoal"  # the field of an episode with the ĝ that was drawn while acting


@dataclass(frozen=True, slots=True)
class Inference:
    """ĝ and ḡ of every row."""

    rows: ModelRows
    packing: Packing
    posterior: Posterior  # of ĝ
    encoded: Encoded  # the prior of the rows' own states
    prior: Tensor  # [R, G], ḡ drawn from it
    events: Tensor | None = None  # [K·n, N-1], the row of each other's next event


@dataclass(frozen=True, slots=True)
class Selected:
    """The prior of the states that were selected, and ḡ of them: rows of tables."""

    lessons: Lessons
    chosen: Tensor  # [K·n], of `prior`
    prior: Tensor  # [R, heads · G]


@dataclass(frozen=True, kw_only=True)
class SubgoalLesson(Lesson):
    """What was inferred and selected before the policy learned."""

    found: Inference
    chosen: Tensor  # [K·n], the row whose state is the subgoal
    steps_ahead: Tensor  # [K·n], how far ahead it lies, 0-based
    selected: Selected  # its prior, and that of further subgoals
    epsilon: float


class SubgoalTraining(ModelTraining):
    """Selects the subgoal of every transition among the next H states by a learner's values, and
    pulls the inference towards the frozen prior's encoding of it. The policy learns with ĝ, and
    off-policy with ḡ of the selected state in a share ε of the transitions."""

    trains = SubgoalModel
    asks_values = True

    @classmethod
    def check(cls, config: Config, *, on_policy: bool) -> None:
        if on_policy:
            _check_on_policy(config)
        if not (config.evaluate or config.checkpoint_path or config.resume):
            find_prior(config)

    def __init__(self, *, config: Config, mac: TeamMAC, on_policy: bool) -> None:
        super().__init__(config=config, mac=mac, on_policy=on_policy)
        assert isinstance(mac.model, SubgoalModel)
        self._mac, self._on_policy = mac, on_policy
        self.model: SubgoalModel = mac.model
        self.model.vae.requires_grad_(False)
        self.optimiser = FastAdam(self.model.inference_parameters(), lr=config.am_lr)
        self._priors = PriorMemory(config=config, spec=mac.spec, model=self.model)
        self._drawn = config.subgoal_posterior == "sample" and not self.model.supervised
        self._mix = DecayThenFlat(
            start=config.subgoal_epsilon_start,
            finish=config.subgoal_epsilon_finish,
            time_length=config.subgoal_epsilon_anneal_time,
        )

    def start(self, meta: Mapping[str, Any]) -> Mapping[str, str]:
        return load_prior(self.config, meta, self.model)

    def prepare(
        self, played: Trajectories, progress: Progress, values: ValuesAlternatives
    ) -> SubgoalLesson:
        rows = (
            self.policy.rows.training(played)
            if self.model.others
            else self.policy.rows.stored(played)
        )
        with torch.set_grad_enabled(not self._on_policy):
            found = self.infer(played, rows)
        # On-policy, all of a batch was played with ĝ, so there is no share of ḡ.
        epsilon = 0.0 if self._on_policy else self._mix(progress.env_steps)
        subgoal = found.posterior.subgoal.detach()
        if self._on_policy and self._drawn:
            subgoal = self._acted(found, played)
        context = self.model.context(*found.posterior.beside)
        fed = self.model.features(subgoal, rows, context)
        chosen, steps_ahead = self.select(found, values, fed, learned=epsilon == 0.0)
        selected = self.selected(found, chosen)
        if not self._on_policy:
            subgoal = self.mixed(found, selected, epsilon)
            fed = self.model.features(subgoal, rows, context) if epsilon else fed
        seats, width = played.n_seats, self.model.feature_dim
        ahead = None
        if self.config.subgoal_target == "same":
            now, following = played.all_rows.now, played.all_rows.next
            there = rows if self.model.feeds_subgoals else rows.take(following)
            beside = None if context is None else _at(context, following)
            ahead = self.model.features(_at(subgoal, now), there, beside).view(-1, seats, width)
        return SubgoalLesson(
            played=played,
            feature=fed.view(-1, seats, width),
            ahead=ahead,
            found=found,
            chosen=chosen,
            steps_ahead=steps_ahead,
            selected=selected,
            epsilon=epsilon,
        )

    def infer(self, played: Trajectories, rows: ModelRows) -> Inference:
        """What acting would have inferred in every row, and the prior of every row's state."""
        packing = played.rows
        posterior = self.model.stored(rows, packing, self.generator)
        encoded = self._priors.of(played, rows)
        prior = self.model.draw_rows(*encoded, self.generator)
        events = None
        if self.config.subgoal_mode == "event":
            events = rows_of_next_events(self._mac.spec, played, self.policy.rows.order)
        return Inference(rows, packing, posterior, encoded, prior, events)

    @staticmethod
    def _acted(found: Inference, played: Trajectories) -> Tensor:
        """ĝ as it was drawn while acting; at an episode's last slot, where nobody acts, again."""
        packing = found.packing
        last = (packing.time == packing.length - 1).unsqueeze(1)
        stored = played.pack(SUBGOAL).view(len(last), -1)
        return torch.where(last, found.posterior.subgoal, stored)

    @torch.no_grad()
    def select(
        self, found: Inference, values: ValuesAlternatives, fed: Tensor, *, learned: bool
    ) -> tuple[Tensor, Tensor]:
        """The row whose state is the subgoal of every transition, and how many steps ahead it
        lies (0-based). `values` is asked only where the mode goes by value."""
        config, packing = self.config, found.packing
        if found.events is not None:
            chosen = found.events.amin(1)
            return chosen, packing.time[chosen] - packing.time[packing.now] - 1
        slots, exists = packing.future(packing.now, config.subgoal_horizon)
        by_value = config.subgoal_mode in ("optimistic", "conservative")
        ahead = select_subgoal(
            values(self._alternatives(found, slots, exists, fed, learned)) if by_value else exists,
            exists,
            mode=config.subgoal_mode,
            fixed_k=config.subgoal_fixed_k,
            generator=self.generator,
        )
        return slots.gather(1, ahead.unsqueeze(1)).squeeze(1), ahead

    @torch.no_grad()
    def selected(self, found: Inference, chosen: Tensor) -> Selected:
        """The prior of the chosen states, and of those further `subgoal_horizons` ahead."""
        model, now, horizons = self.model, found.packing.now, self.config.subgoal_horizons
        mean, log_var, places = found.encoded
        apart = found.events is not None and found.events.shape[1] > 1
        if model.heads == 1 and not apart:
            lessons = Lessons(now, _at(places, chosen), mean, log_var)
            return Selected(lessons, chosen, found.prior)

        def at(rows: Tensor) -> list[Tensor]:
            lie = _at(places, rows)
            return [_at(mean, lie), _at(log_var, lie), _at(found.prior, rows)]

        parts = [at(chosen)]
        if apart:
            assert found.events is not None
            encoded = model.source.of_moments(found.rows.state, found.rows.seats, found.events)
            gaussian = model.prior_of(encoded)
            parts = [[*gaussian, model.draw(*gaussian, self.generator)]]
        parts *= model.modes
        for steps in horizons:
            slots, exists = found.packing.future(now, steps)
            last = (exists.sum(1) - 1).clamp(min=0)
            parts.append(at(slots.gather(1, last.unsqueeze(1)).squeeze(1)))
        wide = found.posterior.mean.shape
        joined = [
            mean.new_zeros(wide).index_copy(0, now, torch.cat(p, -1))
            for p in zip(*parts, strict=True)
        ]
        return Selected(Lessons(now, now, *joined[:2]), now, joined[2])

    def _alternatives(
        self, found: Inference, slots: Tensor, exists: Tensor, fed: Tensor, learned: bool
    ) -> Alternatives:
        model, prior = self.model, found.prior

        def each() -> Tensor:
            if model.feeds_subgoals and model.heads == 1:
                return _at(prior, slots.flatten()).view(*slots.shape, -1)
            repeated = found.packing.now.repeat_interleave(slots.shape[1])
            posterior, subgoal = found.posterior, _at(prior, slots.flatten())
            further = _at(posterior.subgoal.detach(), repeated)[:, model.head_dim :]
            context = model.context(*posterior.beside)
            features = model.features(
                torch.cat([subgoal, further], -1),
                found.rows.take(repeated),
                None if context is None else _at(context, repeated),
            )
            return features.view(*slots.shape, -1)

        table = prior if model.feeds_subgoals and model.heads == 1 else None
        rows = slots.masked_fill(~exists, -1)
        return Alternatives(fed=fed, learned=learned, rows=rows, table=table, each=each)

    def mixed(self, found: Inference, selected: Selected, epsilon: float) -> Tensor:
        """ĝ in every row, with ḡ of the chosen state in a share ε of the transitions, [R, G]."""
        now = found.packing.now
        subgoal = found.posterior.subgoal.detach().clone()
        draws = torch.rand(len(now), generator=self.generator).to(subgoal.device)
        if epsilon > 0:
            take_prior = (draws <= epsilon).unsqueeze(1)
            subgoal[now] = torch.where(
                take_prior, _at(selected.prior, selected.chosen), subgoal[now]
            )
        return subgoal

    def train(self, lesson: Lesson) -> Metrics:
        """One gradient step of the inference towards the prior of the chosen rows."""
        assert isinstance(lesson, SubgoalLesson)
        found, selected = lesson.found, lesson.selected
        posterior = found.posterior
        if not posterior.condition.requires_grad:  # on-policy: the inference of this pass
            posterior = self.model.stored(found.rows, found.packing, self.generator)
        terms = dict(
            self.model.loss(found.rows, posterior, selected.lessons, self.config.am_kl_weight)
        )
        told = self.model.told_loss(found.rows, posterior, found.packing.now)
        if told:
            terms = {**terms, **told, "am_loss": terms["am_loss"] + told["am_loss"]}
        assert self.optimiser is not None
        learned = descend_model(terms, self.optimiser)
        ahead, horizon = lesson.steps_ahead, self.config.subgoal_horizon
        shares = {"subgoal_ahead": (ahead + 1).to(torch.float32).mean()}
        if self.config.subgoal_mode != "event":
            counts = torch.bincount(ahead, minlength=horizon) / len(ahead)
            shares |= {f"subgoal_k{k + 1}": share for k, share in enumerate(counts.unbind())}
        alive = lesson.played.alive
        acted = slice(None) if alive is None else alive.flatten()
        share = {} if self._on_policy else {"subgoal_epsilon": torch.tensor(lesson.epsilon)}
        return {
            **shares,
            **learned,
            "am_posterior_std": torch.exp(0.5 * posterior.log_var.detach()[acted]).mean(),
            "am_active_dims": _active_dims(posterior.mean.detach()[acted]),
            **share,
        }


def _check_on_policy(config: Config) -> None:
    fixed = {"subgoal_epsilon_start": 0.0, "subgoal_target": "next", "subgoal_value": "mean"}
    for key, value in fixed.items():
        if getattr(config, key) != value:
            raise OmgError(
                f"learner={config.learner} learns from play with the inferred subgoals and "
                f"takes values from its critic, so {key}={getattr(config, key)} has no "
                f"meaning. Set {key}={value}."
            )
    if config.subgoal_posterior == "sample" and not config.store_inference:
        raise OmgError(
            f"learner={config.learner} needs the subgoals that were drawn while acting. Set "
            "store_inference=true, or subgoal_posterior=mean."
        )


def _at(values: Tensor, slots: Tensor) -> Tensor:
    """values[slots], forwards and backwards in half the time."""
    return values.index_select(0, slots)


def _active_dims(mean: Tensor) -> Tensor:
    """Share of subgoal dimensions whose mean really varies: near zero is a collapse."""
    variance = (mean - mean.mean(0)).square().mean(0)
    return (variance > 0.01).to(torch.float32).mean()
