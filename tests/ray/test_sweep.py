"""Whole sweeps: killed, interrupted, on nodes that die; every run equals the one made alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.sweep_on_a_small_cluster import (
    RATES,
    SETTINGS,
    differences,
    play,
    sessions,
    start_sweep,
    training,
    wait_for,
)
from omg.integrations.ray.tuning import check_metric
from omg.studies.sweep.marks import read_mark
from omg.studies.sweep.plan import plan_of
from omg.types import OmgError

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[2]


@pytest.fixture
def _ctrl_c() -> Iterator[None]:
    """A shell in the background ignores Ctrl-C, and so would what it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A folder for temporary files that nobody else uses, with a short path."""
    folder = Path("/tmp") / f"omgs{os.getpid()}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def ended(out: Path) -> list[str]:
    marks = sorted((out / "trials").glob("*.json"))
    return [m.stem for m in marks if read_mark(out, m.stem).get("status") == "finished"]


def processes_of(*words: str) -> list[str]:
    """Command lines of processes, other than this one, that hold any of these words."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
        except OSError:
            continue
        if process.name != str(os.getpid()) and any(word in line for word in words):
            found.append(line[:200])
    return found


def gone(*words: str, seconds: float = 30.0) -> bool:
    deadline = time.monotonic() + seconds
    while left := processes_of(*words):
        if time.monotonic() > deadline:
            raise AssertionError(f"still there: {left}")
        time.sleep(0.1)
    return True


@pytest.mark.usefixtures("_ctrl_c")
@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_sweep_that_is_interrupted_and_killed_loses_nothing_and_does_nothing_twice(
    jobs: int, tmp_path: Path, short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the first session leaves no process and no folder; the second is killed; the
    third ends. Weights equal those of the same runs made alone."""
    monkeypatch.setenv("TMPDIR", str(short_tmp))
    out, steps = tmp_path / "sweep", 3000
    names = [f"{number:03d}-s{s}" for number in range(len(RATES)) for s in range(1, jobs + 1)]

    first = start_sweep(out, f"--jobs={jobs}", runs=len(names), steps=steps)
    wait_for("runs at work", lambda: len(training(out)) == jobs, first)
    wait_for("a state", lambda: any((out / "runs").glob("*/resume/*")), first)
    os.killpg(first.pid, signal.SIGINT)  # as a terminal does: to all of its processes
    assert first.wait(120) == 130
    assert gone(str(short_tmp), str(out), seconds=5)
    assert list(short_tmp.glob("omg-*")) == []

    resume = [sys.executable, "-m", "omg", "sweep", "--resume", f"--out={out}", f"--jobs={jobs}"]
    second = subprocess.Popen(resume, start_new_session=True)
    wait_for("a finished run", lambda: bool(ended(out)), second)
    wait_for("a run under way", lambda: bool(training(out)), second)
    second.kill()
    second.wait()
    assert gone(str(short_tmp), f"{out}/runs"), "runs end when their worker does"
    done_before = {name: sessions(out, name) for name in ended(out)}
    assert done_before

    third = subprocess.run(resume, capture_output=True, text=True, check=False)
    assert third.returncode == 0, third.stderr
    assert ended(out) == names
    assert {name: sessions(out, name) for name in done_before} == done_before
    assert differences(out, tmp_path / "alone", steps=steps, runs=len(names)) == []
    assert list(short_tmp.glob("omg-ray-*")) == [], "that of the killed one is removed as well"
    rows = (out / "sweep.csv").read_text().splitlines()
    assert len(rows) == 1 + len(names)
    assert "Train the best again: omg train" in third.stdout


def test_a_worker_and_a_node_die_and_all_runs_equal_those_made_alone(tmp_path: Path) -> None:
    """A smaller one of examples/sweep_on_a_small_cluster.py."""
    assert play(tmp_path, nodes=2, runs=4, steps=3000) == []


@pytest.mark.slow
def test_eight_runs_over_three_nodes(tmp_path: Path) -> None:
    assert play(tmp_path, nodes=3, runs=8, steps=6000) == []


def sweep(out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    settings = [f"--{k}={v}" for k, v in SETTINGS.items() if k != "env_args"]
    key = f"--env_args.key={SETTINGS['env_args']['key']}"
    command = [sys.executable, "-m", "omg", "sweep", "--config=iql", "--env-config=foraging"]
    return subprocess.run(
        [*command, *settings, key, f"--out={out}", "--jobs=2", *words],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_asha_and_optuna_end_and_stopped_runs_are_said_to_be(tmp_path: Path) -> None:
    out = tmp_path / "asha"
    words = ("lr=loguniform:0.00001,0.01", "--search=optuna", "--scheduler=asha", "--samples=6")
    done = sweep(out, *words, "--t_max=4000", "--grace=1000", "--reduction=2")
    assert done.returncode == 0, done.stderr
    states = [read_mark(out, f"{number:03d}-s1").get("status") for number in range(6)]
    assert set(states) <= {"finished", "stopped"}
    assert "finished" in states


@pytest.mark.slow
def test_a_population_exchanges_states_and_settings(tmp_path: Path) -> None:
    out = tmp_path / "pbt"
    words = ("lr=loguniform:0.00001,0.01", "--scheduler=pbt", "--samples=4", "--perturb=2000")
    done = sweep(out, *words, "--t_max=8000", "--cpus=0.5")
    assert done.returncode == 0, done.stderr
    known = [json.loads(path.read_text()) for path in (out / "runs").glob("*/run.json")]
    assert len(known) == 4
    assert any("parents" in run for run in known), "somebody took over a state"


def test_a_metric_that_no_test_logs_is_refused_with_those_that_are(tmp_path: Path) -> None:
    def plan(metric: str) -> Any:
        given = {"config": "iql", "env_config": "foraging", "metric": metric}
        return plan_of(options=given, words=["lr=grid:0.1"], out=str(tmp_path / "out"))

    with pytest.raises(OmgError, match=r"test_retrun_mean is not logged .* did you mean 'test_ret"):
        check_metric(plan("test_retrun_mean"))
    with pytest.raises(OmgError, match=r"loss is not logged by the tests .* They log"):
        check_metric(plan("loss"))
    assert check_metric(plan("test_food_collected_mean")) == 1_000_000
    assert not (tmp_path / "out").exists()
