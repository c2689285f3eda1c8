"""`ppo_learner`: proximal policy optimisation of a team (IPPO, MAPPO) on whole episodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from omg.components.episode_batch import EpisodeBatch
from omg.components.running_stats import RunningStats
from omg.config.schema import Config
from omg.controllers.base import Controller
from omg.controllers.basic import BasicMAC
from omg.controllers.multi_module import MultiModuleMAC
from omg.functional.gae import generalised_advantages
from omg.functional.packing import Packing
from omg.functional.td import gather_actions
from omg.learners.base import (
    Learner,
    Metrics,
    Progress,
    descend,
    load_optimiser,
    make_optimiser,
    sampling_selector,
    trained_mac,
)
from omg.learners.capabilities import Capabilities, check_supported
from omg.modules.critics import CRITICS, Critic
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

    def forward(self, inputs_PNI: Tensor, packing: Packing) -> Tensor:
        """In the critic's unit, [P, n]."""
        out: Tensor = self.critic(inputs_PNI, packing)
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
    packing: Packing
    seats: Tensor | None  # [B, n]
    inputs: Tensor  # [P, n, I], the policy's
    critic_inputs: Tensor  # [P, n, J]
    avail: Tensor  # [P, n, A]
    actions: Tensor  # [P, n]
    log_probs: Tensor  # [P, n], of the actions when they were taken
    advantages: Tensor  # [P, n]
    predicted: Tensor  # [P, n], the critic's outputs before the first epoch
    targets: Tensor  # [P, n], what it should have said, in its unit

    def part(self, episodes: Tensor) -> Experience:
        """Some of the episodes."""
        packing = Packing.of(self.filled[episodes], self.terminated[episodes])
        place = self.packing.unpack(torch.arange(len(self.inputs), device=self.inputs.device))
        slots = place[episodes[packing.episode], packing.time]
        return Experience(
            filled=self.filled[episodes],
            terminated=self.terminated[episodes],
            packing=packing,
            seats=None if self.seats is None else self.seats[episodes],
            inputs=self.inputs[slots],
            critic_inputs=self.critic_inputs[slots],
            avail=self.avail[slots],
            actions=self.actions[slots],
            log_probs=self.log_probs[slots],
            advantages=self.advantages[slots],
            predicted=self.predicted[slots],
            targets=self.targets[slots],
        )


