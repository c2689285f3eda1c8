"""t intervals, Welch's difference and rliable's numbers: tables, hand-computed values, coverage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from omg.evaluation.statistics import (
    Welch,
    compare,
    holm,
    interquartile_mean,
    mean_interval,
    performance_profile,
    probability_of_improvement,
    summarise,
    t_quantile,
    t_two_sided,
    welch_interval,
)
from omg.types import OmgError

Matrix = NDArray[np.float64]
numbers = st.floats(-100, 100)


@pytest.mark.parametrize(
    ("share", "freedom", "expected"),
    [
        (0.975, 1, 12.7062),
        (0.975, 2, 4.30265),
        (0.975, 4, 2.77645),
        (0.975, 10, 2.22814),
        (0.975, 30, 2.04227),
        (0.975, 1e9, 1.95996),
        (0.95, 5, 2.01505),
        (0.995, 3, 5.84091),
        (0.5, 7, 0.0),
    ],
)
def test_t_quantiles_are_those_of_the_tables(share: float, freedom: float, expected: float) -> None:
    assert t_quantile(share, freedom) == pytest.approx(expected, rel=2e-4, abs=1e-9)


def test_a_quantile_between_two_whole_degrees_of_freedom_lies_between_theirs() -> None:
    assert t_quantile(0.975, 3) < t_quantile(0.975, 2.5) < t_quantile(0.975, 2)


def test_three_seeds_have_the_interval_computed_by_hand() -> None:
    """1, 2, 3: deviation 1, so 2 ± 4.303 / √3."""
    found = mean_interval([1.0, 2.0, 3.0])
    assert (found.value, found.low, found.high) == pytest.approx((2.0, -0.4842, 4.4842), abs=1e-3)


@pytest.mark.parametrize("seeds", [[0.4], [0.4, 0.9]])
def test_fewer_than_three_seeds_have_no_interval(seeds: list[float]) -> None:
    found = mean_interval(seeds)
    assert (found.low, found.high) == (None, None)
    assert found.value == pytest.approx(np.mean(seeds))
    more = welch_interval(seeds, [1.0, 2.0, 3.0])
    assert (more.low, more.high) == (None, None)


def test_welchs_interval_is_the_one_computed_by_hand() -> None:
    """Variances 1 and 4 over 3 seeds each: error √(5/3), and (1/3)²/2 + (4/3)²/2 = 17/18, so
    ν = (5/3)² / (17/18) = 50/17; the quantile by interpolation in 1/ν."""
    found = welch_interval([11.0, 12.0, 13.0], [0.0, 2.0, 4.0])
    low, high = t_quantile(0.975, 3), t_quantile(0.975, 2)
    share = (17 / 50 - 1 / 3) / (1 / 2 - 1 / 3)
    half = (low + share * (high - low)) * np.sqrt(5 / 3)
    assert found.value == 10.0
    assert found.high is not None
    assert found.high - 10 == pytest.approx(half, rel=0.01)


def test_equal_seeds_give_a_difference_without_width() -> None:
    found = welch_interval([1.0, 1.0, 1.0], [0.5, 0.5, 0.5])
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)


def test_opponents_are_a_fixed_set_and_add_no_width() -> None:
    """However much opponents differ, and however often one is repeated, the interval is that of
    the seeds' means."""
    opponents = np.array([[0.0, 100.0, -50.0]])
    seeds = np.array([[1.0], [2.0], [3.0]])
    once = summarise(seeds + opponents)
    thrice = summarise(np.repeat(seeds + opponents, 3, axis=1))
    assert once.mean == thrice.mean
    assert once.seeds == pytest.approx([50 / 3 + s for s in (1, 2, 3)])
    assert once.mean.high is not None
    assert once.mean.high - once.mean.value == pytest.approx(4.30265 / np.sqrt(3), rel=1e-4)
    assert (once.opponents, thrice.opponents) == (3, 9)


@pytest.mark.parametrize("seeds", [3, 5])
def test_intervals_cover_the_truth_as_often_as_they_say(seeds: int) -> None:
    rng = np.random.default_rng(7)
    trials = 800
    covered = np.zeros(2)
    for _ in range(trials):
        mine, theirs = rng.normal(0, 1, seeds), rng.normal(0, 2, seeds)
        for i, found in enumerate((mean_interval(mine), welch_interval(list(mine), list(theirs)))):
            assert found.low is not None
            assert found.high is not None
            covered[i] += found.low <= 0 <= found.high
    assert ((covered / trials > 0.935) & (covered / trials < 0.985)).all(), covered / trials


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


