"""`SerialVectorEnv` turns PyMARL environments into a batch, `SingleCopyEnv` does the reverse."""

from functools import partial

import numpy as np
import pytest

from omg.envs.registry import GameFactory, SerialVectorEnv, episode_seed
from omg.envs.toys import TwoStepEnv
from omg.types import OmgError, RunFailedError
from tests.unit.counter_game import CounterEnv
from tests.unit.single_copy import SingleCopyEnv

STAY = 1


class Changed(CounterEnv):
    """A counter whose step, info or views can be replaced."""

    def __init__(self, copy=0, *, info=None, **replaced):
        super().__init__(copy)
        self._info, self._replaced = info or {}, replaced

    def step(self, actions):
        reward, done, details = super().step(actions)
        if "details" in self._replaced:
            details = self._replaced["details"]
        done = self._replaced.get("done", done)
        return self._replaced.get("reward", reward), done, details

    def get_obs(self):
        return self._replaced.get("obs", super().get_obs())

    def get_state(self):
        return self._replaced.get("state", super().get_state())

    def get_env_info(self):
        info = super().get_env_info() | self._info
        return {key: value for key, value in info.items() if value is not None}


def batch(n_copies=1, first_copy=0, **changes):
    return SerialVectorEnv(
        factory=partial(Changed, **changes), n_copies=n_copies, first_copy=first_copy
    )


def stay(env):
    return np.full((env.n_copies, env.spec.n_agents), STAY)


def play_to_limit(env):
    return [env.step(stay(env)) for _ in range(env.spec.episode_limit)]


def test_spec_comes_from_env_info():
    spec = batch().spec
    assert (spec.name, spec.n_agents, spec.n_actions) == ("counter", 2, 3)
    assert (spec.obs_dim, spec.state_dim, spec.episode_limit) == (2, 4, 12)
    assert (spec.shared_reward, spec.statistics, spec.obs_dtype) == (False, ("solved",), "int8")


def test_missing_env_info_is_named():
    with pytest.raises(OmgError, match="lacks n_actions"):
        batch(info={"n_actions": None})


def test_episodes_are_seeded_by_seed_copy_and_episode():
    env = batch(2, first_copy=5)
    env.reset(7)
    second = env.restart()
    alone = CounterEnv(6)
    obs, state = alone.reset(seed=episode_seed(7, 6, 1))
    np.testing.assert_array_equal(second.obs[1], obs)
    np.testing.assert_array_equal(second.state[1], state)


def test_an_environment_without_seed_argument_is_reset_without_one():
    class Seedless(TwoStepEnv):
        def reset(self):
            return super().reset()

    env = SerialVectorEnv(factory=Seedless, n_copies=2)
    assert env.reset(3).obs.shape == (2, 2, 4)


def test_limit_reported_by_the_game_is_a_truncation_with_the_last_view():
    env = batch()
    first = env.reset(0)
    *_, last = play_to_limit(env)
    assert last.truncated[0]
    assert not last.terminated[0]
    assert last.final.copies.tolist() == [0]
    np.testing.assert_array_equal(last.final.obs[0, :, 0], first.obs[0, :, 0])
    assert last.final.obs[0, 0, 1] == env.spec.episode_limit
    assert last.obs[0, 0, 1] == 0
    assert last.info["solved"][0] == 0


def test_a_game_that_does_not_stop_is_cut_at_the_limit():
    env = batch(done=False, details={})
    env.reset(0)
    *before, last = play_to_limit(env)
    assert not any(step.truncated[0] for step in before)
    assert last.truncated[0]


@pytest.mark.parametrize(("declared", "truncated"), [(True, True), (False, False)])
def test_plain_end_at_the_limit_is_a_truncation_only_where_declared(declared, truncated):
    env = batch(details={}, info={"limit_is_truncation": declared})
    env.reset(0)
    *_, last = play_to_limit(env)
    assert last.truncated[0] == truncated
    assert last.terminated[0] != truncated


def test_dropped_episode_restarts_without_end_or_reward():
    env = batch(details={"dropped": True}, done=True, reward=[5.0, 5.0])
    env.reset(0)
    step = env.step(stay(env))
    assert step.dropped.tolist() == [0]
    assert not (step.terminated | step.truncated).any()
    assert step.final is None
    assert not step.reward.any()
    assert step.obs[0, 0, 1] == 0


def test_one_reward_goes_to_all_agents():
    env = batch(reward=2.5, info={"shared_reward": None})
    assert env.spec.shared_reward
    env.reset(0)
    assert env.step(stay(env)).reward.tolist() == [[2.5, 2.5]]


def test_undeclared_rewards_per_agent_are_refused_with_the_remedy():
    env = batch(info={"shared_reward": None})
    env.reset(0)
    with pytest.raises(OmgError, match="'shared_reward': False"):
        env.step(stay(env))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"obs": [[0, np.nan], [0, 0]]}, "observations of counter .copy 3, step 0.*agent 0"),
        ({"obs": [[0, 0], [np.inf, 0]]}, "agent 1, entry 0"),
        ({"state": [0, 0, np.nan, 0]}, "state of counter .copy 3, step 0.*entry 2"),
    ],
)
def test_nan_in_a_view_is_an_error_that_says_where(change, words):
    with pytest.raises(RunFailedError, match=words):
        batch(first_copy=3, **change).reset(0)


