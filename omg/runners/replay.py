"""Replays of episodes: drawn by the environment, or saved by the game itself."""

from __future__ import annotations

from pathlib import Path

from omg.envs.contract import BatchedEnv
from omg.runners.rollout import Rollout, play_episodes
from omg.types import OmgError


def check_can_replay(env: BatchedEnv) -> None:
    """Refuse save_replay before anything is trained, where nothing could be saved."""
    if not (hasattr(env, "draw_episode") or getattr(env, "games_save_replays", False)):
        raise OmgError(
            f"{env.spec.name} cannot show replays. Leave out save_replay, or give the environment "
            "a save_replay (one game) or draw_episode (batched) method."
        )


def save_replays(rollout: Rollout, folder: Path, n_episodes: int, *, env_steps: int) -> list[Path]:
    """Play episodes as the policy would at `env_steps` and have them drawn; the files written.
    A game that saves its own replays does so where it likes."""
    check_can_replay(rollout.env)
    played = play_episodes(rollout, n_episodes, round_number=0, env_steps=env_steps)
    draw = getattr(rollout.env, "draw_episode", None)
    if draw is None:
        try:
            rollout.env.save_replay()  # type: ignore[attr-defined]
        except NotImplementedError as error:  # PyMARL's own base class says so
            raise OmgError(f"{rollout.env.spec.name} cannot save replays.") from error
        return []
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    number = 0
    for finished in played:
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
