"""Generalised advantages (GAE, Schulman et al. 2016) of packed episodes."""

from __future__ import annotations

import torch
from torch import Tensor

from omg.functional.packing import Packing
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

    All episodes and agents at once, in a loop over time, last step first: each step needs the
    next one's result. No gradient passes through it."""
    values, reward = values_PN.detach(), reward_PN.detach()
    now, following = packing.now, packing.next
    advantages = torch.zeros_like(values)
    advantages[now] = (
        td_targets(reward[now], terminated_P[now], values[following], gamma=gamma) - values[now]
    )
    sizes = packing.sizes.tolist()
    start = len(values) - sizes[-1]  # of the later of two steps; that of the earlier lies before
    for earlier, later in zip(sizes[-2::-1], sizes[:0:-1], strict=True):
        before = start - earlier
        reached = slice(before, before + later)  # episodes that reach the later step come first
        advantages[reached] += gamma * lam * advantages[start : start + later]
        start = before
    return advantages
