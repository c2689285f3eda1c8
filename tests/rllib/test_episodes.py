"""What opponent models learn from is the episode that was played, field by field."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from omg.components.trajectories import ReplayBuffer
from omg.integrations.rllib import EpisodeAssembler, episode_batch, whole_episode
from omg.integrations.rllib.env import CUT
from omg.integrations.rllib.episodes import LOGITS, chunk_of, keep_truncations
from omg.integrations.rllib.layout import Layout
from omg.integrations.rllib.replay import OmgEpisodeReplayBuffer
from omg.integrations.rllib.settings import KEY
from omg.types import OmgError
from tests.rllib.playing import (
    HOSTS,
    actions_of,
    game_of,
    leaver_config,
    played_natively,
    runner_of,
    settings_of,
)


def sampled(config: Any, count: int) -> tuple[list[Any], list[Any], Layout]:
    """Episodes that a runner played, each with a snapshot of the game at its beginning."""
    runner, settings = runner_of(config), settings_of(config)
    episodes, games = [], []
    while len(episodes) < count:
        game = game_of(runner)
        found, reset = [], game.reset

        def noting(*args: Any, reset: Any = reset, game: Any = game, **kw: Any) -> Any:
            shown = reset(*args, **kw)
            games.append(game.game.snapshot())
            return shown

        game.reset = noting
        found = runner.sample(num_episodes=1)
        game.reset = reset
        episodes += found
    runner.stop()
    return episodes, games, Layout(settings.spec, settings.window)


def assert_fields_equal(batch: Any, wanted: dict[str, Any]) -> None:
    for name in batch.scheme.fields:
        stored = batch[name][0].numpy()
        rows = len(wanted[name])
        np.testing.assert_array_equal(stored[:rows], wanted[name], err_msg=name)


@pytest.mark.parametrize("window", [None, 2])
def test_an_episode_with_leavers_equals_the_same_play_in_our_own_environment(
    window: int | None,
) -> None:
    config = leaver_config(window=window)
    episodes, games, layout = sampled(config, 6)
    lengths = {tuple(sorted(len(e) for e in ep.agent_episodes.values())) for ep in episodes}
    assert any(len(set(found)) > 1 for found in lengths)  # trajectories of unequal lengths
    for episode, game in zip(episodes, games, strict=True):
        wanted = played_natively(config, game, actions_of(episode, 3))
        assert_fields_equal(whole_episode(episode, layout), wanted)


def test_an_episode_of_foraging_equals_the_same_play_in_our_own_environment() -> None:
    config = HOSTS["ppo"]("ppo", "foraging")
    episodes, games, layout = sampled(config, 2)
    for episode, game in zip(episodes, games, strict=True):
        wanted = played_natively(config, game, actions_of(episode, 2))
        assert_fields_equal(whole_episode(episode, layout), wanted)


def test_what_the_policies_gave_out_is_there_on_demand() -> None:
    config = leaver_config()
    (episode, *_), _, layout = sampled(config, 1)
    logits = chunk_of(episode, layout, logits=True).arrays[LOGITS]
    for agent, own in episode.agent_episodes.items():
        told = np.asarray(own.get_extra_model_outputs("action_dist_inputs"))
        np.testing.assert_array_equal(logits[: len(own), int(agent[-1])], told)


def fragments(config: Any, steps: int, count: int) -> tuple[list[Any], Layout]:
    runner, settings = runner_of(config), settings_of(config)
    found = [e for _ in range(count) for e in runner.sample(num_timesteps=steps)]
    runner.stop()
    return found, Layout(settings.spec, settings.window)


def test_a_fragment_is_refused_and_chunks_are_completed() -> None:
    chunks, layout = fragments(leaver_config(), 2, 12)
    broken = [chunk for chunk in chunks if chunk.env_t_started or not chunk.is_done]
    assert len(broken) > 4
    for chunk in broken:
        with pytest.raises(OmgError, match="fragment"):
            whole_episode(chunk, layout)
    assembler = EpisodeAssembler(layout)
    whole = assembler.add(chunks)
    assert assembler.refused == 0
    assert len(whole) == sum(chunk.is_done for chunk in chunks)
    for batch in whole:
        steps = int(batch.lengths[0]) - 1
        values = batch["obs"][0, :, :, 0]
        done = batch["actions"][0, :steps]
        # A player's number falls by one with every action 1, until it has left.
        torch.testing.assert_close(values[:steps] - values[1:], done.float())
        ended = batch["terminated"][0, :steps]
        assert not ended[:-1].any()
        assert bool(ended[-1]) == (not batch["alive"][0, steps].any())


def test_a_chunk_without_its_beginning_is_refused_and_counted() -> None:
    chunks, layout = fragments(leaver_config(), 2, 6)
    later = [chunk for chunk in chunks if chunk.env_t_started]
    assembler = EpisodeAssembler(layout)
    assert assembler.add(later) == []
    assert assembler.refused == len(later)


def test_a_plain_dictionary_becomes_an_episode_of_the_buffer() -> None:
    config = leaver_config()
    (episode, *_), _, layout = sampled(config, 1)
    arrays = chunk_of(episode, layout).arrays
    batch = episode_batch({name: value.tolist() for name, value in arrays.items()}, layout.spec)
    buffer = ReplayBuffer(batch.scheme, capacity=4, max_seq_length=layout.spec.episode_limit + 1)
    buffer.insert_episode_batch(batch)
    stored = buffer.sample(1, np.random.default_rng(0))
    for name in batch.scheme.fields:
        torch.testing.assert_close(stored.raw(name), batch.raw(name))
    with pytest.raises(OmgError, match="no field 'reward'"):
        episode_batch({k: v for k, v in arrays.items() if k != "reward"}, layout.spec)
    with pytest.raises(OmgError, match="'actions' is"):
        episode_batch({**arrays, "actions": arrays["actions"][:, :1]}, layout.spec)


def cut_after_a_leaver(config: Any) -> tuple[Any, Any]:
    """An episode in which somebody left and the time limit ended the game for others."""
    for seed in range(20):
        config.debugging(seed=seed)
        episodes, games, _ = sampled(config, 4)
        for episode, game in zip(episodes, games, strict=True):
            lengths = {len(own) for own in episode.agent_episodes.values()}
            cut = any(own.get_infos(-1).get(CUT) for own in episode.agent_episodes.values())
            if cut and min(lengths) < len(episode):
                return episode, game
    raise AssertionError("no such episode was played")


def test_a_time_limit_after_somebody_left_stays_a_truncation_for_the_others() -> None:
    config = leaver_config()
    settings = settings_of(config)
    layout = Layout(settings.spec, settings.window)
    episode, _ = cut_after_a_leaver(config)
    present = whole_episode(episode, layout)["alive"][0, -1]
    assert present.any()
    assert not whole_episode(episode, layout)["terminated"].any()
    assert all(own.is_terminated for own in episode.agent_episodes.values())  # RLlib's mistake
    keep_truncations(episode)
    for agent, own in episode.agent_episodes.items():
        assert own.is_truncated == bool(present[int(agent[-1])])
        assert own.is_terminated == (not own.is_truncated)


def test_the_dqn_buffer_passes_every_whole_episode_on_once() -> None:
    config = leaver_config("dqn")
    settings = settings_of(config)
    options = {k: v for k, v in config.replay_buffer_config.items() if k.startswith("omg")}
    buffer = OmgEpisodeReplayBuffer(1000, **options)
    chunks, _ = fragments(config, 2, 12)
    told = []
    for chunk in chunks:
        buffer.add([chunk])
        for one in buffer.sample(num_items=2, n_step=1, gamma=0.9):
            told += one.custom_data.get(KEY, [])
    again = EpisodeAssembler(Layout(settings.spec, settings.window))
    wanted = again.add(chunks)
    assert len(told) == len(wanted) > 0
    for found, expected in zip(told, wanted, strict=True):
        for name in expected.scheme.fields:
            torch.testing.assert_close(found.raw(name), expected.raw(name))
