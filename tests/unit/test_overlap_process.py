"""The collector as a process: equal to one in a thread, and every way of ending is cleaned up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import omg.experiment.run
from omg.config.schema import Config
from omg.experiment.training import TrainingLoop
from omg.runners.overlap import CollectorProcess
from omg.runners.overlap.collector import CollectorFailedError

from .small_runs import assert_same, records
from .test_worker_env import alive, no_new_memory, shared_memory_files, wait_until_gone
from .threaded_collector import SETTINGS, SMALL, run, use_threads

pytestmark = pytest.mark.long

FAULTY = """
import multiprocessing, os, time
from tests.unit.counter_game import CounterEnv

class Faulty(CounterEnv):
    def __init__(self, copy=0, fault=""):
        faults = {"hang": lambda: time.sleep(1000), "abort": os.abort}
        # In the collector only: the run itself tests with copies of its own.
        here = multiprocessing.parent_process() is not None
        super().__init__(copy, fault=faults[fault] if here else None)
"""


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        use_threads(patch)
        return run(tmp_path_factory.mktemp("reference"), "--collect_ahead=1")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[CollectorProcess]:
    """The collectors that runs start."""
    found: list[CollectorProcess] = []

    def start(config: Config) -> CollectorProcess:
        found.append(CollectorProcess(config))
        return found[-1]

    monkeypatch.setattr(omg.experiment.run, "CollectorProcess", start)
    return found


def at_step(env_steps: int, action: Callable[[], object]) -> Callable[[TrainingLoop], None]:
    step = TrainingLoop._step

    def acting(loop: TrainingLoop) -> None:
        step(loop)
        if loop.counters.env_steps >= env_steps:
            action()

    return acting


@pytest.mark.parametrize("runner", ["batch", "parallel"])
def test_a_process_gives_the_same_run_as_a_thread_and_leaves_nothing_behind(
    runner: str, reference: Path, tmp_path: Path, started: list[CollectorProcess]
) -> None:
    before = shared_memory_files()
    assert_same(reference, run(tmp_path, "--collect_ahead=1", f"--runner={runner}"))
    assert len(started) == 1
    assert not alive(started[0].pid)
    assert no_new_memory(before)


def test_a_collector_that_is_killed_ends_the_run_which_continues_to_the_same_result(
    reference: Path,
    tmp_path: Path,
    started: list[CollectorProcess],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ("--collect_ahead=1", "--run_name=killed")
    with monkeypatch.context() as patch:
        kill = at_step(450, lambda: os.kill(started[0].pid, signal.SIGKILL))
        patch.setattr(TrainingLoop, "_step", kill)
        with pytest.raises(
            CollectorFailedError, match=r"was killed by SIGKILL.*--resume"
        ) as caught:
            run(tmp_path, *words)
    assert caught.value.exit_code == 1
    assert records(tmp_path / "killed")[-1]["t_env"] < 700
    assert_same(reference, run(tmp_path, *words, "--resume"))


@pytest.mark.parametrize(
    ("fault", "message"),
    [("hang", r"made no step for 2 seconds"), ("abort", r"was killed by SIGABRT")],
)
def test_a_game_that_hangs_or_crashes_is_reported_with_where_it_was(
    fault: str,
    message: str,
    tmp_path: Path,
    started: list[CollectorProcess],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "faulty_game.py").write_text(FAULTY)
    monkeypatch.syspath_prepend(tmp_path)
    game = ["--env-config=pymarl", "--env_args.key=faulty_game:Faulty", f"--env_args.fault={fault}"]
    with pytest.raises(CollectorFailedError, match=message) as caught:
        run(
            tmp_path,
            *("--collect_ahead=1", "--worker_timeout=2"),
            small=["--config=vdn", *game, *SETTINGS],
        )
    assert "in _run_fault" in str(caught.value)
    assert not alive(started[0].pid)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A script without `if __name__ == "__main__"`, which a new process must not run again."""
    words = [*SMALL, "--collect_ahead=1", "--t_max=100000000", "--run_name=long"]
    words += [f"--local_results_path={tmp_path}"]
    path = tmp_path / "script.py"
    path.write_text(f"import sys\nfrom omg.cli.train import main\nsys.exit(main({words!r}))\n")
    return path


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    found = [int(word) for word in text.split()]
    return [c for c in found if b"spawn_main" in Path(f"/proc/{c}/cmdline").read_bytes()]


def begun(script: Path) -> tuple[subprocess.Popen[str], int]:
    """The run of a script that has written a resume state, and its collector's process."""
    process = subprocess.Popen(
        [sys.executable, script], start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while not list(script.parent.glob("long/resume/*/state.pt")):
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (collector,) = children(process.pid)
    return process, collector


def test_a_batch_system_that_ends_all_processes_leaves_a_run_that_continues(script: Path) -> None:
    process, collector = begun(script)
    os.kill(collector, signal.SIGTERM)  # as a batch system does to all processes of a job
    os.kill(process.pid, signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted. Continue with --resume=" in errors
    assert wait_until_gone([collector])


def test_a_collector_does_not_outlive_a_run_that_is_killed(script: Path) -> None:
    process, collector = begun(script)
    process.kill()
    process.wait()
    assert wait_until_gone([collector])
