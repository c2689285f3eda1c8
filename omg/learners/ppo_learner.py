"""`ppo_learner`: proximal policy optimisation (IPPO, MAPPO, one agent) on whole episodes.

`ppo_learner_4am` is the same learner, called so where the policy has an opponent model, and
`omg_ppo_learner` where that model infers subgoals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from omg.components.episodes import EpisodeBatch
from omg.components.trajectories import Trajectories
from omg.config.schema import Config
from omg.controllers.base import Controller
from omg.functional import generalised_advantages
from omg.learners.base import (
    Capabilities,
    Metrics,
    Optimisers,
    Progress,
    descend,
    make_optimiser,
    sampling_selector,
)
from omg.learners.experience import Experience, acting_slots
from omg.learners.leaving import outcomes
from omg.learners.model_training import MODEL_TRAININGS, Alternatives, PolicyLearner
from omg.learners.ppo_losses import PPOLosses
from omg.modules.agents.networks import RNNAgent, WithValue
from omg.modules.critics import Critic, TrunkCritic, ValueCritic, ValueFunction, build_critic
from omg.modules.kernels.given import GivenLoss
from omg.modules.kernels.ppo import TINY
from omg.types import EnvSpec, OmgError


def explained_variance(values: Tensor, returns: Tensor) -> Tensor:
    """1 - Var(R - V) / Var(R): 1 is a perfect critic, 0 a constant; 0 where nothing varies."""
    total = returns.var(correction=0)
    left = (returns - values).var(correction=0)
    return torch.where(total > 0, 1 - left / total.clamp(min=TINY), torch.zeros_like(total))


class PPOLearner(PolicyLearner):
    """Raises the clipped surrogate of generalised advantages plus the policy's entropy; the critic
    descends on the square error of the λ-returns. Policy and critic share nothing, or, with
    share_trunk, all but their last layers.

    What an opponent model told the policy while it played is computed once and stands in all
    epochs; only then the model learns from the same batch, as many times."""

    able = Capabilities(
        on_policy=True, outputs="pi_logits", critics=("ac", "cv"), shares_trunk=True
    )

    @classmethod
    def check(cls, config: Config) -> None:
        if config.share_trunk:
            cls._check_trunk(config)
        super().check(config)

    @classmethod
    def _check_trunk(cls, config: Config) -> None:
        wanted = {"critic": "ac", "policy_model": "rnn", "critic_args": {}}
        for key, value in wanted.items():
            if getattr(config, key) != value:
                raise OmgError(
                    f"share_trunk=true gives the critic the policy's GRU, and {key}="
                    f"{getattr(config, key)} has another. Set {key}={value}, or share_trunk=false."
                )
        if MODEL_TRAININGS[cls._training_kind(config)].asks_values:
            raise OmgError(
                f"am_model={config.am_model} asks a critic for values of alternatives, which one "
                "that shares the policy's trunk does not give. Set share_trunk=false."
            )

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
        selector = sampling_selector(config, self._policy.selector)
        critic = self._make_critic(spec)
        self.values = ValueFunction(critic, standardise=config.standardise_values).to(device)
        self._actor_parameters = list(self._policy.network.parameters())
        self._critic_parameters = list(self.values.parameters())
        both: WithValue | None = None
        if isinstance(critic, TrunkCritic):
            assert isinstance(self._policy.network, RNNAgent)
            both = WithValue(self._policy.network, critic.head)
            groups: list[dict[str, Any]] = [
                {"params": self._actor_parameters},
                {"params": self._critic_parameters, "lr": config.critic_lr},
            ]
            self._optimiser = make_optimiser(config, groups)
            self._critic_optimiser = None
        else:
            self._optimiser = make_optimiser(config, self._actor_parameters)
            self._critic_optimiser = make_optimiser(
                config, self._critic_parameters, config.critic_lr
            )
        self.losses = PPOLosses(config, self._policy, self.values, selector, both)
        self._shuffle = torch.Generator().manual_seed(config.seed)

    def _make_critic(self, spec: EnvSpec) -> Critic:
        config = self._config
        if config.share_trunk:
            return TrunkCritic(self._policy.network.carry_dim)
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
        return critic

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
        packing = played.packing
        inputs = self._policy.inputs.packed(played, feature)
        critic_inputs = self.values.critic.inputs(played, inputs, feature)
        outputs, predicted = self.losses.outputs(inputs, critic_inputs, played)
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
        counts = acting_slots(played)
        everyone = played.alive is None
        predictions, aims, gains = (
            x.index_select(0, packing.now).flatten() if everyone else x[counts]
            for x in (values, returns, advantages)
        )
        found = {
            "value_mean": predictions.mean(),
            "target_mean": aims.mean(),
            "advantage_std": gains.std(correction=0),
            "explained_variance": explained_variance(predictions, aims),
        }
        if self.values.returns is not None:
            self.values.returns.update(aims)
        avail, actions = played.pack("avail_actions"), played.pack("actions")
        experience = Experience(
            arranged=played,
            inputs=inputs,
            critic_inputs=critic_inputs,
            avail=avail,
            actions=actions,
            numbers=torch.stack(
                [
                    self.losses.evaluate(outputs, avail, actions, progress)[0],
                    self._standardised(advantages, gains),
                    predicted,
                    self.values.normalised(returns),
                ]
            ),
            counts=counts,
            everyone=everyone and len(packing.now) + packing.shape[0] == len(packing.time),
        )
        return experience, found

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

    def epochs(self, experience: Experience, progress: Progress) -> Metrics:
        """ppo_epochs passes of ppo_minibatches steps; means over them (ratio_max: the largest)."""
        steps = [self._step(part, progress) for part in self._minibatches(experience)]
        stacked = {name: torch.stack([step[name] for step in steps]) for name in steps[0]}
        return {
            name: values.max() if name == "ratio_max" else values.mean()
            for name, values in stacked.items()
        }

    def _minibatches(self, experience: Experience) -> Iterator[Experience]:
        """Of all epochs: whole episodes, because networks may be recurrent, shuffled again in
        every epoch."""
        episodes, device = experience.episodes, experience.inputs.device
        parts = min(self._config.ppo_minibatches, episodes)
        if parts == 1:
            whole = experience.part(torch.arange(episodes, device=device))
            yield from [whole] * self._config.ppo_epochs
            return
        for _ in range(self._config.ppo_epochs):
            order = torch.randperm(episodes, generator=self._shuffle).to(device)
            for chosen in order.tensor_split(parts):
                yield experience.part(chosen)

    def _step(self, experience: Experience, progress: Progress) -> dict[str, Tensor]:
        """One gradient step of the policy and one of the critic, or of both at once."""
        config = self._config
        if self._critic_optimiser is None:
            loss, terms, error = self.losses.both(experience, progress)
            every = [*self._actor_parameters, *self._critic_parameters]
            norms = {"agent_grad_norm": descend(loss, self._optimiser, every, config)}
        else:
            loss, terms = self.losses.policy(experience, progress)
            norm = descend(loss, self._optimiser, self._actor_parameters, config)
            wrong = self.losses.values(experience)
            norms = {
                "agent_grad_norm": norm,
                "critic_grad_norm": descend(
                    wrong, self._critic_optimiser, self._critic_parameters, config
                ),
            }
            error = wrong.value() if isinstance(wrong, GivenLoss) else wrong.detach()
        return {
            "pg_loss": -terms.surrogate,
            "value_loss": error,
            "entropy": terms.entropy,
            "approx_kl": terms.approx_kl,
            "clip_fraction": terms.clip_fraction,
            "ratio_max": terms.ratio_max,
            **norms,
        }

    def networks(self) -> Mapping[str, nn.Module]:
        return {**self._mac.networks(), self._mac.file_name("critic"): self.values}

    def optimisers(self) -> Optimisers:
        own = {"policy": self._optimiser}
        if self._critic_optimiser is not None:
            own["critic"] = self._critic_optimiser
        return {**own, **self._model.optimisers()}

    def saved(self) -> dict[str, Any]:
        critic = self._critic_optimiser
        return {
            "networks": self.networks(),
            "optimiser": self._optimiser,
            **({} if critic is None else {"critic_optimiser": critic}),
            "shuffle": self._shuffle,
            **self._model.saved(),
        }


class OMGPPOLearner(PPOLearner):
    """`omg_ppo_learner`: policy and critic are fed inferred subgoals, which the critic values."""

    kind = "subgoals"
