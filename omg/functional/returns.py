"""Targets and returns: one-step TD, TD(λ), generalised advantages; no loop over time."""

from __future__ import annotations

import torch
from torch import Tensor

from omg.functional.packing import Packing

# Large enough to lose against any value, finite so that padding cannot make NaN.
UNAVAILABLE = -9999999.0


def gather_actions(values_A: Tensor, actions: Tensor) -> Tensor:
    """values[..., a] for the actions taken."""
    return values_A.gather(-1, actions.unsqueeze(-1)).squeeze(-1)


def next_action_values(
    online_A: Tensor, target_A: Tensor, avail: Tensor, *, double: bool
) -> Tensor:
    """max_a Q'(s, a) over available actions; with `double` the action is chosen by the online
    network and valued by the target network."""
    if not double:
        return target_A.masked_fill(~avail, UNAVAILABLE).amax(-1)
    best = online_A.detach().masked_fill(~avail, UNAVAILABLE).argmax(-1)
    return gather_actions(target_A, best)


def td_targets(reward: Tensor, terminated: Tensor, next_values: Tensor, *, gamma: float) -> Tensor:
    """r + γ (1 - terminated) V(s'). A cut (truncated) episode is not terminated: it bootstraps."""
    continues = (~terminated).to(torch.float32).unsqueeze(-1)
    return reward + gamma * continues * next_values


def following_transition(packing: Packing) -> Tensor:
    """The transition behind each of the K transitions, [K]; K where the episode ends: by a
    termination or because only the last observation follows."""
    count = len(packing.now)
    number = packing.now.new_full((len(packing.time),), count)
    number[packing.now] = torch.arange(count, device=number.device)
    return number[packing.next]


def backward_sums(terms_KN: Tensor, factors_KN: Tensor, packing: Packing) -> Tensor:
    """x_t = term_t + factor_t · x_{t+1} within every episode, x = 0 behind its end; [K, N].

    Reach doubles in every round: after i rounds a transition knows the sum of its next 2^i terms
    and the product of their factors. So T steps take log2 T rounds over all transitions, no loop
    over time."""
    none = terms_KN.new_zeros(1, terms_KN.shape[1])
    sums, products = torch.cat([terms_KN, none]), torch.cat([factors_KN.expand_as(terms_KN), none])
    count = len(packing.now)
    ahead = torch.cat([following_transition(packing), packing.now.new_full((1,), count)])
    for _ in range(len(packing.sizes).bit_length()):
        sums = sums + products * sums[ahead]
        products = products * products[ahead]
        ahead = ahead[ahead]
    return sums[:-1]


def td_lambda_targets(
    reward: Tensor,
    terminated: Tensor,
    next_values_KN: Tensor,
    packing: Packing,
    *,
    gamma: float,
    td_lambda: float,
) -> Tensor:
    """G_t = r_t + γ (1 - d_t) [(1 - λ) V_{t+1} + λ G_{t+1}], [K, N].

    `reward` is [K, 1 or N], `terminated` [K], and `next_values_KN` holds V_{t+1}. G behind an
    episode's last transition is V there, so a cut episode bootstraps. What is given behind a
    termination is not looked at, whatever it is."""
    ends = (following_transition(packing) == len(packing.now)).unsqueeze(1)
    values = next_values_KN.masked_fill(terminated.bool().unsqueeze(1), 0.0)
    terms = reward + gamma * torch.where(ends, values, (1 - td_lambda) * values)
    return backward_sums(terms, torch.full_like(terms, gamma * td_lambda), packing)


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
