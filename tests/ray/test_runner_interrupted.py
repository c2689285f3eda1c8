"""A run with actors that is stopped by Ctrl-C or SIGTERM leaves its state and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="these tests need the extra: pip install 'omg-marl[ray]'")
pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
# A shell in the background ignores Ctrl-C, and so would what it starts.
OMG = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from omg.cli.app import main
main()
"""
WORDS = [
    *("train", "--config=iql", "--env-config=foraging", "--runner=ray", "--n_workers=2"),
    *("--batch_size_run=2", "--test_batch_size_run=1", "--test_nepisode=1", "--run_name=stopped"),
    *("--use_sacred=False", "--use_tensorboard=False", "--runner_log_interval=50"),
]


def descendants(pid: int) -> set[int]:
    """All processes that a process and its children have started, and that live."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            parents[int(entry.name)] = int(fields[1])
    found: set[int] = set()
    frontier = {pid}
    while frontier := {child for child, parent in parents.items() if parent in frontier} - found:
        found |= frontier
    return found


def wait_for(done: object, seconds: float) -> bool:
    assert callable(done)
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.parametrize(
    "how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_stopped_run_saves_its_state_and_leaves_no_process_and_no_folder(
    how: signal.Signals, tmp_path: Path
) -> None:
    words = [*WORDS, f"--local_results_path={tmp_path}"]
    process = subprocess.Popen(
        [sys.executable, "-c", OMG, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        metrics = tmp_path / "stopped" / "metrics.jsonl"
        assert wait_for(lambda: metrics.is_file() and metrics.stat().st_size > 0, 120)
        started = descendants(process.pid)
        assert len(started) >= 8  # Ray's own, actors and games
        if how is signal.SIGINT:
            os.killpg(process.pid, how)  # as a terminal does
        else:
            process.send_signal(how)
        output, _ = process.communicate(timeout=90)
    finally:
        process.kill()
    assert process.returncode == 130, output
    assert "Continue with --resume" in output
    assert list((tmp_path / "stopped" / "resume").glob("[0-9]*/state.pt"))
    assert wait_for(lambda: not any(map(alive, started)), 15)
    assert not list(Path(tempfile.gettempdir()).glob(f"omg-ray-{process.pid}-*"))


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
