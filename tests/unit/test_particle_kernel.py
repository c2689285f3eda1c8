"""Steps of moving discs in C and in NumPy: equal in every bit, rewards up to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omg.compiled import use_kernels
from omg.envs.particles.env import ParticleEnv
from omg.envs.particles.kernel import particle_kernel
from omg.envs.predator_prey import PredatorPreyEnv
from omg.envs.spread import SpreadEnv
from omg.types import OmgError, TimeStep

kernel, reason = particle_kernel()
pytestmark = pytest.mark.skipif(kernel is None, reason=reason)
Game = ParticleEnv[Any]


def both(kind: type[Game], args: dict[str, Any], copies: int) -> list[Game]:
    """The same games in C and in NumPy."""
    games = [kind(args=args, n_copies=copies) for _ in range(2)]  # type: ignore[call-arg]
    for game, used in zip(games, (kernel, None), strict=True):
        game.use(used)
        game.reset(3)
    assert games[0]._in_c is not None
    assert games[1]._in_c is None
    return games


def assert_equal(games: list[Game], steps: list[TimeStep]) -> None:
    ours, theirs = steps
    for name in ("obs", "state", "avail", "terminated", "truncated"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), name)
    np.testing.assert_allclose(ours.reward, theirs.reward, rtol=1e-6, atol=1e-6)
    assert list(ours.info) == list(theirs.info)
    for name in ours.info:
        np.testing.assert_array_equal(ours.info[name], theirs.info[name], name)
    assert (ours.final is None) == (theirs.final is None)
    if ours.final is not None and theirs.final is not None:
        for name in ("copies", "obs", "state", "avail"):
            np.testing.assert_array_equal(getattr(ours.final, name), getattr(theirs.final, name))
    first, second = (game.snapshot() for game in games)
    assert first.keys() == second.keys()
    for name, value in first.items():
        if name == "score":
            np.testing.assert_allclose(value, second[name], rtol=1e-12, atol=1e-12)
        else:
            np.testing.assert_array_equal(value, second[name], name)


def play(games: list[Game], steps: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        actions = rng.integers(0, 5, (games[0].n_copies, games[0].spec.n_agents))
        assert_equal(games, [game.step(actions) for game in games])


def test_a_subclass_with_rules_of_its_own_is_not_bypassed() -> None:
    class Doubled(SpreadEnv):
        def _outcome(self) -> Any:
            return 2 * super()._outcome()

    class Named(SpreadEnv):
        pass

    games = [kind(args={}, n_copies=2) for kind in (SpreadEnv, Doubled, Named)]
    for game in games:
        game.reset(0)
    actions = np.ones((2, 3), np.int64)
    plain, doubled, named = (game.step(actions).reward for game in games)
    np.testing.assert_allclose(doubled, 2 * plain, rtol=1e-6)
    np.testing.assert_array_equal(named, plain)
    assert games[2]._in_c is not None


@pytest.mark.long
@settings(max_examples=30, deadline=None)
@given(
    n_agents=st.integers(1, 12),
    copies=st.integers(1, 11),
    limit=st.integers(1, 7),
    ratio=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_spread_in_c_is_spread_in_numpy(
    n_agents: int, copies: int, limit: int, ratio: float, seed: int
) -> None:
    args = {"n_agents": n_agents, "max_cycles": limit, "local_ratio": ratio}
    play(both(SpreadEnv, args, copies), 2 * limit + 1, seed)


@pytest.mark.long
@settings(max_examples=30, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(0, 4)),
    copies=st.integers(1, 11),
    limit=st.integers(1, 7),
    shaped=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_predator_prey_in_c_is_predator_prey_in_numpy(
    sizes: tuple[int, int, int], copies: int, limit: int, shaped: bool, seed: int
) -> None:
    names = ("n_predators", "n_prey", "n_obstacles")
    args = {**dict(zip(names, sizes, strict=True)), "max_cycles": limit, "shaped_reward": shaped}
    play(both(PredatorPreyEnv, args, copies), 2 * limit + 1, seed)


@pytest.mark.parametrize(
    "where",
    [
        [(0, 0), (0, 0), (0.1, 0.0), (2.0, -3.0)],  # on one spot, and far outside
        [(0.95, 0.99), (0.95, 1.0), (1.0, -0.9), (0.9, 0.999)],  # at the border
        [(0, 0), (0.12, 0), (-0.124, 0), (0.0, 0.125)],  # about to touch
    ],
)
def test_bodies_that_push_each_other_do_so_alike(where: list[tuple[float, float]]) -> None:
    games = both(PredatorPreyEnv, {"shaped_reward": True}, 2)
    for game in games:
        game.set_layout(
            *(1,), agent_pos=where, agent_vel=[(3.0, -2.0)] * 4, obstacles=[(0, 0.2), (0.1, 0.2)]
        )
    play(games, 8, 0)


@pytest.mark.long
def test_many_copies_and_many_bodies_agree() -> None:
    play(both(SpreadEnv, {"n_agents": 100, "max_cycles": 2}, 3), 4, 0)
    most = {"n_predators": 100, "n_prey": 100, "n_obstacles": 100, "max_cycles": 2}
    play(both(PredatorPreyEnv, most, 2), 3, 0)


def test_a_snapshot_goes_on_in_numpy_as_in_c() -> None:
    games = both(SpreadEnv, {"max_cycles": 6}, 4)
    rng = np.random.default_rng(1)
    for _ in range(4):
        games[0].step(rng.integers(0, 5, (4, 3)))
    games[1].restore(games[0].snapshot())
    play(games, 9, 2)
    games[1].use(kernel)
    games[0].use(None)
    play(games, 9, 3)


@pytest.mark.parametrize("actions", [[[0, 1, 5]], [[0, -1, 2]], [[0, 1]], [[0.0, 1.0, 2.0]]])
def test_actions_that_do_not_exist_are_refused_and_nothing_moves(actions: list[Any]) -> None:
    game = both(SpreadEnv, {}, 1)[0]
    before = game.snapshot()
    with pytest.raises(OmgError, match="integers from 0 to 4"):
        game.step(np.array(actions))
    after = game.snapshot()
    assert all((before[name] == after[name]).all() for name in before)


def test_other_kinds_of_integers_and_frozen_arrays_are_actions_too() -> None:
    games = both(SpreadEnv, {}, 2)
    chosen = np.array([[1, 2, 3], [4, 0, 1]])
    frozen = chosen.copy()
    frozen.flags.writeable = False
    assert_equal(games, [games[0].step(chosen.astype(np.uint8)), games[1].step(chosen)])
    assert_equal(games, [games[0].step(frozen), games[1].step(chosen)])
    assert_equal(games, [games[0].step(chosen.T.copy().T), games[1].step(chosen)])


def test_a_step_gives_fresh_arrays() -> None:
    game = both(SpreadEnv, {}, 2)[0]
    first = game.step(np.zeros((2, 3), np.int64))
    seen = first.obs.copy()
    first.obs[:] = 9.0
    second = game.step(np.ones((2, 3), np.int64))
    assert not np.shares_memory(first.obs, second.obs)
    assert (second.obs != 9.0).all()
    assert (seen != 9.0).all()


def test_without_kernels_steps_are_made_in_numpy() -> None:
    use_kernels(False)
    try:
        game = SpreadEnv(args={}, n_copies=1)
        game.reset(0)
        game.step(np.zeros((1, 3), np.int64))
        assert game._in_c is None
    finally:
        use_kernels(True)
    game = SpreadEnv(args={}, n_copies=1)
    game.reset(0)
    game.step(np.zeros((1, 3), np.int64))
    assert game._in_c is not None
