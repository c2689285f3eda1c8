"""Shared by all tests: one torch thread, property tests that are the same every time, and the
shipped configurations read once."""

import copy
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings

from omg.config import loader
from omg.registry import trust

torch.set_num_threads(1)
trust("tests")  # games and parts of our own, which saved runs of tests name

settings.register_profile(
    "omg",
    deadline=None,
    derandomize=True,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("omg")


@pytest.fixture(autouse=True, scope="session")
def _shipped_files_are_read_once() -> Iterator[None]:
    """Parsing `default.yaml` for every learner and run takes longer than much of what they do.
    Files of the tests' own are read every time."""
    read_yaml = loader.read_yaml
    read_once = functools.cache(read_yaml)

    def read(path: Path, shown: str) -> dict[str, Any]:
        if path.is_relative_to(loader.CONFIG_DIR):
            return copy.deepcopy(read_once(path, shown))
        return read_yaml(path, shown)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader, "read_yaml", read)
        yield
