"""Returns over whole episodes: sums that run backwards in time, on packed transitions."""

from __future__ import annotations

import torch
from torch import Tensor

from omg.functional.packing import Packing


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
