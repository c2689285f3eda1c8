"""Our Spread against mpe2's simple_spread: same situation, same actions, same outcome."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from omg.envs.spread import SpreadEnv

reference = pytest.importorskip("mpe2.simple_spread_v3")

COPIES = 5
STEPS = 160
# Doubles against doubles, and our single-precision views against their doubles.
EXACT: dict[str, float] = {"rtol": 1e-9, "atol": 1e-11}
CLOSE: dict[str, float] = {"rtol": 1e-6, "atol": 1e-7}


def game(agents: int, ratio: float, cycles: int = 25) -> dict[str, Any]:
    return {"n_agents": agents, "local_ratio": ratio, "max_cycles": cycles}


GAMES = {
    "1": game(1, 0.5),
    "2-all-local": game(2, 1.0, cycles=40),
    "3": game(3, 0.5),
    "3-none-local": game(3, 0.0),
    "4-short": game(4, 0.25, cycles=7),
    "5": game(5, 0.9),
    "6-long": game(6, 0.5, cycles=80),
}


def make_reference(args: dict[str, Any], seed: int) -> Any:
    env = reference.parallel_env(
        N=args["n_agents"],
        local_ratio=args["local_ratio"],
        max_cycles=args["max_cycles"],
        benchmark_data=True,
    )
    env.reset(seed=seed)
    return env


def world_of(env: Any) -> Any:
    return env.aec_env.unwrapped.world


def places(env: Any) -> NDArray[np.float64]:
    return np.array([body.state.p_pos for body in world_of(env).entities])


def velocities(env: Any) -> NDArray[np.float64]:
    return np.array([agent.state.p_vel for agent in world_of(env).agents])


def observations(env: Any) -> NDArray[np.float64]:
    inner = env.aec_env.unwrapped
    return np.array(
        [inner.scenario.observation(agent, inner.world) for agent in inner.world.agents]
    )


def put(ours: SpreadEnv, copy: int, theirs: Any) -> None:
    where, n = places(theirs), ours.spec.n_agents
    ours.set_layout(copy, agent_pos=where[:n], landmarks=where[n:], agent_vel=velocities(theirs))


def assert_same_view(obs: Any, state: Any, theirs: Any) -> None:
    np.testing.assert_allclose(obs, observations(theirs), **CLOSE)
    where, speed = places(theirs), velocities(theirs)
    agents = np.concatenate([where[: len(speed)], speed], axis=1)
    wanted = np.concatenate([agents.ravel(), where[len(speed) :].ravel()])
    np.testing.assert_allclose(state, wanted, **CLOSE)


def act(rng: np.random.Generator, where: NDArray[np.float64]) -> NDArray[np.int64]:
    """Mostly to the landmark of one's number, or to the next agent's, which makes them collide."""
    n = len(where) // 2
    goal = where[n + (np.arange(n) + (rng.random(n) < 0.3)) % n]
    way = goal - where[:n]
    axis = np.abs(way).argmax(1)
    sign = np.take_along_axis(way, axis[:, None], 1)[:, 0] > 0
    return np.where(rng.random(n) < 0.3, rng.integers(0, 5, n), 1 + 2 * axis + sign)


def play(args: dict[str, Any], seed: int) -> dict[str, int]:
    """Compare everything along random play; count what happened."""
    rng = np.random.default_rng(seed)
    ours = SpreadEnv(args=args, n_copies=COPIES)
    ours.reset(seed)
    twin = SpreadEnv(args={**args, "max_cycles": 10**6}, n_copies=COPIES)
    theirs = [make_reference(args, seed + copy) for copy in range(COPIES)]
    for copy, env in enumerate(theirs):
        put(ours, copy, env)
    collisions = np.zeros(COPIES)
    counts = dict.fromkeys(("collisions", "covered", "uncovered", "fast", "limits"), 0)
    clock = 0
    for _ in range(STEPS):
        clock += 1
        actions = np.stack([act(rng, places(env)) for env in theirs])
        before = ours.observe()
        for copy, env in enumerate(theirs):
            assert_same_view(before.obs[copy], before.state[copy], env)
        # What the bodies do, in double precision and before anybody is restarted.
        twin.restore(ours.snapshot())
        twin.step(actions)
        after = twin.snapshot()
        step = ours.step(actions)
        limit = clock == args["max_cycles"]
        assert not step.terminated.any()
        assert step.truncated.tolist() == [limit] * COPIES
        for copy, env in enumerate(theirs):
            seats = env.possible_agents
            _, reward, ended, cut, told = env.step(
                dict(zip(seats, actions[copy].tolist(), strict=True))
            )
            np.testing.assert_allclose(after["place"][copy], places(env), **EXACT)
            np.testing.assert_allclose(after["velocity"][copy], velocities(env), **EXACT)
            wanted = [reward[name] for name in seats]
            np.testing.assert_allclose(step.reward[copy], wanted, **CLOSE)
            assert not any(ended.values())
            assert set(cut.values()) == {limit}
            # mpe2 counts a collision for each of the two, and occupied landmarks.
            hits, occupied = zip(
                *(told[name]["benchmark_data"][1::2] for name in seats), strict=True
            )
            collisions[copy] += sum(hits) / 2
            assert step.info["collisions"][copy] == collisions[copy]
            np.testing.assert_allclose(
                step.info["covered"][copy], occupied[0] / args["n_agents"], **CLOSE
            )
            counts["collisions"] += sum(hits)
            counts["covered"] += occupied[0]
            counts["uncovered"] += args["n_agents"] - occupied[0]
            # Faster than anybody in Predator-Prey may be: there is no limit here.
            counts["fast"] += int((np.linalg.norm(velocities(env), axis=1) > 1.3).sum())
            if limit:
                assert step.final is not None
                assert_same_view(step.final.obs[copy], step.final.state[copy], env)
                counts["limits"] += 1
                env.reset()
                put(ours, copy, env)
        if limit:
            clock = 0
            collisions[:] = 0
    return counts


@pytest.mark.parametrize("name", GAMES)
def test_hundreds_of_random_transitions_equal_those_of_the_reference(name: str) -> None:
    args = GAMES[name]
    counts = play(args, seed=len(name))
    for event in ("covered", "uncovered", "fast", "limits"):
        assert counts[event] > 0, event
    assert (counts["collisions"] > 0) == (args["n_agents"] > 1)


def test_places_are_distributed_like_those_of_the_reference() -> None:
    """Uniform in [-1, 1]², everybody at rest."""
    draws = 1_000
    env = make_reference(GAMES["3"], seed=3)
    theirs = []
    for _ in range(draws):
        env.reset()
        assert not velocities(env).any()
        theirs.append(places(env))
    state = SpreadEnv(args=GAMES["3"], n_copies=draws).reset(1).state
    agents = state[:, :12].reshape(draws, 3, 4)
    assert not agents[:, :, 2:].any()
    mine = np.concatenate([agents[:, :, :2], state[:, 12:].reshape(draws, 3, 2)], axis=1)
    for body in range(6):
        for axis in range(2):
            values = [np.sort(side[:, body, axis]) for side in (mine, np.array(theirs))]
            together = np.concatenate(values)
            shares = [np.searchsorted(v, together, side="right") / draws for v in values]
            # Kolmogorov-Smirnov: 1.95 sqrt(2 / n) is exceeded once in a thousand times.
            assert np.abs(shares[0] - shares[1]).max() < 1.95 * np.sqrt(2 / draws)
            assert 0.98 < np.abs(values[0]).max() <= 1.0
