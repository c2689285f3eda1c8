"""Means, interquartile means and their bootstrap intervals over agents x opponents.

A matrix of results has one row per seed of a method and one column per opponent. Both are samples
(other seeds could have been trained, other opponents met), so both are drawn anew with replacement
for an interval: rows and columns apart, every draw a whole matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from omg.types import OmgError

Matrix: TypeAlias = NDArray[np.float64]

DRAWS = 2000
LEVEL = 0.95
# Of the generator of every interval: equal results give equal intervals, whatever was run before.
SEED = 20240


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the bounds of its bootstrap interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Summary:
    """What is said of one matrix."""

    mean: Interval
    iqm: Interval
    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean of one method minus that of another; `same_seeds`: rows were drawn jointly."""

    value: Interval
    same_seeds: bool


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


def _draw(rng: np.random.Generator, draws: int, count: int) -> NDArray[np.int64]:
    """Indices [draws, count] with replacement."""
    return rng.integers(count, size=(draws, count))


def _resampled(matrix: Matrix, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Matrix:
    """Drawn matrices, flattened: [draws, R * C]."""
    drawn = matrix[rows[:, :, None], columns[:, None, :]]
    return drawn.reshape(len(drawn), -1)


def _interval(value: float, drawn: NDArray[np.float64]) -> Interval:
    tail = 50.0 * (1.0 - LEVEL)
    low, high = np.percentile(drawn, [tail, 100.0 - tail])
    return Interval(value, float(low), float(high))


def summarise(values: NDArray[Any], *, draws: int = DRAWS, seed: int = SEED) -> Summary:
    """Mean and interquartile mean of a matrix [seeds, opponents] with 95 % intervals."""
    matrix = _checked(values)
    rng = np.random.default_rng(seed)
    rows, columns = (_draw(rng, draws, count) for count in matrix.shape)
    drawn = _resampled(matrix, rows, columns)
    return Summary(
        mean=_interval(float(matrix.mean()), drawn.mean(1)),
        iqm=_interval(float(interquartile_mean(matrix.ravel())), interquartile_mean(drawn)),
        rows=matrix.shape[0],
        columns=matrix.shape[1],
    )


def compare(
    method: NDArray[Any],
    baseline: NDArray[Any],
    *,
    method_seeds: Sequence[int],
    baseline_seeds: Sequence[int],
    draws: int = DRAWS,
    seed: int = SEED,
) -> Difference:
    """Mean of `method` minus mean of `baseline` with a 95 % interval. Both met the same opponents,
    so columns are drawn jointly. Rows are too where both have the same set of seeds; they are drawn
    independently otherwise."""
    mine, theirs = _checked(method), _checked(baseline)
    if mine.shape[1] != theirs.shape[1]:
        raise OmgError(
            f"One method met {mine.shape[1]} opponents, the other {theirs.shape[1]}. Compare "
            "results against the same opponents."
        )
    same = set(method_seeds) == set(baseline_seeds) and len(mine) == len(theirs)
    rng = np.random.default_rng(seed)
    rows = _draw(rng, draws, len(mine))
    columns = _draw(rng, draws, mine.shape[1])
    others = rows
    if same:  # the same seed in the same row of both
        mine, theirs = mine[np.argsort(method_seeds)], theirs[np.argsort(baseline_seeds)]
    else:
        others = _draw(rng, draws, len(theirs))
    drawn = _resampled(mine, rows, columns).mean(1) - _resampled(theirs, others, columns).mean(1)
    value = float(mine.mean() - theirs.mean())
    return Difference(_interval(value, cast(Matrix, drawn)), same)
