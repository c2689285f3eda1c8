"""What Tune is given to try, one after the other, and what it is told."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from ray.tune.search import Searcher

from omg.integrations.ray.search import OptunaPlannedSearch, PlannedSearch, open_study
from omg.studies.sweep.outcome import read_chosen
from omg.studies.sweep.plan import SweepPlan, plan_of


def plan(out: Path, **options: Any) -> SweepPlan:
    given = {"config": "iql", "env_config": "foraging", "seeds": "1:2", **options}
    words = ["lr=loguniform:0.0001,0.01", "gamma=choice:0.9,0.99"]
    found = plan_of(options=given, words=words, out=str(out))
    found.write()
    return found


def finish(search: PlannedSearch, trial: str, value: float) -> None:
    result = {"test_return_mean": value, "status": "finished"}
    search.on_trial_complete(trial, result)


def test_planned_runs_come_in_their_order_and_then_it_is_finished(tmp_path: Path) -> None:
    wanted = plan(tmp_path, samples=3)
    search = PlannedSearch(wanted)
    given = [search.suggest(f"t{i}") for i in range(6)]
    assert [one["name"] for one in given if one] == [
        f"{n:03d}-s{s}" for n in range(3) for s in (1, 2)
    ]
    assert [one["settings"] for one in given if one] == [
        c for c in wanted.configurations for _ in range(2)
    ]
    assert search.suggest("t6") == Searcher.FINISHED


def test_a_restored_search_goes_on_where_it_was(tmp_path: Path) -> None:
    wanted = plan(tmp_path, samples=3)
    search = PlannedSearch(wanted)
    for i in range(3):
        search.suggest(f"t{i}")
    search.save(str(tmp_path / "state"))
    again = PlannedSearch(wanted)
    again.restore(str(tmp_path / "state"))
    assert again.suggest("t3") == search.suggest("t3")


def test_optuna_hears_the_mean_over_the_seeds(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    wanted = plan(tmp_path, samples=3, search="optuna")
    search = OptunaPlannedSearch(wanted)
    first, second = search.suggest("a"), search.suggest("b")
    assert first is not None
    assert second is not None
    assert first["settings"] == second["settings"], "both seeds have the same settings"
    assert 0.0001 <= first["settings"]["lr"] <= 0.01
    assert first["settings"]["gamma"] in (0.9, 0.99)
    finish(search, "a", 1.0)
    assert not open_study(wanted).trials[0].state.is_finished()
    finish(search, "b", 3.0)
    assert open_study(wanted).trials[0].value == 2.0


def test_optuna_moves_towards_what_was_good(tmp_path: Path) -> None:
    """The score falls with the distance of log lr from -3; the last draws lie nearer than the
    first."""
    pytest.importorskip("optuna")
    wanted = plan(tmp_path, samples=40, search="optuna", seeds="1")
    search = OptunaPlannedSearch(wanted)
    distances = []
    for i in range(40):
        given = search.suggest(f"t{i}")
        assert given is not None
        distances.append(abs(math.log10(given["settings"]["lr"]) + 3))
        finish(search, f"t{i}", -distances[-1])
    assert sum(distances[-15:]) / 15 < 0.7 * sum(distances[:10]) / 10


def test_optunas_choices_survive_a_driver_that_was_killed(tmp_path: Path) -> None:
    """The state that Tune has is older than the runs that were begun: they are found again."""
    pytest.importorskip("optuna")
    wanted = plan(tmp_path, samples=3, search="optuna", seeds="1")
    search = OptunaPlannedSearch(wanted)
    search.save(str(tmp_path / "old"))
    begun = [search.suggest("a"), search.suggest("b")]
    again = OptunaPlannedSearch(wanted)
    again.restore(str(tmp_path / "old"))
    assert [again.suggest("c"), again.suggest("d")] == begun
    assert len(read_chosen(tmp_path)) == 2
    finish(again, "c", 1.0)
    finish(again, "c", 1.0)  # heard again after one more restart
    assert [t.value for t in open_study(wanted).trials] == [1.0, None]


def test_a_configuration_whose_runs_all_failed_has_no_score_for_optuna(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    wanted = plan(tmp_path, samples=2, search="optuna", seeds="1")
    search = OptunaPlannedSearch(wanted)
    search.suggest("a")
    search.on_trial_complete("a", {"test_return_mean": 0.5, "status": "failed"})
    assert open_study(wanted).trials[0].state.name == "FAIL"
