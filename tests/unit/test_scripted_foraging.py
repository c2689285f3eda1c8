"""Scripted foragers: what they go for, that they stick to it, and that they get there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omg.envs.foraging import ForagingEnv
from omg.envs.foraging.args import ForagingRules
from omg.opponents.scripted_foraging import (
    MEMORY_DIM,
    SCRIPTS,
    Kind,
    act_together,
    headings,
    make_script,
)
from omg.opponents.scripts import Script
from omg.types import IntArray, Observation, OmgError, TimeStep

NONE, NORTH, SOUTH, WEST, EAST, LOAD = range(6)
KEY = "Foraging-8x8-2p-3f-v3"
COMMITTED = [name for name, kind in SCRIPTS.items() if kind.commits]
# Two players of level 3 can lift 6 together, so everything can be collected.
SHARED: dict[str, Any] = {
    "min_player_level": 3,
    "max_player_level": 3,
    "min_food_level": 2,
    "max_food_level": 6,
}


def make(key: str = KEY, copies: int = 1, seed: int = 0, **args: Any) -> ForagingEnv:
    env = ForagingEnv(args={"key": key, **args}, n_copies=copies)
    env.reset(seed)
    return env


def nothing(rows: int) -> IntArray:
    """The memory at an episode's start."""
    return np.zeros((rows, MEMORY_DIM), np.int64)


def act(
    script: Script[Kind],
    state: Any,
    seats: IntArray,
    avail: Any,
    memory: IntArray,
    rng: np.random.Generator,
    rules: ForagingRules,
) -> tuple[IntArray, IntArray]:
    return act_together([script], np.zeros_like(seats), state, seats, avail, memory, rng, rules)


def put(players: Any, foods: Any, levels: Any = (3, 3), **args: Any) -> ForagingEnv:
    env = make(**args)
    env.set_layout(0, player_pos=players, player_levels=levels, foods=foods)
    return env


def seats_of(env: ForagingEnv, seat: int) -> IntArray:
    return np.full(env.n_copies, seat)


def act_in(
    env: ForagingEnv,
    script: Script[Kind],
    seat: int,
    memory: IntArray,
    *,
    seen: Observation | TimeStep | None = None,
    rng: np.random.Generator | None = None,
) -> tuple[IntArray, IntArray]:
    seen = env.observe() if seen is None else seen
    rng = np.random.default_rng(0) if rng is None else rng
    seats = seats_of(env, seat)
    return act(script, seen.state, seats, seen.avail[:, seat], memory, rng, env.rules)


def target_of(env: ForagingEnv, name: str, seat: int = 0) -> tuple[int, ...]:
    return tuple(targets(env, name, seat)[0].tolist())


def targets(env: ForagingEnv, name: str, seat: int) -> Any:
    seats = seats_of(env, seat)
    return target(make_script(name), env.observe().state, seats, nothing(len(seats)), env.rules)


def target(
    script: Script[Kind], state: Any, seats: IntArray, memory: IntArray, rules: ForagingRules
) -> Any:
    """Where rows head to, [R, 2]; their own place if nowhere."""
    return headings([script], np.zeros_like(seats), state, seats, memory, rules)[:, :2]


@dataclass
class Played:
    steps: float  # mean length of the first episodes
    finished: float  # share of them in which everything was collected
    actions: IntArray  # [T, B, N]


