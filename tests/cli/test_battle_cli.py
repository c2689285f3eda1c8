"""Bad input for battles, as it is typed: exit code 2, one line, what is wrong and what to do."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import omg.cli.train
from omg.cli.app import app
from omg.envs import check
from omg.opponents.pool import OpponentPool

from ..unit.test_sc2_config import SHAPES

pytestmark = pytest.mark.long

BASE = (
    *("--env-config=battle", "--t_max=60", "--batch_size=2", "--batch_size_run=2"),
    *("--test_nepisode=2", "--use_sacred=False", "--use_tensorboard=False", "--quiet"),
)


def refused(code: int, told: str, *parts: str) -> None:
    assert code == 2, told
    (line,) = told.strip().splitlines()
    assert line.startswith("omg: ")
    for part in parts:
        assert part in line


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("map_name=8mm",), ("no map called '8mm'", "Nearest: 8m")),
        (("map_name=8",), ("no map called '8'", "Nearest: 8m")),
        (("map_name=mmm",), ("no map called 'mmm'", "Nearest: MMM, MMM2.")),
        (("map_name=foo",), ("no map called 'foo'. Choose one of: 3m, 8m",)),
        (("map_name=",), ("no map called ''", "Choose one of: 3m, 8m")),
        (("difficulty=B",), ("difficulty='B' is not possible", "1, 2, 3")),
        (("difficulty=[1]",), ("'difficulty' is [1]", "valid string")),
        (("reward_scale_rate=-20",), ("'reward_scale_rate' is -20", "greater than 0")),
        (("step_mul=fast",), ("'step_mul' is 'fast'", "valid integer")),
        (("reward_sparse=maybe",), ("'reward_sparse' is 'maybe'", "valid boolean")),
        (("map_nam=8m",), ("no argument 'map_nam'", "did you mean 'map_name'?")),
        (("unavailable=skip",), ("'unavailable' is 'skip'", "'error' or 'noop'")),
        (("enemies=seats", "difficulty=3"), ("enemies=seats there is none", "Leave difficulty")),
        (
            ("obs_instead_of_state=true", "state_timestep_number=true"),
            ("state_timestep_number=true shows nothing", "obs_timestep_number=true instead"),
        ),
        (("reward_win=-500",), ("is worth -335", "reward_scale=false")),
    ],
)
def test_bad_arguments_of_a_battle_are_refused(
    words: tuple[str, ...],
    parts: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    typed = ["--config=iql", *BASE, f"--local_results_path={tmp_path}", "with"]
    code = omg.cli.train.main([*typed, *(f"env_args.{word}" for word in words)])
    refused(code, capsys.readouterr().err, *parts)
    assert not list(tmp_path.iterdir()), "a refused run leaves a folder"


@pytest.mark.parametrize(
    ("words", "one"),
    [
        (("--config=qmix", "--env-config=battle_both"), "ally"),
        (("--config=coma", "--env-config=battle", "--env_args.enemies=seats"), "ally"),
        (("--config=vdn", "--env-config=predator_prey"), "predator"),
        (("--config=iql", "--env-config=battle_both", "--common_reward=True"), "ally"),
    ],
)
def test_opponents_do_not_learn_the_sum_of_their_rewards(
    words: tuple[str, ...], one: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = omg.cli.train.main([*BASE[1:], *words, f"--local_results_path={tmp_path}"])
    parts = (f"adds up the rewards of {one} and ", f"--learning_role={one}", "--config=iql")
    refused(code, capsys.readouterr().err, *parts)
    assert not list(tmp_path.iterdir()), "a refused run leaves a folder"


@pytest.mark.parametrize("value", ["[1]", "8m"])
def test_arguments_that_are_no_mapping_are_refused(
    value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = omg.cli.train.main(["--config=iql", *BASE, f"--env_args={value}"])
    refused(code, capsys.readouterr().err, "env_args=", "Expected: a mapping")


def test_a_team_that_does_not_fill_the_map_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (*BASE, f"--local_results_path={tmp_path}")
    assert omg.cli.train.main(["--config=iql", *words, "--run_name=iql"]) == 0
    capsys.readouterr()
    team = ["--config=4iql1iql_am", "--multi_algs", f"--init_param_path={tmp_path}", *words]
    code = omg.cli.train.main([*team, "with", "env_args.map_name=8m"])
    parts = ("The team 4iql1iql_am has 5 seats, but the environment has 8", "Change the counts")
    refused(code, capsys.readouterr().err, *parts)
    team[0] = "--config=7iql1iql_am"
    code = omg.cli.train.main([*team, "with", "env_args.map_name=8m"])
    parts = ("inputs of width 42", "this environment gives 102", "Use the environment")
    refused(code, capsys.readouterr().err, *parts)
    # A run of 3m is not continued, nor its weights played, on another map.
    again = ["--config=iql", *words, f"--resume={tmp_path / 'iql'}"]
    code = omg.cli.train.main([*again, "with", "env_args.map_name=8m"])
    refused(code, capsys.readouterr().err, "env_args", "start a new run")
    again[-1] = f"--checkpoint_path={tmp_path / 'iql'}"
    code = omg.cli.train.main([*again, "--evaluate", "with", "env_args.map_name=8m"])
    refused(code, capsys.readouterr().err, "does not fit this run", "use the same")


def test_a_script_is_added_by_the_name_of_either_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["pool", "add", "P", "--script=kite", "--env=battle_both"]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0, answer.output
    (member,) = OpponentPool.open(tmp_path / "P").members()
    assert member.env == "battle"


def test_all_maps_are_checked_and_their_sizes_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(check, "check_batched_env", partial(check.check_batched_env, steps=3))
    answer = CliRunner().invoke(app, ["envs", "check", "battle", "--all-maps"])
    assert answer.exit_code == 0, answer.output
    for name, (agents, _, actions, obs, state, _) in SHAPES.items():
        sizes = f"{agents} agents, {actions} actions, obs {obs}, state {state}"
        assert re.search(rf"{name} +\S ok \S {sizes} ", answer.stdout), name
    assert answer.stdout.count(" ok ") == len(SHAPES) == 23


def test_a_map_that_breaks_the_contract_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(factory: Any) -> list[check.CheckResult]:
        env = factory(n_copies=1, first_copy=0)
        return [check.CheckResult("sizes", env.spec.name != "2s3z", "too many")]

    monkeypatch.setattr(check, "check_batched_env", checked)
    answer = CliRunner().invoke(app, ["envs", "check", "battle", "--all-maps"])
    assert "sizes: too many" in answer.stdout
    refused(answer.exit_code, answer.stderr, "breaks the contract on: 2s3z.")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("pool", "add", "P", "--script=atack_nearest", "--env=battle"), ("'attack_nearest'?",)),
        (("pool", "add", "P", "--script=nearest_food", "--env=battle"), ("scripted soldier",)),
        (("envs", "play", "battle", "--policy=focus_fir"), ("did you mean 'focus_fire'?",)),
        (("envs", "play", "battle", "with", "map_name=8mm"), ("Nearest: 8m",)),
        (("envs", "check", "battle", "with", "map_name=9m"), ("Nearest: 8m",)),
        (("envs", "check", "battle", "--all-maps", "with", "map_name=8m"), ("map_name names one",)),
        (("envs", "check", "battle", "--all-maps", "--env_args.map_name=8m"), ("names one",)),
        (("envs", "info", "battle", "with", "map_name=zz"), ("Choose one of: 3m",)),
        (
            ("envs", "play", "battle", "--policy=kite", "with", "obs_instead_of_state=true"),
            ("Scripted soldiers read the state", "Set it to false"),
        ),
    ],
)
def test_commands_about_battles_refuse_names_that_do_not_exist(
    words: tuple[str, ...],
    parts: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = CliRunner().invoke(app, list(words))
    refused(answer.exit_code, answer.stderr, *parts)
