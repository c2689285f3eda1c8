"""What `make results-check` does not read: summaries follow from their cells, and some pages' rows
and words from their files."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from tests.unit.study_files import read_study

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
# t(.975) of so many seeds, from a printed table
TABLE_T = {3: 4.30265, 4: 3.18245, 5: 2.77645, 10: 2.26216, 20: 2.09302}


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


@pytest.mark.parametrize(
    "study",
    [
        *("foraging-far", "foraging-far-again", "foraging-far-ablations", "foraging-strangers"),
        *("foraging-strangers-sight", "foraging-strangers-noise", "foraging-strangers-ablations"),
        *("foraging-strangers-again", "foraging-population", "foraging-three", "foraging-coop"),
        *("foraging-strangers-subgoals", "foraging-strangers-supervised"),
        *("foraging-strangers-long", "foraging-behaviours"),
        *("foraging-paper", "predator-prey", "stag-hunt", "battle"),
    ],
)
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


def test_stag_hunt_tells_the_methods_as_its_cells_do() -> None:
    page = (RESULTS / "stag-hunt.md").read_text(encoding="utf-8")
    plain = np.mean(seeds_of("stag-hunt", "PPO", "heldout", "discounted_return"))
    for method in ("PPO", "Control", "Naive OM", "LIAM", "OMG", "MOA", "MOA + OMG", "Oracle"):
        seeds = seeds_of("stag-hunt", method, "heldout", "discounted_return")
        assert f"| {np.mean(seeds):.3f} ± {half(seeds):.3f} |" in page
        assert abs(np.mean(seeds) / plain - 1) < 0.03  # "the whole range is 3 %"


def rows_of(name: str) -> list[dict[str, str]]:
    with (RESULTS / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_battles_tell_methods_and_teams_as_their_files_do() -> None:
    page = (RESULTS / "battle.md").read_text(encoding="utf-8")
    for method in ("PPO", "Control", "Naive OM", "LIAM", "OMG paper", "OMG tuned", "Oracle"):
        sides = (seeds_of("battle", method, split, "win_rate") for split in ("train", "heldout"))
        seen, unseen = (f"{np.mean(seeds):.3f} ± {half(seeds):.3f}" for seeds in sides)
        assert any(
            line.split(" | ")[1] == seen and line.split(" | ")[3] == unseen
            for line in page.splitlines()
            if line.count(" | ") == 4
        ), method
    teams = rows_of("battle/teams.csv")
    assert len(teams) == 5 * 2 * 3
    for row in teams:
        first = ["—"] * 2
        if row["steps_to_90"] != "nan":
            first = [f"{float(row['steps_to_90']):,.0f}", f"{float(row['minutes_to_90']):.1f}"]
        cells = [row["map"], row["algorithm"].upper(), row["seed"], *first]
        cells += [f"{float(row['best']):.2f}", f"{float(row['last_three']):.2f}"]
        assert f"| {' | '.join(cells)} |" in page
    for row in rows_of("battle/stages.csv"):
        cells = [f"{float(row[key]):.2f}" for key in ("first", "best", "last_three")]
        assert f" | {row['run'][-1] if '-' in row['run'] else 1} | {' | '.join(cells)} |" in page
    for name, least in (("3m", 0.965), ("8m", 0.96)):  # "all six end with 96 % or more"
        assert min(float(row["last_three"]) for row in teams if row["map"] == name) > least


def test_the_sweep_s_page_is_that_of_its_rows() -> None:
    page = (RESULTS / "sweep-qmix-foraging.md").read_text(encoding="utf-8")
    tried: dict[tuple[str, str], list[float]] = {}
    for row in rows_of("sweep-qmix-foraging/sweep.csv"):
        key = row["lr"], row["target_update_interval"]
        tried.setdefault(key, []).append(float(row["test_return_mean"]))
    assert len(tried) == 9
    for (rate, interval), seeds in tried.items():
        told = ", ".join(f"{value:.2f}" for value in seeds)
        assert f"| {rate} | {interval} | {np.mean(seeds):.3f} | {told} |" in page
    again: dict[str, list[float]] = {"20": [], "50": []}
    for row in rows_of("sweep-qmix-foraging/confirm.csv"):
        again[row["target_update_interval"]].append(float(row["test_return_mean"]))
    for seeds in again.values():
        assert f"| {np.mean(seeds):.3f} ± {half(seeds):.3f} |" in page
    gap = np.mean(again["20"]) - np.mean(again["50"])
    assert f"Difference {gap:+.3f} ± " in page
    assert abs(gap) < half(again["20"])  # "level"
