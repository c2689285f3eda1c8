"""The game's own statistics in RLlib's results."""

from __future__ import annotations

from typing import Any

from ray.rllib.callbacks.callbacks import RLlibCallback

from omg.integrations.rllib.env import STATISTICS


class GameStatistics(RLlibCallback):
    """Means over episodes of what `EnvSpec.statistics` names, under `env_runners/<name>`."""

    def on_episode_end(self, *, episode: Any, metrics_logger: Any = None, **kwargs: Any) -> None:
        """Every agent that was there at the end was told the same."""
        for own in episode.agent_episodes.values():
            infos = own.get_infos()
            told = infos[-1].get(STATISTICS) if infos else None
            if told and metrics_logger is not None:
                for name, value in told.items():
                    metrics_logger.log_value(name, value, reduce="mean", window=100)
                return
