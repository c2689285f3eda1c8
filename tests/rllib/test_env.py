"""Our environments as RLlib plays them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ray.tune.registry import ENV_CREATOR, _global_registry

from omg.integrations.rllib import OmgEnv, register
from omg.integrations.rllib.layout import ALIVE, AVAIL, LAST, OBS, SEAT, SLOTS, STATE, TIME
from omg.types import OmgError
from tests.rllib.playing import LEAVERS

NATIVE = ("foraging", "predator_prey", "spread", "matrix_game", "two_step")


def made(name: str, **options: Any) -> OmgEnv:
    """As RLlib makes it by name."""
    register()
    env: OmgEnv = _global_registry.get(ENV_CREATOR, f"omg/{name}")(options)
    return env


def possible(env: OmgEnv, shown: dict[str, Any], rng: np.random.Generator) -> dict[str, int]:
    """A random possible action for everybody who is present."""
    chosen = {}
    for agent in env.agents:
        parts = env.layout.parts(shown[agent])
        mask = parts[AVAIL][int(parts[SLOTS][0]) - 1, int(parts[SEAT][0])]
        chosen[agent] = int(rng.choice(np.flatnonzero(mask)))
    return chosen


@pytest.mark.parametrize("name", NATIVE)
def test_every_native_game_plays_to_its_end(name: str) -> None:
    env, rng = made(name, window=3), np.random.default_rng(0)
    shown, _ = env.reset(seed=1)
    steps, done = 0, False
    while not done:
        for agent in env.agents:
            assert env.observation_spaces[agent].contains(shown[agent])
        shown, rewards, ends, cuts, _ = env.step(possible(env, shown, rng))
        steps += 1
        done = ends["__all__"] or cuts["__all__"]
        assert set(rewards) == set(shown)
    assert steps <= env.env_spec.episode_limit


def test_rllib_knows_all_our_games_by_name() -> None:
    names = register()
    assert {f"omg/{name}" for name in NATIVE} <= set(names)
    env = made("predator_prey")
    assert env.env_spec.roles
    assert len(env.possible_agents) == env.env_spec.n_agents


def test_a_window_holds_the_last_moments_and_who_did_what() -> None:
    env, rng = made("foraging", window=3), np.random.default_rng(0)
    shown, _ = env.reset(seed=4)
    seen, states, done = [], [], [np.full(2, -1)]
    for step in range(6):
        parts = env.layout.parts(shown["seat_1"])
        now = int(parts[SLOTS][0]) - 1
        assert now == min(step, 2)
        assert int(parts[TIME][0]) == step
        seen.append(parts[OBS][now])
        states.append(parts[STATE][now])
        for back in range(now + 1):
            np.testing.assert_array_equal(parts[OBS][now - back], seen[-1 - back])
            np.testing.assert_array_equal(parts[STATE][now - back], states[-1 - back])
            np.testing.assert_array_equal(parts[LAST][now - back], done[-1 - back])
        actions = possible(env, shown, rng)
        done.append(np.array([actions["seat_0"], actions["seat_1"]]))
        shown, *_ = env.step(actions)


def test_who_arrives_gets_a_last_observation_and_is_absent_from_then_on() -> None:
    env = OmgEnv(LEAVERS, {"window": 0})
    shown, _ = env.reset(seed=3)
    start = env.layout.parts(shown["seat_0"])[STATE][0, :3].astype(int)
    for step in range(1, int(start.max()) + 1):
        shown, rewards, ends, cuts, infos = env.step(dict.fromkeys(env.agents, 1))
        present = {f"seat_{seat}" for seat in range(3) if start[seat] >= step}
        leaving = {f"seat_{seat}" for seat in range(3) if start[seat] == step}
        assert set(shown) == set(rewards) == present
        assert {agent for agent in present if ends[agent]} == leaving
        assert not any(cuts.values())
        for agent in present:
            parts = env.layout.parts(shown[agent])
            now = int(parts[SLOTS][0]) - 1
            np.testing.assert_array_equal(parts[ALIVE][now], start > step)
        for agent in leaving:
            assert rewards[agent] == 1 + start[int(agent[-1])] % 2
            assert infos[agent]["reached"] == start[int(agent[-1])] % 2
    assert ends["__all__"]


def test_no_episode_is_begun_that_nobody_plays() -> None:
    env = made("predator_prey")
    env.reset(seed=0)
    begun = [int(env.game._episode[0])]  # type: ignore[attr-defined]
    for _ in range(3):
        done = False
        while not done:
            *_, ends, cuts, _ = env.step(dict.fromkeys(env.agents, 0))
            done = ends["__all__"] or cuts["__all__"]
        env.reset()
        begun.append(int(env.game._episode[0]))  # type: ignore[attr-defined]
    assert begun == [0, 1, 2, 3]
    assert env.episodes == 4


def test_seeds_repeat_and_a_common_reward_goes_to_everybody() -> None:
    first, again = (OmgEnv("spread", {"reward": "mean"}) for _ in range(2))
    shown = [env.reset(seed=7)[0]["seat_0"] for env in (first, again)]
    np.testing.assert_array_equal(*shown)
    _, rewards, *_ = first.step(dict.fromkeys(first.agents, 1))
    assert len(set(rewards.values())) == 1


def test_the_plain_view_is_the_game_s_own_observation() -> None:
    plain, ours = made("foraging", plain=True), made("foraging")
    seen, shown = plain.reset(seed=2)[0], ours.reset(seed=2)[0]
    for seat in range(2):
        parts = ours.layout.parts(shown[f"seat_{seat}"])
        np.testing.assert_array_equal(seen[f"seat_{seat}"], parts[OBS][0, seat])


@pytest.mark.parametrize(
    ("given", "told"),
    [({"field_size": 8}, "env_args"), ({"window": -1}, "window"), ({"reward": "max"}, "reward")],
)
def test_what_an_environment_does_not_take_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(OmgError, match=told):
        OmgEnv("foraging", given)
