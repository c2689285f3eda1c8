"""`coma_learner`: counterfactual policy gradients, a team's actor with a centralised critic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from omg.components.episodes import EpisodeBatch
from omg.components.trajectories import Trajectories
from omg.config.schema import Config
from omg.controllers.base import Controller
from omg.functional import Packing, following_transition, gather_actions, td_lambda_targets
from omg.learners.base import (
    Capabilities,
    Learner,
    Metrics,
    Optimisers,
    Progress,
    Targets,
    check_supported,
    descend,
    make_optimiser,
    sampling_selector,
    team_mac,
    team_spec,
)
from omg.learners.leaving import acting, of_acting, outcomes
from omg.modules.critics import ComaCritic, build_critic
from omg.types import EnvSpec, OmgError, RunFailedError

# log of a smaller probability would be infinite; such an action is never drawn.
SMALLEST = torch.finfo(torch.float32).tiny


def counterfactual_advantage(q_A: Tensor, policy_A: Tensor, actions: Tensor) -> Tensor:
    """A_n = Q_n(a_n) - Σ_a π_n(a) Q_n(a), the others' actions held fixed; [...]."""
    return gather_actions(q_A, actions) - (policy_A * q_A).sum(-1)


class ComaLearner(Learner):
    """Critic: (Q_n(s, a) - G_n^λ)². Actor: -log π_n(a_n) · A_n, A_n from the critic just learned.
    Both are means over transitions and agents."""

    able = Capabilities(on_policy=True, outputs="pi_logits", models=False, critics=("coma",))

    def __init__(
        self, *, config: Config, spec: EnvSpec, mac: Controller, device: torch.device
    ) -> None:
        check_supported(config, self.able, spec)
        self._config = config
        self._mac = team_mac(config, mac, self.able)
        self._policy = self._mac.policy
        self._selector = sampling_selector(config, self._policy.selector)
        team = team_spec(spec, self._mac)
        self.critic = self._new_critic(config, team, device)
        self._target_critic = self._new_critic(config, team, device)
        self._actor_parameters = [*self._policy.network.parameters()]
        self._critic_parameters = [*self.critic.parameters()]
        self._optimiser = make_optimiser(config, self._actor_parameters)
        self._critic_optimiser = make_optimiser(config, self._critic_parameters, config.critic_lr)
        self._generator = torch.Generator().manual_seed(config.seed)
        self._targets = Targets(config, (self._target_critic, self.critic))

    def _new_critic(self, config: Config, spec: EnvSpec, device: torch.device) -> ComaCritic:
        critic = build_critic(config, spec, input_dim=self._policy.inputs.dim)
        if not isinstance(critic, ComaCritic):
            raise OmgError(
                f"learner={config.learner} needs values of each own action, and critic="
                f"{config.critic} is no ComaCritic. Derive it from "
                "omg.modules.critics:ComaCritic, or set critic=coma."
            )
        return critic.to(device)

    def train(self, batch: EpisodeBatch, progress: Progress) -> Metrics:
        played = self._mac.trajectories(batch)
        logits = self._policy.unroll(self._policy.inputs.packed(played), played)
        avail = played.now("avail_actions")
        policy = self._selector.probabilities(
            logits[played.packing.now], avail, env_steps=progress.env_steps
        )
        taken = played.now("actions")
        inputs, targets = self.targets(played, logits.detach(), progress)
        acted = acting(played)
        critic_metrics = self._learn_critic(inputs, taken, targets, played.packing, acted)
        with torch.no_grad():
            q = self.critic(inputs)
        if acted is not None:
            policy, taken, q = policy[acted], taken[acted], q[acted]
        actor_metrics = self._learn_policy(policy, taken, q)
        self._targets.follow(progress)
        return {**critic_metrics, **actor_metrics}

    @torch.no_grad()
    def targets(
        self, played: Trajectories, logits_PNA: Tensor, progress: Progress
    ) -> tuple[Tensor, Tensor]:
        """The critic's inputs at all K transitions [K, N, I], and their λ-returns [K, N] from the
        target critic's values of the actions taken.

        Nobody acted on a cut episode's last observation. Its value is an expectation over the own
        policy, Σ_a π_n(a) Q'_n(s, a, u^-n), with the others' actions u drawn from theirs. (After a
        termination there may be no available action, and nothing to divide by.)"""
        packing = played.packing
        last = following_transition(packing) == len(packing.now)
        last &= ~played.now("terminated")
        reward, terminated = outcomes(played, gamma=self._config.gamma)
        cut = packing.next[last]
        avail = packing.take(played.own.raw("avail_actions"), cut)
        policy = self._selector.probabilities(logits_PNA[cut], avail, env_steps=progress.env_steps)
        actions = played.pack("actions")
        actions[cut] = self._draw(policy)
        inputs = self.critic.joint_inputs(played, actions)
        target_q = self._target_critic(inputs[packing.next])
        values = gather_actions(target_q, actions[packing.next])
        values[last] = (policy * target_q[last]).sum(-1)
        returns = td_lambda_targets(
            reward,
            terminated,
            values,
            packing,
            gamma=self._config.gamma,
            td_lambda=self._config.td_lambda,
        )
        return inputs[packing.now], returns

    def _draw(self, policy_KNA: Tensor) -> Tensor:
        """A joint action per row, from a stream of the learner's own."""
        rows = policy_KNA.flatten(0, 1).cpu()
        if len(rows) == 0:
            return policy_KNA.new_zeros(policy_KNA.shape[:2], dtype=torch.int64)
        if not torch.isfinite(rows).all():
            raise RunFailedError(
                "The policy's probabilities are no numbers any more. Lower lr, or raise optim_eps."
            )
        drawn = torch.multinomial(rows, 1, generator=self._generator)
        return drawn.view(policy_KNA.shape[:2]).to(policy_KNA.device)

    def _learn_critic(
        self,
        inputs_KNI: Tensor,
        taken_KN: Tensor,
        targets_KN: Tensor,
        packing: Packing,
        acted_KN: Tensor | None,
    ) -> dict[str, Tensor]:
        """One step on all transitions, or (seq) one on every time's, the last time first; only
        seats that acted in them count."""
        pieces = [slice(None)]
        if self._config.critic_train_mode == "seq":
            ends = torch.bincount(packing.time[packing.now]).cumsum(0).tolist()
            starts = [0, *ends[:-1]]
            pieces = [slice(a, b) for a, b in zip(starts, ends, strict=True) if b > a][::-1]
        values, errors, norms = [], [], []
        for piece in pieces:
            acted = None if acted_KN is None else acted_KN[piece]
            if acted is not None and not acted.any():
                continue
            value = of_acting(
                gather_actions(self.critic(inputs_KNI[piece]), taken_KN[piece]), acted
            )
            error = value - of_acting(targets_KN[piece], acted)
            loss = error.square().mean()
            norms.append(
                descend(loss, self._critic_optimiser, self._critic_parameters, self._config)
            )
            values.append(value.detach())
            errors.append(error.detach())
        all_errors = torch.cat(errors)
        return {
            "critic_loss": all_errors.square().mean(),
            "critic_grad_norm": torch.stack(norms).mean(),
            "td_error_abs": all_errors.abs().mean(),
            "q_taken_mean": torch.cat(values).mean(),
            "target_mean": of_acting(targets_KN, acted_KN).mean(),
        }

    def _learn_policy(self, policy_KNA: Tensor, taken_KN: Tensor, q_KNA: Tensor) -> Metrics:
        """One step along mean A_n ∇ log π_n(a_n)."""
        held = policy_KNA.detach()
        advantage = counterfactual_advantage(q_KNA, held, taken_KN)
        chance = gather_actions(policy_KNA, taken_KN).clamp(min=SMALLEST)
        loss = -(advantage * chance.log()).mean()
        grad_norm = descend(loss, self._optimiser, self._actor_parameters, self._config)
        return {
            "pg_loss": loss.detach(),
            "agent_grad_norm": grad_norm,
            "advantage_mean": advantage.mean(),
            "pi_max": held.amax(-1).mean(),
            "entropy": torch.special.entr(held).sum(-1).mean(),
        }

    def after_load(self) -> None:
        self._targets.copy()

    def networks(self) -> Mapping[str, nn.Module]:
        return {**self._mac.networks(), "critic": self.critic}

    def optimisers(self) -> Optimisers:
        return {"agent": self._optimiser, "critic": self._critic_optimiser}

    def saved(self) -> dict[str, Any]:
        return {
            "networks": {**self.networks(), "target_critic": self._target_critic},
            "optimisers": self.optimisers(),
            "generator": self._generator,
            "last_target_episode": self._targets,
        }
