"""Whole runs on the stand-in, as a user starts them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import omg.cli.train
from omg.experiment.output import read_metrics

from .sc2_game import standin  # noqa: F401 - a fixture

pytestmark = pytest.mark.long

SHORT = (
    *("--t_max=150", "--test_interval=100", "--test_nepisode=2", "--torch_threads=1"),
    *("--batch_size=2", "--runner_log_interval=50", "--use_tensorboard=False"),
    *("--use_sacred=False", "--run_name=it", "--local_results_path=results"),
)


@pytest.fixture
def train(
    standin: Any,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Any:
    """Runs a command line in a folder of its own; gives what was printed."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> str:
        code = omg.cli.train.main(words)
        told = capfd.readouterr()
        assert code == 0, told.err
        return told.out + told.err

    return call


def column(run: Path, name: str) -> list[float]:
    return [record[name] for record in read_metrics(run / "metrics.jsonl") if name in record]


@pytest.mark.parametrize(
    "words",
    [
        ("--env-config=sc2",),
        ("--env-config=sc2_beta", "--runner=parallel", "--batch_size_run=2", "--n_workers=2"),
        ("--env-config=smacv2",),
    ],
)
def test_qmix_trains_and_logs_the_win_rate(
    train: Any, tmp_path: Path, words: tuple[str, ...]
) -> None:
    assert "StarCraft II 4.10.75689" in train("--config=qmix", *words, *SHORT)
    run = tmp_path / "results" / "it"
    assert json.loads((run / "versions.json").read_text())["StarCraft II"] == "4.10.75689"
    for name in ("test_battle_won_mean", "battle_won_mean", "test_dead_allies_mean", "loss"):
        assert column(run, name), name
    assert all(0 <= value <= 1 for value in column(run, "test_battle_won_mean"))


def test_a_run_survives_games_that_hang_and_crash_and_logs_it(
    train: Any,
    standin: Any,  # noqa: F811
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    standin.faults["step"] = {90: "hang", 120: "break", 150: "crash"}
    train("--config=vdn", "--env-config=sc2", *SHORT, "--env_args.timeout_seconds=0.3")
    for reason in ("did not answer within 0.3 seconds", "connection broke", "crashed in step"):
        assert reason in caplog.text
    run = tmp_path / "results" / "it"
    assert max(column(run, "restarts_mean") + column(run, "test_restarts_mean")) > 0


def test_a_game_that_never_works_ends_the_run_with_exit_code_1(
    standin: Any,  # noqa: F811
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    standin.faults["observe"] = dict.fromkeys(range(1, 99), "crash")
    words = ("--config=vdn", "--env-config=sc2", *SHORT[:-1], f"--local_results_path={tmp_path}")
    assert omg.cli.train.main(words) == 1
    assert "StarCraft II (map 3m) failed 6 times in a row" in capsys.readouterr().err


def test_an_evaluation_has_the_game_save_its_replays(train: Any, tmp_path: Path) -> None:
    words = ("--config=iql", "--env-config=sc2", *SHORT)
    train(*words)
    again = ("--checkpoint_path=results/it", "--evaluate", "--save_replay", "--run_name=again")
    train(*words, *again, "--replay_episodes=1", "with", "env_args.replay_dir=mine")
    assert [path.suffix for path in (tmp_path / "mine").iterdir()] == [".SC2Replay"]
    assert (tmp_path / "results" / "again" / "versions.json").is_file()


def test_an_agent_with_the_others_places_trains_on_the_state_of_smac(train: Any) -> None:
    team = ("--config=2iql1iql_am", "--multi_algs", "--train_alg=iql_am", "--am_model=control_am")
    train("--config=iql", "--env-config=sc2", *SHORT)
    models = Path("results/it/models/last")
    pretrained = Path("trained/iql")
    pretrained.mkdir(parents=True)
    for file in models.iterdir():
        file.rename(pretrained / file.name)
    train(*team, "--env-config=sc2", *SHORT, "--run_name=team", "--init_param_path=trained")
