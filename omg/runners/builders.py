"""`episode`, `batch`, `parallel`: the same loop over differently made copies."""

from __future__ import annotations

import os

from omg.config.schema import Config
from omg.envs.contract import BatchedEnv
from omg.envs.registry import BatchFactory, make_batched
from omg.envs.workers import WorkerVectorEnv


def copies_in_training(config: Config) -> int:
    """How many copies a run steps together: batch_size_run, or one with runner=episode."""
    return 1 if config.runner == "episode" else config.batch_size_run


def copies_in_tests(config: Config) -> int:
    """How many copies a test steps together; never more than it has episodes."""
    wanted = config.test_batch_size_run or copies_in_training(config)
    return min(wanted, config.test_nepisode)


def local(config: Config, n_copies: int) -> BatchedEnv:
    """Copies in this process: native arrays, or one after the other."""
    return make_batched(config.env, config.env_args, n_copies=n_copies)


def workers(config: Config, n_copies: int) -> BatchedEnv:
    """Copies spread over worker processes."""
    return WorkerVectorEnv(
        factory=BatchFactory(config.env, dict(config.env_args)),
        n_copies=n_copies,
        n_workers=min(n_copies, config.n_workers or os.cpu_count() or 1),
        timeout=config.worker_timeout,
        on_failure=config.on_worker_failure,
        max_restarts=config.max_worker_restarts,
    )
