"""A run that goes on from the state of another with other settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import omg
from omg.experiment.fork import copy_state, fork_run
from omg.studies.sweep.plan import PERTURBABLE

pytestmark = pytest.mark.long
SHORT: dict[str, Any] = {
    "env_args": {"key": "Foraging-5x5-2p-1f-v3"},
    "batch_size_run": 4,
    "batch_size": 4,
    "test_nepisode": 2,
    "test_interval": 200,
    "resume_interval": 200,
    "use_sacred": False,
    "use_tensorboard": False,
    "quiet": True,
}


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run stopped at step 400 of 800."""
    root = tmp_path_factory.mktemp("parent")
    run = omg.train("iql", "foraging", t_max=400, local_results_path=root, run_name="a", **SHORT)
    copy_state(run.folder, root / "copy")
    return root / "copy"


def trained_on(parent: Path, target: Path, **changes: Any) -> dict[str, torch.Tensor]:
    fork_run(parent, target, changes)
    run = omg.train(resume=str(target), t_max=800)
    found: dict[str, torch.Tensor] = torch.load(
        run.folder / "models" / "last" / "agent.th", weights_only=True
    )
    return found


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


def test_a_fork_without_changes_equals_the_run_that_went_on(parent: Path, tmp_path: Path) -> None:
    lies = {"local_results_path": str(tmp_path), "run_name": "a"}
    first = omg.train("iql", "foraging", t_max=400, **lies, **SHORT)
    went_on = omg.train(resume=str(first.folder), t_max=800)
    weights = torch.load(went_on.folder / "models" / "last" / "agent.th", weights_only=True)
    assert same(trained_on(parent, tmp_path / "fork"), weights)
    mine = (tmp_path / "fork" / "metrics.jsonl").read_text().splitlines()
    theirs = (went_on.folder / "metrics.jsonl").read_text().splitlines()
    assert [_timeless(line) for line in mine] == [_timeless(line) for line in theirs]


def _timeless(line: str) -> dict[str, Any]:
    return {key: value for key, value in json.loads(line).items() if key != "wall_s"}


def test_a_changed_learning_rate_takes_effect(parent: Path, tmp_path: Path) -> None:
    """With a rate of nearly nothing the weights stay as they were."""
    before = torch.load(parent / "resume" / "400" / "state.pt", weights_only=True)
    agent = before["learner"]["networks"]["agent"]
    after = trained_on(parent, tmp_path / "still", lr=1e-30)
    assert same(after, dict(agent))
    assert not same(trained_on(parent, tmp_path / "moves"), dict(agent))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("gamma", 0.5),
        ("grad_norm_clip", 0.01),
        ("target_update_interval", 1),
        ("epsilon_finish", 0.9),
        ("optim_eps", 0.1),
    ],
)
def test_keys_that_pbt_may_change_take_effect(
    key: str, value: float, parent: Path, tmp_path: Path
) -> None:
    assert key in PERTURBABLE
    plain = trained_on(parent, tmp_path / "plain")
    assert not same(trained_on(parent, tmp_path / "changed", **{key: value}), plain)


def test_a_fork_says_where_it_comes_from(parent: Path, tmp_path: Path) -> None:
    trained_on(parent, tmp_path / "fork", lr=0.01)
    known = json.loads((tmp_path / "fork" / "run.json").read_text())
    origin = json.loads((parent / "run.json").read_text())
    assert known["parents"] == [{"run": origin["id"], "env_steps": 400, "changes": {"lr": 0.01}}]
    assert known["id"] != origin["id"]
    assert len(known["sessions"]) == 2
