"""Every value learner reaches 90 % of the best return on a small Foraging (best: 1.0)."""

from __future__ import annotations

from pathlib import Path

import pytest

from omg.cli.train import train

TASK = ["with", "env_args.key=Foraging-5x5-2p-1f-v3", "env_args.max_episode_steps=25"]
QUIET = ["--quiet", "--use_sacred=False", "--use_tensorboard=False", "--resume_interval=0"]


@pytest.mark.parametrize(("alg", "steps"), [("iql", 50_000), ("vdn", 25_000), ("qmix", 25_000)])
def test_the_team_comes_to_collect_nine_tenths_of_the_food(
    alg: str, steps: int, tmp_path: Path
) -> None:
    result = train(
        [
            *(f"--config={alg}", "--env-config=foraging", f"--t_max={steps}", "--lr=0.001"),
            *(
                "--epsilon_anneal_time=15000",
                "--common_reward=True",
                "--test_interval=5000",
                "--test_nepisode=128",
            ),
            *(f"--local_results_path={tmp_path}", *QUIET, *TASK),
        ]
    )
    assert result.best_return is not None
    assert result.best_return >= 0.9
