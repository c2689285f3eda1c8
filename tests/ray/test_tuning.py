"""What a sweep asks of the machines, and what it finds of an earlier call."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from omg.integrations.ray.cluster import Node
from omg.integrations.ray.tuning import TUNE, _can_restore, _check_room, cores_of
from omg.studies.sweep.plan import SweepPlan, plan_of
from omg.types import OmgError


def plan(*words: str, **options: Any) -> SweepPlan:
    given = {"config": "iql", "env_config": "foraging", **options}
    return plan_of(options=given, words=["lr=grid:0.1,0.2", *words], out="out")


def test_a_run_is_given_the_cores_of_its_busiest_configuration() -> None:
    assert cores_of(plan()) == 1
    assert cores_of(plan("torch_threads=grid:3,2")) == 3
    assert cores_of(plan("--runner=parallel", "n_workers=grid:1,3", "--collect_ahead=1")) == 5
    assert cores_of(plan("--torch_threads=2", cpus=0.5)) == 0.5


def test_cores_and_gpus_that_no_machine_has_are_refused() -> None:
    nodes = [Node("a", "a", 8.0), Node("b", "b", 2.0, 1.0)]
    there: Any = SimpleNamespace(nodes=lambda: nodes)
    _check_room(plan(gpus=0.5), there, 2.0)
    with pytest.raises(OmgError, match="takes 9 cores, and no machine has more than 8"):
        _check_room(plan(), there, 9.0)
    with pytest.raises(OmgError, match=r"takes 2 GPUs and 1 cores.*GPUs of one: 1 at most.*Lower"):
        _check_room(plan(gpus=2), there, 1.0)
    with pytest.raises(OmgError, match="no machine has both"):
        _check_room(plan(gpus=1), there, 4.0)


def test_a_sweep_that_ended_before_tune_noted_a_trial_begins_again(tmp_path: Path) -> None:
    folder = tmp_path / TUNE
    assert not _can_restore(folder)
    folder.mkdir()
    (folder / "tuner.pkl").touch()
    assert not _can_restore(folder)
    for trials, known in ([], False), ([["one", "two"]], True):
        state = json.dumps({"trial_data": trials})
        (folder / f"experiment_state-2026-{len(trials)}.json").write_text(state)
        assert _can_restore(folder) is known
