"""What happens before the first step: settings of threads, and what is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from omg.experiment.sacred import _packages

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


@pytest.mark.parametrize("config", ["qmix", "ippo"])
def test_a_run_does_not_load_torchs_compiler(tmp_path: Path, config: str) -> None:
    script = (
        "import sys\nfrom omg.cli.train import train\ntrain(sys.argv[1:])\n"
        "assert 'torch' in sys.modules and 'torch._dynamo' not in sys.modules"
    )
    words = [f"--config={config}", "--env-config=spread", "--t_max=150", "--batch_size_run=2"]
    words += ["--batch_size=2", "--test_nepisode=1", "--use_sacred=False", "--rnn_hidden_dim=16"]
    words += ["--use_tensorboard=False", f"--local_results_path={tmp_path}"]
    told = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr[-2000:]


def test_the_recorded_packages_are_those_that_brought_the_imported_modules() -> None:
    imported = {name.partition(".")[0] for name in list(sys.modules)} - {"omg"}
    expected = {
        name
        for module, names in packages_distributions().items()
        if module in imported
        for name in names
    }
    assert expected
    assert expected <= set(_packages())
