"""RLlib's tests. They are skipped only where Ray is not installed."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

ray = pytest.importorskip("ray", reason="needs the extra omg-marl[rllib]")


@pytest.fixture(autouse=True, scope="session")
def _quiet() -> None:
    os.environ.setdefault("RAY_DISABLE_IMPORT_WARNING", "1")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """Ray on this machine: two cores, no dashboard, a small object store."""
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