def play(env: ForagingEnv, scripts: list[Script[Kind]], *, seed: int = 0) -> Played:
    """One episode of every copy, a script in each seat."""
    seen: Observation | TimeStep = env.reset(seed)
    memories = [nothing(env.n_copies) for script in scripts]
    rng = np.random.default_rng(seed)
    limit = env.spec.episode_limit
    steps, finished = np.full(env.n_copies, limit), np.zeros(env.n_copies, np.bool_)
    running = np.ones(env.n_copies, np.bool_)
    taken = np.zeros((limit, env.n_copies, len(scripts)), np.int64)
    for t in range(limit):
        for seat, script in enumerate(scripts):
            actions, memories[seat] = act_in(env, script, seat, memories[seat], seen=seen, rng=rng)
            assert np.take_along_axis(seen.avail[:, seat], actions[:, None], axis=1).all()
            taken[t, :, seat] = actions
        seen = env.step(taken[t])
        ended = seen.terminated | seen.truncated
        steps[running & ended] = t + 1
        finished |= running & seen.terminated
        running &= ~ended
        for memory in memories:
            memory[ended] = 0
    return Played(float(steps.mean()), float(finished.mean()), taken)


# Foods in slot order (row by row); the player in question stands at (0, 2), the other at (7, 0).
FOODS = [(1, 6, 3), (2, 1, 5), (4, 4, 2), (6, 5, 6), (6, 1, 1)]
PICKS = {
    "nearest_food": (2, 1),  # 3 steps
    "farthest_food": (6, 5),  # 9 steps
    "highest_level": (6, 5),
    "lowest_level": (6, 1),
    "nearest_loadable": (1, 6),  # level 3, 5 steps; (4, 4) is 6 away
    "nearest_heavy": (2, 1),
    "near_others": (6, 1),
    "far_from_others": (1, 6),
    "meeting_point": (2, 1),  # 3 + 6 steps; (6, 1) is 7 + 2 and farther from itself
    "centre": (4, 4),
    "edge": (2, 1),  # four lie one cell from a side; the nearest of them
    "crowded": (4, 4),  # 3 steps from (6, 5)
    "lonely": (1, 6),  # 5 steps from the nearest other one
    "top_left": (2, 1),
    "top_right": (1, 6),
    "bottom_left": (6, 1),
    "bottom_right": (6, 5),
    "follow": (6, 1),
    "random": (0, 2),  # nothing: its own place
}


def test_every_kind_is_covered_here_and_enough_of_them_commit() -> None:
    assert set(PICKS) == {name for name, kind in SCRIPTS.items() if kind.behaves is None}
    assert len(COMMITTED) == 17
    assert not {"follow", "random"} & set(COMMITTED)


@pytest.mark.parametrize("name", PICKS)
def test_each_kind_goes_for_the_food_its_name_says(name: str) -> None:
    env = put([(0, 2), (7, 0)], FOODS, key="Foraging-8x8-2p-5f-v3")
    assert target_of(env, name) == PICKS[name]


@pytest.mark.parametrize("name", PICKS)
def test_a_choice_does_not_depend_on_the_seat(name: str) -> None:
    env = put([(7, 0), (0, 2)], FOODS, key="Foraging-8x8-2p-5f-v3")
    assert target_of(env, name, seat=1) == PICKS[name]


def test_committed_kinds_choose_differently_from_one_another() -> None:
    env = make(copies=300, **SHARED)
    chosen = {name: targets(env, name, 1) for name in COMMITTED}
    for i, one in enumerate(COMMITTED):
        for other in COMMITTED[:i]:
            assert (chosen[one] != chosen[other]).any(axis=1).mean() > 0.1, (one, other)


def test_without_anything_to_lift_alone_the_nearest_food_that_needs_help_is_taken() -> None:
    env = put([(0, 2), (7, 0)], [(1, 6, 4), (2, 1, 5)])
    assert target_of(env, "nearest_loadable") == (2, 1)


def test_ties_go_to_the_nearest_food_and_then_to_the_first_row() -> None:
    env = put([(3, 3), (7, 7)], [(1, 1, 2), (3, 5, 2), (5, 3, 2)])
    assert target_of(env, "highest_level") == (3, 5)


def test_food_that_nobody_can_lift_comes_last() -> None:
    env = put([(0, 2), (7, 0)], [(1, 6, 2), (2, 1, 7)])
    assert target_of(env, "highest_level") == target_of(env, "nearest_food") == (1, 6)
    only = put([(0, 2), (7, 0)], [(2, 1, 7)])
    assert target_of(only, "nearest_food") == (2, 1)


