"""Shared by the unit tests: pools of scripted players."""

from collections.abc import Callable
from pathlib import Path

import pytest

from omg.opponents.pool import OpponentPool


@pytest.fixture(scope="session")
def scripted_pool(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes a pool of the named scripts, all to train with."""

    def make(*names: str) -> Path:
        path = tmp_path_factory.mktemp("pools") / "scripts"
        made = OpponentPool.create(path)
        for name in names:
            made.add_script(name)
        return path

    return make