def test_the_probability_of_improvement_is_that_of_a_slow_loop() -> None:
    rng = np.random.default_rng(3)
    mine, theirs = rng.integers(4, size=(3, 5)).astype(float), rng.integers(4, size=(4, 5)) * 1.0
    per_opponent = []
    for column in range(5):  # rliable: the Mann-Whitney U of each task over the number of pairs
        wins = [
            1.0 if x > y else 0.5 if x == y else 0.0
            for x in mine[:, column]
            for y in theirs[:, column]
        ]
        per_opponent.append(sum(wins) / 12)
    assert probability_of_improvement(mine, theirs) == pytest.approx(np.mean(per_opponent))
    assert compare(mine, theirs).improvement == pytest.approx(np.mean(per_opponent))
    swapped = probability_of_improvement(theirs, mine)
    assert swapped == pytest.approx(1 - np.mean(per_opponent))


def test_a_performance_profile_is_the_share_above_each_threshold() -> None:
    values = np.array([[0.0, 0.2], [0.2, 1.0]])
    found = performance_profile(values, np.array([-1.0, 0.0, 0.2, 0.9, 1.0]))
    assert found.tolist() == [1.0, 0.75, 0.25, 0.25, 0.0]


@pytest.mark.parametrize(
    "values", [np.zeros((0, 3)), np.zeros(4), np.array([[0.0, np.nan]]), np.array([[np.inf]])]
)
def test_what_is_no_table_of_numbers_is_refused(values: Matrix) -> None:
    with pytest.raises(OmgError, match="cannot be summed up"):
        summarise(values)


def test_methods_with_different_opponents_are_not_compared() -> None:
    with pytest.raises(OmgError, match="same opponents"):
        compare(np.zeros((1, 2)), np.zeros((1, 3)))


# --- tests between methods -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("t", "freedom", "expected"),
    [
        (12.7062, 1, 0.05),
        (4.30265, 2, 0.05),
        (2.77645, 4, 0.05),
        (2.01505, 5, 0.10),
        (-5.84091, 3, 0.01),
        (0.0, 7, 1.0),
        (1.0, 1, 0.5),  # Cauchy: the quartile
        (1.0, 2, 1 - 1 / np.sqrt(3)),  # 1 - t / √(2 + t²)
        (50.0, 2, 1 - 50 / np.sqrt(2502)),
    ],
)
def test_p_values_are_those_of_the_tables(t: float, freedom: float, expected: float) -> None:
    assert t_two_sided(t, freedom) == pytest.approx(expected, rel=2e-5)


def test_p_values_and_degrees_of_freedom_are_scipys() -> None:
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(3)
    for mine, theirs in ((3, 3), (5, 4), (10, 3)):
        x, y = rng.normal(1, 1, mine), rng.normal(0, 3, theirs)
        found, wanted = Welch.of(list(x), list(y)), stats.ttest_ind(x, y, equal_var=False)
        assert found.freedom == pytest.approx(wanted.df)
        assert found.p_value() == pytest.approx(wanted.pvalue, rel=1e-6)
        interval = wanted.confidence_interval(0.95)
        assert found.interval().low == pytest.approx(interval.low, rel=1e-4)


def test_an_interval_that_ends_at_zero_has_a_p_value_of_five_per_cent() -> None:
    welch = Welch.of([1.0, 2.0, 4.0], [0.0, 0.0, 0.0])
    low = welch.interval().low
    assert low is not None
    shifted = Welch.of([1.0 - low, 2.0 - low, 4.0 - low], [0.0, 0.0, 0.0])
    assert shifted.p_value() == pytest.approx(0.05, abs=1e-4)


@pytest.mark.parametrize(
    ("p_values", "expected"),
    [
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),  # Holm's by hand
        ([0.5, 0.9], [1.0, 1.0]),
        ([0.02], [0.02]),
        ([0.01, 0.01], [0.02, 0.02]),
        ([], []),
    ],
)
def test_holms_correction_is_that_of_a_worked_example(
    p_values: list[float], expected: list[float]
) -> None:
    assert holm(p_values) == pytest.approx(expected)


def test_too_few_or_equal_seeds_have_the_p_value_they_can_have() -> None:
    assert Welch.of([1.0, 2.0], [1.0, 2.0, 3.0]).p_value() is None
    assert Welch.of([1.0] * 3, [1.0] * 3).p_value() == 1.0
    assert Welch.of([1.0] * 3, [2.0] * 3).p_value() == 0.0
