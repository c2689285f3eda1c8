"""Every algorithm a PyMARL user types trains on Foraging from the original command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from omg.cli.train import main
from omg.experiment.output import read_metrics
from omg.opponents.pool import OpponentPool

NAMES = (
    *("coma", "iql", "iql_am", "iql_beta", "iql_idv", "iql_omg"),
    *("qmix", "qmix_beta", "qtran", "vdn", "vdn_beta"),
)
TASK = [
    *("with", "env_args.key=Foraging-5x5-2p-1f-v3", "env_args.max_episode_steps=6"),
    *("batch_size=2", "batch_size_run=2", "t_max=40", "test_nepisode=2", "use_tensorboard=False"),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_trains_from_the_original_command_line(name: str, tmp_path: Path) -> None:
    words = [f"--config={name}", "--env-config=foraging", f"--local_results_path={tmp_path}"]
    words += ["--quiet", "--learner_log_interval=1"]
    if name in ("iql_am", "iql_omg"):
        OpponentPool.create(tmp_path / "pool").add_script("nearest_food")
        words.append(f"--opponent_pool={tmp_path / 'pool'}")
    if name == "iql_omg":
        words.append("--prior_min_accuracy=0")
        assert main([*words, "--learner=am_learner", "--run_name=prior", *TASK]) == 0
        words.append(f"--init_param_path={tmp_path / 'prior'}")
    # In the original notes --key=value stands behind `with …`, too.
    assert main([*words, *TASK, "--run_name=run"]) == 0
    assert (tmp_path / "sacred").is_dir()
    records = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert any("loss" in r or "critic_loss" in r for r in records)
    assert any("test_return_mean" in r for r in records)
