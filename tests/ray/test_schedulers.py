"""Schedulers: which runs ASHA stops, and how members of a population change."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from omg.integrations.ray.schedulers import Population, SweepAsha, scheduler_of
from omg.integrations.ray.search import trial_config
from omg.studies.sweep.plan import SweepPlan, plan_of


def plan(out: Path, **options: Any) -> SweepPlan:
    given = {"config": "iql", "env_config": "foraging", "samples": 4, **options}
    words = ["lr=loguniform:0.001,0.01", "gamma=choice:0.9,0.95,0.99"]
    return plan_of(options=given, words=words, out=str(out))


def trial(plan: SweepPlan, number: int, *, finished: bool = False) -> Any:
    config = trial_config(plan, plan.configurations[number], number, 1)
    return SimpleNamespace(
        trial_id=f"t{number}", config=config, is_finished=lambda: finished, evaluated_params={}
    )


def test_without_a_scheduler_tune_lets_every_run_go_to_its_end(tmp_path: Path) -> None:
    assert scheduler_of(plan(tmp_path), 1000) is None


def heard(scheduler: SweepAsha, controller: Any, one: Any, step: int, value: float) -> str:
    if one.trial_id not in scheduler._trial_info:
        scheduler.on_trial_add(controller, one)
    return scheduler.on_trial_result(controller, one, {"t_env": step, "test_return_mean": value})


def test_asha_stops_the_worse_half_at_a_rung_and_not_before(tmp_path: Path) -> None:
    wanted = plan(tmp_path, scheduler="asha", grace=100, reduction=2.0)
    scheduler = scheduler_of(wanted, 1000)
    controller = SimpleNamespace(get_trials=list)
    trials = [trial(wanted, number) for number in range(4)]
    for one, value in zip(trials, (4.0, 3.0, 2.0, 1.0), strict=True):
        assert heard(scheduler, controller, one, 50, value) == "CONTINUE"
    decisions = [
        heard(scheduler, controller, one, 100, value)
        for one, value in zip(trials, (4.0, 3.0, 2.0, 1.0), strict=True)
    ]
    # Each is compared with those that came to the rung before it.
    assert decisions == ["CONTINUE", "STOP", "STOP", "STOP"]
    assert heard(scheduler, controller, trials[0], 1000, 4.0) == "CONTINUE", "the end is the run's"


def test_a_restored_asha_remembers_runs_that_had_ended(tmp_path: Path) -> None:
    wanted = plan(tmp_path, scheduler="asha", grace=100, reduction=2.0)
    ended, running = trial(wanted, 0, finished=True), trial(wanted, 1)
    folder = tmp_path / "runs" / "000-s1"
    folder.mkdir(parents=True)
    records = [{"t_env": t, "test_return_mean": 9.0} for t in (0, 100, 200)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    known = SimpleNamespace(get_trials=lambda: [ended, running])
    assert heard(scheduler_of(wanted, 1000), known, running, 100, 1.0) == "STOP"
    unknown = SimpleNamespace(get_trials=lambda: [running])
    assert heard(scheduler_of(wanted, 1000), unknown, running, 100, 1.0) == "CONTINUE"


def test_a_member_keeps_its_folder_and_takes_settings_within_the_space(tmp_path: Path) -> None:
    wanted = plan(tmp_path, scheduler="pbt")
    scheduler = scheduler_of(wanted, 1000)
    assert isinstance(scheduler, Population)
    bad, good = trial(wanted, 0), trial(wanted, 3)
    for number, one in enumerate((bad, good)):
        one.config["index"] = number
    seen = set()
    for _ in range(200):
        config, _ = scheduler._get_new_config(bad, good)
        assert config["name"] == bad.config["name"]
        assert config["place"] == bad.config["place"]
        assert config["index"] == 0
        assert 0.001 <= config["settings"]["lr"] <= 0.01
        assert config["settings"]["gamma"] in (0.9, 0.95, 0.99)
        seen.add(config["settings"]["lr"])
    assert len(seen) > 10
    assert bad.config["settings"] == wanted.configurations[0], "nothing else is changed"


@pytest.mark.parametrize("seeds", ["1", "1:3"])
def test_a_population_deals_the_seeds_round(tmp_path: Path, seeds: str) -> None:
    wanted = plan(tmp_path, scheduler="pbt", seeds=seeds, samples=5)
    assert wanted.runs == 5
    dealt = [wanted.place(index)[1] for index in range(5)]
    assert dealt == ([1] * 5 if seeds == "1" else [1, 2, 3, 1, 2])
