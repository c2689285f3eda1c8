"""Interrupted, misled and refused runs: what was saved stays, and a sentence says what to do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import omg
from omg.envs.foraging.env import ForagingEnv
from omg.types import RunFailedError, TimeStep

SMALL = {
    "env_args": {"key": "Foraging-5x5-2p-1f-v3", "max_episode_steps": 6},
    "t_max": 24,
    "batch_size": 2,
    "test_nepisode": 2,
    "rnn_hidden_dim": 8,
    "resume_interval": 12,
    "quiet": True,
    "use_sacred": False,
    "use_tensorboard": False,
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for name in ("qmix", "iql"):
        omg.train(name, "foraging", run_name=name, local_results_path=str(folder), **SMALL)
    return folder


@pytest.fixture
def runs(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "runs"))


def state_of(run: Path) -> Path:
    (found,) = run.glob("resume/*/state.pt")
    return found


def files_of(run: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in run.rglob("*") if p.is_file()}


# --- resume states -------------------------------------------------------------------------------


def damaged_states(runs: Path) -> dict[str, Any]:
    good = torch.load(state_of(runs / "qmix"), weights_only=True)
    other = torch.load(state_of(runs / "iql"), weights_only=True)
    return {
        "empty": {},
        "incomplete": {k: v for k, v in good.items() if k != "buffer"},
        "another algorithm": other,
        "wrong types": {**good, "counters": [1, 2]},
        "wrong counters": {**good, "counters": {"steps": 3}},
        "no mapping": [1],
    }


@pytest.mark.parametrize(
    "kind",
    ["empty", "incomplete", "another algorithm", "wrong types", "wrong counters", "no mapping"],
)
def test_a_state_that_is_not_this_runs_is_refused_and_overwrites_nothing(
    runs: Path, kind: str
) -> None:
    run = runs / "qmix"
    torch.save(damaged_states(runs)[kind], state_of(run))
    before = files_of(run)
    with pytest.raises(omg.OmgError) as refused:
        omg.train(resume=run, t_max=48)
    assert "checkpoint_path" in str(refused.value)
    assert files_of(run) == before


# --- signals -------------------------------------------------------------------------------------


def test_a_closed_terminal_is_an_interruption_like_others(tmp_path: Path) -> None:
    words = [f"--{k}={v}" for k, v in SMALL.items() if k not in ("env_args", "t_max", "use_sacred")]
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "omg", "train", "--config=iql", "--env-config=foraging"),
            *(*words, "--t_max=100000000", "--run_name=long", "--local_results_path=."),
            *("with", "env_args.key=Foraging-5x5-2p-1f-v3", "env_args.max_episode_steps=6"),
        ],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("long/resume/*/state.pt")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGHUP)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert "interrupted" in told
    assert "--resume=" in told
    (record,) = tmp_path.glob("sacred/*/run.json")
    assert '"INTERRUPTED"' in record.read_text()


# --- environments that end the program -----------------------------------------------------------


class Quitting(ForagingEnv):
    """Leaves after a few steps, as a script with `sys.exit` would."""

    def step(self, actions: Any) -> TimeStep:
        if os.environ.get("QUIT", "") == "now":
            sys.exit(3)
        return super().step(actions)


@pytest.mark.parametrize("runner", ["batch", "episode", "parallel"])
def test_an_environment_that_ends_the_program_is_a_failure_with_a_sentence(
    runner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUIT", "now")
    settings = {**SMALL, "local_results_path": str(tmp_path), "runner": runner, "n_workers": 1}
    with pytest.raises(RunFailedError, match=r"SystemExit"):
        omg.train("iql", env=Quitting, **settings)
