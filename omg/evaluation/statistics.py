"""What is said of a method: the mean over its seeds with a t interval, and rliable's numbers.

A matrix of results has one row per seed of a method and one column per opponent. The opponents are
a fixed set, so each seed counts by its mean over them, and only the seeds are a sample.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from omg.types import OmgError

Matrix: TypeAlias = NDArray[np.float64]

LEVEL = 0.95
MIN_SEEDS = 3  # fewer have no interval: two are 12.7 standard errors wide


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and its 95 % interval; no bounds with fewer than three seeds."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """What is said of one matrix; `seeds` are the means over the opponents."""

    mean: Interval
    iqm: float
    seeds: tuple[float, ...]
    opponents: int


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean of one method minus that of another, and the probability of improvement."""

    value: Interval
    improvement: float


@lru_cache(maxsize=256)
def t_quantile(share: float, freedom: float) -> float:
    """A quantile (share >= 1/2) of Student's t. With t = √ν tan θ the density of θ is proportional
    to cos^(ν-1) θ, which is summed up here."""
    freedom = min(freedom, 1e4)  # indistinguishable from more
    theta = np.linspace(0.0, math.pi / 2, 100_001)
    density = np.cos(theta) ** (freedom - 1)
    area = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    at = float(np.interp((2 * share - 1) * area[-1], area, theta))
    return math.sqrt(freedom) * math.tan(at)


def half_width(deviation: Any, count: int) -> Any:
    """Half the 95 % t interval of a mean of `count` values with this standard deviation."""
    return t_quantile((1 + LEVEL) / 2, count - 1) * deviation / math.sqrt(count)


def mean_interval(values: Sequence[float] | NDArray[Any]) -> Interval:
    """The mean of seeds with its t interval."""
    array = np.asarray(values, np.float64)
    mean = float(array.mean())
    if len(array) < MIN_SEEDS:
        return Interval(mean)
    half = float(half_width(array.std(ddof=1), len(array)))
    return Interval(mean, mean - half, mean + half)


def welch_interval(mine: Sequence[float], theirs: Sequence[float]) -> Interval:
    """The difference of two means with Welch's t interval: variances may differ."""
    samples = [np.asarray(values, np.float64) for values in (mine, theirs)]
    value = float(samples[0].mean() - samples[1].mean())
    if min(map(len, samples)) < MIN_SEEDS:
        return Interval(value)
    parts = [float(x.var(ddof=1)) / len(x) for x in samples]
    total = sum(parts)
    if total == 0.0:
        return Interval(value, value, value)
    shares = [part / total for part in parts]
    freedom = 1 / sum(s**2 / (len(x) - 1) for s, x in zip(shares, samples, strict=True))
    half = t_quantile((1 + LEVEL) / 2, freedom) * math.sqrt(total)
    return Interval(value, value - half, value + half)


def interquartile_mean(values: NDArray[Any], axis: int = -1) -> Any:
    """The mean between the quartiles: 2 ∫ from 1/4 to 3/4 of the empirical quantile function. Where
    a quartile falls into a value, that value counts in part; of 4k values it is the mean of the
    middle 2k."""
    ordered = np.sort(np.asarray(values, np.float64), axis=axis)
    count = ordered.shape[axis]
    edges = np.clip(np.arange(count + 1) / count, 0.25, 0.75)
    return np.moveaxis(ordered, axis, -1) @ (2.0 * np.diff(edges))


def _checked(values: NDArray[Any]) -> Matrix:
    matrix = np.asarray(values, np.float64)
    if matrix.ndim != 2 or not matrix.size or not np.isfinite(matrix).all():
        raise OmgError(
            f"Results of shape {matrix.shape} cannot be summed up. Give one finite number for "
            "every seed (row) and opponent (column)."
        )
    return matrix


def summarise(values: NDArray[Any]) -> Summary:
    """Mean and interquartile mean of a matrix [seeds, opponents]."""
    matrix = _checked(values)
    seeds = matrix.mean(1)
    return Summary(
        mean=mean_interval(seeds),
        iqm=float(interquartile_mean(matrix.ravel())),
        seeds=tuple(seeds.tolist()),
        opponents=matrix.shape[1],
    )


def compare(method: NDArray[Any], baseline: NDArray[Any]) -> Difference:
    """Mean of `method` minus mean of `baseline`, which met the same opponents."""
    mine, theirs = _checked(method), _checked(baseline)
    if mine.shape[1] != theirs.shape[1]:
        raise OmgError(
            f"One method met {mine.shape[1]} opponents, the other {theirs.shape[1]}. Compare "
            "results against the same opponents."
        )
    value = welch_interval(mine.mean(1).tolist(), theirs.mean(1).tolist())
    return Difference(value, probability_of_improvement(mine, theirs))


def probability_of_improvement(mine: Matrix, theirs: Matrix) -> float:
    """rliable's P(X > Y): over all pairs of a seed of one and a seed of the other, ties counting
    half, averaged over the opponents."""
    gaps = mine[:, None, :] - theirs[None, :, :]
    return float(((gaps > 0) + 0.5 * (gaps == 0)).mean())


def performance_profile(values: NDArray[Any], thresholds: NDArray[Any]) -> Matrix:
    """rliable's score distribution: the share of all seeds and opponents above each threshold."""
    flat = np.asarray(values, np.float64).ravel()
    return np.asarray((flat[None, :] > np.asarray(thresholds)[:, None]).mean(1), np.float64)
