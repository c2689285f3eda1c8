"""Agents that leave an episode early, and goals they reach: from the game to the stored episode."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from omg.components.episodes import environment_scheme
from omg.components.seeding import SeedTree
from omg.components.trajectories import Trajectories
from omg.config.loader import load_command_line
from omg.controllers.team import BasicMAC
from omg.envs.check import CHECKS, check_multi_agent_env
from omg.envs.check_play import Subject, difference
from omg.envs.contract import BatchedEnv
from omg.envs.registry import make_batched
from omg.envs.vector import SerialVectorEnv, episode_seed
from omg.envs.workers import WorkerVectorEnv
from omg.functional import Packing, hindsight_goals
from omg.policies.inputs import InputSettings, ModelRowBuilder, StepView
from omg.runners.rollout import Rollout
from omg.types import OmgError
from tests.unit.leaver_game import LeaverEnv

CPU = torch.device("cpu")


def batched(n_copies: int) -> SerialVectorEnv:
    return SerialVectorEnv(factory=LeaverEnv, n_copies=n_copies)


def rollout_of(env: BatchedEnv) -> Rollout:
    torch.manual_seed(3)
    config = load_command_line(["--config=iql", "--env-config=foraging"]).config
    return Rollout(
        env=env,
        mac=BasicMAC(config=config, spec=env.spec, device=CPU),
        scheme=environment_scheme(env.spec, common_reward=False),
        seeds=SeedTree(7),
        stream="train",
        device=CPU,
        common_reward=False,
        reward_scalarisation="sum",
    )


def stored(env: BatchedEnv, steps: int = 40) -> Any:
    rollout = rollout_of(env)
    return [found for _ in range(steps) if (found := rollout.step(0)) is not None]


@pytest.mark.long
def test_a_game_with_leavers_and_goals_passes_every_check() -> None:
    results = check_multi_agent_env(LeaverEnv, steps=60)
    assert [result for result in results if not result.ok] == []
    details = {result.name: result.detail for result in results}
    assert details["leavers"].endswith("left")
    assert not details["leavers"].startswith("0")
    assert details["goals"].startswith("2, reached")


class Spoiled(SerialVectorEnv):
    """The game with its steps spoiled in one respect."""

    def __init__(self, *, spoil: Any, n_copies: int, first_copy: int) -> None:
        super().__init__(factory=LeaverEnv, n_copies=n_copies, first_copy=first_copy)
        self._spoil = spoil

    def step(self, actions: Any) -> Any:
        step = super().step(actions)
        assert step.alive is not None
        assert step.reached is not None
        changed = self._spoil(step)
        return step if changed is None else changed


@pytest.mark.parametrize(
    ("check", "words", "spoil"),
    [
        ("leavers", "observes", lambda s: replace(s, obs=s.obs + 1)),
        ("leavers", "other than action 0", lambda s: replace(s, avail=s.avail | True)),
        ("leavers", "is rewarded", lambda s: replace(s, reward=s.reward + 1)),
        ("leavers", "alive must be bool", lambda s: replace(s, alive=None)),
        ("leavers", "absent at the start", lambda s: replace(
            s, alive=s.alive & False, obs=s.obs * 0, avail=s.avail & [True, False])),
        ("goals", "must be int64", lambda s: replace(s, reached=None)),
        ("goals", "none of -1 to 1", lambda s: replace(s, reached=s.reached + 5)),
        ("goals", "absent agent reaches", lambda s: replace(s, reached=s.reached * 0)),
    ],
)  # fmt: skip
def test_the_checks_fail_on_a_game_broken_in_that_respect(
    check: str, words: str, spoil: Any
) -> None:
    with pytest.raises(AssertionError, match=words):
        CHECKS[check](Subject(factory=partial(Spoiled, spoil=spoil), steps=40, seed=0))


def test_a_game_that_announces_leavers_must_say_who_is_alive() -> None:
    class Silent(LeaverEnv):
        get_alive = None  # type: ignore[assignment]

    with pytest.raises(OmgError, match=r"no get_alive\(\)"):
        SerialVectorEnv(factory=Silent, n_copies=1)


def test_a_game_that_names_goals_must_say_which_were_reached() -> None:
    class Silent(LeaverEnv):
        def step(self, actions: Any) -> Any:
            reward, over, _ = super().step(actions)
            return reward, over, {}

    env = SerialVectorEnv(factory=Silent, n_copies=1)
    env.reset(0)
    with pytest.raises(OmgError, match="which goals were reached"):
        env.step(np.zeros((1, 3), np.int64))


@pytest.mark.long
def test_worker_processes_hand_over_who_left_and_what_was_reached() -> None:
    here = batched(3)
    there = WorkerVectorEnv(
        factory=partial(SerialVectorEnv, factory=LeaverEnv), n_copies=3, n_workers=2
    )
    try:
        views: list[list[Any]] = [[here.reset(5)], [there.reset(5)]]
        for _ in range(20):
            actions = np.ones((3, 3), np.int64)
            views[0].append(here.step(actions))
            views[1].append(there.step(actions))
        assert difference(*views) == ""
        assert all(view.alive is not None for view in views[1])
        assert any((step.reached >= 0).any() for step in views[1][1:])
        assert any(step.final is not None and not step.final.alive.all() for step in views[1][1:])
    finally:
        there.close()


def test_stored_episodes_say_who_still_acted_and_who_reached_what() -> None:
    env = batched(2)
    seed = SeedTree(7).integer("train.env", 0)
    episodes = {0: 0, 1: 0}
    seen = left_early = 0
    for finished in stored(env):
        for row, copy in enumerate(finished.stats.copies.tolist()):
            game = LeaverEnv()
            game.reset(episode_seed(seed, copy, episodes[copy]))
            episodes[copy] += 1
            batch = finished.episodes[row]
            length = int(batch.lengths[0])
            assert batch.raw("alive").dtype == torch.bool
            assert batch.raw("reached").dtype == torch.int8
            for t in range(length):
                np.testing.assert_array_equal(batch["alive"][0, t], game.get_alive())
                if t == length - 1:
                    assert (batch["reached"][0, t] == -1).all()
                    break
                _, _, info = game.step(batch["actions"][0, t].tolist())
                np.testing.assert_array_equal(batch["reached"][0, t], info["reached"])
                left_early += int((~game.get_alive()).any() and t < length - 2)
            seen += 1
    assert seen >= 6
    assert left_early > 0


def test_a_rollout_with_leavers_continues_from_its_state() -> None:
    one, other = rollout_of(batched(2)), rollout_of(batched(2))
    for _ in range(5):
        one.step(0)
    other.load_state_dict(one.state_dict())
    for _ in range(12):
        left, right = one.step(0), other.step(0)
        assert (left is None) == (right is None)
        if left is not None and right is not None:
            for name in ("alive", "reached", "obs", "actions"):
                torch.testing.assert_close(left.episodes[name], right.episodes[name])


def test_a_game_without_leavers_and_goals_stores_what_it_always_did() -> None:
    env = make_batched("foraging", {"key": "Foraging-5x5-2p-1f-v3"}, n_copies=1)
    scheme = environment_scheme(env.spec, common_reward=True)
    assert list(scheme.fields) == [
        "state", "obs", "actions", "avail_actions", "reward", "terminated"
    ]  # fmt: skip
    view = env.reset(0)
    step = env.step(np.zeros((1, 2), np.int64))
    assert view.alive is None
    assert step.alive is None
    assert step.reached is None


def test_model_rows_hide_what_absent_others_did_last_acting_as_stored() -> None:
    env = batched(2)
    config = load_command_line(["--config=iql_am", "--env-config=foraging"]).config
    builder = ModelRowBuilder(config, env.spec, InputSettings.of(config, env.spec))
    batch = max((f.episodes for f in stored(env)), key=lambda b: b.max_seq_length)
    played = Trajectories.of(batch)
    assert played.alive is not None
    assert not played.alive.all()
    rows = builder.stored(played)
    assert rows.others_alive is not None
    assert (rows.others_last[~rows.others_alive] == -1).all()
    last = played.last_actions(everybody=True).long()
    view = StepView(
        obs=played.pack("obs"),
        state=played.pack("state"),
        avail=played.pack("avail_actions"),
        last_actions=last,
        alive=played.team_alive,
    )
    acting = builder.acting(view, played.seats_PN)
    torch.testing.assert_close(acting.others_alive, rows.others_alive)
    torch.testing.assert_close(acting.others_last, rows.others_last)
    some = torch.tensor([0, 3])
    assert rows.take(some).others_alive is not None
    own = view.of_seats(played.seats_PN[:, :1])
    assert own.alive is not None
    assert own.alive.shape == (len(last), 3)  # of everybody, whoever is in view


def test_the_hindsight_goal_is_the_first_one_reached_from_a_slot_on() -> None:
    generator = np.random.default_rng(2)
    lengths = [5, 2, 7]
    filled = torch.arange(7) < torch.tensor(lengths).unsqueeze(1)
    packing = Packing.of(filled, torch.zeros(3, 7, dtype=torch.bool))
    reached = np.where(generator.random((3, 7, 4)) < 0.25, generator.integers(0, 3, (3, 7, 4)), -1)
    found = packing.unpack(hindsight_goals(packing.pack(torch.tensor(reached)), packing))
    for b, length in enumerate(lengths):
        for t in range(length):
            for n in range(4):
                later = [g for g in reached[b, t:length, n] if g >= 0]
                assert found[b, t, n] == (later[0] if later else -1)
