"""DQN's replay buffer, which also passes whole episodes on, and an algorithm that saves it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.rllib.algorithms.dqn import DQN
from ray.rllib.utils.replay_buffers.multi_agent_episode_buffer import (
    MultiAgentEpisodeReplayBuffer,
)

from omg.components.episodes import EpisodeBatch
from omg.integrations.rllib.episodes import EpisodeAssembler, keep_truncations
from omg.integrations.rllib.layout import Layout
from omg.integrations.rllib.settings import KEY, read_spec

BUFFER = "replay_buffer"


class OmgEpisodeReplayBuffer(MultiAgentEpisodeReplayBuffer):
    """What is sampled are single steps of single agents, from which no opponent model can learn.
    So every episode that became whole since the last sample travels with the next one."""

    def __init__(
        self,
        capacity: int = 10_000,
        *,
        omg_spec: Mapping[str, Any],
        omg_window: int,
        **kw: Any,
    ) -> None:
        super().__init__(capacity, **kw)
        self._assembler = EpisodeAssembler(Layout(read_spec(omg_spec), omg_window))
        self._new: list[EpisodeBatch] = []

    def add(self, episodes: Any) -> None:
        """Chunks of episodes; those that are whole now are kept for the opponent models."""
        given = episodes if isinstance(episodes, list) else [episodes]
        for episode in given:
            keep_truncations(episode)
        self._new += self._assembler.add(given)
        super().add(list(given))

    def sample(self, *args: Any, **kw: Any) -> Any:
        """As RLlib's; the new whole episodes are in the first one's custom data."""
        sampled = super().sample(*args, **kw)
        if sampled and self._new:
            sampled[0].custom_data[KEY], self._new = self._new, []
        return sampled

    def get_state(self) -> dict[str, Any]:
        """Also the whole episodes that nobody has learned from yet."""
        return {**super().get_state(), KEY: self._new}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """The opposite of `get_state`."""
        self.episodes.clear()
        super().set_state(state)
        # RLlib restores this one as lists, to which no number can be added.
        sampled = dict(state["sampled_timesteps_per_module"])
        self.sampled_timesteps_per_module.default_factory = int
        self.sampled_timesteps_per_module.update(sampled)
        self._new = list(state[KEY])


class OmgDQN(DQN):
    """DQN whose checkpoints hold the replay buffer, so that a restored one goes on as before."""

    def get_state(self, *args: Any, **kw: Any) -> dict[str, Any]:
        """Also the replay buffer."""
        state: dict[str, Any] = super().get_state(*args, **kw)
        if self.config.store_buffer_in_checkpoints:
            state[BUFFER] = self.local_replay_buffer.get_state()
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """The opposite of `get_state`."""
        super().set_state(state)
        if BUFFER in state:
            self.local_replay_buffer.set_state(state[BUFFER])
