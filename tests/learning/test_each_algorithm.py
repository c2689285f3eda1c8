"""Algorithms that need longer: each reaches a stated return on a small Foraging (best: 1.0 for a
team; beside scripted players about half the food is the agent's own). Run with `-m slow`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from omg.cli.train import train
from omg.experiment.output import read_metrics
from omg.opponents.pool import OpponentPool

from .test_small_foraging import QUIET, TASK

pytestmark = pytest.mark.slow

COOP = ["with", "env_args.key=Foraging-5x5-2p-1f-coop-v3", "env_args.max_episode_steps=25"]
TESTS = ["--test_nepisode=256", "--test_interval=5000", "--env-config=foraging"]


def best_return(words: Sequence[str], key: str) -> float:
    """The best test of a run."""
    folder = train([*words, *TESTS]).folder
    return max(float(row[key]) for row in read_metrics(folder / "metrics.jsonl") if key in row)


@pytest.mark.parametrize(
    ("alg", "words", "floor"),
    [
        ("iql_idv", ("--t_max=60000", "--lr=0.001", "--epsilon_anneal_time=15000"), 0.9),
        ("qtran", ("--t_max=80000", "--lr=0.001", "--epsilon_anneal_time=15000"), 0.8),
        # COMA's best actions lag behind what it samples.
        ("coma", ("--t_max=100000", "--test_greedy=False"), 0.7),
    ],
)
def test_a_team_learns(alg: str, words: tuple[str, ...], floor: float, tmp_path: Path) -> None:
    more = ["--common_reward=True", f"--local_results_path={tmp_path}", *QUIET, *TASK]
    assert best_return([f"--config={alg}", *words, *more], "test_return_mean") >= floor


@pytest.fixture(scope="module")
def helpers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Players that go to the food and wait there: who joins them gets half of it."""
    path = tmp_path_factory.mktemp("pools") / "scripts"
    pool = OpponentPool.create(path)
    pool.add_script("nearest_food")
    pool.add_script("nearest_food", noise=0.2)
    return path


# Half of the only food is the agent's, in every episode that both reach it in time.
AGENTS = {
    **dict.fromkeys(("d3qn", "d3qn_am", "d3qn_control", "d3qn_liam", "d3qn_oracle"), 0.42),
    **dict.fromkeys(("d3qn_meliba", "d3qn_types", "ppo_meliba", "ppo_types"), 0.42),
    **dict.fromkeys(("iql_am", "iql_liam"), 0.42),
    **dict.fromkeys(("ppo", "ppo_am", "ppo_liam", "ppo_control", "ppo_oracle"), 0.42),
    **dict.fromkeys(("d3qn_omg_event", "d3qn_omg_event_tuned", "d3qn_omg_tuned"), 0.42),
    "d3qn_omg_supervised": 0.42,
    **dict.fromkeys(("iql_omg_tuned", "ppo_omg_tuned"), 0.42),
    **dict.fromkeys(("d3qn_omg", "iql_omg", "ppo_omg"), 0.4),
}


@pytest.mark.parametrize("alg", AGENTS)
def test_an_agent_learns_to_join_the_others(alg: str, helpers: Path, tmp_path: Path) -> None:
    words = [f"--config={alg}", f"--opponent_pool={helpers}", f"--local_results_path={tmp_path}"]
    words += QUIET
    if "omg" in alg:
        prior = [
            "--learner=am_learner",
            "--run_name=prior",
            "--t_max=8000",
            "--test_interval=99999",
        ]
        train(
            [
                *words,
                *TESTS[-1:],
                *prior,
                "--prior_kl_weight=0.00001",
                "--updates_per_episode=4",
                "--prior_min_accuracy=0.8",
                *COOP,
            ]
        )
        words.append(f"--init_param_path={tmp_path / 'prior'}")
    steps = 20_000 if alg.startswith("ppo") else 10_000
    learned = [*words, f"--t_max={steps}", "--epsilon_anneal_time=5000", "--lr=0.001", *COOP]
    assert best_return(learned, "test_own_return_mean") >= AGENTS[alg]
