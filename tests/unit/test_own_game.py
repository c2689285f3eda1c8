"""`omg evaluate <any run>`: nothing but the run is needed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import omg
from omg.cli.app import app
from omg.evaluation.own_game import OwnGame

pytestmark = pytest.mark.long
CLI = CliRunner()
SMALL = {
    "t_max": 60,
    "batch_size": 2,
    "batch_size_run": 3,
    "test_nepisode": 2,
    "quiet": True,
    "rnn_hidden_dim": 16,
    "am_hidden_dim": 16,
    "use_sacred": False,
    "use_tensorboard": False,
}
TASK = {"key": "Foraging-5x5-2p-1f-v3", "max_episode_steps": 8}


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> omg.Run:
    folder = tmp_path_factory.mktemp("teams")
    return omg.train("qmix", "two_step", run_name="t", local_results_path=str(folder), **SMALL)


def test_a_team_is_evaluated_by_its_folder_alone(team: omg.Run) -> None:
    agent, env = team.agent(), team.make_env()
    view, total, steps = env.reset(0), 0.0, 0
    while True:  # the game and the greedy team are deterministic
        view = env.step(agent.act(view))
        total, steps = total + float(view.reward[0].mean()), steps + 1
        if view.terminated[0] or view.truncated[0]:
            break
    found = omg.evaluate(team, episodes=7)
    assert isinstance(found, OwnGame)
    assert found.episodes == 7
    assert found.metrics["return"].mean == pytest.approx(total)
    assert found.metrics["return"].std == pytest.approx(0.0, abs=1e-6)
    assert found.metrics["ep_length"].mean == steps
    assert found.others == ()


def test_the_command_prints_and_writes_what_came_of_a_team(team: omg.Run) -> None:
    done = CLI.invoke(app, ["evaluate", str(team.folder), "--episodes=5"])
    assert done.exit_code == 0, done.output
    assert "Its policy plays every seat." in done.output
    assert max(map(len, done.output.splitlines()[1:-1])) <= 80
    written = json.loads((team.folder / "evaluation" / "own_game.json").read_text())
    assert written["episodes"] == 5
    assert f"{written['metrics']['return']['mean']:.3f}" in done.output


def test_a_test_with_other_episodes_differs_and_the_same_seed_does_not(tmp_path: Path) -> None:
    run = omg.train("iql", "foraging", local_results_path=str(tmp_path), env_args=TASK, **SMALL)
    one, same, other = (
        omg.evaluate(run, episodes=40, seed=seed, sample=True) for seed in (1, 1, 2)
    )
    assert one.rows() == same.rows()
    assert one.rows() != other.rows()
    rows = {row["metric"]: row["mean"] for row in one.rows()}
    assert rows["return"] == pytest.approx(rows["agent_0_return"] + rows["agent_1_return"])


def test_a_policy_is_sampled_unless_greedy_is_asked_for(tmp_path: Path) -> None:
    run = omg.train("ippo", "two_step", local_results_path=str(tmp_path), **SMALL)
    assert [
        omg.evaluate(run, episodes=4, **how).greedy
        for how in ({}, {"greedy": True}, {"sample": True})
    ] == [False, True, False]
    with pytest.raises(omg.OmgError, match="not both"):
        omg.evaluate(run, episodes=4, greedy=True, sample=True)


def test_options_about_opponents_are_refused_where_there_are_none(team: omg.Run) -> None:
    with pytest.raises(omg.OmgError, match="so split, permute would have no effect"):
        omg.evaluate(team, split="both", permute=True)
    for words, told in (
        (["--lineup=mixed"], "lineup would have no effect"),
        (["--replays=2"], "replays would have no effect"),
        (["--episodes=0"], "episodes=0 is too few"),
    ):
        done = CLI.invoke(app, ["evaluate", str(team.folder), *words])
        assert done.exit_code == 2
        assert told in done.output


def test_an_agent_of_a_pool_meets_unseen_opponents_also_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pool = omg.Pool.create("pool")
    pool.add_script("nearest_food")
    run = omg.train(
        "iql_am", "foraging", opponent_pool="pool", run_name="a", env_args=TASK, **SMALL
    )
    folder = run.folder.resolve()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    seen = omg.evaluate(folder, episodes=4)
    assert {cell.split for cell in seen.cells} == {"train"}
    done = CLI.invoke(app, ["evaluate", str(folder), "--episodes=4"])
    assert "the pool has no unseen opponents" in done.output
    omg.Pool.open(tmp_path / "pool").add_script("random", split="heldout")
    unseen = omg.evaluate(folder, episodes=4)
    assert [cell.opponent for cell in unseen.cells] == ["script-random-0"]
    assert np.isfinite(unseen.cells[0].metrics["own_return"])


def test_an_agent_of_a_team_string_plays_among_its_team(tmp_path: Path) -> None:
    iql = omg.train(
        "iql", "foraging", run_name="iql", local_results_path=str(tmp_path), env_args=TASK, **SMALL
    )
    run = omg.train(
        "1iql1iql_am",
        "foraging",
        multi_algs=True,
        train_alg="iql_am",
        init_param_path=str(iql.folder.parent),
        local_results_path=str(tmp_path),
        env_args=TASK,
        **SMALL,
    )
    found = omg.evaluate(run, episodes=6)
    assert isinstance(found, OwnGame)
    assert len(found.others) == 1
    assert "own_return" in found.metrics
