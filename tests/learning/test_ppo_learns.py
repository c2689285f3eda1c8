"""PPO reaches 90 % of the best return on a small Foraging (best: 1.0)."""

from __future__ import annotations

from pathlib import Path

import pytest

from omg.cli.train import train

from .test_small_foraging import QUIET, TASK


@pytest.mark.parametrize("alg", ["ippo", "mappo"])
def test_the_team_comes_to_collect_nine_tenths_of_the_food(alg: str, tmp_path: Path) -> None:
    result = train(
        [
            *(f"--config={alg}", "--env-config=foraging", "--t_max=30000"),
            *("--test_interval=10000", "--test_nepisode=128"),
            *(f"--local_results_path={tmp_path}", *QUIET, *TASK),
        ]
    )
    assert result.best_return is not None
    assert result.best_return >= 0.9
