"""`ppo_learner`: proximal policy optimisation (IPPO, MAPPO, one agent) on whole episodes.

`ppo_learner_4am` is the same learner, called so where the policy has an opponent model, and
`omg_ppo_learner` where that model infers subgoals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from omg.components.episodes import EpisodeBatch
from omg.components.trajectories import Sequences, Trajectories
from omg.config.schema import Config
from omg.controllers.base import Controller
from omg.functional import Packing, gather_actions, generalised_advantages
from omg.learners.base import (
    Capabilities,
    Metrics,
    Optimisers,
    Progress,
    descend,
    make_optimiser,
    sampling_selector,
)
from omg.learners.leaving import acting, of_acting, outcomes
from omg.learners.model_training import Alternatives, PolicyLearner
from omg.modules.critics import Critic, RunningStats, ValueCritic, build_critic
from omg.types import EnvSpec, OmgError

# Probabilities below are as good as zero; their logarithm stays finite.
TINY = 1e-30


def clipped_surrogate(ratio: Tensor, advantage: Tensor, eps_clip: float) -> Tensor:
    """min(ρ A, clip(ρ, 1 - ε, 1 + ε) A), to be raised."""
    clipped = ratio.clamp(1.0 - eps_clip, 1.0 + eps_clip)
    return torch.minimum(ratio * advantage, clipped * advantage)


def value_error(values: Tensor, old: Tensor, targets: Tensor, value_clip: float) -> Tensor:
    """Square error; with value_clip > 0 the larger one of V and of V kept within value_clip of
    its old value."""
    error = (values - targets).square()
    if value_clip == 0.0:
        return error
    near = old + (values - old).clamp(-value_clip, value_clip)
    return torch.maximum(error, (near - targets).square())


def explained_variance(values: Tensor, returns: Tensor) -> Tensor:
    """1 - Var(R - V) / Var(R): 1 is a perfect critic, 0 a constant; 0 where nothing varies."""
    total = returns.var(correction=0)
    left = (returns - values).var(correction=0)
    return torch.where(total > 0, 1 - left / total.clamp(min=TINY), torch.zeros_like(total))


class ValueFunction(nn.Module):
    """A critic and the unit of what it predicts: its output is (V - mean) / deviation of the
    returns seen so far, or V itself. One file, because neither means anything alone."""

    def __init__(self, critic: Critic, *, standardise: bool) -> None:
        super().__init__()
        self.critic = critic
        self.returns = RunningStats() if standardise else None

    def forward(self, inputs_PNI: Tensor, arranged: Sequences) -> Tensor:
        """In the critic's unit, [P, n]."""
        out: Tensor = self.critic(inputs_PNI, arranged)
        return out

    def restored(self, predicted: Tensor) -> Tensor:
        """In rewards."""
        return predicted if self.returns is None else self.returns.restored(predicted)

    def normalised(self, values: Tensor) -> Tensor:
        """In the critic's unit."""
        return values if self.returns is None else self.returns.normalised(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """One batch as the epochs go over it, all of it fixed meanwhile. Everything of a slot is
    packed, [P, n, …]; what has no meaning at an episode's last slot is not read there."""

    filled: Tensor  # [B, T]
    terminated: Tensor  # [B, T]
    arranged: Sequences
    inputs: Tensor  # [P, n, I], the policy's
    critic_inputs: Tensor  # [P, n, J]
    avail: Tensor  # [P, n, A]
    actions: Tensor  # [P, n]
    log_probs: Tensor  # [P, n], of the actions when they were taken
    advantages: Tensor  # [P, n]
    predicted: Tensor  # [P, n], the critic's outputs before the first epoch
    targets: Tensor  # [P, n], what it should have said, in its unit
    alive: Tensor | None = None  # [P, n], which seats still act; None: all

    @property
    def now(self) -> Tensor:
        """The slots that are transitions, [K]."""
        return self.arranged.packing.now

    def part(self, episodes: Tensor) -> Experience:
        """Some of the episodes."""
        whole = self.arranged
        packing = Packing.of(self.filled[episodes], self.terminated[episodes])
        place = whole.packing.unpack(torch.arange(len(self.inputs), device=self.inputs.device))
        slots = place[episodes[packing.episode], packing.time]
        inputs = self.inputs[slots]
        shared = self.critic_inputs is self.inputs
        return Experience(
            filled=self.filled[episodes],
            terminated=self.terminated[episodes],
            arranged=Sequences(
                packing=packing,
                n_seats=whole.n_seats,
                seats=None if whole.seats is None else whole.seats[episodes],
            ),
            inputs=inputs,
            critic_inputs=inputs if shared else self.critic_inputs[slots],
            avail=self.avail[slots],
            actions=self.actions[slots],
            log_probs=self.log_probs[slots],
            advantages=self.advantages[slots],
            predicted=self.predicted[slots],
            targets=self.targets[slots],
            alive=None if self.alive is None else self.alive[slots],
        )

    def acting(self, of_slots: Tensor) -> Tensor:
        """Values [P, n] of the transitions, [K, n]; where seats leave, [L, 1] of who acts."""
        return self.of_acting(of_slots[self.now])

    def of_acting(self, of_transitions: Tensor) -> Tensor:
        """The same of values [K, n]."""
        return of_acting(of_transitions, None if self.alive is None else self.alive[self.now])


class PPOLearner(PolicyLearner):
    """Raises the clipped surrogate of generalised advantages plus the policy's entropy; the critic
    descends on the square error of the λ-returns. Policy and critic share nothing.

    What an opponent model told the policy while it played is computed once and stands in all
    epochs; only then the model learns from the same batch, as many times."""

    able = Capabilities(on_policy=True, outputs="pi_logits", critics=("ac", "cv"))

    def __init__(
        self, *, config: Config, spec: EnvSpec, mac: Controller, device: torch.device
    ) -> None:
        super().__init__(config=config, spec=spec, mac=mac, device=device)
        episodes = config.batch_size * (spec.n_agents if mac.learns_one_seat else 1)
        if config.ppo_minibatches > episodes:
            raise OmgError(
                f"ppo_minibatches={config.ppo_minibatches} parts cannot be made of {episodes} "
                f"episodes (batch_size={config.batch_size}). Lower the first or raise batch_size."
            )
        self._selector = sampling_selector(config, self._policy.selector)
        critic = build_critic(
            config,
            spec,
            input_dim=self._policy.inputs.dim,
            feature_dim=self._policy.feature_dim,
        )
        if critic.per_action:
            raise OmgError(
                f"learner={config.learner} needs the value of a situation, and critic="
                f"{config.critic} values each action. Set critic={' or '.join(self.able.critics)}."
            )
        if self._model.asks_values and not isinstance(critic, ValueCritic):
            raise OmgError(
                f"learner={config.learner} asks its critic for values of alternatives, which "
                f"critic={config.critic} does not give. Derive yours from ValueCritic."
            )
        self.values = ValueFunction(critic, standardise=config.standardise_values).to(device)
        self._optimiser = make_optimiser(config, self._policy.network.parameters())
        self._critic_optimiser = make_optimiser(config, self.values.parameters(), config.critic_lr)
        self._shuffle = torch.Generator().manual_seed(config.seed)

    def train(self, batch: EpisodeBatch, progress: Progress) -> Metrics:
        played = self._mac.trajectories(batch)
        lesson = self._model.prepare(
            played, progress, lambda alternatives: self._alternatives(played, alternatives)
        )
        experience, found = self.experience(played, progress, lesson.feature)
        metrics = {**self.epochs(experience, progress), **found}
        steps = [self._model.train(lesson) for _ in range(self._config.ppo_epochs)]
        model = {name: torch.stack([step[name] for step in steps]).mean() for name in steps[0]}
        return {**metrics, **model, **self._model.finish(lesson)}

    def _alternatives(self, played: Trajectories, alternatives: Alternatives) -> Tensor:
        """V(s_t, g_k) of every transition's row and alternative by the critic, [K·n, H], from the
        hidden states that the play left."""
        critic, now = self.values.critic, played.rows.now
        assert isinstance(critic, ValueCritic)
        plain = critic.inputs(played, self._policy.inputs.packed(played))
        fed = alternatives.fed.view(*plain.shape[:2], -1)
        _, hidden = critic.unroll_states(torch.cat([plain, fed], -1), played)
        before = played.rows.previous(hidden.flatten(0, 1))[now]
        return critic.variants(plain.flatten(0, 1)[now], alternatives.each(), before)

    @torch.no_grad()
    def experience(
        self, played: Trajectories, progress: Progress, feature: Tensor | None = None
    ) -> tuple[Experience, Metrics]:
        """What the epochs need of a batch whose policy was fed `feature`, and what there is to say
        about it."""
        packing, now = played.packing, played.packing.now
        inputs = self._policy.inputs.packed(played, feature)
        critic_inputs = self.values.critic.inputs(played, inputs, feature)
        predicted = self.values(critic_inputs, played)
        values = self.values.restored(predicted)
        reward, terminated = self._outcomes(played)
        advantages = generalised_advantages(
            reward,
            terminated,
            values,
            packing,
            gamma=self._config.gamma,
            lam=self._config.gae_lambda,
        )
        returns = advantages + values
        acted = acting(played)
        predictions, aims, gains = (of_acting(x[now], acted) for x in (values, returns, advantages))
        found = {
            "value_mean": predictions.mean(),
            "target_mean": aims.mean(),
            "advantage_std": gains.std(correction=0),
            "explained_variance": explained_variance(predictions, aims),
        }
        if self.values.returns is not None:
            self.values.returns.update(aims)
        experience = Experience(
            filled=played.own.filled,
            terminated=played.own.raw("terminated"),
            arranged=played,
            inputs=inputs,
            critic_inputs=critic_inputs,
            avail=played.pack("avail_actions"),
            actions=played.pack("actions"),
            log_probs=torch.zeros_like(values),
            advantages=self._standardised(advantages, gains),
            predicted=predicted,
            targets=self.values.normalised(returns),
            alive=played.alive,
        )
        log_probs = torch.zeros_like(values)
        log_probs[now], _ = self._evaluate(experience, progress)
        return replace(experience, log_probs=log_probs), found

    def _outcomes(self, played: Trajectories) -> tuple[Tensor, Tensor]:
        """Rewards [P, 1 or n] and ends [P] or [P, n] of all slots; those of seats that leave are
        what leaving brought them."""
        reward, terminated = played.pack("reward"), played.pack("terminated")
        if played.alive is None:
            return reward, terminated
        now = played.packing.now
        found, ends = outcomes(played, gamma=self._config.gamma)
        reward = reward.expand_as(played.alive).clone()
        reward[now] = found
        terminated = terminated.unsqueeze(1).expand_as(played.alive).clone()
        terminated[now] = ends
        return reward, terminated

    def _standardised(self, advantages: Tensor, gains: Tensor) -> Tensor:
        """By mean and deviation of the whole batch's transitions, all agents together."""
        if not self._config.standardise_advantages:
            return advantages
        deviation, mean = torch.std_mean(gains, correction=0)
        return (advantages - mean) / (deviation + 1e-5)

    def _evaluate(self, experience: Experience, progress: Progress) -> tuple[Tensor, Tensor]:
        """log π of the actions taken in every transition, and the entropy of π there, [K, n]:
        of the distribution that acts, whatever the selector makes of the outputs."""
        outputs = self._policy.unroll(experience.inputs, experience.arranged)
        now = experience.now
        chances = self._selector.probabilities(
            outputs[now], experience.avail[now], env_steps=progress.env_steps
        )
        logs = chances.clamp(min=TINY).log()
        return gather_actions(logs, experience.actions[now]), -(chances * logs).sum(-1)

    def epochs(self, experience: Experience, progress: Progress) -> Metrics:
        """ppo_epochs passes of ppo_minibatches steps; means over them (ratio_max: the largest)."""
        steps = [
            self._step(part, progress)
            for _ in range(self._config.ppo_epochs)
            for part in self._minibatches(experience)
        ]
        stacked = {name: torch.stack([step[name] for step in steps]) for name in steps[0]}
        return {
            name: values.max() if name == "ratio_max" else values.mean()
            for name, values in stacked.items()
        }

    def _minibatches(self, experience: Experience) -> Iterator[Experience]:
        """Whole episodes, shuffled anew in every epoch, because networks may be recurrent."""
        episodes = len(experience.filled)
        parts = min(self._config.ppo_minibatches, episodes)
        if parts == 1:
            yield experience
            return
        order = torch.randperm(episodes, generator=self._shuffle).to(experience.filled.device)
        for chosen in order.tensor_split(parts):
            yield experience.part(chosen)

    def _step(self, experience: Experience, progress: Progress) -> dict[str, Tensor]:
        """One gradient step of the policy and one of the critic."""
        config, now = self._config, experience.now
        log_probs, entropies = self._evaluate(experience, progress)
        log_ratio = experience.of_acting(log_probs - experience.log_probs[now])
        ratio = log_ratio.exp()
        advantages = experience.acting(experience.advantages)
        gain = clipped_surrogate(ratio, advantages, config.eps_clip).mean()
        entropy = experience.of_acting(entropies).mean()
        agent_norm = descend(
            -gain - config.entropy_coef * entropy,
            self._optimiser,
            list(self._policy.network.parameters()),
            config,
        )
        errors = value_error(
            experience.acting(self.values(experience.critic_inputs, experience.arranged)),
            experience.acting(experience.predicted),
            experience.acting(experience.targets),
            config.value_clip,
        )
        value_loss = errors.mean()
        critic_norm = descend(
            value_loss, self._critic_optimiser, list(self.values.parameters()), config
        )
        with torch.no_grad():
            outside = (ratio - 1.0).abs() > config.eps_clip
            return {
                "pg_loss": -gain.detach(),
                "value_loss": value_loss.detach(),
                "entropy": entropy.detach(),
                "approx_kl": (ratio - 1.0 - log_ratio).mean(),
                "clip_fraction": outside.to(torch.float32).mean(),
                "ratio_max": ratio.max(),
                "agent_grad_norm": agent_norm,
                "critic_grad_norm": critic_norm,
            }

    def networks(self) -> Mapping[str, nn.Module]:
        return {**self._mac.networks(), self._mac.file_name("critic"): self.values}

    def optimisers(self) -> Optimisers:
        own = {"policy": self._optimiser, "critic": self._critic_optimiser}
        return {**own, **self._model.optimisers()}

    def saved(self) -> dict[str, Any]:
        return {
            "networks": self.networks(),
            "optimiser": self._optimiser,
            "critic_optimiser": self._critic_optimiser,
            "shuffle": self._shuffle,
            **self._model.saved(),
        }


class OMGPPOLearner(PPOLearner):
    """`omg_ppo_learner`: policy and critic are fed inferred subgoals, which the critic values."""

    kind = "subgoals"
