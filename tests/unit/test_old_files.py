"""Runs and pools written by version 0.1.0 at commit 25ca129 load, play and go on as they did there.

`tests/data/version-0.1.0.tar.xz` holds a QMIX team, a prior, an OMG agent and a pool, each of 40
steps on a small Foraging, and under `expected/` the weights after that version continued the runs
to 80 steps.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
import torch

import omg
from omg.storage.files import load_tensors

ARCHIVE = Path(__file__).parents[1] / "data" / "version-0.1.0.tar.xz"


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_goes_on_to_the_weights_of_the_version_that_began_it(old: Path) -> None:
    run = omg.train(resume="results/qmix", t_max=80)
    (weights,) = (run.folder / "models" / "last").rglob("agent.th")
    expected = load_tensors(old / "expected" / "qmix" / "agent.th")
    found = load_tensors(weights)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-4, atol=1e-5)
    assert run.metrics["episodes"] > 10


def test_a_run_that_draws_subgoals_goes_on_with_the_draws_of_today(old: Path) -> None:
    """Noise is made by key since then, so its weights become others."""
    before = load_tensors(old / "expected" / "iql_omg" / "agent.th")
    run = omg.train(resume="results/iql_omg", t_max=80)
    (weights,) = (run.folder / "models" / "last").rglob("agent.th")
    found = load_tensors(weights)
    assert found.keys() == before.keys()
    for key, value in before.items():  # one update or two from the same state
        torch.testing.assert_close(found[key], value, rtol=0, atol=0.02)
    assert run.metrics["episodes"] > 10


def test_agents_and_pool_of_an_older_version_play(old: Path) -> None:
    team = omg.Run("results/qmix")
    assert team.agent().act(team.make_env().reset(0)).shape == (1, 2)
    table = omg.evaluate("results/iql_omg", "pool", split="both", episodes=4)
    assert {row["opponent"] for row in table.rows()} == {
        *("qmix-40", "ippo-40", "script-nearest_food-0.1", "script-random-0")
    }


def test_a_prior_and_a_pool_of_an_older_version_train_an_agent(old: Path) -> None:
    like = omg.Run("results/iql_omg").config.as_dict()
    changed = {"run_name": "new", "t_max": 24, "quiet": True}
    run = omg.train("iql_omg", "foraging", **{**like, **changed})
    assert run.config.init_param_path == "results/prior"
    pool = omg.Pool.open("pool")
    pool.add_run(run.folder)
    assert {m.run for m in pool.members()} >= {"qmix", "ippo", "new"}
