"""Generalised advantages (GAE, Schulman et al. 2016) of packed episodes."""

from __future__ import annotations

import torch
from torch import Tensor

from omg.functional.packing import Packing
from omg.functional.returns import backward_sums
from omg.functional.td import td_targets


def generalised_advantages(
    reward_PN: Tensor,
    terminated_P: Tensor,
    values_PN: Tensor,
    packing: Packing,
    *,
    gamma: float,
    lam: float,
) -> Tensor:
    """A_t = δ_t + γλ A_{t+1} with δ_t = r_t + γ (1 - d_t) V(s_{t+1}) - V(s_t), [P, N]; zero at
    slots that are no transitions, such as the last of an episode: there the sum ends. An episode
    that was cut bootstraps from the value of its last slot, one that terminated does not.

    All episodes, agents and steps at once (`backward_sums`). No gradient passes through it."""
    values, reward = values_PN.detach(), reward_PN.detach()
    now, following = packing.now, packing.next
    errors = td_targets(reward[now], terminated_P[now], values[following], gamma=gamma)
    errors = errors - values[now]
    advantages = torch.zeros_like(values)
    advantages[now] = backward_sums(errors, torch.full_like(errors, gamma * lam), packing)
    return advantages
