"""The parts that CONTRIBUTING.md shows work with the commands below them."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from omg.cli.train import main
from omg.experiment.saved import SavedRun

TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
SHOWN = re.findall(r"```python\n# (\w+)\.py\n(.*?)```\s*```\n(omg train .*?)\n```", TEXT, re.DOTALL)
SMALL = [
    *("--t_max=120", "--batch_size=2", "--batch_size_run=2", "--test_nepisode=2", "--quiet"),
    *("--use_sacred=False", "--use_tensorboard=False", "--learner_log_interval=20"),
    *("with", "env_args.key=Foraging-5x5-2p-1f-v3", "env_args.max_episode_steps=6"),
]


@pytest.mark.parametrize(("name", "code", "command"), SHOWN, ids=[name for name, *_ in SHOWN])
def test_a_part_that_is_shown_trains_with_its_own_setting(
    name: str, code: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    words = shlex.split(command)[2:]
    assert main([*words, *SMALL, "--run_name=run", "--local_results_path=."]) == 0
    assert "loss" in SavedRun(tmp_path / "run").metrics
    assert f"{name}:" in (tmp_path / "run" / "config.yaml").read_text()
    sys.modules.pop(name)


def test_a_mixer_and_a_learner_are_shown() -> None:
    assert [name for name, *_ in SHOWN] == ["my_mixer", "my_learner"]
