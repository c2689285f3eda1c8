"""The numbers in the documentation follow from the cells beside them."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from tests.unit.study_files import read_study

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
TABLE_T = {3: 4.30265, 4: 3.18245, 5: 2.77645}  # t(.975) of so many seeds, from a printed table


def seeds_of(study: str, method: str, split: str, metric: str) -> list[float]:
    """Each seed's mean over the opponents, straight from the file."""
    with (RESULTS / study / "crossplay.csv").open(encoding="utf-8") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if (row["method"], row["split"], row["lineup"]) == (method, split, "homologue")
        ]
    seeds = sorted({int(row["seed"]) for row in rows})
    return [
        float(np.mean([float(row[metric]) for row in rows if int(row["seed"]) == seed]))
        for seed in seeds
    ]


def half(values: list[float]) -> float:
    return float(TABLE_T[len(values)] * np.std(values, ddof=1) / np.sqrt(len(values)))


@pytest.mark.parametrize("study", ["foraging-coop", "foraging-paper", "predator-prey", "stag-hunt"])
def test_the_summary_of_a_study_is_that_of_its_cells(study: str) -> None:
    with (RESULTS / study / "summary.csv").open(encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    found = {
        (s.method, s.split, s.lineup, s.metric): s for s in read_study(RESULTS / study).summaries()
    }
    assert len(written) == len(found)
    for row in written:  # in the order of the metric that the study leads with
        summary = found[row["method"], row["split"], row["lineup"], row["metric"]]
        assert float(row["mean"]) == pytest.approx(summary.mean)
        assert float(row["mean_high"]) == pytest.approx(summary.mean_high)


@pytest.mark.parametrize("method", ["D3QN", "Control", "Naive OM", "OMG tuned", "Oracle"])
def test_the_table_of_the_readme_is_that_of_the_study(method: str) -> None:
    columns = {"own_return": 3, "food_collected": 3, "ep_length": 1, "discounted_return": 3}
    cells = []
    for metric, places in columns.items():
        seeds = seeds_of("foraging-coop", method, "heldout", metric)
        cells.append(f"{np.mean(seeds):.{places}f} ± {half(seeds):.{places}f}")
    assert f"| {' | '.join(cells)} |" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_predator_prey_claims_no_more_than_three_seeds_carry() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for split, places, words in (("heldout", 2, "1.27 ± 2.06"), ("train", 1, "3.7 ± 4.8")):
        mine, theirs = (
            np.array(seeds_of("predator-prey", method, split, "own_return"))
            for method in ("OMG tuned", "PPO")
        )
        gaps = (mine - theirs).tolist()
        assert f"{np.mean(gaps):.{places}f} ± {half(gaps):.{places}f}" == words
        assert half(gaps) > np.mean(gaps)  # zero is included
        assert words in readme
        assert words in (RESULTS / "predator-prey.md").read_text(encoding="utf-8")


def test_stag_hunt_tells_the_methods_as_its_cells_do() -> None:
    page = (RESULTS / "stag-hunt.md").read_text(encoding="utf-8")
    plain = np.mean(seeds_of("stag-hunt", "PPO", "heldout", "discounted_return"))
    for method in ("PPO", "Control", "Naive OM", "LIAM", "OMG", "MOA", "MOA + OMG", "Oracle"):
        seeds = seeds_of("stag-hunt", method, "heldout", "discounted_return")
        assert f"| {np.mean(seeds):.3f} ± {half(seeds):.3f} |" in page
        assert abs(np.mean(seeds) / plain - 1) < 0.03  # "the whole range is 3 %"
