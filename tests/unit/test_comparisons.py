"""The comparisons of a study: which are made, and what correcting for their number does."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from omg.evaluation.comparisons import comparison_words, comparisons, primary_metric
from omg.evaluation.crossplay_files import write_tables
from omg.evaluation.crossplay_table import Agent, Cell, Crossplay
from omg.evaluation.statistics import Welch, holm

SEEDS = {
    "Plain": (1.0, 1.1, 0.9),
    "LIAM": (1.5, 1.4, 1.6),
    "OMG": (2.0, 2.1, 1.9),
    "Oracle": (3.0, 3.1, 2.9),
}


def table(metric: str = "own_return", seeds: dict[str, tuple[float, ...]] = SEEDS) -> Crossplay:
    agents, cells = [], []
    for method, values in seeds.items():
        for seed, value in enumerate(values):
            name = f"{method}-s{seed}"
            am_model = "oracle_am" if method == "Oracle" else "none_am"
            agents.append(Agent(name, method, seed, am_model=am_model))
            for opponent, extra in (("a", 0.5), ("b", -0.5)):
                cells.append(
                    Cell(name, opponent, "homologue", "heldout", 5, {metric: value + extra})
                )
    return Crossplay(
        format=1,
        env="foraging",
        metric=metric,
        agents=tuple(agents),
        opponents=(),
        cells=tuple(cells),
        baseline="Plain",
    )


def test_each_method_meets_the_baseline_and_the_best_other_that_is_told_nothing() -> None:
    pairs = [(c.method, c.other, c.against) for c in comparisons(table())]
    assert pairs == [
        ("LIAM", "Plain", "baseline"),
        ("OMG", "Plain", "baseline"),
        ("Oracle", "Plain", "baseline"),
        ("Plain", "OMG", "best other"),
        ("LIAM", "OMG", "best other"),
        ("OMG", "LIAM", "best other"),
    ]


def test_where_less_is_better_the_best_is_the_least() -> None:
    found = {(c.method, c.against): c.other for c in comparisons(table("ep_length"))}
    assert found["OMG", "best other"] == "Plain"
    assert found["Plain", "best other"] == "LIAM"


def test_a_pair_counts_once_however_often_it_is_compared() -> None:
    """Plain-LIAM, Plain-OMG (twice), Plain-Oracle and LIAM-OMG (twice): four comparisons."""
    found = comparisons(table())
    assert {c.comparisons for c in found} == {4}
    pairs = [("LIAM", "Plain"), ("OMG", "Plain"), ("Oracle", "Plain"), ("LIAM", "OMG")]
    raw = [Welch.of(SEEDS[a], SEEDS[b]).p_value() or 0.0 for a, b in pairs]
    wanted = dict(zip(map(frozenset, pairs), holm(raw), strict=True))
    for row in found:
        assert row.p_holm == pytest.approx(wanted[frozenset((row.method, row.other))])
        assert row.p is not None
        assert row.p_holm is not None
        assert row.p_holm >= row.p


def test_a_terminal_shows_each_pair_once() -> None:
    titles, rows = comparison_words(table())
    assert titles == ["method", "minus", "side", "difference [95 %]", "p", "p (Holm)"]
    pairs = [("LIAM", "Plain"), ("OMG", "Plain"), ("Oracle", "Plain"), ("LIAM", "OMG")]
    assert [tuple(row[:2]) for row in rows] == pairs


def test_opponents_do_not_add_to_the_seeds() -> None:
    row = comparisons(table())[0]
    assert (row.seeds, row.other_seeds) == (3, 3)
    assert row.difference == pytest.approx(0.5)
    assert (row.low, row.high) == pytest.approx(
        (Welch.of(SEEDS["LIAM"], SEEDS["Plain"]).interval().low, 0.5 * 2 - (row.low or 0)), rel=1e-6
    )


def test_two_seeds_are_compared_without_a_p_value() -> None:
    few = {name: values[:2] for name, values in SEEDS.items()}
    assert {(c.p, c.p_holm, c.comparisons) for c in comparisons(table(seeds=few))} == {
        (None, None, 0)
    }


def test_the_comparisons_are_written_beside_the_cells(tmp_path: Path) -> None:
    study = table("win_rate")
    assert primary_metric(study) == "win_rate"
    write_tables(study, tmp_path)
    with (tmp_path / "comparisons.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(r["method"], r["other"], r["side"]) for r in rows[:1]] == [("LIAM", "Plain", "unseen")]
    assert float(rows[0]["p_holm"]) == pytest.approx(comparisons(study)[0].p_holm)
