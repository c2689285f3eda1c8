"""Our Predator-Prey against mpe2's simple_tag: same situation, same actions, same outcome."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from omg.envs.predator_prey import PredatorPreyEnv

reference = pytest.importorskip("mpe2.simple_tag_v3")

COPIES = 6
STEPS = 180
# Doubles against doubles, and our single-precision views against their doubles.
EXACT: dict[str, float] = {"rtol": 1e-9, "atol": 1e-11}
CLOSE: dict[str, float] = {"rtol": 1e-6, "atol": 1e-7}


def game(predators: int, prey: int, obstacles: int, cycles: int = 25) -> dict[str, int]:
    return {
        "n_predators": predators,
        "n_prey": prey,
        "n_obstacles": obstacles,
        "max_cycles": cycles,
    }


GAMES = {
    "3v1-2o": game(3, 1, 2),
    "2v2-2o": game(2, 2, 2),
    "1v1-0o": game(1, 1, 0),
    "1v1-1o": game(1, 1, 1, cycles=60),
    "3v1-0o": game(3, 1, 0, cycles=7),
    "4v2-3o": game(4, 2, 3),
    "2v3-5o": game(2, 3, 5, cycles=40),
    "6v1-4o": game(6, 1, 4),
    "1v4-2o": game(1, 4, 2, cycles=90),
}


def make_reference(args: dict[str, int], seed: int) -> Any:
    env = reference.parallel_env(
        num_good=args["n_prey"],
        num_adversaries=args["n_predators"],
        num_obstacles=args["n_obstacles"],
        max_cycles=args["max_cycles"],
    )
    env.reset(seed=seed)
    return env


def world_of(env: Any) -> Any:
    return env.aec_env.unwrapped.world


def places(env: Any) -> NDArray[np.float64]:
    return np.array([body.state.p_pos for body in world_of(env).entities])


def velocities(env: Any) -> NDArray[np.float64]:
    return np.array([agent.state.p_vel for agent in world_of(env).agents])


def observations(env: Any) -> list[NDArray[np.float64]]:
    inner = env.aec_env.unwrapped
    return [inner.scenario.observation(agent, inner.world) for agent in inner.world.agents]


def put(ours: PredatorPreyEnv, copy: int, theirs: Any) -> None:
    agents = ours.spec.n_agents
    where = places(theirs)
    ours.set_layout(
        copy,
        agent_pos=where[:agents],
        obstacles=where[agents:],
        agent_vel=velocities(theirs),
    )


def assert_same_view(obs: Any, state: Any, theirs: Any) -> None:
    for seat, wanted in enumerate(observations(theirs)):
        np.testing.assert_allclose(obs[seat, : len(wanted)], wanted, **CLOSE)
        assert not obs[seat, len(wanted) :].any()
    where, speed = places(theirs), velocities(theirs)
    agents = np.concatenate([where[: len(speed)], speed], axis=1)
    wanted_state = np.concatenate([agents.ravel(), where[len(speed) :].ravel()])
    np.testing.assert_allclose(state, wanted_state, **CLOSE)


class Players:
    """Hunters that mostly go for somebody, prey that mostly runs somewhere, for some steps each."""

    def __init__(self, rng: np.random.Generator, n_agents: int, n_predators: int) -> None:
        self.rng, self.n_predators = rng, n_predators
        self.goal = rng.normal(0, 0.8, (n_agents, 2))

    def act(self, where: NDArray[np.float64]) -> NDArray[np.int64]:
        rng, n = self.rng, len(self.goal)
        for seat in range(n):
            if rng.random() < 0.15:
                self.goal[seat] = rng.normal(0, 0.8, 2)
            if seat < self.n_predators and rng.random() < 0.5:
                self.goal[seat] = where[rng.integers(self.n_predators, n)]
        way = self.goal - where[:n]
        axis = np.abs(way).argmax(1)
        sign = np.take_along_axis(way, axis[:, None], 1)[:, 0] > 0
        chosen = 1 + 2 * axis + sign
        return np.where(rng.random(n) < 0.3, rng.integers(0, 5, n), chosen)


def count_events(counts: dict[str, int], args: dict[str, int], theirs: Any) -> None:
    bodies, n = world_of(theirs).entities, args["n_predators"] + args["n_prey"]
    where = places(theirs)
    sizes = np.array([body.size for body in bodies])
    gaps = np.linalg.norm(where[:, None] - where[None], axis=-1) - sizes[:, None] - sizes
    touching = np.triu(gaps < 0, 1)
    counts["contacts"] += int(touching[: args["n_predators"], args["n_predators"] : n].sum())
    counts["pushes"] += int(touching[:n, :n].sum())
    counts["obstacles"] += int(touching[:n, n:].sum())
    hunted = np.abs(where[args["n_predators"] : n])
    counts["slope"] += int(((hunted > 0.9) & (hunted < 1.0)).sum())
    counts["beyond"] += int((hunted >= 1.0).sum())
    speed = np.linalg.norm(velocities(theirs), axis=1)
    counts["capped"] += int(
        sum(abs(s - agent.max_speed) < 1e-9 for s, agent in zip(speed, bodies, strict=False))
    )


def play(args: dict[str, int], seed: int) -> dict[str, int]:
    """Compare everything along random play; count what happened."""
    rng = np.random.default_rng(seed)
    ours = PredatorPreyEnv(args=args, n_copies=COPIES)
    ours.reset(seed)
    twin = PredatorPreyEnv(args={**args, "max_cycles": 10**6}, n_copies=COPIES)
    theirs = [make_reference(args, seed + copy) for copy in range(COPIES)]
    players = [Players(rng, ours.spec.n_agents, args["n_predators"]) for _ in theirs]
    for copy, env in enumerate(theirs):
        put(ours, copy, env)
    contacts, first = np.zeros(COPIES), np.full(COPIES, args["max_cycles"])
    names = ("contacts", "pushes", "obstacles", "slope", "beyond", "capped", "limits")
    counts = dict.fromkeys(names, 0)
    clock = 0
    for _ in range(STEPS):
        clock += 1
        actions = np.stack([p.act(places(env)) for p, env in zip(players, theirs, strict=True)])
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
            _, reward, ended, cut, _ = env.step(
                dict(zip(seats, actions[copy].tolist(), strict=True))
            )
            np.testing.assert_allclose(after["place"][copy], places(env), **EXACT)
            np.testing.assert_allclose(after["velocity"][copy], velocities(env), **EXACT)
            wanted = [reward[name] for name in seats]
            np.testing.assert_allclose(step.reward[copy], wanted, **CLOSE)
            assert not any(ended.values())
            assert set(cut.values()) == {limit}
            before_count = counts["contacts"]
            count_events(counts, args, env)
            touched = counts["contacts"] - before_count
            if touched and not contacts[copy]:
                first[copy] = clock
            contacts[copy] += touched
            assert step.info["collisions"][copy] == contacts[copy]
            assert step.info["survival"][copy] == first[copy]
            if limit:
                assert step.final is not None
                assert_same_view(step.final.obs[copy], step.final.state[copy], env)
                counts["limits"] += 1
                env.reset()
                put(ours, copy, env)
        if limit:
            clock = 0
            contacts[:], first[:] = 0, args["max_cycles"]
    return counts


@pytest.mark.parametrize("name", GAMES)
def test_a_thousand_random_transitions_equal_those_of_the_reference(name: str) -> None:
    args = GAMES[name]
    counts = play(args, seed=len(name))
    assert COPIES * STEPS >= 1_000
    for event in ("contacts", "pushes", "slope", "beyond", "capped", "limits"):
        assert counts[event] > 0, event
    assert (counts["obstacles"] > 0) == (args["n_obstacles"] > 0)


def test_places_are_distributed_like_those_of_the_reference() -> None:
    """Uniform, agents in [-1, 1]², obstacles in [-0.9, 0.9]², everybody at rest."""
    draws = 1_500
    env = make_reference(GAMES["2v2-2o"], seed=3)
    theirs = []
    for _ in range(draws):
        env.reset()
        assert not velocities(env).any()
        theirs.append(places(env))
    ours = PredatorPreyEnv(args=GAMES["2v2-2o"], n_copies=draws)
    state = ours.reset(1).state
    agents = state[:, :16].reshape(draws, 4, 4)
    assert not agents[:, :, 2:].any()
    mine = np.concatenate([agents[:, :, :2], state[:, 16:].reshape(draws, 2, 2)], axis=1)
    for body in range(6):
        for axis in range(2):
            values = [np.sort(side[:, body, axis]) for side in (mine, np.array(theirs))]
            together = np.concatenate(values)
            shares = [np.searchsorted(v, together, side="right") / draws for v in values]
            # Kolmogorov-Smirnov: 1.95 sqrt(2 / n) is exceeded once in a thousand times.
            assert np.abs(shares[0] - shares[1]).max() < 1.95 * np.sqrt(2 / draws)
            bound = 1.0 if body < 4 else 0.9
            assert bound * 0.98 < np.abs(values[0]).max() <= bound