def test_a_lone_player_with_no_others_still_chooses() -> None:
    env = make("Foraging-8x8-1p-2f-v3", max_food_level=1)
    env.set_layout(0, player_pos=[(0, 0)], player_levels=[1], foods=[(2, 2, 1), (6, 6, 1)])
    assert {target_of(env, name) for name in ("near_others", "far_from_others")} == {(2, 2)}


def test_without_food_there_is_no_target_and_nothing_to_do() -> None:
    env = put([(0, 2), (7, 0)], [])
    script = make_script("nearest_food")
    actions, memory = act_in(env, script, 0, nothing(1))
    assert actions.tolist() == [NONE]
    stays = target(script, env.observe().state, seats_of(env, 0), memory, env.rules)
    assert stays.tolist() == [[0, 2]]


@pytest.mark.parametrize("name", COMMITTED)
def test_a_target_is_kept_as_long_as_it_exists(name: str) -> None:
    """Beside a random player, which moves what is near, far and left over."""
    env = make(copies=60, seed=5, **SHARED)
    script, chance = make_script(name, noise=0.1), make_script("random")
    rng = np.random.default_rng(1)
    memory, idle = nothing(60), nothing(60)
    seen: Observation | TimeStep = env.observe()
    before, changes = np.full((60, 2), -1), 0
    for _ in range(80):
        now = target(script, seen.state, seats_of(env, 0), memory, env.rules)
        foods = seen.state[:, :9].reshape(60, 3, 3)[:, :, :2]
        still_there = (foods == before[:, None]).all(axis=2).any(axis=1) & (before[:, 0] >= 0)
        np.testing.assert_array_equal(now[still_there], before[still_there])
        changes += int((~still_there).sum())
        actions, memory = act_in(env, script, 0, memory, seen=seen, rng=rng)
        after = target(script, seen.state, seats_of(env, 0), memory, env.rules)
        np.testing.assert_array_equal(after, now)
        others, idle = act_in(env, chance, 1, idle, seen=seen, rng=rng)
        seen = env.step(np.stack([actions, others], axis=1))
        ended = seen.terminated | seen.truncated
        memory[ended] = 0
        before = np.where(ended[:, None], -1, now)
    assert changes > 60


def test_memory_set_to_zero_forgets_the_target() -> None:
    script = make_script("nearest_food")
    env = put([(0, 2), (7, 0)], [(1, 6, 4), (2, 1, 5)])
    _, memory = act_in(env, script, 0, nothing(1))
    env.set_layout(
        0, player_pos=[(0, 6), (7, 0)], player_levels=[3, 3], foods=[(1, 6, 4), (2, 1, 5)]
    )
    state, seats = env.observe().state, seats_of(env, 0)
    assert target(script, state, seats, memory, env.rules).tolist() == [[2, 1]]
    assert target(script, state, seats, 0 * memory, env.rules).tolist() == [[1, 6]]


def test_follow_changes_its_target_when_the_other_player_does() -> None:
    script = make_script("follow")
    foods = [(1, 6, 4), (6, 1, 5)]
    env = put([(3, 3), (7, 0)], foods)
    _, memory = act_in(env, script, 0, nothing(1))
    env.set_layout(0, player_pos=[(3, 3), (0, 7)], player_levels=[3, 3], foods=foods)
    state = env.observe().state
    assert target(script, state, seats_of(env, 0), memory, env.rules).tolist() == [[1, 6]]


def test_a_player_beside_its_target_loads_and_goes_on_loading() -> None:
    env = put([(2, 2), (7, 7)], [(2, 1, 6), (5, 5, 6)])
    script = make_script("nearest_food")
    memory = nothing(1)
    for _ in range(20):
        actions, memory = act_in(env, script, 0, memory)
        assert actions.tolist() == [LOAD]
        env.step(np.array([[LOAD, NONE]]))


