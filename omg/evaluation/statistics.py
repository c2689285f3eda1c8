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


def t_two_sided(t: float, freedom: float) -> float:
    """The probability of |T| > |t|, by the same density: the area beyond θ over the whole."""
    freedom = min(freedom, 1e4)
    start = math.atan(abs(t) / math.sqrt(freedom))
    return _area(start, freedom) / _area(0.0, freedom)


def _area(start: float, freedom: float) -> float:
    """Of cos^(ν-1) from `start` to π/2, by Simpson's rule."""
    theta = np.linspace(start, math.pi / 2, 20_001)
    density = np.cos(theta) ** (freedom - 1)
    weights = np.ones(len(theta))
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    return float(weights @ density * (theta[1] - theta[0]) / 3)


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


@dataclass(frozen=True, slots=True)
class Welch:
    """The difference of two means, its standard error and Welch's degrees of freedom; no error
    where a method has fewer than three seeds, no freedom where nothing varies."""

    value: float
    error: float | None = None
    freedom: float | None = None

    @classmethod
    def of(cls, mine: Sequence[float], theirs: Sequence[float]) -> Welch:
        """Of two samples that have nothing to do with each other; variances may differ."""
        samples = [np.asarray(values, np.float64) for values in (mine, theirs)]
        value = float(samples[0].mean() - samples[1].mean())
        if min(map(len, samples)) < MIN_SEEDS:
            return cls(value)
        parts = [float(x.var(ddof=1)) / len(x) for x in samples]
        total = sum(parts)
        if total == 0.0:
            return cls(value, 0.0)
        shares = [part / total for part in parts]
        freedom = 1 / sum(s**2 / (len(x) - 1) for s, x in zip(shares, samples, strict=True))
        return cls(value, math.sqrt(total), freedom)

    def interval(self) -> Interval:
        """With its 95 % interval."""
        if self.error is None:
            return Interval(self.value)
        half = 0.0
        if self.freedom is not None:
            half = t_quantile((1 + LEVEL) / 2, self.freedom) * self.error
        return Interval(self.value, self.value - half, self.value + half)

    def p_value(self) -> float | None:
        """How probable so large a difference is where there is none, two-sided."""
        if self.error is None:
            return None
        if self.freedom is None:
            return float(self.value == 0.0)
        return t_two_sided(self.value / self.error, self.freedom)


def welch_interval(mine: Sequence[float], theirs: Sequence[float]) -> Interval:
    """The difference of two means with Welch's t interval."""
    return Welch.of(mine, theirs).interval()


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: the k-th smallest of n is multiplied by n - k + 1, and none is smaller
    than those before it. At 5 % the chance of any false claim among all of them is at most 5 %."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


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
