"""RLlib's tests, skipped only where Ray is not installed: `test_without_ray.py` says so."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator

import pytest

collect_ignore = []
if importlib.util.find_spec("ray") is None:
    collect_ignore = ["test_env.py", "test_episodes.py", "test_training.py", "test_crossing.py"]


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """Ray on this machine: two cores, no dashboard, a small object store."""
    import ray

    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=100_000_000,
        logging_level=logging.ERROR,
        log_to_driver=False,
        configure_logging=False,
    )
    yield
    ray.shutdown()