@pytest.mark.parametrize(
    ("me", "other", "expected"),
    [
        ((0, 4), (7, 7), {SOUTH}),  # the longer axis first
        ((2, 0), (3, 0), {EAST}),  # the first axis is occupied: the second
        ((3, 3), (4, 3), {WEST, EAST}),  # nothing closer is free: aside
    ],
)
def test_steps_lead_round_other_players(
    me: tuple[int, int], other: tuple[int, int], expected: set[int]
) -> None:
    env = put([me, other], [(5, 3, 2)])
    script = make_script("nearest_food")
    actions, _ = act_in(env, script, 0, nothing(1))
    assert int(actions[0]) in expected


def test_a_player_in_a_dead_end_does_not_step_back_to_where_it_came_from() -> None:
    """From the corner, past a waiting player on one side and food on the other."""
    env = put([(0, 0), (0, 1)], [(1, 1, 6), (1, 4, 2)])
    script = make_script("top_right")
    memory, path = nothing(1), []
    for _ in range(8):
        actions, memory = act_in(env, script, 0, memory)
        if actions[0] == LOAD:
            break
        env.step(np.array([[actions[0], LOAD]]))
        path.append(env.frame().player_pos[0])
    assert path[:2] == [(1, 0), (2, 0)]
    assert path[-1] in ((1, 3), (2, 4))


def test_players_who_want_the_same_cell_take_turns_instead_of_blocking_each_other() -> None:
    env = put([(3, 0), (3, 2)], [(1, 6, 2), (6, 1, 2)], **SHARED)
    scripts = [make_script("top_right"), make_script("bottom_left")]
    memories = [nothing(1) for script in scripts]
    for _ in range(20):
        actions = []
        for seat, script in enumerate(scripts):
            action, memories[seat] = act_in(env, script, seat, memories[seat])
            actions.append(action)
        if env.step(np.stack(actions, axis=1)).terminated[0]:
            return
    raise AssertionError("not finished within 20 steps")


@pytest.mark.long
@given(
    name=st.sampled_from(sorted(SCRIPTS)),
    seed=st.integers(0, 10_000),
    noise=st.sampled_from([0.0, 0.3]),
    key=st.sampled_from([KEY, "Foraging-5x6-3p-2f-coop-v3", "Foraging-4x4-5p-1f-v3"]),
)
def test_only_available_actions_are_taken(name: str, seed: int, noise: float, key: str) -> None:
    env = make(key, copies=8, seed=seed)
    script = make_script(name, noise=noise)
    play(env, [script] * env.spec.n_agents, seed=seed)  # asserts it at every step


