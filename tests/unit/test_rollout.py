"""The rollout loop on Foraging: what is stored is what happened, whoever hosts the copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from omg.components.episodes import EpisodeBatch, environment_scheme
from omg.components.seeding import SeedTree
from omg.config.loader import load_command_line
from omg.controllers.team import BasicMAC
from omg.envs.contract import BatchedEnv
from omg.envs.registry import BatchFactory, make_batched
from omg.envs.workers import WorkerVectorEnv
from omg.runners.assembly import make_controller
from omg.runners.assembly import make_rollout as from_config
from omg.runners.rollout import Finished, Rollout, play_episodes, run_test

KEY = {"key": "Foraging-5x5-2p-1f-v3", "max_episode_steps": 12}
CPU = torch.device("cpu")


def make_rollout(env: BatchedEnv, *, common: bool = False, **options: Any) -> Rollout:
    torch.manual_seed(3)
    config = load_command_line(["--config=iql", "--env-config=foraging"]).config
    return Rollout(
        env=env,
        mac=BasicMAC(config=config, spec=env.spec, device=CPU),
        scheme=environment_scheme(env.spec, common_reward=common),
        seeds=SeedTree(7),
        stream="train",
        device=CPU,
        common_reward=common,
        reward_scalarisation="sum",
        **options,
    )


def collect(rollout: Rollout, steps: int, *, env_steps: int = 0) -> list[Finished]:
    found = (rollout.step(env_steps) for _ in range(steps))
    return [finished for finished in found if finished is not None]


def rows(finished: list[Finished]) -> list[tuple[int, EpisodeBatch]]:
    return [
        (int(copy), f.episodes[row]) for f in finished for row, copy in enumerate(f.stats.copies)
    ]


def test_stored_episodes_replay_exactly_in_a_fresh_copy_of_the_game() -> None:
    env = make_batched("foraging", KEY, n_copies=3)
    rollout = make_rollout(env)
    seed = SeedTree(7).integer("train.env", 0)
    stored = rows(collect(rollout, 60))
    assert len(stored) >= 10
    for copy in range(3):
        fresh = make_batched("foraging", KEY, n_copies=1, first_copy=copy)
        view: Any = fresh.reset(seed)
        for episode in [e for c, e in stored if c == copy]:
            length = int(episode.lengths[0]) - 1
            for t in range(length):
                np.testing.assert_array_equal(episode["obs"][0, t].numpy(), view.obs[0])
                np.testing.assert_array_equal(episode["state"][0, t].numpy(), view.state[0])
                np.testing.assert_array_equal(episode["avail_actions"][0, t].numpy(), view.avail[0])
                view = fresh.step(episode["actions"][0, t].numpy()[None])
                np.testing.assert_allclose(episode["reward"][0, t].numpy(), view.reward[0])
                assert bool(episode["terminated"][0, t]) == bool(view.terminated[0])
            assert view.final is not None
            np.testing.assert_array_equal(episode["obs"][0, length].numpy(), view.final.obs[0])


def test_greedy_actions_are_those_of_the_whole_sequence_unroll() -> None:
    rollout = make_rollout(make_batched("foraging", KEY, n_copies=4), greedy=True)
    for finished in collect(rollout, 30):
        episodes = finished.episodes
        mac = rollout.mac
        assert isinstance(mac, BasicMAC)
        with torch.no_grad():
            played = mac.trajectories(episodes)
            whole = mac.policy.unroll(mac.policy.inputs.packed(played), played)
            q = played.packing.unpack(whole).masked_fill(~episodes["avail_actions"], -torch.inf)
        for row in range(len(episodes)):
            length = int(episodes.lengths[row]) - 1
            best = q[row, :length].argmax(-1)
            assert torch.equal(best, episodes["actions"][row, :length])


def test_a_time_out_is_stored_as_a_truncation_and_an_emptied_field_as_a_termination() -> None:
    rollout = make_rollout(make_batched("foraging", KEY, n_copies=16))
    endings = set()
    for finished in collect(rollout, 60):
        for row, truncated in enumerate(finished.stats.truncated):
            length = int(finished.stats.lengths[row])
            last = bool(finished.episodes["terminated"][row, length - 1])
            assert last is not bool(truncated)
            assert not finished.episodes["terminated"][row, : length - 1].any()
            assert (length == 12) or not truncated
            endings.add(bool(truncated))
    assert endings == {True, False}


@pytest.mark.parametrize("limit_terminates", [False, True])
def test_a_time_out_counts_as_an_end_where_the_configuration_says_so(
    limit_terminates: bool,
) -> None:
    words = ["--config=iql", "--env-config=foraging", f"--limit_terminates={limit_terminates}"]
    config = load_command_line(words).config
    env = make_batched("foraging", {**KEY, "max_episode_steps": 2}, n_copies=4)
    mac = make_controller(config, env.spec, CPU)
    rollout = from_config(config, env=env, mac=mac, stream="train", device=CPU, greedy=True)
    cut = [f for f in collect(rollout, 8) if f.stats.truncated.any()]
    assert cut
    for finished in cut:
        last = finished.episodes["terminated"][finished.stats.truncated, :2]
        assert last.tolist() == [[False, limit_terminates]] * len(last)


def test_common_reward_is_the_sum_of_the_agents_rewards() -> None:
    own = make_rollout(make_batched("foraging", KEY, n_copies=8))
    team = make_rollout(make_batched("foraging", KEY, n_copies=8), common=True)
    for (_, mine), (_, ours) in zip(rows(collect(own, 40)), rows(collect(team, 40)), strict=True):
        torch.testing.assert_close(mine["reward"].sum(-1, keepdim=True), ours["reward"])


@pytest.mark.long
def test_worker_processes_give_the_same_episodes_as_one_process() -> None:
    here = make_rollout(make_batched("foraging", KEY, n_copies=4))
    workers = WorkerVectorEnv(factory=BatchFactory("foraging", KEY), n_copies=4, n_workers=2)
    try:
        there = make_rollout(workers)
        mine, theirs = rows(collect(here, 30)), rows(collect(there, 30))
        assert len(mine) == len(theirs) > 5
        for (copy, a), (other, b) in zip(mine, theirs, strict=True):
            assert copy == other
            for name in a.scheme.fields:
                assert torch.equal(a[name], b[name]), name
    finally:
        workers.close()


def test_a_rollout_continues_from_its_state_in_mid_episode() -> None:
    first = make_rollout(make_batched("foraging", KEY, n_copies=4))
    collect(first, 17)
    second = make_rollout(make_batched("foraging", KEY, n_copies=4))
    collect(second, 5)
    second.load_state_dict(first.state_dict())
    for (_, a), (_, b) in zip(rows(collect(first, 40)), rows(collect(second, 40)), strict=True):
        for name in a.scheme.fields:
            assert torch.equal(a[name], b[name]), name


def test_a_game_without_snapshots_abandons_its_episodes_and_still_continues_equally() -> None:
    game = "tests.unit.counter_game:CounterEnv"
    first = make_rollout(make_batched(game, {}, n_copies=3), common=True)
    assert not first.env.exact_snapshots
    collect(first, 4)
    state = first.state_dict()
    second = make_rollout(make_batched(game, {}, n_copies=3), common=True)
    second.load_state_dict(state)
    for (_, a), (_, b) in zip(rows(collect(first, 40)), rows(collect(second, 40)), strict=True):
        assert torch.equal(a["obs"], b["obs"])
        assert torch.equal(a["actions"], b["actions"])


@pytest.mark.parametrize("episodes", [1, 5, 8, 13])
def test_a_test_has_exactly_the_episodes_asked_for_and_no_bias_to_short_ones(episodes: int) -> None:
    rollout = make_rollout(make_batched("foraging", KEY, n_copies=4))
    played = play_episodes(rollout, episodes, round_number=0, env_steps=0)
    copies = np.concatenate([f.stats.copies for f in played])
    assert len(copies) == episodes
    counts = np.bincount(copies, minlength=4)
    assert counts.max() - counts.min() <= 1


def test_tests_with_the_same_number_repeat_and_with_another_differ() -> None:
    rollout = make_rollout(make_batched("foraging", KEY, n_copies=4))
    first = run_test(rollout, 12, round_number=0, env_steps=0)
    other = run_test(rollout, 12, round_number=1, env_steps=0)
    again = run_test(rollout, 12, round_number=0, env_steps=0)
    np.testing.assert_array_equal(first.returns, again.returns)
    np.testing.assert_array_equal(first.lengths, again.lengths)
    assert not np.array_equal(first.lengths, other.lengths)
