"""Whole runs: reproducible, resumable, and with the same number of updates for every runner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from omg.cli.train import train
from omg.experiment.output import read_metrics
from omg.storage.files import load_tensors

pytestmark = pytest.mark.long

SMALL = [
    *("--config=qmix", "--env-config=foraging", "--t_max=1500", "--batch_size=8"),
    *("--test_nepisode=6", "--test_interval=500", "--batch_size_run=4", "--quiet"),
    *("--runner_log_interval=200", "--learner_log_interval=200", "--use_tensorboard=False"),
    *("--use_sacred=False", "--save_model_interval=700", "--resume_interval=500"),
    *("--rnn_hidden_dim=16", "with", "env_args.key=Foraging-5x5-2p-1f-v3"),
    "env_args.max_episode_steps=15",
]


def run(folder: Path, *words: str) -> Path:
    return Path(train([*SMALL, f"--local_results_path={folder}", *words]).folder)


def records(run_folder: Path) -> list[dict[str, Any]]:
    found = read_metrics(run_folder / "metrics.jsonl")
    return [{k: v for k, v in r.items() if k != "wall_s"} for r in found]


def weights(run_folder: Path, name: str = "last") -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = load_tensors(run_folder / "models" / name / "agent.th")
    return state


def assert_same_run(one: Path, other: Path) -> None:
    assert records(one) == records(other)
    mine, theirs = weights(one), weights(other)
    assert all(torch.equal(mine[key], theirs[key]) for key in mine)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("reference"), "--run_name=reference")


def test_the_same_seed_gives_the_same_run_and_another_seed_another(
    reference: Path, tmp_path: Path
) -> None:
    assert_same_run(reference, run(tmp_path))
    assert records(reference) != records(run(tmp_path, "--seed=2"))


def test_testing_more_often_does_not_change_training(reference: Path, tmp_path: Path) -> None:
    often = run(tmp_path, "--test_interval=100", "--test_nepisode=3")
    training = [[r for r in records(path) if "loss" in r] for path in (reference, often)]
    assert training[0] == training[1]


def test_a_run_stopped_and_resumed_equals_one_that_never_stopped(
    reference: Path, tmp_path: Path
) -> None:
    half = run(tmp_path, "--t_max=1000", "--run_name=half")
    # The shorter run also tested and logged at its own end, so compare what came after it.
    words = ["--resume", "--run_name=half", "--t_max=1500"]
    assert run(tmp_path, *words) == half
    after = [[r for r in records(path) if r["t_env"] > 1200] for path in (half, reference)]
    assert after[0] == after[1]
    assert len(after[0]) >= 3
    assert all(torch.equal(weights(half)[k], weights(reference)[k]) for k in weights(half))


def test_a_run_killed_without_warning_resumes_to_the_same_result(
    reference: Path, tmp_path: Path
) -> None:
    words = [*SMALL, f"--local_results_path={tmp_path}", "--run_name=killed"]
    slow = "import omg.experiment.training as t, time; old = t.TrainingLoop._step\n"
    slow += "t.TrainingLoop._step = lambda self: (time.sleep(0.004), old(self))\n"
    slow += "import sys; from omg.cli.train import main; sys.exit(main(sys.argv[1:]))"
    process = subprocess.Popen([sys.executable, "-c", slow, *words])
    deadline = time.monotonic() + 120
    while not (tmp_path / "killed" / "resume" / "1000").is_dir():
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert records(tmp_path / "killed")[-1]["t_env"] < 1500
    assert_same_run(run(tmp_path, "--resume", "--run_name=killed"), reference)


@pytest.mark.parametrize("runner", ["episode", "batch", "parallel"])
def test_every_runner_makes_one_update_per_episode_after_the_first_batch(
    runner: str, tmp_path: Path
) -> None:
    folder = run(tmp_path, f"--runner={runner}", "--t_max=400", "--test_interval=100000")
    last = [r for r in records(folder) if "updates" in r][-1]
    # Updates begin when the 8th episode has arrived; a step may bring several episodes at once.
    assert last["episodes"] - last["updates"] in range(4, 12)
    assert last["updates"] > 5


@pytest.mark.parametrize(("rate", "expected"), [(0.5, 0.5), (3, 3.0)])
def test_updates_per_episode_is_what_it_says(rate: float, expected: float, tmp_path: Path) -> None:
    folder = run(tmp_path, f"--updates_per_episode={rate}", "--t_max=600")
    last = [r for r in records(folder) if "updates" in r][-1]
    assert last["updates"] / (last["episodes"] - 8) == pytest.approx(expected, rel=0.12)


def test_best_and_last_models_and_their_description_are_kept(reference: Path) -> None:
    assert {"best", "last", "700", "1400"} <= {p.name for p in (reference / "models").iterdir()}
    meta = json.loads((reference / "models" / "last" / "meta.json").read_text())
    assert meta["algorithm"] == "qmix"
    assert meta["shapes"] == {"n_agents": 2, "n_actions": 6, "obs_dim": 9, "state_dim": 9}
    assert meta["policy"]["obs_is_state"] is False
    tests = [r for r in records(reference) if "test_return_mean" in r]
    best = max(tests, key=lambda r: r["test_return_mean"])
    first_best = next(r for r in tests if r["test_return_mean"] == best["test_return_mean"])
    best_meta = json.loads((reference / "models" / "best" / "meta.json").read_text())
    assert best_meta["env_steps"] == first_best["t_env"]


def test_a_loaded_checkpoint_plays_like_the_run_that_saved_it(
    reference: Path, tmp_path: Path
) -> None:
    result = train(
        [
            *(*SMALL, f"--local_results_path={tmp_path}", "--evaluate", "--save_replay"),
            *(f"--checkpoint_path={reference}", "--replay_episodes=1"),
        ]
    )
    torch.testing.assert_close(
        weights(reference, "1500"), weights(reference, "last"), atol=0, rtol=0
    )
    assert (result.folder / "replays" / "episode_0.svg").is_file()
    assert 0.0 <= result.metrics["test_return_mean"] <= 1.0


def test_training_goes_on_from_a_checkpoint_with_its_optimiser(
    reference: Path, tmp_path: Path
) -> None:
    folder = run(tmp_path, f"--checkpoint_path={reference}", "--load_step=700", "--t_max=40")
    # Too short to train: the weights are those that were loaded, and were not re-initialised.
    mine, theirs = weights(folder), weights(reference, "700")
    assert all(torch.equal(mine[key], theirs[key]) for key in mine)


@pytest.mark.parametrize("words", [["--policy_model=mlp", "--dueling"], ["--obs_is_state"]])
@pytest.mark.parametrize("selector", ["epsilon_greedy", "multinomial", "soft_policies"])
def test_options_run_together(words: list[str], selector: str, tmp_path: Path) -> None:
    folder = run(tmp_path, *words, f"--action_selector={selector}", "--t_max=300")
    assert any("loss" in r for r in records(folder))
