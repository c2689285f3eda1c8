"""Environments in Ray actors: the episodes of one process, and every way of failing is noticed."""

from __future__ import annotations

import contextlib
import logging
import operator
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from omg.cli.train import train
from omg.config.loader import load_command_line
from omg.envs.registry import make_batched
from omg.envs.vector import SerialVectorEnv
from omg.envs.worker_process import WorkerFailedError
from omg.envs.workers import WorkerVectorEnv
from omg.experiment.training import RunInterrupted, TrainingLoop
from omg.runners import runner_of
from omg.runners.assembly import worker_count
from omg.storage.files import load_tensors
from omg.types import OmgError, RunFailedError, TimeStep
from tests.unit.counter_game import CounterEnv

ray = pytest.importorskip("ray", reason="these tests need the extra: pip install 'omg-marl[ray]'")

from omg.integrations.ray.bench import Bench  # noqa: E402
from omg.integrations.ray.workers import RayPlace  # noqa: E402

pytestmark = pytest.mark.long

CRASH = partial(operator.truediv, 1, 0)
HANG = partial(time.sleep, 1000)
SEED = 11
GAMES = {
    "foraging": ["env_args.key=Foraging-5x5-2p-1f-v3", "env_args.max_episode_steps=6"],
    "stag_hunt": ["env_args.max_episode_steps=9"],
    "battle": ["env_args.map_name=3m"],
}


@pytest.fixture(scope="module", autouse=True)
def _ray_here() -> Iterator[None]:
    """Ray on this machine, which says that it has four cores."""
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        object_store_memory=100_000_000,
        logging_level=logging.ERROR,
        log_to_driver=False,
        configure_logging=False,
    )
    yield
    ray.shutdown()


def configured(*words: str) -> Any:
    return load_command_line(["--config=iql", "--runner=ray", "--n_workers=2", *words]).config


@contextmanager
def actors(*, timeout: float = 20.0, **options: Any) -> Iterator[WorkerVectorEnv]:
    """Four copies of the counting game in two actors."""
    faults = {key: options.pop(key) for key in list(options) if key.startswith("fault")}
    place = RayPlace(Bench(address="", cpus=1.0, patience=30.0))
    place.bench.reserve(2)
    env = WorkerVectorEnv(
        factory=counters(**faults),
        n_copies=4,
        n_workers=2,
        timeout=timeout,
        place=place,
        **options,
    )
    try:
        yield env
    finally:
        env.close()
    assert free_cpus() == 4.0


def counters(**faults: Any) -> Any:
    return partial(SerialVectorEnv, factory=partial(CounterEnv, **faults))


def free_cpus() -> float:
    """Once Ray has noticed what was given back."""
    deadline = time.monotonic() + 10
    while (free := ray.available_resources().get("CPU", 0.0)) < 4 and time.monotonic() < deadline:
        time.sleep(0.1)
    return float(free)


def stay(env: WorkerVectorEnv) -> Any:
    return np.ones((env.n_copies, env.spec.n_agents), np.int64)


def assert_equal(one: Any, other: Any) -> None:
    """Two views, rewards and ends included, to the last bit."""
    keys = ["obs", "state", "avail", "alive"]
    if isinstance(one, TimeStep):
        keys += ["reward", "terminated", "truncated", "dropped", "reached"]
        assert one.info.keys() == other.info.keys()
        for name in one.info:
            np.testing.assert_array_equal(one.info[name], other.info[name])
        assert (one.final is None) == (other.final is None)
        if one.final is not None:
            assert_equal(one.final, other.final)
            np.testing.assert_array_equal(one.final.copies, other.final.copies)
    for key in keys:
        np.testing.assert_array_equal(getattr(one, key), getattr(other, key), err_msg=key)


@pytest.mark.parametrize(
    "game", ["foraging", pytest.param("stag_hunt", marks=pytest.mark.slow), "battle"]
)
def test_actors_give_exactly_what_one_process_gives(game: str) -> None:
    """One that restarts often, one that agents leave, and one in C."""
    config = configured(f"--env-config={game}", "--batch_size_run=3", "with", *GAMES[game])
    here = make_batched(config.env, config.env_args, n_copies=3)
    there = runner_of(config).copies(3)
    ends = 0
    try:
        assert there.spec == here.spec
        for seed in (1, 2, 3):
            mine, theirs = here.reset(seed), there.reset(seed)
            generator = np.random.default_rng(seed)
            for _ in range(50):
                assert_equal(mine, theirs)
                wish = np.where(mine.avail, generator.random(mine.avail.shape), -1)
                mine, theirs = here.step(wish.argmax(-1)), there.step(wish.argmax(-1))
                ends += 0 if mine.final is None else len(mine.final.copies)
            assert_equal(here.restart(), there.restart())
        assert ends >= 9
    finally:
        there.close()
        here.close()


SMALL = [
    *("--config=qmix", "--env-config=foraging", "--batch_size_run=4", "--t_max=240", "--quiet"),
    *("--batch_size=4", "--test_interval=100", "--test_nepisode=2", "--test_batch_size_run=1"),
    "--use_sacred=False",
    *("--use_tensorboard=False", "--n_workers=2", "--save_model_interval=100000"),
    *("with", "env_args.key=Foraging-5x5-2p-1f-v3", "env_args.max_episode_steps=6"),
]


def run(folder: Path, name: str, *words: str) -> dict[str, torch.Tensor]:
    train([*words, f"--run_name={name}", f"--local_results_path={folder}", *SMALL])
    return load_tensors(folder / name / "models" / "last" / "agent.th")


