"""What a metric can be: bands and axes stay within it."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

# Shares. Returns are not bounded here: an environment may pay anything.
_SHARE = re.compile(
    r"(.*_)?(win_rate|battle_won|hit_ratio|truncated|food_collected|covered|accuracy|active_dims)"
    r"|epsilon|subgoal_epsilon|subgoal_k\d+"
)
_NOT_NEGATIVE = re.compile(
    r"(.*_)?(ep_length|collisions|survival|stags|hares|drifts|kl|grad_norm|error_abs)|loss|critic_loss|value_loss"
)


_LOWER = re.compile(r"(permuted_)?(ep_length|truncated|collisions)")


def lower_is_better(metric: str) -> bool:
    """Whether less of a metric is better; of returns and shares more is."""
    return _LOWER.fullmatch(metric) is not None


def bounds(metric: str) -> tuple[float, float]:
    """The least and the largest value a metric can have."""
    if metric.startswith("normalised_"):  # better than the best response is possible
        return -math.inf, math.inf
    plain = metric.removeprefix("test_").removeprefix("permuted_").removesuffix("_mean")
    if _SHARE.fullmatch(plain):
        return 0.0, 1.0
    return (0.0, math.inf) if _NOT_NEGATIVE.fullmatch(plain) else (-math.inf, math.inf)


def within(metric: str, low: float | None, high: float | None) -> tuple[float | None, float | None]:
    """An interval cut to what the metric can be."""
    least, most = bounds(metric)
    return None if low is None else max(low, least), None if high is None else min(high, most)


def clipped(metric: str, values: Any) -> Any:
    """Values within a metric's bounds."""
    return np.clip(values, *bounds(metric))
