"""Worker processes: equal to one process, and every way of failing is noticed and cleaned up."""

import logging
import operator
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from omg.envs.check import CHECKS
from omg.envs.check_play import Subject
from omg.envs.serial import episode_seed
from omg.envs.spawned import shared_memory
from omg.envs.vector import SerialVectorEnv
from omg.envs.worker_process import WorkerFailedError
from omg.envs.workers import WorkerVectorEnv
from omg.types import OmgError, RunFailedError
from tests.unit.counter_game import CounterEnv

pytestmark = pytest.mark.long

CRASH = partial(operator.truediv, 1, 0)
HANG = partial(time.sleep, 1000)
EXIT = partial(os._exit, 3)
SEGFAULT = os.abort
ROOT = Path(__file__).parents[2]
SEED = 11


def counters(**faults):
    return partial(SerialVectorEnv, factory=partial(CounterEnv, **faults))


@contextmanager
def workers(factory, *, n_copies=4, n_workers=2, timeout=20.0, **options):
    env = WorkerVectorEnv(
        factory=factory, n_copies=n_copies, n_workers=n_workers, timeout=timeout, **options
    )
    try:
        yield env
    finally:
        env.close()


def stay(env):
    return np.ones((env.n_copies, env.spec.n_agents), np.int64)


def alive(pid):
    """Whether a process runs; a zombie that nobody has waited for is not running."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until_gone(pids, seconds=8.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(alive(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def no_new_memory(before):
    """Whether the shared memory is gone; other tests may briefly have some at the same time."""
    deadline = time.monotonic() + 10
    while not shared_memory_files() <= before:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def shared_memory_files():
    return {path.name for path in Path("/dev/shm").glob("psm_*")}


def assert_equal_steps(one, other):
    for key in ("obs", "state", "avail", "reward", "terminated", "truncated", "dropped"):
        np.testing.assert_array_equal(getattr(one, key), getattr(other, key))
    np.testing.assert_array_equal(one.info["solved"], other.info["solved"])
    assert (one.final is None) == (other.final is None)
    for key in ("copies", "obs", "state", "avail") if one.final is not None else ():
        np.testing.assert_array_equal(getattr(one.final, key), getattr(other.final, key))


def test_workers_give_exactly_what_one_process_gives():
    reference = counters()(n_copies=5, first_copy=3)
    with workers(counters(), n_copies=5, n_workers=2, first_copy=3) as env:
        assert env.spec == reference.spec
        first, expected = env.reset(SEED), reference.reset(SEED)
        np.testing.assert_array_equal(first.state, expected.state)
        generator = np.random.default_rng(0)
        view, ends = first, 0
        for _ in range(60):
            wish = np.where(view.avail, generator.random(view.avail.shape), -1)
            actions = wish.argmax(-1)
            view, expected = env.step(actions), reference.step(actions)
            assert_equal_steps(view, expected)
            ends += 0 if view.final is None else len(view.final.copies)
        assert ends > 10
        np.testing.assert_array_equal(env.restart().state, reference.restart().state)


@pytest.mark.parametrize("name", ["snapshot", "split copies", "unmodified arrays"])
def test_workers_keep_the_contract(name):
    factory = partial(WorkerVectorEnv, factory=counters(), n_workers=2)
    CHECKS[name](Subject(factory=factory, steps=20, seed=SEED))


def test_workers_compute_with_one_thread_and_without_torch():
    code = (
        "import sys, os; "
        "assert 'torch' not in sys.modules; assert os.environ['OMP_NUM_THREADS'] == '1'"
    )
    before = os.environ.get("OMP_NUM_THREADS")
    with workers(counters(fault=partial(exec, code), fault_step=1)) as env:
        env.reset(SEED)
        env.step(stay(env))
    assert os.environ.get("OMP_NUM_THREADS") == before


@pytest.mark.parametrize(("factory", "imported"), [("there", "False"), ("here", "True")])
def test_the_main_script_is_run_again_only_for_a_factory_it_defines(tmp_path, factory, imported):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script), factory],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.stdout.split(), done.stderr) == ([imported], "")


def test_no_shared_memory_has_a_name_while_workers_run():
    before = shared_memory_files()
    with workers(counters()) as env:
        env.reset(SEED)
        assert no_new_memory(before)


def test_a_crash_stops_the_run_with_worker_copies_and_traceback():
    with workers(counters(fault=CRASH, fault_copy=3)) as env:
        pids = env.worker_pids
        env.reset(SEED)
        env.step(stay(env))
        env.step(stay(env))
        with pytest.raises(WorkerFailedError, match=r"Worker 1 \(copies 2 to 3\)") as caught:
            env.step(stay(env))
        assert isinstance(caught.value, RunFailedError)
        assert "ZeroDivisionError" in str(caught.value)
        assert "in _run_fault" in caught.value.traceback
        assert list(caught.value.copies) == [2, 3]
        assert not any(alive(pid) for pid in pids)
        with pytest.raises(RunFailedError, match="shut down"):
            env.step(stay(env))


@pytest.mark.parametrize(
    ("fault", "words"), [(EXIT, "exit code 3"), (SEGFAULT, "killed by SIGABRT")]
)
def test_a_worker_that_dies_is_reported_with_its_end(fault, words):
    with workers(counters(fault=fault, fault_copy=0, fault_step=1)) as env:
        env.reset(SEED)
        with pytest.raises(WorkerFailedError, match=words) as caught:
            env.step(stay(env))
    assert ("_run_fault" in caught.value.traceback) == (fault is SEGFAULT)


def test_a_hanging_worker_is_reported_within_the_timeout_and_says_where_it_hangs():
    with workers(counters(fault=HANG, fault_copy=2, fault_step=1), timeout=1.0) as env:
        pids = env.worker_pids
        env.reset(SEED)
        begin = time.monotonic()
        with pytest.raises(WorkerFailedError, match="within 1 seconds") as caught:
            env.step(stay(env))
        assert time.monotonic() - begin < 5.0
        assert "_run_fault" in caught.value.traceback
        assert not any(alive(pid) for pid in pids)


def test_a_crash_in_reset_is_reported():
    with (
        workers(counters(fault=CRASH, fault_step=0)) as env,
        pytest.raises(WorkerFailedError, match="failed in reset: it raised ZeroDivisionError"),
    ):
        env.reset(SEED)


def test_a_crash_while_starting_is_reported_and_no_worker_is_left():
    with pytest.raises(WorkerFailedError, match=r"failed in start: it raised TypeError") as caught:
        WorkerVectorEnv(factory=partial(CounterEnv, 0), n_copies=2, n_workers=2)
    assert "n_copies" in caught.value.traceback


def test_a_hang_while_starting_is_reported():
    sleeping_for_1000_seconds = partial(SerialVectorEnv, factory=time.sleep)
    begin = time.monotonic()
    with pytest.raises(WorkerFailedError, match="failed in start: it did not answer within 2"):
        WorkerVectorEnv(
            factory=sleeping_for_1000_seconds,
            n_copies=1,
            n_workers=1,
            first_copy=1000,
            start_timeout=2.0,
        )
    assert time.monotonic() - begin < 8.0


def test_a_factory_that_cannot_be_sent_is_refused_with_the_remedy():
    with pytest.raises(OmgError, match=r"functools\.partial"):
        WorkerVectorEnv(factory=lambda **_: None, n_copies=1, n_workers=1)


def test_an_error_the_user_can_correct_arrives_as_it_is():
    with workers(counters()) as env:
        env.reset(SEED)
        env.step(stay(env))
        with pytest.raises(OmgError, match="middle of an episode") as caught:
            env.snapshot()
        assert not isinstance(caught.value, RunFailedError)
        env.restart()
        env.snapshot()


def test_a_killed_worker_is_replaced_and_only_its_copies_are_dropped(caplog):
    reference = counters()(n_copies=4, first_copy=0)
    with workers(counters(), on_failure="restart") as env:
        env.reset(SEED)
        reference.reset(SEED)
        env.step(stay(env))
        reference.step(stay(env))
        os.kill(env.worker_pids[1], signal.SIGKILL)
        with caplog.at_level(logging.WARNING):
            step, expected = env.step(stay(env)), reference.step(stay(env))
        assert "killed by SIGKILL" in caplog.text
        assert step.dropped.tolist() == [2, 3]
        assert step.final is None
        assert not step.reward[2:].any()
        np.testing.assert_array_equal(step.state[:2], expected.state[:2])
        next_episodes = counters()(n_copies=4, first_copy=0).reset_at(SEED, [0, 0, 1, 1])
        np.testing.assert_array_equal(step.state[2:], next_episodes.state[2:])
        for _ in range(30):
            assert env.step(stay(env)).dropped.size == 0


def test_a_crash_of_one_episode_does_not_come_again_after_the_restart(caplog):
    faults = {"fault": CRASH, "fault_seed": episode_seed(SEED, 1, 1), "fault_step": 2}
    with workers(counters(**faults), on_failure="restart") as env:
        env.reset(SEED)
        dropped = [env.step(stay(env)).dropped.tolist() for _ in range(40)]
        assert [copies for copies in dropped if copies] == [[0, 1]]
        assert env.restarts == 1
    assert "ZeroDivisionError" in caplog.text
    assert "in _run_fault" in caplog.text


def test_a_crash_in_the_first_reset_goes_on_with_the_next_episode():
    faults = {"fault": CRASH, "fault_seed": episode_seed(SEED, 0, 0), "fault_step": 0}
    with workers(counters(**faults), on_failure="restart") as env:
        first = env.reset(SEED)
        expected = counters()(n_copies=4, first_copy=0).reset_at(SEED, [1, 1, 0, 0])
        np.testing.assert_array_equal(first.state, expected.state)


def test_too_many_restarts_end_the_run():
    faults = {"fault": CRASH, "fault_copy": 0, "fault_step": 1}
    with workers(counters(**faults), on_failure="restart", max_restarts=2) as env:
        pids = env.worker_pids
        env.reset(SEED)
        env.step(stay(env))
        env.step(stay(env))
        with pytest.raises(WorkerFailedError, match="max_worker_restarts is 2"):
            env.step(stay(env))
        assert wait_until_gone(pids)


def test_a_snapshot_restores_into_new_workers_and_refuses_another_split():
    with workers(counters()) as env, workers(counters()) as other:
        env.reset(SEED)
        expected = env.restart()
        snapshot = env.snapshot()
        np.testing.assert_array_equal(other.restore(snapshot).state, expected.state)
        assert_equal_steps(env.step(stay(env)), other.step(stay(env)))
    with (
        workers(counters(), n_workers=1) as single,
        pytest.raises(OmgError, match="4 copies in 2 workers"),
    ):
        single.restore(snapshot)


def test_pictures_are_refused_without_harm_where_there_are_none():
    with workers(counters()) as env:
        env.reset(SEED)
        with pytest.raises(OmgError, match="draws no pictures"):
            env.render(3)
        env.step(stay(env))


def test_closing_twice_is_harmless_and_leaves_no_process():
    with workers(counters()) as env:
        pids = env.worker_pids
        env.close()
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
        env.close()


def test_a_forgotten_environment_is_closed_with_its_last_reference():
    env = WorkerVectorEnv(factory=counters(), n_copies=2, n_workers=1)
    pids = env.worker_pids
    del env
    assert wait_until_gone(pids)


SCRIPT = """
import functools, sqlite3, sys
from tests.unit.counter_game import CounterEnv
from omg.envs.vector import SerialVectorEnv
from omg.envs.workers import WorkerVectorEnv

