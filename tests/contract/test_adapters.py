"""Adapted environments keep the contract: those of mpe2, lbforaging and rware, and our examples."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from omg.envs.adapters.packages import parallel_environments, parallel_maker
from omg.envs.check import CHECKS, check_batched_env
from omg.envs.check_play import difference
from omg.envs.contract import BatchedEnv
from omg.envs.registry import BatchFactory, make_batched
from omg.envs.serial import episode_seed
from omg.envs.workers import WorkerVectorEnv

MPE = tuple(name.partition(":")[2] for name in parallel_environments("mpe2"))
ENVIRONMENTS: list[tuple[str, dict[str, Any]]] = [
    *(("pettingzoo", {"key": f"mpe2:{name}", "max_cycles": 3}) for name in MPE),
    ("gymnasium", {"key": "lbforaging:Foraging-5x5-2p-1f-v3", "time_limit": 4}),
    ("gymnasium", {"key": "lbforaging:Foraging-2s-8x8-3p-2f-coop-v3", "time_limit": 4}),
    ("gymnasium", {"key": "rware:rware-tiny-2ag-v2", "time_limit": 4}),
    ("gymnasium", {"key": "CartPole-v1", "time_limit": 4}),
    ("pymarl", {"key": "tests.unit.counter_game:CounterEnv"}),
]


def factory(name: str, args: dict[str, Any]) -> Any:
    def make(*, n_copies: int, first_copy: int) -> BatchedEnv:
        return BatchFactory(name, args)(first_copy, n_copies)

    return make


@pytest.mark.parametrize(
    ("name", "args"), ENVIRONMENTS, ids=[args["key"] for _, args in ENVIRONMENTS]
)
def test_every_check_passes(name: str, args: dict[str, Any]) -> None:
    steps = 30 if name == "pymarl" else 7
    results = {
        result.name: result for result in check_batched_env(factory(name, args), steps=steps)
    }
    assert results.keys() == CHECKS.keys()
    assert [result for result in results.values() if not result.ok] == []
    assert not results["other seed"].detail.startswith("warning")
    assert not results["episode limit"].detail.startswith("warning")


@pytest.mark.parametrize("task", ["simple_tag_v3", "simple_speaker_listener_v4"])
def test_transitions_are_those_of_the_game_itself(task: str) -> None:
    args = {"key": f"mpe2:{task}", "max_cycles": 5}
    env, game = make_batched("pettingzoo", args, n_copies=1), parallel_maker(args["key"])
    alone = game(max_cycles=5)
    view = env.reset(3)
    obs, _ = alone.reset(seed=episode_seed(3, 0, 0))
    rng = np.random.default_rng(0)
    for step in range(5):
        for seat, agent in enumerate(alone.possible_agents):
            width = len(obs[agent])
            np.testing.assert_array_equal(view.obs[0, seat, :width], obs[agent])
            assert not view.obs[0, seat, width:].any()
            assert view.avail[0, seat].sum() == alone.action_space(agent).n
        actions = rng.integers(0, view.avail[0].sum(axis=-1))
        obs, rewards, *_ = alone.step(dict(zip(alone.possible_agents, actions, strict=True)))
        view = env.step(actions[None])
        np.testing.assert_array_equal(view.reward[0], np.float32(list(rewards.values())))
        assert view.truncated[0] == (step == 4)
    for seat, agent in enumerate(alone.possible_agents):
        np.testing.assert_array_equal(view.final.obs[0, seat, : len(obs[agent])], obs[agent])
    again, _ = alone.reset(seed=episode_seed(3, 0, 1))
    first = alone.possible_agents[0]
    np.testing.assert_array_equal(view.obs[0, 0, : len(again[first])], again[first])


def test_copies_in_worker_processes_play_the_same_episodes() -> None:
    args = {"key": "mpe2:simple_speaker_listener_v4", "max_cycles": 3}
    here = BatchFactory("pettingzoo", args)(0, 3)
    there = WorkerVectorEnv(
        factory=partial(make_batched, "pettingzoo", args), n_copies=3, n_workers=2
    )
    try:
        assert there.spec == here.spec
        views = [[here.reset(5)], [there.reset(5)]]
        for step in range(5):
            actions = np.full((3, 2), step % 3, np.int64)
            views[0].append(here.step(actions))
            views[1].append(there.step(actions))
        assert difference(*views) == ""
    finally:
        there.close()
