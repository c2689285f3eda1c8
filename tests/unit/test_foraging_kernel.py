"""Foraging in C and in NumPy: equal in every bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omg.compiled import use_kernels
from omg.envs.foraging import ForagingEnv
from omg.envs.foraging.kernel import foraging_kernel
from omg.types import OmgError, TimeStep

kernel, reason = foraging_kernel()
pytestmark = pytest.mark.skipif(kernel is None, reason=reason)
KEYS = (
    "Foraging-8x8-2p-3f-v3",
    "Foraging-5x5-3p-1f-coop-v3",
    "Foraging-2s-6x7-4p-2f-pen-v3",
    "Foraging-6x6-1p-2f-v3",
)


def both(key: str, copies: int, **args: Any) -> list[ForagingEnv]:
    """The same games in C and in NumPy."""
    games = [ForagingEnv(args={"key": key, **args}, n_copies=copies) for _ in range(2)]
    for game, used in zip(games, (kernel, None), strict=True):
        game.use(used)
        game.reset(3)
    return games


def assert_equal(games: list[ForagingEnv], steps: list[TimeStep]) -> None:
    ours, theirs = steps
    for name in ("obs", "state", "avail", "reward", "terminated", "truncated"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), name)
    for name in ours.info:
        np.testing.assert_array_equal(ours.info[name], theirs.info[name], name)
    assert (ours.final is None) == (theirs.final is None)
    if ours.final is not None and theirs.final is not None:
        for name in ("copies", "obs", "state", "avail"):
            np.testing.assert_array_equal(getattr(ours.final, name), getattr(theirs.final, name))
    first, second = (game.snapshot() for game in games)
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name], name)


def play(games: list[ForagingEnv], steps: int, seed: int, *, careful: float = 0.7) -> float:
    """Random games; the share `careful` of the actions is available, and loading is preferred. What
    was earned."""
    rng, seen, earned = np.random.default_rng(seed), games[0].observe(), 0.0
    for _ in range(steps):
        wish = rng.random(seen.avail.shape)
        wish[..., -1] += 0.5
        allowed = seen.avail | (rng.random(seen.avail.shape[:2]) > careful)[..., None]
        actions = np.where(allowed, wish, -1.0).argmax(-1)
        told = [game.step(actions) for game in games]
        assert_equal(games, told)
        earned += float(np.abs(told[0].reward).sum())
        seen = games[0].observe()
    return earned


@pytest.mark.long
@settings(max_examples=30, deadline=None)
@given(
    key=st.sampled_from(KEYS),
    copies=st.integers(1, 9),
    args=st.fixed_dictionaries(
        {
            "max_episode_steps": st.integers(1, 12),
            "normalize_reward": st.booleans(),
            "relative_obs": st.booleans(),
            "observe_agent_levels": st.booleans(),
        }
    ),
    seed=st.integers(0, 2**32),
)
def test_steps_in_c_are_those_in_numpy(
    key: str, copies: int, args: dict[str, Any], seed: int
) -> None:
    play(both(key, copies, **args), 30, seed)


def test_food_is_eaten_alone_and_together_alike() -> None:
    assert play(both("Foraging-5x5-2p-1f-v3", 30, penalty=0.2), 60, 0, careful=1.0) > 5.0


def test_a_snapshot_goes_on_in_numpy_as_in_c() -> None:
    games = both("Foraging-8x8-2p-3f-v3", 4)
    rng = np.random.default_rng(1)
    for _ in range(9):
        games[0].step(rng.integers(0, 6, (4, 2)))
    games[1].restore(games[0].snapshot())
    play(games, 20, 2)
    games[0].use(None)
    games[1].use(kernel)
    play(games, 20, 3)


def test_actions_that_do_not_exist_are_refused_and_nothing_moves() -> None:
    game = both("Foraging-8x8-2p-3f-v3", 1)[0]
    before = game.snapshot()
    with pytest.raises(OmgError, match="integers from 0 to 5"):
        game.step(np.array([[0, 6]]))
    after = game.snapshot()
    assert all((before[name] == after[name]).all() for name in before)


def test_without_kernels_steps_are_made_in_numpy() -> None:
    chosen = []
    for on in (False, True):
        use_kernels(on)
        try:
            game = ForagingEnv(args={"key": KEYS[0]}, n_copies=1)
            game.reset(0)
            game.step(np.zeros((1, 2), np.int64))
            chosen.append(game._games._in_c is not None)
        finally:
            use_kernels(True)
    assert chosen == [False, True]