@given(data=st.data(), name=st.sampled_from(sorted(SCRIPTS)))
def test_any_mask_is_respected(data: st.DataObject, name: str) -> None:
    env = make(copies=16, seed=data.draw(st.integers(0, 999)))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    avail = rng.random((16, 6)) < 0.3
    avail[np.arange(16), rng.integers(6, size=16)] = True
    script = make_script(name, noise=0.2)
    memory = nothing(16)
    for _ in range(3):
        actions, memory = act(
            script, env.observe().state, seats_of(env, 1), avail, memory, rng, env.rules
        )
        assert avail[np.arange(16), actions].all()


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_play_is_the_same_with_the_same_seed(name: str, noise: float) -> None:
    first, second = (
        play(make(copies=10), [make_script(name, noise=noise)] * 2, seed=3).actions
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("name", SCRIPTS)
def test_rows_do_not_depend_on_each_other(name: str) -> None:
    """Rows split over two calls, mixed seats: the same actions and memory, noise included."""
    env = make("Foraging-8x8-3p-3f-v3", copies=40)
    script = make_script(name, noise=0.2)
    seats = np.arange(40) % 3
    whole, parts = nothing(40), nothing(40)
    rngs = np.random.default_rng(7), np.random.default_rng(7)
    for _ in range(15):
        seen = env.observe()
        avail = seen.avail[np.arange(40), seats]
        actions, whole = act(script, seen.state, seats, avail, whole, rngs[0], env.rules)
        pieces = []
        for part in (slice(0, 13), slice(13, 40)):
            action, parts[part] = act(
                script, seen.state[part], seats[part], avail[part], parts[part], rngs[1], env.rules
            )
            pieces.append(action)
        np.testing.assert_array_equal(actions, np.concatenate(pieces))
        np.testing.assert_array_equal(whole, parts)
        joint = np.zeros((40, 3), np.int64)
        joint[np.arange(40), seats] = actions
        env.step(joint)


def test_acting_leaves_its_inputs_alone() -> None:
    env = make(copies=5)
    script = make_script("nearest_food", noise=0.5)
    seen, memory = env.observe(), nothing(5)
    kept = seen.state.copy(), seen.avail.copy()
    act_in(env, script, 0, memory, seen=seen)
    assert not memory.any()
    np.testing.assert_array_equal(seen.state, kept[0])
    np.testing.assert_array_equal(seen.avail, kept[1])


@pytest.mark.parametrize("name", COMMITTED)
def test_pairs_collect_everything_that_one_can_lift(name: str) -> None:
    env = make(copies=200, min_player_level=3, max_player_level=3, max_food_level=3)
    assert play(env, [make_script(name)] * 2).finished == 1.0


def test_random_players_do_far_worse() -> None:
    env = make(copies=200, **SHARED)
    assert play(env, [make_script("random")] * 2).finished < 0.1


def test_committed_players_may_wait_for_each_other_for_ever() -> None:
    env = make("Foraging-8x8-2p-3f-coop-v3", copies=200, **SHARED)
    strict = play(env, [make_script("nearest_food")] * 2)
    assert 0.1 < strict.finished < 0.6


def test_random_is_uniform_over_what_is_available() -> None:
    env = make(copies=6000)
    env.reset(0)
    avail = np.tile([True, False, True, False, False, True], (6000, 1))
    script = make_script("random")
    actions, _ = act(
        script,
        env.observe().state,
        seats_of(env, 0),
        avail,
        nothing(6000),
        np.random.default_rng(0),
        env.rules,
    )
    share = np.bincount(actions, minlength=6) / 6000
    np.testing.assert_allclose(share, avail[0] / 3, atol=0.03)


def test_noise_replaces_that_share_of_actions() -> None:
    env = make(copies=6000, seed=2)
    seen, calm, noisy = env.observe(), make_script("centre"), make_script("centre", noise=0.4)
    memory = nothing(6000)
    straight, _ = act_in(env, calm, 0, memory, seen=seen)
    bent, _ = act_in(env, noisy, 0, memory, seen=seen)
    # A random action is the straight one again about every fourth time.
    share = (1 / seen.avail[:, 0].sum(axis=1)).mean()
    assert (bent != straight).mean() == pytest.approx(0.4 * (1 - share), abs=0.02)


def test_an_unknown_name_is_refused_with_the_nearest_one_and_the_list() -> None:
    with pytest.raises(OmgError, match=r"did you mean 'nearest_food'\?.*bottom_left.*top_right"):
        make_script("nearest_fod")


@pytest.mark.parametrize("options", [{"noise": -0.1}, {"noise": 1.5}])
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(OmgError, match=next(iter(options))):
        make_script("random", **options)


def test_states_that_do_not_fit_the_sizes_are_refused() -> None:
    rules = make().rules
    with pytest.raises(ValueError, match="foods"):
        act(
            make_script("nearest_food"),
            np.zeros((2, 9), np.float32),
            np.zeros(2, np.int64),
            np.ones((2, 6), np.bool_),
            nothing(2),
            np.random.default_rng(0),
            rules,
        )
