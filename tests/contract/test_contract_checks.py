"""The checks pass on a correct environment, and each fails on one broken in its respect."""

from dataclasses import replace
from functools import partial
from typing import ClassVar

import numpy as np
import pytest

from omg.envs.check import CHECKS, check_batched_env, check_multi_agent_env
from omg.envs.check_play import Subject
from omg.envs.toys import TwoStepEnv
from omg.envs.vector import SerialVectorEnv
from tests.unit.counter_game import CounterEnv


class Broken(SerialVectorEnv):
    """Counters whose steps pass through a method that spoils them."""

    def __init__(self, *, n_copies, first_copy):
        super().__init__(factory=CounterEnv, n_copies=n_copies, first_copy=first_copy)

    def spoil(self, step):
        return step

    def step(self, actions):
        return self.spoil(super().step(actions))


class WrongDtype(Broken):
    def spoil(self, step):
        return replace(step, obs=step.obs.astype(np.float64))


class NotFinite(Broken):
    def spoil(self, step):
        return replace(step, reward=step.reward * np.nan)


class Fractions(Broken):
    def spoil(self, step):
        return replace(step, obs=step.obs + np.float32(0.5))


class Described(Broken):
    """Says something of its seats."""

    told: ClassVar[dict] = {}

    def __init__(self, *, n_copies, first_copy):
        super().__init__(n_copies=n_copies, first_copy=first_copy)
        self.spec = replace(self.spec, **self.told)


class FullPadding(Described):
    told: ClassVar = {"obs_dims": (2, 1)}


class TwoRoles(Described):
    told: ClassVar = {"roles": ("hunter",)}


class NoOpponents(Described):
    told: ClassVar = {"opposed": True, "roles": ("hunter", "hunter")}


class NoSuchColumn(Described):
    told: ClassVar = {"agent_features": ((0,), (77,))}


class NoSuchAction(Described):
    told: ClassVar = {"event_actions": (0, 44)}


class NoAction(Broken):
    def spoil(self, step):
        step.avail[1, 0] = False
        return step


class BothEnds(Broken):
    def spoil(self, step):
        return replace(step, terminated=step.terminated | step.truncated)


class NoFinal(Broken):
    def spoil(self, step):
        return replace(step, final=None)


class FinalWithoutEnd(Broken):
    def spoil(self, step):
        none = np.zeros_like(step.truncated)
        return replace(step, terminated=none, truncated=none)


class LimitAsTermination(Broken):
    def spoil(self, step):
        both = step.terminated | step.truncated
        return replace(step, terminated=both, truncated=np.zeros_like(both))


class GoesOn(Broken):
    """Hides its ends, as if it played on after the limit."""

    def spoil(self, step):
        none = np.zeros_like(step.truncated)
        return replace(step, terminated=none, truncated=none, final=None)


class Unseeded(Broken):
    generator = np.random.default_rng(0)

    def spoil(self, step):
        return replace(step, state=step.state + np.float32(self.generator.random()))


class RememberingReset(Broken):
    """A second reset starts one episode later."""

    resets = -1

    def reset(self, seed):
        self.resets += 1
        return self.reset_at(seed, [self.resets] * self.n_copies)


class Mixing(Broken):
    def spoil(self, step):
        return replace(step, state=step.state + step.obs[:, :, 0].sum())


class LocalNumbers(Broken):
    """Forgets `first_copy`."""

    def __init__(self, *, n_copies, first_copy):
        super().__init__(n_copies=n_copies, first_copy=0)


class DependentRestart(Broken):
    played = 0

    def step(self, actions):
        self.played += 1
        return super().step(actions)

    def restart(self):
        return self.reset_at(self._seed, [1 + self.played] * self.n_copies)


class ForgetfulSnapshot(Broken):
    def snapshot(self):
        return super().snapshot() | {"episodes": np.zeros(self.n_copies, np.int64)}


class ObjectSnapshot(Broken):
    def snapshot(self):
        return super().snapshot() | {"game": np.array([self], object)}


class ReusedArrays(Broken):
    buffer = None

    def spoil(self, step):
        if self.buffer is None:
            self.buffer = step.obs.copy()
        self.buffer[...] = step.obs
        return replace(step, obs=self.buffer)


class NoStatistics(Broken):
    def spoil(self, step):
        return replace(step, info={})


class Raising(Broken):
    def spoil(self, step):
        raise ValueError("out of food")


def failures(factory):
    results = check_batched_env(factory, steps=40)
    assert [result.name for result in results] == list(CHECKS)
    return {result.name: result.detail for result in results if not result.ok}


@pytest.mark.parametrize("game", [CounterEnv, TwoStepEnv])
def test_a_correct_environment_passes_every_check(game):
    results = check_multi_agent_env(game, steps=60)
    assert [result for result in results if not result.ok] == []
    assert {result.name for result in results} == set(CHECKS)


@pytest.mark.parametrize(
    ("broken", "name", "words"),
    [
        (WrongDtype, "shapes and dtypes", "float64"),
        (NotFinite, "finite values", "reward holds NaN"),
        (Fractions, "storage dtypes", "as int8"),
        (FullPadding, "seats", "Seat 1 has 1 features"),
        (TwoRoles, "seats", "roles has 1 entries for 2 agents"),
        (NoOpponents, "seats", "opposed needs roles"),
        (NoSuchColumn, "seats", "column 77"),
        (NoSuchAction, "seats", "event_actions names 44"),
        (NoAction, "available actions", "Agent 0 of copy 1"),
        (BothEnds, "terminated or truncated", "both"),
        (NoFinal, "final observations", "ended at step"),
        (FinalWithoutEnd, "final observations", "ended at step"),
        (LimitAsTermination, "episode limit", "none was truncated"),
        (GoesOn, "episode limit", "goes on after its limit"),
        (Unseeded, "same seed", "Two runs"),
        (RememberingReset, "same seed", "second reset"),
        (Mixing, "independent copies", "copy 1"),
        (LocalNumbers, "split copies", "first_copy=2"),
        (DependentRestart, "restart", "depends on the one before"),
        (ForgetfulSnapshot, "snapshot", "differently"),
        (ObjectSnapshot, "snapshot", "objects"),
        (ReusedArrays, "unmodified arrays", "changes after"),
        (NoStatistics, "statistics", "'solved' is missing"),
    ],
)
def test_each_check_fails_on_an_environment_broken_in_that_respect(broken, name, words):
    with pytest.raises(AssertionError, match=words):
        CHECKS[name](Subject(factory=broken, steps=40, seed=0))


def test_an_exception_becomes_a_failed_result_of_every_check_that_steps():
    found = failures(Raising)
    assert found["same seed"] == "It raised ValueError: out of food"
    assert len(found) == len(CHECKS)


def test_a_game_without_chance_only_gets_a_warning_about_its_seed():
    results = {r.name: r for r in check_multi_agent_env(TwoStepEnv, steps=10)}
    assert results["other seed"].ok
    assert results["other seed"].detail.startswith("warning")


def test_exact_snapshots_are_tried_in_mid_episode():
    class ClaimsExactness(Broken):
        exact_snapshots = True

    assert "middle of an episode" in failures(ClaimsExactness)["snapshot"]


def test_the_factory_is_called_with_keywords():
    seen = []

    def factory(**arguments):
        seen.append(arguments)
        return partial(SerialVectorEnv, factory=TwoStepEnv)(**arguments)

    check_batched_env(factory, steps=5)
    assert {"n_copies": 2, "first_copy": 2} in seen
