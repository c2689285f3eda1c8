"""Replays of episodes as files a browser can play."""

from __future__ import annotations

from pathlib import Path

from omg.evaluation.testing import play_episodes
from omg.runners.rollout import Rollout
from omg.types import OmgError


def save_replays(rollout: Rollout, folder: Path, n_episodes: int) -> list[Path]:
    """Play episodes and let the environment draw them; one file set per episode."""
    draw = getattr(rollout.env, "draw_episode", None)
    if draw is None:
        raise OmgError(
            f"{rollout.env.spec.name} cannot draw replays. Leave out save_replay, or give the "
            "environment a draw_episode method."
        )
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    number = 0
    for finished in play_episodes(rollout, n_episodes, round_number=1_000_000, env_steps=0):
        for row in range(len(finished.episodes)):
            episode = finished.episodes[row]
            steps = int(episode.lengths[0])
            written += draw(
                folder / f"episode_{number}",
                episode["state"][0, :steps].numpy(),
                episode["reward"][0, : steps - 1].numpy(),
            )
            number += 1
    return written
