"""What came of a sweep: scores over seeds, the best, the table and the page."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from omg.studies.sweep.marks import LOST, forgive_lost, read_mark, write_mark
from omg.studies.sweep.outcome import best_of, outcomes, ranked, write_csv
from omg.studies.sweep.plan import SweepPlan, plan_of
from omg.studies.sweep.summary import finish

RATES = (0.001, 0.002, 0.004)


def made(out: Path, ends: Mapping[tuple[int, int], tuple[str, float]], **options: str) -> SweepPlan:
    """A sweep whose runs ended like this: (configuration, seed) -> (status, last test)."""
    words = [f"lr=grid:{','.join(map(str, RATES))}", "gamma=grid:0.9"]
    given = {"config": "iql", "env_config": "foraging", "seeds": "1:3", **options}
    plan = plan_of(options=given, words=words, out=str(out))
    for (number, seed), (status, value) in ends.items():
        name = plan.run_name(number, seed)
        folder = plan.out / "runs" / name
        folder.mkdir(parents=True)
        tests = [(0, 0.0), (100, value / 2), (200, value)]
        lines = [json.dumps({"t_env": t, "test_return_mean": v}) for t, v in tests]
        (folder / "metrics.jsonl").write_text("\n".join([*lines, '{"t_env": 150, "loss": 1}', ""]))
        note = "NaN <b>" if status == "failed" else ""
        if status != "running":
            write_mark(plan.out, name, status=status, note=note, seconds=2.0)
    return plan


def whole(values: Mapping[int, tuple[float, ...]]) -> dict[tuple[int, int], tuple[str, float]]:
    return {(n, s): ("finished", v) for n, vs in values.items() for s, v in enumerate(vs, 1)}


def test_a_score_is_the_mean_over_seeds_with_a_t_interval(tmp_path: Path) -> None:
    plan = made(tmp_path / "s", whole({0: (1.0, 2.0, 3.0), 1: (4.0, 4.0, 4.0), 2: (0, 0, 0)}))
    found = outcomes(plan)
    score = found[0].score()
    assert score is not None
    # Student's t with two degrees of freedom: 4.302653; the standard error is 1 / sqrt(3).
    half = 4.302653 / np.sqrt(3)
    assert score.value == pytest.approx(2.0)
    assert (score.low, score.high) == pytest.approx((2.0 - half, 2.0 + half), rel=1e-4)
    assert [o.number for o in ranked(found, "max")] == [1, 0, 2]
    assert [o.number for o in ranked(found, "min")] == [2, 0, 1]


def test_a_configuration_with_all_seeds_stands_before_one_that_lost_some(tmp_path: Path) -> None:
    ends = whole({0: (1.0, 1.0, 1.0), 1: (9.0, 9.0)})
    ends[1, 3] = ("stopped", 8.0)
    ends[2, 1] = ("failed", 50.0)
    found = outcomes(made(tmp_path / "s", ends))
    assert [o.number for o in ranked(found, "max")] == [0, 1, 2]
    best = best_of(found, "max")
    assert best is not None
    assert best.number == 0
    assert found[1].values() == [9.0, 9.0], "a stopped run has no last test to compare"
    assert [run.status for run in found[2].runs] == ["failed", "waiting", "waiting"]


def test_a_run_that_goes_on_has_no_end_but_keeps_its_time(tmp_path: Path) -> None:
    write_mark(tmp_path, "a", status="failed", note=LOST, seconds=2.0)
    write_mark(tmp_path, "b", status="failed", note="diverged", seconds=3.0)
    forgive_lost(tmp_path)
    assert read_mark(tmp_path, "a") == {"status": "", "note": "", "seconds": 2.0}
    assert read_mark(tmp_path, "b")["status"] == "failed"


def test_the_table_has_a_row_per_run_with_its_settings_and_score(tmp_path: Path) -> None:
    plan = made(tmp_path / "s", whole({0: (1.0, 2.0, 3.0), 1: (4.0, 5.0, 6.0), 2: (0, 0, 0)}))
    with write_csv(plan, outcomes(plan)).open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 9
    assert [float(row["lr"]) for row in rows] == [rate for rate in RATES for _ in range(3)]
    assert [row["test_return_mean"] for row in rows[:3]] == ["1.0", "2.0", "3.0"]
    assert {row["score"] for row in rows[3:6]} == {"5.0"}
    assert rows[0]["run"] == "runs/000-s1"


def test_the_page_shows_the_best_its_command_and_what_failed(tmp_path: Path) -> None:
    ends = whole({0: (1.0, 2.0, 3.0), 1: (4.0, 5.0, 6.0), 2: (0.5, 0.5)})
    ends[2, 3] = ("failed", 0.1)
    plan = made(tmp_path / "s", ends)
    lines = finish(plan)
    page = (plan.out / "sweep.html").read_text()
    command = "omg train --config=iql --env-config=foraging --lr=0.002 --gamma=0.9 --seed=1"
    assert f"Train the best again: {command}" in lines
    assert command in page
    assert "NaN &lt;b&gt;" in page
    assert "<b>" not in page.replace("<body>", "")
    assert "lr=0.004" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert any("1 of 9 runs failed" in line for line in lines)


def test_many_values_of_a_key_become_a_scatter_with_a_point_per_run(tmp_path: Path) -> None:
    given = {"config": "iql", "env_config": "foraging", "samples": 15}
    words = ["lr=loguniform:0.0001,0.01", "gamma=choice:0.9,0.99"]
    plan = plan_of(options=given, words=words, out=str(tmp_path / "s"))
    for number in range(plan.count):
        folder = plan.out / "runs" / plan.run_name(number, 1)
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text(
            json.dumps({"t_env": 5, "test_return_mean": number / 7}) + "\n"
        )
        write_mark(plan.out, folder.name, status="finished")
    finish(plan)
    page = (plan.out / "sweep.html").read_text()
    scatter = page[page.index('id="key-lr-title"') :].split("</svg>")[0]
    assert scatter.count("<circle") == plan.count == 15


def test_a_sweep_without_any_test_says_so(tmp_path: Path) -> None:
    plan = made(tmp_path / "s", {})
    plan.out.mkdir()
    assert finish(plan)[0] == "No run was tested"
    assert "No run was tested" in (plan.out / "sweep.html").read_text()