def test_nan_reward_is_an_error_that_says_where():
    env = batch(first_copy=3, reward=[0.0, np.nan])
    env.reset(0)
    with pytest.raises(RunFailedError, match=r"rewards of counter \(copy 3, step 1\).*agent 1"):
        env.step(stay(env))


def test_large_finite_values_are_no_error():
    assert batch(obs=[[3e38, 3e38], [0, 0]]).reset(0).obs.max() > 1e38


@pytest.mark.parametrize(
    "change",
    [
        {"obs": [[1, 2]]},
        {"obs": [[1, 2], [3]]},
        {"obs": np.zeros((1, 4))},
        {"state": [1, 2, 3]},
    ],
)
def test_views_of_the_wrong_shape_are_refused(change):
    with pytest.raises(OmgError, match=r"get_env_info\(\) announces"):
        batch(**change).reset(0)


def test_rewards_and_actions_of_the_wrong_shape_are_refused():
    env = batch(reward=[1.0, 2.0, 3.0])
    env.reset(0)
    with pytest.raises(OmgError, match="rewards"):
        env.step(stay(env))
    with pytest.raises(OmgError, match="Actions"):
        env.step(np.zeros((1, 3), np.int64))


def test_step_before_reset_is_refused():
    env = batch()
    with pytest.raises(OmgError, match="reset"):
        env.step(stay(env))


def test_snapshot_is_refused_in_mid_episode_and_restores_at_an_episode_start():
    env = batch(3)
    env.reset(4)
    env.step(stay(env))
    with pytest.raises(OmgError, match="middle of an episode"):
        env.snapshot()
    expected = env.restart()
    other = batch(3)
    np.testing.assert_array_equal(other.restore(env.snapshot()).obs, expected.obs)
    with pytest.raises(OmgError, match="3 copies"):
        batch(2).restore(env.snapshot())


def test_a_failing_factory_closes_the_copies_made_before():
    closed = []

    class Closing(TwoStepEnv):
        def __init__(self, copy):
            super().__init__(copy)
            self.number = copy
            if copy == 2:
                raise ValueError("no third copy")

        def close(self):
            closed.append(self.number)

    with pytest.raises(ValueError, match="no third copy"):
        SerialVectorEnv(factory=Closing, n_copies=3)
    assert sorted(closed) == [0, 1]


def test_single_copy_shows_the_last_view_until_reset():
    env = SingleCopyEnv(batch())
    env.reset(seed=2)
    for _ in range(env.episode_limit):
        reward, done, info = env.step([STAY, STAY])
    assert done
    assert info == {"episode_limit": True, "solved": 0.0}
    assert reward.shape == (2,)
    assert env.get_obs()[0][1] == env.episode_limit
    assert env.get_state()[2] == env.episode_limit
    with pytest.raises(OmgError, match="reset"):
        env.step([STAY, STAY])
    obs, _ = env.reset()
    assert obs[0][1] == 0


def test_single_copy_without_seed_goes_on_with_the_next_episode():
    env, reference = SingleCopyEnv(batch()), batch()
    env.reset(seed=2)
    reference.reset(2)
    env.step([STAY, STAY])
    np.testing.assert_array_equal(env.reset()[0], reference.restart().obs[0])


def test_single_copy_gives_one_number_for_a_shared_reward():
    env = SingleCopyEnv(SerialVectorEnv(factory=TwoStepEnv, n_copies=1))
    env.reset()
    env.step([1, 0])
    assert env.step([1, 1]) == (8.0, True, {})


def test_single_copy_in_a_batch_is_the_game_itself():
    wrapped = SerialVectorEnv(factory=lambda copy: SingleCopyEnv(batch()), n_copies=2)
    assert wrapped.spec == batch().spec
    wrapped.reset(1)
    *_, last = play_to_limit(wrapped)
    assert last.truncated.all()


def test_single_copy_needs_one_copy():
    with pytest.raises(OmgError, match="one copy"):
        SingleCopyEnv(batch(2))


class SeededWhenMade(CounterEnv):
    """Takes its seed when it is made, as StarCraft II does; `reset` takes none."""

    def __init__(self, seed=None):
        super().__init__()
        self._rng = np.random.default_rng(0 if seed is None else seed)

    def reset(self):
        self.start = float(self._rng.random())
        return super().reset()

    def get_state(self):
        return np.full_like(np.asarray(super().get_state(), np.float32), self.start)


def test_games_seeded_when_made_differ_between_copies_and_between_seeds() -> None:
    factory = GameFactory(f"{__name__}:SeededWhenMade", {})
    states = []
    for seed in (1, 1, 2):
        env = SerialVectorEnv(factory=factory, n_copies=3)
        states.append(env.reset(seed).state[:, 0])
    assert len(set(states[0].tolist())) == 3
    np.testing.assert_array_equal(states[0], states[1])
    assert not np.array_equal(states[0], states[2])
    fixed = SerialVectorEnv(factory=GameFactory(factory.name, {"seed": 5}), n_copies=2)
    assert len(set(fixed.reset(1).state[:, 0].tolist())) == 1