class Here(CounterEnv):
    pass

if __name__ == "__main__":
    show = functools.partial(exec, "import sys; print('sqlite3' in sys.modules, flush=True)")
    game = Here if sys.argv[1] == "here" else CounterEnv
    game = functools.partial(game, fault=show, fault_step=0)
    factory = functools.partial(SerialVectorEnv, factory=game)
    env = WorkerVectorEnv(factory=factory, n_copies=1, n_workers=1)
    env.reset(0)
    env.close()
"""

PROGRAM = """
import functools, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell ignores it
import numpy as np
from tests.unit.counter_game import CounterEnv
from omg.envs.vector import SerialVectorEnv
from omg.envs.workers import WorkerVectorEnv

fault = functools.partial(time.sleep, 1000) if sys.argv[1] == "busy" else None
game = functools.partial(CounterEnv, fault=fault, fault_step=5)
env = WorkerVectorEnv(
    factory=functools.partial(SerialVectorEnv, factory=game), n_copies=4, n_workers=2
)
env.reset(0)
print(*env.worker_pids, flush=True)
while True:
    env.step(np.ones((4, 2), np.int64))
"""


@contextmanager
def program(mode):
    """A Python program, in its own process group, that steps workers until it is stopped."""
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, mode],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=ROOT,
    )
    try:
        yield child, [int(pid) for pid in child.stdout.readline().split()]
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("mode", ["stepping", "busy"])
def test_ctrl_c_ends_the_program_and_its_workers(mode):
    with program(mode) as (child, pids):
        assert len(pids) == 2
        time.sleep(0.3)
        os.killpg(child.pid, signal.SIGINT)
        _, errors = child.communicate(timeout=15)
        assert wait_until_gone(pids)
    assert errors.count("KeyboardInterrupt") == 1
    assert "resource_tracker" not in errors


@pytest.mark.parametrize("mode", ["stepping", "busy"])
def test_killing_the_program_leaves_no_worker_and_no_memory_behind(mode):
    before = shared_memory_files()
    with program(mode) as (child, pids):
        assert len(pids) == 2
        time.sleep(0.3)
        child.kill()
        assert wait_until_gone(pids)
        _, errors = child.communicate(timeout=15)
    assert errors == ""
    assert no_new_memory(before)


def test_an_exception_in_the_program_leaves_no_worker_behind():
    code = PROGRAM.replace("while True:", "raise SystemExit(7)\nwhile True:")
    done = subprocess.run(
        [sys.executable, "-c", code, "stepping"],
        capture_output=True,
        text=True,
        timeout=30,
        cwd=ROOT,
    )
    assert done.returncode == 7
    assert done.stderr == ""
    assert not any(alive(int(pid)) for pid in done.stdout.split())


def test_shared_memory_larger_than_the_system_gives_is_refused_before_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = {"RLIMIT_FSIZE": 4096}
    monkeypatch.setattr(
        "resource.getrlimit", lambda which: (limits["RLIMIT_FSIZE"], limits["RLIMIT_FSIZE"])
    )
    wanted = {"what": "what the game shows", "remedy": "Lower batch_size_run."}
    shared_memory(None, 4096, **wanted).unlink()
    with pytest.raises(OmgError, match=r"takes 4.0 KiB, and the limit of a file's size .* Lower"):
        shared_memory(None, 4097, **wanted)
    limits["RLIMIT_FSIZE"] = 2**62
    with pytest.raises(OmgError, match=r"this machine has .* Lower batch_size_run"):
        shared_memory(None, 2**61, **wanted)
    monkeypatch.setattr("os.statvfs", lambda path: SimpleNamespace(f_bavail=1, f_frsize=4096))
    with pytest.raises(OmgError, match="/dev/shm has room for"):
        shared_memory(None, 8192, **wanted)