class PPOLearner(Learner):
    """Raises the clipped surrogate of generalised advantages plus the policy's entropy; the critic
    descends on the square error of the λ-returns. Policy and critic share nothing."""

    trains: type[BasicMAC] | type[MultiModuleMAC] = BasicMAC
    able = Capabilities(
        on_policy=True, outputs="pi_logits", macs=("basic_mac",), critics=("ac", "cv")
    )

    def __init__(
        self, *, config: Config, spec: EnvSpec, mac: Controller, device: torch.device
    ) -> None:
        check_supported(config, spec, self.able)
        episodes = config.batch_size * (spec.n_agents if self.learns_one_seat else 1)
        if config.ppo_minibatches > episodes:
            raise OmgError(
                f"ppo_minibatches={config.ppo_minibatches} parts cannot be made of {episodes} "
                f"episodes (batch_size={config.batch_size}). Lower the first or raise batch_size."
            )
        self._config = config
        self._mac = trained_mac(config, mac, self.trains, self.able)
        self._policy = self._mac.policy
        self._selector = sampling_selector(config, self._policy.selector)
        assert config.critic is not None  # checked above
        feature_dim = mac.model.feature_dim if isinstance(mac, MultiModuleMAC) else 0
        critic = CRITICS[config.critic](config=config, spec=spec, feature_dim=feature_dim)
        if critic.per_action:
            raise OmgError(
                f"learner={config.learner} needs the value of a situation, and critic="
                f"{config.critic} values each action. Set critic={' or '.join(self.able.critics)}."
            )
        self.values = ValueFunction(critic, standardise=config.standardise_values).to(device)
        self._optimiser = make_optimiser(config, self._policy.network.parameters())
        self._critic_optimiser = make_optimiser(config, self.values.parameters(), config.critic_lr)
        self._shuffle = torch.Generator().manual_seed(config.seed)

    def _own_part(self, batch: EpisodeBatch) -> tuple[EpisodeBatch, Tensor | None]:
        """What is learned from, and the seats in it ([B, n]; None: all seats in order)."""
        return self._mac.own_part(batch) if isinstance(self._mac, BasicMAC) else (batch, None)

    def _feature(self, batch: EpisodeBatch, packing: Packing) -> Tensor | None:
        """What an opponent model adds to the inputs, [P, n, F]; None without one."""
        return None

    def _train_model(self, batch: EpisodeBatch, packing: Packing) -> Metrics:
        """What else learns from the batch behind the policy: an opponent model."""
        return {}

    def train(self, batch: EpisodeBatch, progress: Progress) -> Metrics:
        part, seats = self._own_part(batch)
        packing = Packing.of(part.filled, part.raw("terminated"))
        feature = self._feature(batch, packing)
        metrics = self.learn(part, packing, progress, seats=seats, feature=feature)
        return {**metrics, **self._train_model(batch, packing)}

    def learn(
        self,
        batch: EpisodeBatch,
        packing: Packing,
        progress: Progress,
        *,
        seats: Tensor | None = None,
        feature: Tensor | None = None,
    ) -> Metrics:
        """All epochs on a batch whose policy was fed `feature`."""
        experience, found = self.experience(batch, packing, progress, seats=seats, feature=feature)
        return {**self.epochs(experience, progress), **found}

    @torch.no_grad()
    def experience(
        self,
        batch: EpisodeBatch,
        packing: Packing,
        progress: Progress,
        *,
        seats: Tensor | None = None,
        feature: Tensor | None = None,
    ) -> tuple[Experience, Metrics]:
        """What the epochs need of a batch, and what there is to say about it."""
        critic_inputs = self._critic_inputs(batch, packing, seats, feature)
        predicted = self.values(critic_inputs, packing)
        values = self.values.restored(predicted)
        terminated = batch.raw("terminated")
        advantages = generalised_advantages(
            packing.pack(batch["reward"]),
            packing.pack(terminated),
            values,
            packing,
            gamma=self._config.gamma,
            lam=self._config.gae_lambda,
        )
        returns = advantages + values
        now = packing.now
        found = {
            "value_mean": values[now].mean(),
            "target_mean": returns[now].mean(),
            "advantage_std": advantages[now].std(correction=0),
            "explained_variance": explained_variance(values[now], returns[now]),
        }
        if self.values.returns is not None:
            self.values.returns.update(returns[now])
        experience = Experience(
            filled=batch.filled,
            terminated=terminated,
            packing=packing,
            seats=seats,
            inputs=self._policy.build_inputs(batch, packing, seats, feature),
            critic_inputs=critic_inputs,
            avail=packing.pack(batch.raw("avail_actions")),
            actions=packing.pack(batch["actions"]),
            log_probs=torch.zeros_like(values),
            advantages=self._standardised(advantages, now),
            predicted=predicted,
            targets=self.values.normalised(returns),
        )
        log_probs = torch.zeros_like(values)
        log_probs[now], _ = self._evaluate(experience, progress)
        return replace(experience, log_probs=log_probs), found

    def _critic_inputs(
        self,
        batch: EpisodeBatch,
        packing: Packing,
        seats: Tensor | None,
        feature: Tensor | None,
    ) -> Tensor:
        return self.values.critic.inputs(batch, packing, seats, feature)

    def _standardised(self, advantages: Tensor, now: Tensor) -> Tensor:
        """By mean and deviation of the whole batch's transitions, all agents together."""
        if not self._config.standardise_advantages:
            return advantages
        deviation, mean = torch.std_mean(advantages[now], correction=0)
        return (advantages - mean) / (deviation + 1e-5)

    def _evaluate(self, experience: Experience, progress: Progress) -> tuple[Tensor, Tensor]:
        """log π of the actions taken in every transition, and the entropy of π there, [K, n]:
        of the distribution that acts, whatever the selector makes of the outputs."""
        outputs = self._policy.unroll(experience.inputs, experience.packing, seats=experience.seats)
        now = experience.packing.now
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
        config, now = self._config, experience.packing.now
        log_probs, entropies = self._evaluate(experience, progress)
        log_ratio = log_probs - experience.log_probs[now]
        ratio = log_ratio.exp()
        gain = clipped_surrogate(ratio, experience.advantages[now], config.eps_clip).mean()
        entropy = entropies.mean()
        agent_norm = descend(
            -gain - config.entropy_coef * entropy,
            self._optimiser,
            list(self._policy.network.parameters()),
            config,
        )
        errors = value_error(
            self.values(experience.critic_inputs, experience.packing)[now],
            experience.predicted[now],
            experience.targets[now],
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

    def _critic_file(self) -> str:
        return "critic"

    def networks(self) -> Mapping[str, nn.Module]:
        return {**self._mac.networks(), self._critic_file(): self.values}

    def optimiser_state(self) -> dict[str, Any]:
        return {
            "policy": self._optimiser.state_dict(),
            "critic": self._critic_optimiser.state_dict(),
        }

    def load_optimiser_state(self, state: dict[str, Any]) -> None:
        load_optimiser(self._optimiser, state["policy"])
        load_optimiser(self._critic_optimiser, state["critic"])

    def state_dict(self) -> dict[str, Any]:
        networks = {name: network.state_dict() for name, network in self.networks().items()}
        return {
            "networks": networks,
            "optimiser": self._optimiser.state_dict(),
            "critic_optimiser": self._critic_optimiser.state_dict(),
            "shuffle": self._shuffle.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, network in self.networks().items():
            network.load_state_dict(state["networks"][name])
        self._optimiser.load_state_dict(state["optimiser"])
        self._critic_optimiser.load_state_dict(state["critic_optimiser"])
        self._shuffle.set_state(state["shuffle"])
