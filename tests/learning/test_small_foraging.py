"""Every value learner reaches 90 % of the best return on a small Foraging (best: 1.0)."""

from __future__ import annotations

from pathlib import Path

import pytest

from omg.cli.train import train

TASK = ["with", "env_args.key=Foraging-5x5-2p-1f-v3", "env_args.max_episode_steps=25"]
QUIET = ["--quiet", "--use_sacred=False", "--use_tensorboard=False", "--resume_interval=0"]


# As in algs/qmix_quick.yaml: a third of the steps, and sixteen games at a time.
QUICK = [
    *("--batch_size_run=16", "--batch_size=16", "--lr=0.002", "--optimizer=adam"),
    *("--gamma=0.97", "--target_update_tau=0.02", "--epsilon_anneal_time=8000"),
]


@pytest.mark.parametrize("alg", ["iql", "vdn", "qmix"])
def test_the_team_comes_to_collect_nine_tenths_of_the_food(alg: str, tmp_path: Path) -> None:
    result = train(
        [
            *(f"--config={alg}", "--env-config=foraging", "--common_reward=True", *QUICK),
            *("--t_max=16000", "--test_interval=4000", "--test_nepisode=128"),
            *(f"--local_results_path={tmp_path}", *QUIET, *TASK),
        ]
    )
    assert result.best_return is not None
    assert result.best_return >= 0.9
