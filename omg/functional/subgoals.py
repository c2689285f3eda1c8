"""Subgoals: which future state to head for, how far two Gaussians are apart, how often they hit."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor


def gaussian_kl(mean: Tensor, log_var: Tensor, other_mean: Tensor, other_log_var: Tensor) -> Tensor:
    """KL(N(μ, σ²) ‖ N(μ', σ'²)) of diagonal Gaussians, summed over the last axis."""
    gap = (mean - other_mean).square() * torch.exp(-other_log_var)
    ratio = torch.exp(log_var - other_log_var)
    return 0.5 * (other_log_var - log_var + ratio + gap - 1.0).sum(-1)


def sample_gaussian(mean: Tensor, log_var: Tensor, generator: torch.Generator) -> Tensor:
    """μ + σ·ε with the gradient of both."""
    noise = torch.randn(mean.shape, generator=generator).to(mean.device)
    return mean + torch.exp(0.5 * log_var) * noise


def mean_over_available(values_A: Tensor, avail_A: Tensor) -> Tensor:
    """V = mean of Q over available actions."""
    allowed = avail_A.to(values_A.dtype)
    return (values_A * allowed).sum(-1) / allowed.sum(-1).clamp(min=1.0)


def max_over_available(values_A: Tensor, avail_A: Tensor) -> Tensor:
    """V = max of Q over available actions."""
    return values_A.masked_fill(~avail_A, -torch.inf).amax(-1)


def select_subgoal(
    values_KH: Tensor,
    exists_KH: Tensor,
    *,
    mode: str,
    fixed_k: int = 1,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Which of the H candidates is the subgoal, [K]: the best (optimistic) or worst
    (conservative) by value, a random one, or the one fixed_k steps ahead (the last that exists,
    near the episode's end)."""
    if mode == "optimistic":
        return values_KH.masked_fill(~exists_KH, -torch.inf).argmax(-1)
    if mode == "conservative":
        return values_KH.masked_fill(~exists_KH, torch.inf).argmin(-1)
    if mode == "random":
        keys = torch.rand(exists_KH.shape, generator=generator).to(exists_KH.device)
        return keys.masked_fill(~exists_KH, -1.0).argmax(-1)
    last = exists_KH.sum(-1) - 1
    return last.clamp(max=fixed_k - 1, min=0)


def hit_ratio(predicted: Sequence[Hashable], trajectory: Sequence[Hashable]) -> float:
    """|{predicted states that occur later than the step of their prediction}| / |trajectory|.

    predicted[t] was made at trajectory[t] and hits if it occurs strictly later; each state counts
    once. Predictions s3, s1, s5, s5 on s1 … s5 give {s3, s5}, 2 / 5 = 0.4.
    """
    hits = {state for t, state in enumerate(predicted) if state in trajectory[t + 1 :]}
    return len(hits) / len(trajectory)
