"""Waves: one whole episode of every copy between two updates, and exact continuation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from omg.components.episodes import environment_scheme
from omg.components.seeding import SeedTree
from omg.components.trajectories import SEAT, ReplayBuffer
from omg.config.loader import load_command_line
from omg.controllers.team import MultiModuleMAC
from omg.envs.registry import make_batched
from omg.opponents.pool import OpponentPool
from omg.runners.rollout import Rollout
from omg.runners.waves import Waves
from tests.unit.test_rollout import KEY, make_rollout

COPIES = 5


def make_waves() -> Waves:
    return Waves(make_rollout(make_batched("foraging", KEY, n_copies=COPIES)))


def a_wave(waves: Waves) -> tuple[list[int], list[int], int]:
    """Copies and lengths of one wave's episodes in the order they ended, and the steps counted."""
    copies: list[int] = []
    lengths: list[int] = []
    counted = 0
    while len(copies) < COPIES:
        finished = waves.step(0)
        counted += waves.stepped_last
        if finished is not None:
            copies += finished.stats.copies.tolist()
            lengths += finished.stats.lengths.tolist()
            assert len(finished.episodes) == len(finished.stats.copies)
    return copies, lengths, counted


def test_every_wave_has_one_episode_of_every_copy_and_counts_their_steps_only() -> None:
    waves = make_waves()
    uneven = 0
    for _ in range(6):
        copies, lengths, counted = a_wave(waves)
        assert sorted(copies) == list(range(COPIES))
        assert counted == sum(lengths)
        assert not waves._waiting.any()
        uneven += len(set(lengths)) > 1
    assert uneven  # some copies had to wait


def test_no_episode_of_a_wave_was_begun_before_it() -> None:
    """The policy is exchanged between two waves; whoever waited plays only the new one."""
    waves = make_waves()
    network = waves._rollout.mac.policy.network  # type: ignore[attr-defined]
    waves._rollout.greedy = True
    for action in (2, 0, 3):
        with torch.no_grad():
            for weights in network.parameters():
                weights.zero_()
            network.fc2.bias[:] = -torch.arange(network.fc2.out_features, dtype=torch.float32)
            network.fc2.bias[action] = 1.0
        seen = 0
        while seen < COPIES:
            finished = waves.step(0)
            if finished is None:
                continue
            seen += len(finished.episodes)
            for row in range(len(finished.episodes)):
                episode = finished.episodes[row]
                steps = int(episode.lengths[0]) - 1
                free = episode["avail_actions"][0, :steps, :, action]
                taken = episode["actions"][0, :steps]
                assert (taken[free] == action).all()


@pytest.mark.parametrize("stop", [3, 11, 14])
def test_waves_continue_exactly_from_a_saved_state(stop: int) -> None:
    one, other = make_waves(), make_waves()
    for _ in range(stop):
        one.step(0)
    other.load_state_dict(one.state_dict())
    for _ in range(30):
        mine, theirs = one.step(0), other.step(0)
        assert (mine is None) == (theirs is None)
        assert one.stepped_last == other.stepped_last
        if mine is not None and theirs is not None:
            np.testing.assert_array_equal(mine.stats.copies, theirs.stats.copies)
            assert torch.equal(mine.episodes["actions"], theirs.episodes["actions"])


def test_a_buffer_hands_out_all_its_episodes_once_and_in_order() -> None:
    env = make_batched("foraging", KEY, n_copies=COPIES)
    rollout = make_rollout(env)
    scheme = environment_scheme(env.spec, common_reward=False)
    buffer = ReplayBuffer(scheme, capacity=4, max_seq_length=env.spec.episode_limit + 1)
    stored = []
    while len(stored) < 7:
        finished = rollout.step(0)
        if finished is not None:
            buffer.insert_episode_batch(finished.episodes)
            stored += [finished.episodes[row] for row in range(len(finished.episodes))]
    taken = buffer.take_all()
    assert len(taken) == 4
    assert buffer.episodes_in_buffer == 0
    for row, episode in enumerate(stored[-4:]):
        steps = int(episode.lengths[0])
        assert int(taken.lengths[row]) == steps
        assert torch.equal(taken["actions"][row, :steps], episode["actions"][0, :steps])
    assert taken.max_seq_length == max(int(e.lengths[0]) for e in stored[-4:])


@pytest.mark.parametrize(("copies", "agents"), [(1, 2), (3, 2), (2, 3), (4, 3)])
def test_waves_rotate_the_learning_seat_over_all_seats(
    tmp_path: Path, copies: int, agents: int
) -> None:
    """Every wave starts with fresh carries; the rotation goes on nevertheless."""
    game = {"key": f"Foraging-5x5-{agents}p-1f-v3", "max_episode_steps": 6}
    OpponentPool.create(tmp_path / "pool").add_script("random")
    config = load_command_line(
        ["--config=ppo", "--env-config=foraging", f"--opponent_pool={tmp_path / 'pool'}"]
        + [f"--env_args.{key}={value}" for key, value in game.items()]
    ).config
    env = make_batched("foraging", game, n_copies=copies)
    mac = MultiModuleMAC(config=config, spec=env.spec, device=torch.device("cpu"))
    rollout = Rollout(
        env=env,
        mac=mac,
        scheme=environment_scheme(env.spec, common_reward=False).extend(mac.record_fields()),
        seeds=SeedTree(3),
        stream="train",
        device=torch.device("cpu"),
        common_reward=False,
        reward_scalarisation="sum",
    )
    waves, seats = Waves(rollout), []
    while len(seats) < 4 * copies * agents:
        finished = waves.step(0)
        if finished is not None:
            seats += finished.episodes[SEAT].tolist()
    counts = np.bincount(seats, minlength=agents)
    assert counts.min() == counts.max() == 4 * copies
