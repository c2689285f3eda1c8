"""`coma_learner`: counterfactual policy gradients, a team's actor with a centralised critic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from omg.components.episode_batch import EpisodeBatch
from omg.config.schema import Config
from omg.controllers.base import Controller
from omg.controllers.basic import BasicMAC
from omg.functional.packing import Packing
from omg.functional.returns import following_transition, td_lambda_targets
from omg.functional.td import gather_actions
from omg.learners.base import (
    Learner,
    Metrics,
    Progress,
    blend,
    descend,
    load_optimiser,
    make_optimiser,
    sampling_selector,
    target_share,
    team_spec,
    trained_mac,
)
from omg.learners.capabilities import Capabilities, check_supported
from omg.modules.critics import CRITICS
from omg.modules.critics.coma import ComaCritic
from omg.types import EnvSpec, OmgError

# log of a smaller probability would be infinite; such an action is never drawn.
SMALLEST = torch.finfo(torch.float32).tiny


def counterfactual_advantage(q_A: Tensor, policy_A: Tensor, actions: Tensor) -> Tensor:
    """A_n = Q_n(a_n) - Σ_a π_n(a) Q_n(a), the others' actions held fixed; [...]."""
    return gather_actions(q_A, actions) - (policy_A * q_A).sum(-1)


class ComaLearner(Learner):
    """Critic: (Q_n(s, a) - G_n^λ)². Actor: -log π_n(a_n) · A_n, A_n from the critic just learned.
    Both are means over transitions and agents."""

    able = Capabilities(on_policy=True, outputs="pi_logits", macs=("basic_mac",), critics=("coma",))

    def __init__(
        self, *, config: Config, spec: EnvSpec, mac: Controller, device: torch.device
    ) -> None:
        check_supported(config, spec, self.able)
        self._config = config
        self._mac = trained_mac(config, mac, BasicMAC, self.able)
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
        self._last_target_episode = 0
        self.after_load()

    @staticmethod
    def _new_critic(config: Config, spec: EnvSpec, device: torch.device) -> ComaCritic:
        critic = CRITICS[str(config.critic)](config=config, spec=spec)
        if not isinstance(critic, ComaCritic):
            raise OmgError(
                f"learner={config.learner} needs values of each own action, and critic="
                f"{config.critic} is no ComaCritic. Derive it from "
                "omg.modules.critics.coma:ComaCritic, or set critic=coma."
            )
        return critic.to(device)

    def train(self, batch: EpisodeBatch, progress: Progress) -> Metrics:
        batch, seats = self._mac.own_part(batch)
        packing = Packing.of(batch.filled, batch.raw("terminated"))
        own = self._policy.build_inputs(batch, packing, seats)
        logits = self._policy.unroll(own, packing, seats=seats)
        policy = self._probabilities(batch, packing, logits, packing.now, progress)
        taken = packing.take(batch["actions"], packing.now)
        inputs, targets = self.targets(batch, packing, logits.detach(), progress)
        critic_metrics = self._learn_critic(inputs, taken, targets, packing)
        with torch.no_grad():
            q = self.critic(inputs)
        actor_metrics = self._learn_policy(policy, taken, q)
        self._update_target(progress)
        return {**critic_metrics, **actor_metrics}

    def _probabilities(
        self,
        batch: EpisodeBatch,
        packing: Packing,
        logits_PNA: Tensor,
        slots: Tensor,
        progress: Progress,
    ) -> Tensor:
        """The distribution that acts, masked and with its ε share, at some slots only: behind a
        termination there may be no available action, and nothing to divide by."""
        avail = packing.take(batch.raw("avail_actions"), slots)
        return self._selector.probabilities(logits_PNA[slots], avail, env_steps=progress.env_steps)

    @torch.no_grad()
    def targets(
        self, batch: EpisodeBatch, packing: Packing, logits_PNA: Tensor, progress: Progress
    ) -> tuple[Tensor, Tensor]:
        """The critic's inputs at all K transitions [K, N, I], and their λ-returns [K, N] from the
        target critic's values of the actions taken.

        Nobody acted on a cut episode's last observation. Its value is an expectation over the own
        policy, Σ_a π_n(a) Q'_n(s, a, u^-n), with the others' actions u drawn from theirs."""
        terminated = packing.take(batch.raw("terminated"), packing.now)
        last = (following_transition(packing) == len(packing.now)) & ~terminated
        cut = packing.next[last]
        policy = self._probabilities(batch, packing, logits_PNA, cut, progress)
        actions = packing.pack(batch["actions"])
        actions[cut] = self._draw(policy)
        inputs = self.critic.inputs(batch, packing, actions_PN=actions)
        target_q = self._target_critic(inputs[packing.next])
        values = gather_actions(target_q, actions[packing.next])
        values[last] = (policy * target_q[last]).sum(-1)
        returns = td_lambda_targets(
            packing.take(batch["reward"], packing.now),
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
        drawn = torch.multinomial(rows, 1, generator=self._generator)
        return drawn.view(policy_KNA.shape[:2]).to(policy_KNA.device)

    def _learn_critic(
        self, inputs_KNI: Tensor, taken_KN: Tensor, targets_KN: Tensor, packing: Packing
    ) -> dict[str, Tensor]:
        """One step on all transitions, or (seq) one on every time's, the last time first."""
        pieces = [slice(None)]
        if self._config.critic_train_mode == "seq":
            ends = torch.bincount(packing.time[packing.now]).cumsum(0).tolist()
            starts = [0, *ends[:-1]]
            pieces = [slice(a, b) for a, b in zip(starts, ends, strict=True) if b > a][::-1]
        values, errors, norms = [], [], []
        for piece in pieces:
            value = gather_actions(self.critic(inputs_KNI[piece]), taken_KN[piece])
            error = value - targets_KN[piece]
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
            "target_mean": targets_KN.mean(),
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

    def _update_target(self, progress: Progress) -> None:
        share = target_share(self._config, progress.episodes, self._last_target_episode)
        if share:
            blend(self._target_critic, self.critic, share)
            self._last_target_episode = progress.episodes

    def after_load(self) -> None:
        blend(self._target_critic, self.critic, 1.0)

    def networks(self) -> Mapping[str, nn.Module]:
        return {**self._mac.networks(), "critic": self.critic}

    def optimiser_state(self) -> dict[str, Any]:
        return {
            "agent": self._optimiser.state_dict(),
            "critic": self._critic_optimiser.state_dict(),
        }

    def load_optimiser_state(self, state: dict[str, Any]) -> None:
        load_optimiser(self._optimiser, state["agent"])
        load_optimiser(self._critic_optimiser, state["critic"])

    def state_dict(self) -> dict[str, Any]:
        networks = {**self.networks(), "target_critic": self._target_critic}
        return {
            "networks": {name: network.state_dict() for name, network in networks.items()},
            "optimisers": self.optimiser_state(),
            "generator": self._generator.get_state(),
            "last_target_episode": self._last_target_episode,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        networks = {**self.networks(), "target_critic": self._target_critic}
        for name, network in networks.items():
            network.load_state_dict(state["networks"][name])
        self._optimiser.load_state_dict(state["optimisers"]["agent"])
        self._critic_optimiser.load_state_dict(state["optimisers"]["critic"])
        self._generator.set_state(state["generator"])
        self._last_target_episode = int(state["last_target_episode"])
