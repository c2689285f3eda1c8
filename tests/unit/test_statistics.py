"""Means, interquartile means and bootstrap intervals: closed forms, slow loops, coverage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from omg.evaluation.statistics import SEED, compare, interquartile_mean, summarise
from omg.types import OmgError

Matrix = NDArray[np.float64]
numbers = st.floats(-100, 100)


def crossed(
    rng: np.random.Generator, rows: int, columns: int, *, spread: float = 1.0, noise: float = 1.0
) -> Matrix:
    """Seeds and opponents with effects of their own, and what is left to chance."""
    seeds, opponents = rng.normal(0, spread, (rows, 1)), rng.normal(0, spread, (1, columns))
    return seeds + opponents + rng.normal(0, noise, (rows, columns))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.0], 7.0),
        ([1.0, 3.0], 2.0),
        ([0.0, 1.0, 5.0], 1 / 6 * 0 + 4 / 6 * 1 + 1 / 6 * 5),
        ([4.0, 1.0, 2.0, 3.0], 2.5),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 800.0], 4.5),
    ],
)
def test_the_interquartile_mean_of_known_values(values: list[float], expected: float) -> None:
    assert interquartile_mean(np.array(values)) == pytest.approx(expected)


@given(values=st.lists(numbers, min_size=1, max_size=13))
def test_the_interquartile_mean_is_that_of_every_value_four_times(values: list[float]) -> None:
    repeated = np.sort(np.repeat(values, 4))
    middle = repeated[len(values) : -len(values)]
    assert interquartile_mean(np.array(values)) == pytest.approx(middle.mean(), abs=1e-9)


def test_the_intervals_are_those_of_a_slow_loop() -> None:
    matrix = crossed(np.random.default_rng(3), 3, 5)
    found = summarise(matrix, draws=200)
    rng = np.random.default_rng(SEED)
    rows, columns = rng.integers(3, size=(200, 3)), rng.integers(5, size=(200, 5))
    means, middles = [], []
    for row, column in zip(rows, columns, strict=True):
        drawn = [matrix[r, c] for r in row for c in column]
        means.append(sum(drawn) / 15)
        middles.append(np.sort(np.repeat(drawn, 4))[15:-15].mean())
    assert found.mean.value == pytest.approx(matrix.mean())
    assert [found.mean.low, found.mean.high] == pytest.approx(np.percentile(means, [2.5, 97.5]))
    assert [found.iqm.low, found.iqm.high] == pytest.approx(np.percentile(middles, [2.5, 97.5]))
    assert (found.rows, found.columns) == (3, 5)


def test_equal_results_give_equal_intervals() -> None:
    matrix = crossed(np.random.default_rng(0), 4, 4)
    assert summarise(matrix) == summarise(matrix.copy())


@pytest.mark.parametrize("shape", [(12, 1), (1, 12), (12, 3), (3, 12)])
def test_each_factor_is_drawn_anew(shape: tuple[int, int]) -> None:
    """Only one factor varies: the interval is that of its own mean, 1.96 deviations wide."""
    rng = np.random.default_rng(1)
    varying = rng.normal(0, 1, max(shape))
    along = varying[:, None] if shape[0] > shape[1] else varying[None, :]
    found = summarise(np.broadcast_to(along, shape), draws=4000)
    half = 1.96 * varying.std() / np.sqrt(len(varying))
    assert found.mean.high - found.mean.low == pytest.approx(2 * half, rel=0.08)


def test_one_seed_against_one_opponent_has_no_width() -> None:
    found = summarise(np.array([[0.4]]))
    assert (found.mean.low, found.mean.high) == (0.4, 0.4)
    assert (found.iqm.low, found.iqm.high) == (0.4, 0.4)


@pytest.mark.long
def test_the_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(7)
    covered = np.zeros(2)
    trials = 300
    for _ in range(trials):
        found = summarise(crossed(rng, 15, 15), draws=300, seed=int(rng.integers(2**31)))
        covered += [x.low <= 0 <= x.high for x in (found.mean, found.iqm)]
    assert ((covered / trials > 0.89) & (covered / trials < 0.985)).all(), covered / trials


def test_a_paired_difference_is_seen_where_the_marginal_intervals_overlap() -> None:
    rng = np.random.default_rng(5)
    baseline = crossed(rng, 5, 8, noise=0.1)
    method = baseline + 0.3 + rng.normal(0, 0.05, baseline.shape)
    mine, theirs = summarise(method).mean, summarise(baseline).mean
    assert theirs.low < mine.low < theirs.high
    seeds = [1, 2, 3, 4, 5]
    found = compare(method, baseline, method_seeds=seeds, baseline_seeds=seeds)
    assert found.same_seeds
    assert found.value.value == pytest.approx(0.3, abs=0.03)
    assert 0.2 < found.value.low < found.value.high < 0.4


def test_rows_are_paired_by_seed_not_by_position() -> None:
    baseline = crossed(np.random.default_rng(2), 3, 4)
    order = [2, 0, 1]
    found = compare(
        baseline[order] + 1.0,
        baseline,
        method_seeds=[30, 10, 20],
        baseline_seeds=[10, 20, 30],
    )
    assert [found.value.low, found.value.high] == pytest.approx([1.0, 1.0])


def test_different_seeds_are_drawn_independently_and_that_is_said() -> None:
    rng = np.random.default_rng(5)
    baseline = crossed(rng, 5, 8, noise=0.1)
    method = baseline + 0.3
    found = compare(method, baseline, method_seeds=[6, 7, 8, 9, 10], baseline_seeds=[1, 2, 3, 4, 5])
    assert not found.same_seeds
    assert found.value.low < 0 < found.value.high  # the seeds' spread is back
    fewer = compare(method[:2], baseline, method_seeds=[1, 2], baseline_seeds=[1, 2, 3, 4, 5])
    assert not fewer.same_seeds
    assert fewer.value.value == pytest.approx(method[:2].mean() - baseline.mean())


def test_opponents_are_drawn_jointly_even_where_seeds_are_not() -> None:
    """Without spread among the seeds the opponents' own cancels."""
    opponents = np.random.default_rng(0).normal(0, 5, (1, 6))
    found = compare(
        np.repeat(opponents, 3, 0) + 1.0,
        np.repeat(opponents, 2, 0),
        method_seeds=[1, 2, 3],
        baseline_seeds=[4, 5],
    )
    assert [found.value.low, found.value.high] == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize(
    "values", [np.zeros((0, 3)), np.zeros(4), np.array([[0.0, np.nan]]), np.array([[np.inf]])]
)
def test_what_is_no_table_of_numbers_is_refused(values: Matrix) -> None:
    with pytest.raises(OmgError, match="cannot be summed up"):
        summarise(values)


def test_methods_with_different_opponents_are_not_compared() -> None:
    with pytest.raises(OmgError, match="same opponents"):
        compare(np.zeros((1, 2)), np.zeros((1, 3)), method_seeds=[1], baseline_seeds=[1])
