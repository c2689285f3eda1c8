"""Whole runs on Stag Hunt and Snowdrift: every algorithm trains, alone and against scripts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from omg.cli.train import train
from omg.opponents.pool import OpponentPool

from .small_learners import SMALL
from .small_runs import assert_sound, records, saved

pytestmark = pytest.mark.long

SHORT = [
    *(word for word in SMALL if not word.startswith("--env-config")),
    *("--batch_size=2", "--batch_size_run=4", "--quiet", "--oracle_steps=2", "--test_nepisode=2"),
    *("--test_interval=100000", "--use_tensorboard=False", "--use_sacred=False"),
    *("--runner_log_interval=20", "--learner_log_interval=20", "--prior_min_accuracy=0"),
    *("--save_model_interval=100000", "--target_update_interval=4"),
]
TASK = ["with", "env_args.size=4", "env_args.max_episode_steps=8"]
TEAMS = ("iql", "vdn", "qmix", "ippo", "mappo", "coma", "qtran", "iql_idv")
MODELS = ("", "_am", "_liam", "_control", "_oracle")
SCRIPTS = {
    "stag_hunt": ("stag", "nearest_hare", "waits_3", "joins"),
    "snowdrift": ("nearest_drift", "free_rider", "late"),
}


def run(folder: Path, config: str, env: str, *more: str, steps: int = 160) -> Path:
    """A whole run; its folder."""
    name = "-".join([config, env, *(word.strip("-").replace("/", "_")[-20:] for word in more)])
    words = [f"--config={config}", f"--env-config={env}", *SHORT, f"--t_max={steps}"]
    words += [f"--local_results_path={folder}", f"--run_name={name}", *more, *TASK]
    return Path(train(words).folder)


def check(folder: Path, learned: Sequence[str], statistic: str) -> None:
    """Something was learned, all of it finite; the game's statistics were logged."""
    assert_sound(folder)
    names = {name for record in records(folder) for name in record}
    assert set(learned) & names
    assert f"{statistic}_mean" in names
    assert all(bool(value.isfinite().all()) for value in saved(folder).values())


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    for env, names in SCRIPTS.items():
        found[env] = tmp_path_factory.mktemp("pools") / env
        pool = OpponentPool.create(found[env])
        for name in names:
            pool.add_script(name, env=env, noise=0.1)
    return found


@pytest.mark.parametrize("env", ["stag_hunt", "snowdrift"])
@pytest.mark.parametrize("config", TEAMS)
def test_teams_train(tmp_path: Path, config: str, env: str) -> None:
    folder = run(tmp_path, config, env)
    check(folder, ["loss", "pg_loss"], "stags" if env == "stag_hunt" else "drifts")


@pytest.mark.parametrize("config", ["iql", "ippo"])
def test_a_team_with_a_common_reward_trains_without_a_mixer(tmp_path: Path, config: str) -> None:
    folder = run(tmp_path, config, "stag_hunt", "--common_reward=True")
    check(folder, ["loss", "pg_loss"], "hares")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("host", ["d3qn", "ppo"])
def test_one_agent_trains_against_scripts(
    tmp_path: Path, pools: dict[str, Path], host: str, model: str
) -> None:
    folder = run(tmp_path, host + model, "stag_hunt", f"--opponent_pool={pools['stag_hunt']}")
    check(folder, ["loss", "pg_loss"], "stags")


@pytest.mark.parametrize("config", ["d3qn_omg", "d3qn_omg_tuned", "ppo_omg"])
def test_omg_trains_from_its_prior_on(tmp_path: Path, pools: dict[str, Path], config: str) -> None:
    pool = f"--opponent_pool={pools['stag_hunt']}"
    prior = run(tmp_path, config, "stag_hunt", pool, "--learner=am_learner", steps=60)
    folder = run(tmp_path, config, "stag_hunt", pool, f"--init_param_path={prior}")
    check(folder, ["loss", "pg_loss"], "hares")


def test_the_oracle_is_told_the_goals_of_snow_clearers(
    tmp_path: Path, pools: dict[str, Path]
) -> None:
    pool = f"--opponent_pool={pools['snowdrift']}"
    folder = run(tmp_path, "ppo_oracle", "snowdrift", pool, "--oracle_kind=target")
    check(folder, ["pg_loss"], "drifts")


def test_a_resumed_run_with_leavers_equals_one_that_never_stopped(
    tmp_path: Path, pools: dict[str, Path]
) -> None:
    given = ("d3qn_liam", "stag_hunt", f"--opponent_pool={pools['stag_hunt']}", "--run_name=r")
    whole = run(tmp_path / "one", *given, steps=80)
    run(tmp_path / "two", *given, steps=40)
    resumed = run(tmp_path / "two", *given, "--resume", steps=80)
    one, other = saved(whole), saved(resumed)
    assert one.keys() == other.keys()
    assert all(bool((one[name] == other[name]).all()) for name in one)
