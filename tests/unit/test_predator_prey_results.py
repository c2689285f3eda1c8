"""The study's own code: players that do not learn, and the table made of finished runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import predator_prey_results as study


@pytest.fixture(autouse=True)
def few_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "EPISODES", 100)


def test_players_that_do_not_learn_stand_in_the_order_of_their_skill() -> None:
    found = study.references()
    spread, hunters = found["qmix-spread"], found["iql-predators"]
    assert spread["assigned"]["return"] > -35 > -60 > spread["no action"]["return"]
    assert spread["assigned"]["covered"] > 0.5 > 0.1 > spread["random"]["covered"]
    contacts = [hunters[name]["collisions"] for name in ("intercept", "chase", "random")]
    assert contacts == sorted(contacts, reverse=True)
    assert contacts[1] > 10 * contacts[2]


def write_run(root: Path, seed: int, last: float, *, done: bool = True) -> None:
    run = root / f"iql-predators-s{seed}"
    run.mkdir()
    points = [(0, 0.1), (1000, last)]
    lines = [
        {"t_env": t, "wall_s": 1, "test_collisions_mean": value, "test_survival_mean": 20.0}
        for t, value in points
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if done:
        (run / "done").touch()


@pytest.mark.long
def test_the_table_has_finished_runs_only_with_students_interval(tmp_path: Path) -> None:
    for seed, last in ((1, 1.0), (2, 2.0)):
        write_run(tmp_path, seed, last)
    write_run(tmp_path, 3, 9.0, done=False)
    rows = study.summary(tmp_path)
    (trained,) = [r for r in rows if (r["player"], r["metric"]) == ("trained", "collisions")]
    assert trained["mean"] == 1.5
    assert trained["half_interval"] == pytest.approx(12.706 * 0.5, abs=1e-3)
    assert trained["values"] == "1.000 2.000"
    points = study.curves(tmp_path, rows)
    assert [(p["step"], p["mean"]) for p in points] == [(0, "0.1000"), (1000, "1.5000")]
    assert (tmp_path / "iql-predators.png").stat().st_size > 1000
