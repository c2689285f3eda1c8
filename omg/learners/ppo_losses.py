"""PPO's losses of a policy and its critic: in one call with their gradients where the networks are
the usual recurrent ones, else through autograd."""

from __future__ import annotations

import torch
from torch import Tensor

from omg.components.action_selectors import Mixture, Multinomial
from omg.components.trajectories import Sequences
from omg.config.schema import Config
from omg.learners.base import Progress
from omg.learners.experience import Experience
from omg.modules.agents.networks import RNNAgent, WithValue
from omg.modules.critics import ValueCritic, ValueFunction
from omg.modules.kernels.given import GivenLoss
from omg.modules.kernels.ppo import (
    BothLosses,
    PolicyLoss,
    PolicyTerms,
    PPOKernel,
    ValueLoss,
    counted,
    evaluated,
    policy_loss,
    policy_loss_of,
    ppo_kernel,
    value_loss,
)
from omg.policies.policy import Policy


class PPOLosses:
    """Of a policy, sampled by `selector`, and its values. `both`: the network that computes the
    outputs of both, where they share a trunk."""

    def __init__(
        self,
        config: Config,
        policy: Policy,
        values: ValueFunction,
        selector: Multinomial,
        both: WithValue | None,
    ) -> None:
        self._config, self._policy, self._values = config, policy, values
        self._selector, self._both = selector, both

    def outputs(
        self, inputs_PNI: Tensor, critic_inputs_PNJ: Tensor, arranged: Sequences
    ) -> tuple[Tensor, Tensor]:
        """The policy's outputs [P, n, A] and the critic's [P, n]."""
        if self._both is not None:
            both = self._policy.unroll(inputs_PNI, arranged, self._both)
            return both[..., :-1], both[..., -1]
        outputs = self._policy.unroll(inputs_PNI, arranged)
        return outputs, self._values(critic_inputs_PNJ, arranged)

    @torch.no_grad()
    def evaluate(
        self, outputs_PNA: Tensor, avail_PNA: Tensor, actions_PN: Tensor, progress: Progress
    ) -> tuple[Tensor, Tensor]:
        """log π of the actions taken at every slot, and the entropy of π there, [P, n]: of the
        distribution that acts, whatever the selector makes of the outputs."""
        kernel, mixture = self._kernel(outputs_PNA), self._selector.mixture(progress.env_steps)
        if kernel is not None and mixture is not None:
            rows = outputs_PNA.flatten(0, 1).contiguous()
            found = kernel.evaluate(rows, avail_PNA.flatten(0, 1), actions_PN.flatten(), mixture)
            return found[0].view_as(actions_PN), found[1].view_as(actions_PN)
        chances = self._selector.probabilities(outputs_PNA, avail_PNA, env_steps=progress.env_steps)
        return evaluated(chances, actions_PN)

    def policy(
        self, experience: Experience, progress: Progress
    ) -> tuple[Tensor | GivenLoss, PolicyTerms]:
        """-mean of the clipped surrogate - entropy_coef · mean entropy."""
        kernel, mixture = self._kernel(experience.inputs), self._mixture(progress)
        network, arranged = self._policy.network, experience.arranged
        if kernel is not None and mixture is not None and isinstance(network, RNNAgent):
            own = self._policy_loss(kernel, experience, mixture)
            loss = network.fit_packed(*experience.rows, own)
            if loss is not None:
                return loss, own.terms()
        return self._policy_of(
            self._policy.unroll(experience.inputs, arranged), experience, progress
        )

    def values(self, experience: Experience) -> Tensor | GivenLoss:
        """Mean square error of the critic, as `value_clip` says."""
        kernel, critic = self._kernel(experience.critic_inputs), self._values.critic
        clip, aims = self._config.value_clip, experience.aims
        if kernel is not None and isinstance(critic, ValueCritic):
            own = ValueLoss(kernel, aims, clip)
            loss = critic.fit(experience.critic_inputs, experience.arranged, own)
            if loss is not None:
                return loss
        values = self._values(experience.critic_inputs, experience.arranged)
        return value_loss(values.flatten(), aims, clip=clip)

    def both(
        self, experience: Experience, progress: Progress
    ) -> tuple[Tensor | GivenLoss, PolicyTerms, Tensor]:
        """The policy's loss + value_coef · the critic's of networks with one trunk; what the first
        is made of, and the second."""
        assert self._both is not None
        kernel, mixture = self._kernel(experience.inputs), self._mixture(progress)
        clip, weight = self._config.value_clip, self._config.value_coef
        if kernel is not None and mixture is not None:
            first = self._policy_loss(kernel, experience, mixture)
            second = ValueLoss(kernel, experience.aims, clip, weight)
            loss = self._both.fit_packed(*experience.rows, BothLosses(kernel, first, second))
            if loss is not None:
                return loss, first.terms(), second.value()
        outputs, values = self.outputs(experience.inputs, experience.inputs, experience.arranged)
        gain, terms = self._policy_of(outputs, experience, progress)
        error = value_loss(values.flatten(), experience.aims, clip=clip)
        return gain + weight * error, terms, error.detach()

    def _policy_of(
        self, outputs_PNA: Tensor, experience: Experience, progress: Progress
    ) -> tuple[Tensor, PolicyTerms]:
        config, mixture = self._config, self._mixture(progress)
        rows, taken = outputs_PNA.flatten(0, 1), experience.taken
        if mixture is not None:
            return policy_loss(
                rows, taken, mixture, clip=config.eps_clip, entropy_coef=config.entropy_coef
            )
        rows, taken = counted(rows, taken)
        chances = self._selector.probabilities(rows, taken.avail, env_steps=progress.env_steps)
        return policy_loss_of(chances, taken, config.eps_clip, config.entropy_coef)

    def _policy_loss(
        self, kernel: PPOKernel, experience: Experience, mixture: Mixture
    ) -> PolicyLoss:
        config = self._config
        return PolicyLoss(kernel, experience.taken, mixture, config.eps_clip, config.entropy_coef)

    def _mixture(self, progress: Progress) -> Mixture | None:
        return self._selector.mixture(progress.env_steps)

    @staticmethod
    def _kernel(values: Tensor) -> PPOKernel | None:
        kernel, _ = ppo_kernel()
        return kernel if kernel is not None and kernel.fits(values) else None
