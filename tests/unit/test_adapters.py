"""PettingZoo and Gymnasium games as batches: seats, ends, masks, states, limits, bad input."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from omg.envs.adapters.packages import (
    environments_of,
    gymnasium_environments,
    parallel_environments,
)
from omg.envs.registry import make_batched
from omg.types import OmgError, RunFailedError
from tests.unit.foreign_games import HUNT, LIFT, LIMIT

HUNTER, LEAVER, PREY = range(3)
MOVES = np.array([[1, 2, 1]])


def hunt(n_copies: int = 1, first_copy: int = 0, **args: Any) -> Any:
    return make_batched(
        "pettingzoo", {"key": HUNT, **args}, n_copies=n_copies, first_copy=first_copy
    )


def lift(**args: Any) -> Any:
    return make_batched("gymnasium", {"key": LIFT, **args}, n_copies=1)


def played(env: Any, steps: int = LIMIT, actions: Any = MOVES) -> list[Any]:
    """The first view and those of some steps."""
    views = [env.reset(3)]
    for _ in range(steps):
        views.append(env.step(np.repeat(actions, env.n_copies, axis=0)))
    return views


def refusal(error: type[OmgError] = OmgError, *, name: str = "pettingzoo", **args: Any) -> str:
    """What is said when an environment is made and played to its end."""

    def make_and_play() -> None:
        env = make_batched(name, {"key": HUNT, **args}, n_copies=1, first_copy=7)
        played(env, actions=np.zeros((1, env.spec.n_agents), np.int64))

    with pytest.raises(error) as caught:
        make_and_play()
    assert type(caught.value) is error
    return str(caught.value)


# --- PettingZoo: seats -------------------------------------------------------------------------


def test_seats_of_different_kinds_are_padded_and_have_roles() -> None:
    env = hunt()
    spec = env.spec
    assert (spec.n_agents, spec.n_actions, spec.obs_dim, spec.state_dim) == (3, 3, 3, 9)
    assert spec.roles == ("hunter", "hunter", "prey")
    assert spec.obs_dims == (2, 2, 3)
    assert spec.agent_features == ((0, 1, 2), (3, 4, 5), (6, 7, 8))
    assert (spec.episode_limit, spec.shared_reward) == (LIMIT, False)
    view = env.reset(0)
    assert view.avail[0].tolist() == [[True] * 3, [True] * 3, [True, True, False]]
    assert not view.obs[0, :2, 2:].any()


def test_actions_are_numbered_as_the_game_does() -> None:
    env = hunt()
    played(env, 1)
    assert env._games[0].received[-1] == {"hunter_0": 1, "hunter_1": 2, "prey_0": 2}


def test_an_agent_that_left_sees_zeros_does_nothing_and_earns_nothing() -> None:
    env = hunt()
    views = played(env)
    assert views[1].obs[0, LEAVER].tolist() == [1, 2, 0]
    for time in (2, 3):
        view = views[time]
        assert not view.obs[0, LEAVER].any()
        assert view.avail[0, LEAVER].tolist() == [True, False, False]
    rewards = [view.reward[0, LEAVER] for view in views[1:]]
    assert rewards == pytest.approx([1.1, 1.2, 0, 0])  # the reward of its last step is kept
    assert all("hunter_1" not in actions for actions in env._games[0].received[-2:])


def test_the_last_step_keeps_its_rewards_and_the_true_last_observations() -> None:
    last = played(hunt())[-1]
    assert last.reward[0] == pytest.approx([0.4, 0, 2.4])
    assert last.truncated.tolist() == [True]
    assert last.final.obs[0, HUNTER].tolist() == [4, 1, 0]
    assert last.final.obs[0, PREY, 0] == 4
    assert not last.final.obs[0, LEAVER].any()
    assert last.final.avail[0].sum(axis=-1).tolist() == [3, 1, 2]
    assert last.obs[0, :, 0].tolist() == [0, 0, 0]  # a new episode, with everybody
    assert last.avail[0].sum(axis=-1).tolist() == [3, 3, 2]
    np.testing.assert_array_equal(last.final.state[0], last.final.obs[0].ravel())


def test_copies_whose_agents_left_and_copies_that_are_whole_stand_side_by_side() -> None:
    env = hunt(2)
    env.reset(0)
    env._games[1].leaves = False
    env.step(np.repeat(MOVES, 2, axis=0))
    view = env.step(np.repeat(MOVES, 2, axis=0))
    assert view.obs[:, LEAVER].tolist() == [[0, 0, 0], [2, 2, 0]]


@pytest.mark.parametrize(
    ("ends", "truncated"),
    [
        (("terminated", "terminated"), False),
        (("truncated", "terminated"), True),
        (("terminated and truncated", "terminated"), False),
    ],
)
def test_the_end_is_a_truncation_if_an_agent_was_cut_off(ends: Any, truncated: bool) -> None:
    last = played(hunt(ends=ends))[-1]
    assert (last.truncated[0], last.terminated[0]) == (truncated, not truncated)


def test_an_own_limit_reported_as_a_termination_can_be_declared_a_truncation() -> None:
    ends = ("terminated", "terminated")
    assert played(hunt(ends=ends, limit_is_truncation=True))[-1].truncated[0]


def test_an_agent_may_come_later_if_it_is_a_possible_one() -> None:
    views = played(hunt(absent="prey_0"))
    assert not views[0].obs[0, PREY].any()
    assert views[1].avail[0, PREY].tolist() == [True, False, False]
    assert views[2].obs[0, PREY, 0] == 2
    assert views[2].avail[0, PREY].tolist() == [True, True, False]


def test_an_agent_nobody_knew_is_refused() -> None:
    assert "stranger_0" in refusal(spoil="stranger")


def test_a_game_that_remembers_can_be_made_anew_for_every_episode() -> None:
    def marks(env: Any) -> list[float]:
        return [float(env.reset(0).obs[0, PREY, 1]), float(env.restart().obs[0, PREY, 1])]

    assert len(set(marks(hunt(remembers=True)))) == 2
    assert marks(hunt(remembers=True, new_games=True)) == [0, 0]
    assert marks(hunt(remembers="true", new_games="True")) == [0, 0]  # words of a command line
    assert not hunt(leaves="false")._games[0].leaves


# --- PettingZoo: masks -------------------------------------------------------------------------


@pytest.mark.parametrize("masks", ["info", "observation"])
def test_action_masks_are_taken_from_infos_or_observations(masks: str) -> None:
    views = played(hunt(masks=masks), 2)
    assert views[0].avail[0, HUNTER].tolist() == [True, True, True]
    assert views[1].avail[0, HUNTER].tolist() == [False, True, True]
    assert views[1].avail[0, PREY].tolist() == [False, True, False]
    assert views[1].obs[0, HUNTER].tolist() == [1, 1, 0]


def test_a_mask_that_leaves_nothing_is_refused_before_the_end_only() -> None:
    text = refusal(masks="empty")
    assert "agent hunter_0" in text
    assert "(copy 7, step 3) leaves it no action" in text
    cut = hunt(masks="empty", time_limit=3)
    assert played(cut, 3)[-1].final.avail[0, HUNTER].tolist() == [True, False, False]


def test_a_mask_of_another_length_is_refused() -> None:
    assert "(4,) for 3 actions" in refusal(masks="long")


# --- PettingZoo: values that cannot be learned from --------------------------------------------


def test_a_value_that_is_not_finite_is_named_with_copy_step_and_agent() -> None:
    text = refusal(RunFailedError, spoil="nan observation")
    assert f"The observations of {HUNT} (copy 7, step 3) contain nan" in text
    assert "(agent prey_0, entry 1)" in text
    text = refusal(RunFailedError, spoil="nan reward")
    assert "(copy 7, step 3) contain nan (agent prey_0)" in text


def test_a_last_observation_that_is_not_finite_is_named_with_its_step() -> None:
    text = refusal(RunFailedError, spoil="nan observation", time_limit=3)
    assert "(copy 7, step 3) contain nan (agent prey_0, entry 1)" in text


def test_an_observation_that_does_not_fit_or_is_missing_is_refused() -> None:
    text = refusal(spoil="wide observation")
    assert "agent prey_0" in text
    assert "does not fit its space of 3 numbers: 5 numbers" in text
    text = refusal(spoil="swapped observations", leaves=False)
    assert "agent hunter_0" in text
    assert "space of 2 numbers: 3 numbers" in text
    assert "no observation of agent prey_0" in refusal(spoil="no observation")


def test_a_cut_without_last_observations_is_refused_with_the_remedy() -> None:
    assert "env_args.time_limit=3" in refusal(spoil="no last view")
    assert played(hunt(spoil="no last view", time_limit=3), 3)[-1].truncated[0]
    over = ("terminated", "terminated")
    assert played(hunt(spoil="no last view", ends=over))[-1].terminated[0]


# --- PettingZoo: state, rewards, limits, spaces ------------------------------------------------


def test_the_state_is_the_games_own_where_it_has_one() -> None:
    env = hunt(own_state="time")
    assert (env.spec.state_dim, env.spec.agent_features) == (4, ())
    last = played(env)[-1]
    assert last.state[0].tolist() == [0.5] * 4
    assert last.final.state[0].tolist() == [4.5] * 4
    asked = hunt(own_state="time", state="observations")
    assert asked.spec.state_dim == 9


def test_a_state_that_is_only_the_observations_is_taken_from_them() -> None:
    env = hunt(own_state="observations", leaves=False)
    assert (env.spec.state_dim, len(env.spec.agent_features)) == (9, 3)
    assert hunt(own_state="observations", leaves=False, state="env").spec.state_dim == 7


def test_a_state_that_is_missing_or_changes_its_width_is_refused() -> None:
    assert "Use env_args.state=observations" in refusal(state="env")
    assert "not written yet" in refusal(state="env", own_state="failing")
    assert hunt(own_state="failing").spec.state_dim == 9
    assert "has 5 numbers, not 4" in refusal(own_state="changing")
    assert "Choose one of: auto, env, observations" in refusal(state="mine")


def test_an_unknown_limit_has_to_be_given() -> None:
    assert "Give the most steps of one as env_args.time_limit" in refusal(max_cycles=None)
    env = hunt(max_cycles=None, time_limit=3)
    assert env.spec.episode_limit == 3
    last = played(env, 3)[-1]
    assert last.truncated[0]
    assert last.final.obs[0, HUNTER].tolist() == [3, 1, 0]


def test_a_limit_beyond_the_games_own_is_refused() -> None:
    assert "beyond the game's own limit of 4 steps" in refusal(time_limit=5)
    assert "is no number of steps" in refusal(time_limit=0)


def test_a_shared_reward_has_to_be_asked_for_and_has_to_be_one() -> None:
    env = hunt(shared_reward=True, equal_rewards=True)
    assert env.spec.shared_reward
    assert played(env)[-1].reward[0] == pytest.approx([0.4] * 3)  # also who left
    assert "env_args.shared_reward=false" in refusal(shared_reward=True)
    assert "Choose auto, true or false" in refusal(shared_reward="maybe")


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Box(-1, 1, (2,)), "only Discrete ones can be learned"),
        (spaces.MultiDiscrete([2, 2]), "every combination has a number of its own"),
    ],
)
def test_actions_that_are_not_discrete_are_refused(space: Any, words: str) -> None:
    text = refusal(acted={"prey_0": space})
    assert "agent prey_0" in text
    assert words in text


def test_observations_without_a_known_form_are_refused() -> None:
    space = spaces.Dict({"map": spaces.Box(0, 1, (2,))})
    text = refusal(observed={"prey_0": space})
    assert "The observations of agent prey_0" in text
    assert "a Box" in text


def test_pictures_are_flattened_and_categories_become_one_hot() -> None:
    picture, kind = spaces.Box(0, 255, (3, 1), np.uint8), spaces.Discrete(3)
    alike = dict.fromkeys(("hunter_0", "hunter_1"), spaces.Box(0, 255, (2,), np.uint8))
    spec = hunt(observed={**alike, "prey_0": picture}).spec
    assert (spec.obs_dims, spec.obs_dtype, spec.state_dtype) == ((2, 2, 3), "uint8", "uint8")
    assert spec.obs_scale == pytest.approx(1 / 255)
    env = hunt(observed={**alike, "prey_0": kind})
    env._games[0]._observations = lambda: {
        **dict.fromkeys(("hunter_0", "hunter_1"), np.zeros(2, np.uint8)),
        "prey_0": 1,
    }
    assert env.reset(0).obs[0, PREY].tolist() == [0, 1, 0]


# --- Gymnasium ---------------------------------------------------------------------------------


def test_gymnasium_agents_have_their_parts_of_tuples() -> None:
    env = lift()
    spec = env.spec
    assert (spec.n_agents, spec.n_actions, spec.obs_dim, spec.state_dim) == (2, 3, 2, 4)
    assert (spec.episode_limit, spec.obs_dtype, spec.roles) == (LIMIT, "uint8", ())
    assert spec.obs_scale == pytest.approx(1 / 200)
    views = played(env, actions=np.array([[1, 2]]))
    assert views[1].obs[0].tolist() == [[1, 1], [1, 2]]
    assert views[1].reward[0] == pytest.approx([0.1, 1.1])
    assert views[-1].truncated[0]
    assert views[-1].final.obs[0].tolist() == [[4, 1], [4, 2]]
    assert views[-1].obs[0].tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("seen", "fits"),
    [
        (np.array([3, 4], np.int64), True),
        (np.array([3.0, 4.0]), True),
        (np.array([0.5, 1.0]), False),
        (np.array([3, 300]), False),
        (np.array([-1, 0]), False),
        (np.array([np.nan, 0.0]), False),
    ],
)
def test_observations_beyond_the_declared_dtype_are_refused(seen: Any, fits: bool) -> None:
    """Episodes are stored in it, so that halves would become zeros without a word."""
    env = lift()
    env.reset(0)
    env._games[0]._obs = lambda: (np.zeros(2, np.uint8), seen)
    if fits:
        assert env.step(np.zeros((1, 2), np.int64)).obs[0, 1].tolist() == seen.tolist()
        return
    with pytest.raises(OmgError, match="does not fit the dtype of its space, uint8"):
        env.step(np.zeros((1, 2), np.int64))


def test_one_reward_of_a_gymnasium_game_is_the_teams() -> None:
    env = lift(team=True)
    assert env.spec.shared_reward
    assert played(env, 1, np.zeros((1, 2), np.int64))[1].reward.tolist() == [[1.5, 1.5]]
    assert not lift().spec.shared_reward


@pytest.mark.parametrize("info", ["one", "each"])
def test_gymnasium_masks_come_from_one_info_or_one_per_agent(info: str) -> None:
    views = played(lift(info=info), 1, np.zeros((1, 2), np.int64))
    assert views[0].avail[0].all()
    assert views[1].avail[0].tolist() == [[True, True, False]] * 2


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_flags_per_agent_end_the_episode_when_all_have_ended(end: str) -> None:
    views = played(lift(flags="each", end=end), actions=np.zeros((1, 2), np.int64))
    assert not (views[3].terminated | views[3].truncated).any()
    assert getattr(views[4], end)[0]


def test_joint_actions_of_a_gymnasium_game_are_split() -> None:
    assert lift(spoil="joint actions").spec.n_actions == 3


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"spoil": "observations"}, "observations for 3 agents"),
        ({"spoil": "rewards"}, "rewards for 3 agents"),
        ({"spoil": "masks", "info": "one"}, "action masks for 3 agents"),
        ({"spoil": "old reset"}, "does not return observations and infos"),
        ({"spoil": "old step"}, "returns 4 values"),
        ({"spoil": "action space"}, "one part per agent, or neither"),
        ({"max_steps": None}, "env_args.time_limit"),
        ({"state": "env"}, "Use env_args.state=observations"),
        ({"wheels": 4}, "does not take these env_args"),
    ],
)
def test_gymnasium_games_that_cannot_be_used_are_refused(args: Any, words: str) -> None:
    assert words in refusal(name="gymnasium", **{"key": LIFT, **args})


def test_a_gymnasium_reward_that_is_not_finite_is_named() -> None:
    text = refusal(RunFailedError, name="gymnasium", key=LIFT, spoil="nan")
    assert f"The rewards of {LIFT} (copy 7, step 3) contain nan (agent 1)" in text


def test_a_gymnasium_game_of_one_agent_has_one_seat() -> None:
    env = make_batched("gymnasium", {"key": "CartPole-v1", "time_limit": 3}, n_copies=2)
    assert (env.spec.n_agents, env.spec.n_actions, env.spec.obs_dim) == (1, 2, 4)
    env.reset(0)
    steps = [env.step(np.ones((2, 1), np.int64)) for _ in range(3)]
    assert steps[0].reward.tolist() == [[1.0], [1.0]]
    assert steps[-1].truncated.all()


# --- lbforaging and rware ----------------------------------------------------------------------


def test_the_episodes_of_lbforaging_do_not_depend_on_those_before() -> None:
    args = {"key": "lbforaging:Foraging-5x5-4p-1f-v3", "time_limit": 2}
    used, rng = make_batched("gymnasium", args, n_copies=1), np.random.default_rng(0)
    used.reset(0)
    for episode in range(1, 40):
        used.step(rng.integers(0, 5, (1, 4)))
        view = used.step(rng.integers(0, 5, (1, 4)))
        if episode % 3 == 0:
            fresh = make_batched("gymnasium", args, n_copies=1)
            np.testing.assert_array_equal(view.obs, fresh.reset_at(0, [episode]).obs)


@pytest.mark.long
@pytest.mark.parametrize("key", ["lbforaging:Foraging-8x8-2p-3f-v3", "rware:rware-tiny-2ag-v2"])
def test_limits_that_the_games_report_as_ends_are_truncations(key: str) -> None:
    default = make_batched("gymnasium", {"key": key}, n_copies=1).spec.episode_limit
    assert default == (50 if "Foraging" in key else 500)
    env = make_batched("gymnasium", {"key": key, "time_limit": 3}, n_copies=2)
    env.reset(0)
    steps = [env.step(np.zeros((2, 2), np.int64)) for _ in range(3)]
    assert not (steps[1].terminated | steps[1].truncated).any()
    assert steps[2].truncated.all()


def test_a_game_of_lbforaging_that_is_won_in_its_last_step_is_a_termination() -> None:
    args = {"key": "lbforaging:Foraging-5x5-2p-1f-v3", "time_limit": 1}
    env = make_batched("gymnasium", args, n_copies=1)
    env.reset(0)
    game = env._games[0].unwrapped
    game.field[:] = 0  # the food is gone
    step = env.step(np.zeros((1, 2), np.int64))
    assert (step.terminated[0], step.truncated[0]) == (True, False)


# --- names and packages ------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The old environment creation API:DeprecationWarning")
@pytest.mark.parametrize(
    ("name", "key", "words"),
    [
        ("pettingzoo", "mpe2:simple_spred_v3", "did you mean 'simple_spread_v3'?"),
        ("pettingzoo", "mpe2", "Write package:module"),
        ("pettingzoo", None, "env_args.key=mpe2:simple_spread_v3"),
        ("pettingzoo", "pettingzoo.classic:tictactoe_v3", "move in turns"),
        ("pettingzoo", "pettingzoo.buterfly:x", "did you mean 'butterfly'?"),
        ("pettingzoo", "mpe2:all_modules", "has no parallel_env"),
        ("pettingzoo", "no_such_package:x", "pip install no_such_package"),
        ("pettingzoo", "tests.unit.counter_game:CounterEnv", "lacks possible_agents"),
        ("gymnasium", "lbforaging:Foraging-8x8-2p-3f-v9", "did you mean 'Foraging-8x8-2p-3f-v3'?"),
        ("gymnasium", "CartPole-v7", "did you mean 'CartPole-v1'?"),
        ("gymnasium", "pz-mpe-simple-spread-v3", "--env-config=pettingzoo"),
        ("gymnasium", "tests.unit.counter_game:CounterEnv", "lacks observation_space"),
        ("gymnasium", "Pendulum-v1", "only Discrete ones"),
        ("pymarl", "omg.envs.toys:TwoStepEn", "did you mean 'TwoStepEnv'?"),
        ("pymarl", None, "my_package.my_env:MyEnv"),
        ("pymarl", "omg.envs.foraging.env:ForagingEnv", "Name it with --env="),
        ("pymarl", HUNT, "It looks like a PettingZoo environment"),
        ("pymarl", LIFT, "It looks like a Gymnasium environment"),
    ],
)
def test_a_name_that_leads_nowhere_is_answered_with_what_to_do(
    name: str, key: str | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMG_TRUST", "tests,no_such_package")
    with pytest.raises(OmgError) as caught:
        make_batched(name, {"key": key}, n_copies=1)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "key", "extra"),
    [
        ("pettingzoo", "mpe2:simple_spread_v3", "mpe"),
        ("gymnasium", "lbforaging:Foraging-8x8-2p-3f-v3", "lbf"),
        ("gymnasium", "rware:rware-tiny-2ag-v2", "rware"),
    ],
)
def test_a_missing_package_is_named_with_the_extra_that_brings_it(
    name: str, key: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = key.partition(":")[0]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(OmgError, match=rf"'{package}'.*omg-marl\[{extra}\]"):
        make_batched(name, {"key": key}, n_copies=1)


def test_what_a_package_offers_can_be_listed() -> None:
    parallel = parallel_environments("mpe2")
    assert "mpe2:simple_tag_v3" in parallel
    assert "mpe2:all_modules" not in parallel
    assert "rware:rware-tiny-2ag-v2" in gymnasium_environments("rware")
    assert environments_of("mpe2") == parallel
    assert "lbforaging:Foraging-8x8-2p-3f-v3" in environments_of("lbforaging")


def test_an_environment_with_pymarls_methods_can_be_named_by_its_key() -> None:
    key = "tests.unit.counter_game:CounterEnv"
    env = make_batched("pymarl", {"key": key, "fault_step": 5}, n_copies=2)
    assert env.spec == make_batched(key, {"fault_step": 5}, n_copies=2).spec
    with pytest.raises(OmgError, match="does not take these env_args"):
        make_batched("pymarl", {"key": key, "wheels": 4}, n_copies=2)


def test_pictures_need_a_mode() -> None:
    args = {"key": "mpe2:simple_v3"}
    env = make_batched("pettingzoo", args, n_copies=1)
    with pytest.raises(RuntimeError, match="render_mode=rgb_array"):
        env.render(0)
    env = make_batched("pettingzoo", {**args, "render_mode": "rgb_array"}, n_copies=1)
    env.reset(0)
    picture = env.render(0)
    assert picture.shape[2] == 3
    assert picture.dtype == np.uint8