def test_a_run_learns_the_same_as_in_one_process_also_if_it_is_stopped_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run(tmp_path, "batch", "--runner=batch")
    step = TrainingLoop._step

    def stop(loop: TrainingLoop) -> None:
        step(loop)
        loop.stop.requested = loop.counters.env_steps >= 120

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "_step", stop)
        with pytest.raises(RunInterrupted):
            run(tmp_path, "ray", "--runner=ray")
    found = run(tmp_path, "ray", "--runner=ray", "--resume")
    assert all(torch.equal(found[key], expected[key]) for key in expected)
    assert free_cpus() == 4.0


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill_the_game(game: int) -> None:
    os.kill(game, signal.SIGKILL)


def kill_the_actor(game: int) -> None:
    os.kill(parent_of(game), signal.SIGKILL)
    wait_until_gone(game)


def freeze_both(game: int) -> None:
    """As a machine that is lost without a word."""
    for pid in (parent_of(game), game):
        os.kill(pid, signal.SIGSTOP)


def test_a_lost_actor_is_replaced_and_only_its_copies_are_dropped(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omg.integrations.ray.workers.RELAY_SECONDS", 1.0)
    reference = counters()(n_copies=4, first_copy=0)
    with actors(on_failure="restart", timeout=4.0, start_timeout=60.0) as env:
        env.reset(SEED)
        reference.reset(SEED)
        for episode, (hit, words) in enumerate(
            [
                (kill_the_game, "killed by SIGKILL"),
                (kill_the_actor, "lost with its Ray actor"),
                (freeze_both, "nor did its Ray actor"),
            ],
            start=1,
        ):
            assert env.step(stay(env)).dropped.size == reference.step(stay(env)).dropped.size == 0
            game = env.worker_pids[1]
            hit(game)
            with caplog.at_level(logging.WARNING):
                step, expected = env.step(stay(env)), reference.step(stay(env))
            assert words in caplog.text
            assert step.dropped.tolist() == [2, 3]
            assert not step.reward[2:].any()
            np.testing.assert_array_equal(step.state[:2], expected.state[:2])
            beginning = counters()(n_copies=4, first_copy=0)
            following = beginning.reset_at(SEED, [0, 0, episode, episode])
            np.testing.assert_array_equal(step.state[2:], following.state[2:])
            with contextlib.suppress(ProcessLookupError):
                os.kill(game, signal.SIGCONT)
            wait_until_gone(game)
        assert env.restarts == 3


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, "the game outlived its actor"
        time.sleep(0.1)


def test_a_game_that_crashes_ends_the_run_with_worker_copies_and_traceback() -> None:
    with actors(fault=CRASH, fault_copy=3, fault_step=1) as env:
        env.reset(SEED)
        with pytest.raises(WorkerFailedError, match=r"Worker 1 \(copies 2 to 3\)") as caught:
            env.step(stay(env))
        assert "ZeroDivisionError" in str(caught.value)
        assert "in _run_fault" in caught.value.traceback
        with pytest.raises(RunFailedError, match="shut down"):
            env.step(stay(env))


@pytest.mark.slow
def test_a_game_that_hangs_is_noticed_in_time_and_says_where() -> None:
    with actors(fault=HANG, fault_copy=0, fault_step=1, timeout=2.0) as env:
        game = env.worker_pids[0]
        env.reset(SEED)
        begin = time.monotonic()
        with pytest.raises(WorkerFailedError, match="within 2 seconds") as caught:
            env.step(stay(env))
        assert time.monotonic() - begin < 15.0
        assert "_run_fault" in caught.value.traceback
        wait_until_gone(game)


def test_more_workers_than_the_cluster_has_room_for_are_refused() -> None:
    config = configured("--env-config=foraging", "--n_workers=5", "--batch_size_run=8")
    with pytest.raises(OmgError, match=r"5 workers of 1 CPUs, and the cluster has 4 .* Lower"):
        runner_of(config).copies(8)
    first, second = (RayPlace(Bench(address="", cpus=1.0, patience=1.0)) for _ in range(2))
    first.bench.reserve(3)
    with pytest.raises(RunFailedError, match="only 1 CPUs are free"):
        second.bench.reserve(2)
    second.release()
    first.release()
    assert free_cpus() == 4.0


@pytest.mark.parametrize(
    ("words", "copies", "workers"),
    [
        (["--n_workers=0"], 8, 6),
        (["--n_workers=0"], 3, 3),
        (["--n_workers=2"], 8, 2),
        (["--n_workers=0", "--copies_per_worker=3"], 8, 3),
        (["--n_workers=4", "--copies_per_worker=3"], 8, 3),
    ],
)
def test_workers_follow_from_copies_and_cores(words: list[str], copies: int, workers: int) -> None:
    config = configured("--env-config=foraging", *words)
    assert worker_count(config, copies, cores=6) == workers


def test_workers_that_cannot_hold_the_copies_are_refused() -> None:
    config = configured("--env-config=foraging", "--copies_per_worker=3")
    with pytest.raises(OmgError, match="hold 6 copies, not 8"):
        worker_count(config, 8, cores=6)


@pytest.mark.parametrize("address", ["ray://host:1", "host", "http://host:1"])
def test_an_address_that_cannot_be_is_refused_before_anything_starts(address: str) -> None:
    config = configured("--env-config=foraging", f"--address={address}")
    assert config.ray_address == address
    with pytest.raises(OmgError, match="--address=") as caught:
        runner_of(config)
    assert caught.value.exit_code == 2


def test_without_ray_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(OmgError, match=r"Ray is not installed.*omg-marl\[ray\]") as caught:
        runner_of(configured("--env-config=foraging"))
    assert caught.value.exit_code == 2
