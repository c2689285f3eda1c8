"""Adapted environments in whole runs, and the example of an environment of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import omg.cli.train
from omg.cli.app import app
from omg.envs.registry import make_batched
from omg.experiment.output import read_metrics
from tests.unit.foreign_games import HUNT

pytestmark = pytest.mark.long

EXAMPLES = Path(__file__).parents[2] / "examples"
SHORT = (
    *("--batch_size_run=4", "--batch_size=4", "--buffer_size=16", "--test_nepisode=2"),
    *("--test_interval=1000", "--learner_log_interval=1", "--use_sacred=False"),
    *("--use_tensorboard=False", "--save_model=False", "--resume_interval=0", "--run_name=run"),
)


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """`python main.py …` in this process: exit code, error, metrics."""

    def call(*words: str) -> tuple[int, str, list[Any]]:
        capsys.readouterr()
        code = omg.cli.train.main([*words, *SHORT, f"--local_results_path={tmp_path}"])
        metrics = tmp_path / "run" / "metrics.jsonl"
        return code, capsys.readouterr().err, read_metrics(metrics) if metrics.is_file() else []

    return call


@pytest.mark.parametrize(
    ("alg", "env", "words"),
    [
        ("qmix", "pettingzoo", ["--env_args.max_cycles=5"]),
        ("ippo", "pettingzoo", ["--env_args.key=mpe2:simple_tag_v3", "--env_args.max_cycles=5"]),
        ("iql", "gymma", ["--env_args.key=lbforaging:Foraging-5x5-2p-1f-v3"]),
        ("vdn", "gymnasium", ["--env_args.key=CartPole-v1", "--env_args.time_limit=8"]),
        ("qmix", "pymarl", []),
    ],
)
def test_a_short_run_learns_from_an_adapted_environment(
    alg: str, env: str, words: list[str], run: Any
) -> None:
    limit = [] if env != "gymma" else ["--env_args.time_limit=6"]
    code, err, metrics = run(f"--config={alg}", f"--env-config={env}", "--t_max=60", *words, *limit)
    assert (code, err) == (0, "")
    assert any("loss" in key for record in metrics for key in record), metrics


@pytest.mark.parametrize(
    ("spoil", "words"),
    [("nan reward", "(agent prey_0)"), ("nan observation", "(agent prey_0, entry 1)")],
)
def test_a_value_that_is_not_finite_ends_the_run_before_anything_is_learned(
    spoil: str, words: str, run: Any
) -> None:
    code, err, metrics = run(
        *("--config=iql", "--env-config=pettingzoo", "--t_max=200"),
        *(f"--env_args.key={HUNT}", f"--env_args.spoil={spoil}"),
    )
    assert code == 1
    assert f"{HUNT} (copy 0, step 3) contain nan {words}" in err
    assert not any("loss" in key for record in metrics for key in record)


def test_the_example_of_an_own_environment_keeps_the_contract(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    answer = CliRunner().invoke(app, ["envs", "check", "my_env:MyEnv"])
    assert answer.exit_code == 0, answer.output
    assert "FAILED" not in answer.output
    assert make_batched("pymarl", {"key": "my_env:MyEnv"}, n_copies=1).spec.name == "meet"


def test_the_example_of_an_own_environment_can_be_trained_on(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    code, err, _ = run(
        *("--config=vdn", "--env=my_env:MyEnv", "--t_max=100"), "--env_args.step_cost=0.01"
    )
    assert (code, err) == (0, "")
