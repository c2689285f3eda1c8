"""Threads that wait for each other sleep, unless the user said otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.long
ASKED = "import omg, os; print(os.environ.get('OMP_WAIT_POLICY'), os.environ.get('GOMP_SPINCOUNT'))"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, "passive None"),
        ({"OMP_WAIT_POLICY": "active"}, "active None"),
        ({"GOMP_SPINCOUNT": "100"}, "None 100"),
    ],
)
def test_a_users_own_setting_stays(given: dict[str, str], found: str) -> None:
    unset = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}
    env = {key: value for key, value in os.environ.items() if key not in unset}
    told = subprocess.run(
        [sys.executable, "-c", ASKED], env={**env, **given}, capture_output=True, text=True
    )
    assert told.stdout.strip() == found


def test_it_is_said_before_torch_is_loaded() -> None:
    script = "import omg, sys, os; assert 'torch' not in sys.modules; import omg.modules.device"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
