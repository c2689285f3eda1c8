"""Scripted predators and prey: where they head to, that they get there, and who wins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omg.envs.predator_prey import PredatorPreyArgs, PredatorPreyEnv
from omg.opponents.scripted_predator_prey import (
    SCRIPTS,
    Kind,
    act_together,
    board_of,
    headings,
    make_script,
)
from omg.opponents.scripts import Script
from omg.types import IntArray, Observation, OmgError, TimeStep

NONE, LEFT, RIGHT, DOWN, UP = range(5)


def make(copies: int = 1, seed: int = 0, **args: Any) -> PredatorPreyEnv:
    env = PredatorPreyEnv(args=args, n_copies=copies)
    env.reset(seed)
    return env


def put(places: Any, velocities: Any = None, **args: Any) -> PredatorPreyEnv:
    """One situation; without obstacles unless args say more."""
    env = make(**{"n_obstacles": 0, "n_predators": len(places) - 1, **args})
    env.set_layout(0, agent_pos=places, agent_vel=velocities)
    return env


def scripts_of(role: str) -> list[str]:
    return [name for name, kind in SCRIPTS.items() if kind.role in (role, None)]


def act(
    script: Script[Kind],
    state: Any,
    seats: IntArray,
    avail: Any,
    memory: IntArray,
    rng: np.random.Generator,
    args: PredatorPreyArgs,
) -> tuple[IntArray, IntArray]:
    return act_together([script], np.zeros_like(seats), state, seats, avail, memory, rng, args)


def target(
    script: Script[Kind], state: Any, seats: IntArray, memory: IntArray, args: PredatorPreyArgs
) -> Any:
    return headings([script], np.zeros_like(seats), state, seats, memory, args)


def target_of(env: PredatorPreyEnv, name: str, seat: int) -> list[float]:
    script = make_script(name)
    state, memory = env.observe().state, np.zeros((1, 1), np.int64)
    return target(script, state, np.array([seat]), memory, env.args)[0].tolist()


def action_of(env: PredatorPreyEnv, name: str, seat: int) -> int:
    script, seen = make_script(name), env.observe()
    memory, rng = np.zeros((1, 1), np.int64), np.random.default_rng(0)
    seats = np.array([seat])
    actions, _ = act(script, seen.state, seats, seen.avail[:, seat], memory, rng, env.args)
    return int(actions[0])


def play(
    env: PredatorPreyEnv, names: list[str], *, noise: float = 0.0, seed: int = 0
) -> tuple[TimeStep, IntArray, Any]:
    """One episode of every copy: the last step, actions [T, B, N] and states [T + 1, B, S]."""
    seen: Observation | TimeStep = env.reset(seed)
    scripts = [make_script(name, noise=noise) for name in names]
    memories = [np.zeros((env.n_copies, 1), np.int64) for script in scripts]
    rng = np.random.default_rng(seed)
    taken, states = [], [seen.state]
    for _ in range(env.spec.episode_limit):
        chosen = []
        for seat, script in enumerate(scripts):
            seats = np.full(env.n_copies, seat)
            actions, memories[seat] = act(
                script, seen.state, seats, seen.avail[:, seat], memories[seat], rng, env.args
            )
            chosen.append(actions)
        taken.append(np.stack(chosen, axis=1))
        step = seen = env.step(taken[-1])
        states.append(step.final.state if step.final is not None else step.state)
    return step, np.array(taken), np.array(states)


def test_there_are_scripts_of_both_roles_and_each_says_what_it_does() -> None:
    assert set(scripts_of("predator")) == {"chase", "intercept", "ambush", "guard", "random"}
    assert set(scripts_of("prey")) == {"flee", "flee_all", "corner", "orbit", "random"}
    assert make_script("chase").kind.role == "predator"
    assert make_script("orbit").kind.role == "prey"
    assert make_script("random").kind.role is None
    assert len({kind.about for kind in SCRIPTS.values()}) == len(SCRIPTS)


def test_chase_goes_for_the_nearest_prey_with_its_velocity() -> None:
    env = put(
        [(0.0, 0.0), (0.5, 0.1), (-0.3, 0.2)],
        [(0.0, 0.0), (0.1, 0.2), (0.3, -0.4)],
        n_predators=1,
        n_prey=2,
    )
    np.testing.assert_allclose(target_of(env, "chase", 0), [-0.3, 0.2, 0.3, -0.4], rtol=1e-6)
    assert action_of(env, "chase", 0) == LEFT


def test_intercept_leads_the_prey_by_the_time_it_needs() -> None:
    env = put([(0.0, 0.0), (0.0, 0.5)], [(0.0, 0.0), (1.0, 0.0)])
    np.testing.assert_allclose(target_of(env, "intercept", 0), [0.5, 0.5, 1.0, 0.0], rtol=1e-6)
    beyond = put([(0.0, 0.0), (0.9, 0.0)], [(0.0, 0.0), (1.3, 0.0)])
    assert target_of(beyond, "intercept", 0)[0] == 1.0  # prey turns at the border
    still = put([(0.0, 0.0), (0.0, 0.5)])
    assert target_of(still, "intercept", 0) == target_of(still, "chase", 0)


def test_ambush_lies_behind_the_prey_as_seen_by_the_other_predator() -> None:
    env = put([(0.0, 0.9), (-0.5, 0.0), (0.0, 0.0)])
    np.testing.assert_allclose(target_of(env, "ambush", 0), [0.4, 0.0, 0.0, 0.0], atol=1e-6)
    near = put([(0.0, 0.2), (-0.5, 0.0), (0.0, 0.0)])
    np.testing.assert_allclose(target_of(near, "ambush", 0), [0.0, 0.0, 0.0, 0.0], atol=1e-6)
    # The driver is the one nearest to the prey, and never oneself.
    three = put([(0.1, 0.5), (-0.9, 0.0), (0.0, 0.6), (0.0, 0.0)])
    np.testing.assert_allclose(target_of(three, "ambush", 0), [0.0, -0.4, 0.0, 0.0], atol=1e-6)
    alone = put([(0.0, 0.9), (0.0, 0.0)])
    np.testing.assert_allclose(target_of(alone, "ambush", 0), [0.0, 0.0, 0.0, 0.0], atol=1e-6)


def test_guard_stands_between_centre_and_prey_until_it_is_near() -> None:
    env = put([(-0.5, -0.5), (0.5, 0.5)])
    np.testing.assert_allclose(target_of(env, "guard", 0), [0.2, 0.2, 0.0, 0.0], rtol=1e-6)
    near = put([(0.3, 0.3), (0.5, 0.5)])
    np.testing.assert_allclose(target_of(near, "guard", 0), [0.5, 0.5, 0.0, 0.0], rtol=1e-6)


def test_flee_runs_from_the_nearest_predator_alone() -> None:
    env = put([(0.0, 0.3), (0.5, 0.0), (0.0, 0.0)])
    np.testing.assert_allclose(target_of(env, "flee", 2), [0.0, -0.4, 0.0, 0.0], atol=1e-6)
    assert action_of(env, "flee", 2) == DOWN


def test_flee_all_runs_from_both_where_flee_would_run_into_one() -> None:
    places = [(-0.3, 0.0), (0.5, 0.0), (0.0, 0.0)]
    np.testing.assert_allclose(target_of(put(places), "flee", 2)[:2], [0.4, 0.0], atol=1e-6)
    x, y = target_of(put(places), "flee_all", 2)[:2]
    assert abs(y) > 0.3
    assert abs(x) < 0.2


def test_flee_turns_at_the_border() -> None:
    env = put([(0.5, 0.1), (0.8, 0.0)])
    x, y = target_of(env, "flee", 1)[:2]
    assert abs(x) <= 0.85
    assert y == pytest.approx(-0.4, abs=0.05)
    assert action_of(env, "flee", 1) == DOWN


def test_prey_that_flees_stays_inside_while_random_prey_does_not() -> None:
    env = make(copies=200)
    shares = {}
    for name in ("flee", "flee_all", "orbit", "random"):
        states = play(env, ["chase"] * 3 + [name])[2]
        shares[name] = float((np.abs(states[5:, :, 12:14]) > 1.0).any(axis=-1).mean())
    assert shares["random"] > 0.08
    assert max(shares[name] for name in ("flee", "flee_all", "orbit")) < 0.05


def test_corner_picks_the_safest_corner_keeps_it_and_leaves_when_a_predator_comes() -> None:
    env = put([(0.7, 0.7), (-0.1, -0.1)])
    script, seats, board = make_script("corner"), np.array([1]), env.args
    seen, rng = env.observe(), np.random.default_rng(0)
    assert target_of(env, "corner", 1)[:2] == pytest.approx([-0.85, -0.85])
    _, memory = act(script, seen.state, seats, seen.avail[:, 1], np.zeros((1, 1), int), rng, board)
    # Another corner would be chosen afresh here, but it is not threatened yet.
    env.set_layout(0, agent_pos=[(-0.2, -0.2), (-0.1, 0.0)])
    kept = target(script, env.observe().state, seats, memory, board)
    assert kept[0, :2].tolist() == pytest.approx([-0.85, -0.85])
    assert target_of(env, "corner", 1)[:2] == pytest.approx([0.85, 0.85])
    env.set_layout(0, agent_pos=[(-0.7, -0.6), (-0.8, -0.8)])
    left = target(script, env.observe().state, seats, memory, board)
    assert left[0, :2].tolist() != pytest.approx([-0.85, -0.85])


@pytest.mark.parametrize(("hunter", "turning"), [((0.6, -0.3), 1.0), ((0.6, 0.3), -1.0)])
def test_orbit_circles_away_from_the_predator_and_keeps_its_direction(
    hunter: tuple[float, float], turning: float
) -> None:
    env = make(n_predators=1, n_obstacles=0, max_cycles=60)
    seen: Any = env.set_layout(0, agent_pos=[hunter, (0.65, 0.0)])
    script, memory = make_script("orbit"), np.zeros((1, 1), np.int64)
    angles, radii = [], []
    for _ in range(50):
        actions, memory = act(
            script,
            seen.state,
            np.array([1]),
            seen.avail[:, 1],
            memory,
            np.random.default_rng(0),
            env.args,
        )
        seen = env.step(np.array([[NONE, actions[0]]]))
        x, y = seen.state[0, 4:6]
        angles.append(np.arctan2(y, x))
        radii.append(np.hypot(x, y))
    turned = np.unwrap(angles)
    assert turning * (turned[-1] - turned[0]) > 2 * np.pi  # more than once round
    assert min(radii[10:]) > 0.35
    assert max(radii) < 0.9


def test_random_heads_nowhere_and_is_uniform_over_what_is_available() -> None:
    env = make(copies=6000)
    script, seen = make_script("random"), env.observe()
    memory = np.zeros((6000, 1), np.int64)
    own = target(script, seen.state, np.full(6000, 3), memory, env.args)
    np.testing.assert_array_equal(own, seen.state[:, 12:16])
    avail = np.tile([True, False, True, False, True], (6000, 1))
    actions, _ = act(
        script, seen.state, np.full(6000, 3), avail, memory, np.random.default_rng(0), env.args
    )
    share = np.bincount(actions, minlength=5) / 6000
    np.testing.assert_allclose(share, avail[0] / 3, atol=0.03)


def test_predators_walk_round_an_obstacle_in_the_way() -> None:
    env = make(n_predators=1, n_obstacles=1, max_cycles=40)
    seen: Any = env.set_layout(0, agent_pos=[(-0.7, 0.01), (0.7, 0.0)], obstacles=[(0.0, 0.0)])
    script, rng = make_script("chase"), np.random.default_rng(0)
    memory = np.zeros((1, 1), np.int64)
    for _ in range(39):
        actions, memory = act(
            script, seen.state, np.array([0]), seen.avail[:, 0], memory, rng, env.args
        )
        seen = env.step(np.array([[actions[0], NONE]]))
        if seen.info["collisions"][0]:
            return
    raise AssertionError("did not get round the obstacle within 39 steps")


def contacts(predators: str, prey: str, **args: Any) -> tuple[float, float]:
    """Mean contacts per episode and mean step of the first one, 400 episodes."""
    env = make(copies=400, **args)
    step = play(env, [predators] * 3 + [prey])[0]
    return float(step.info["collisions"].mean()), float(step.info["survival"].mean())


@pytest.mark.long
def test_hunters_catch_more_than_random_predators() -> None:
    """Against random prey: 4.7 contacts for chase, 0.4 for random."""
    random, _ = contacts("random", "random")
    for name, at_least in (("chase", 3.5), ("intercept", 3.5), ("ambush", 3.0), ("guard", 1.5)):
        assert contacts(name, "random")[0] > max(at_least, 3 * random), name


@pytest.mark.long
def test_prey_that_flees_survives_longer_and_is_touched_less_than_random_prey() -> None:
    """Before three chasing predators: first touched at step 19 and 13, 1.6 and 4.7 contacts."""
    touched, survived = contacts("chase", "random")
    for name in ("flee", "flee_all", "orbit"):
        fewer, longer = contacts("chase", name)
        assert longer > survived + 2.5, name
        assert fewer < 0.5 * touched, name


def test_leading_the_prey_catches_more_than_following_it() -> None:
    assert contacts("intercept", "flee")[0] > 1.5 * contacts("chase", "flee")[0]


ROLES = [(name, seat) for seat, role in ((1, "predator"), (3, "prey")) for name in scripts_of(role)]


@pytest.mark.parametrize(("name", "seat"), ROLES)
def test_rows_do_not_depend_on_each_other(name: str, seat: int) -> None:
    """Rows split over two calls: the same actions and memory, noise included."""
    env = make(copies=40)
    script, board = make_script(name, noise=0.2), env.args
    seats = np.full(40, seat)
    whole, parts = np.zeros((40, 1), np.int64), np.zeros((40, 1), np.int64)
    rngs = np.random.default_rng(7), np.random.default_rng(7)
    for _ in range(12):
        seen = env.observe()
        avail = seen.avail[:, seat]
        actions, whole = act(script, seen.state, seats, avail, whole, rngs[0], board)
        pieces = []
        for part in (slice(0, 13), slice(13, 40)):
            action, parts[part] = act(
                script, seen.state[part], seats[part], avail[part], parts[part], rngs[1], board
            )
            pieces.append(action)
        np.testing.assert_array_equal(actions, np.concatenate(pieces))
        np.testing.assert_array_equal(whole, parts)
        joint = np.zeros((40, 4), np.int64)
        joint[:, seat] = actions
        env.step(joint)


def test_scripts_that_act_together_act_as_each_would_alone() -> None:
    env = make(copies=60)
    scripts = [make_script(name) for name in ("chase", "corner", "ambush", "orbit", "flee")]
    seats = np.array([0, 1, 2, 3] * 15)
    members = np.where(seats == 3, np.array([1, 3, 4] * 20), np.array([0, 2] * 30))
    memory, rng = np.zeros((60, 1), np.int64), np.random.default_rng(0)
    for _ in range(10):
        seen = env.observe()
        avail = seen.avail[np.arange(60), seats]
        actions, after = act_together(
            scripts, members, seen.state, seats, avail, memory, rng, env.args
        )
        for number, script in enumerate(scripts):
            rows = members == number
            alone, own = act(
                script, seen.state[rows], seats[rows], avail[rows], memory[rows], rng, env.args
            )
            np.testing.assert_array_equal(actions[rows], alone)
            np.testing.assert_array_equal(after[rows], own)
        memory = after
        joint = np.zeros((60, 4), np.int64)
        joint[np.arange(60), seats] = actions
        env.step(joint)


def test_headings_are_the_targets_of_each_rows_own_script() -> None:
    env = make(copies=8)
    scripts = [make_script(name) for name in ("intercept", "orbit", "random")]
    members, seats = np.array([0, 1, 2, 0, 2, 1, 0, 2]), np.array([0, 3, 1, 2, 3, 3, 1, 0])
    state, memory = env.observe().state, np.array([[0], [2], [0], [0], [0], [1], [0], [0]])
    found = headings(scripts, members, state, seats, memory, env.args)
    for row, number in enumerate(members.tolist()):
        one = slice(row, row + 1)
        alone = target(scripts[number], state[one], seats[one], memory[one], env.args)
        np.testing.assert_array_equal(found[one], alone)


def test_noise_replaces_that_share_of_actions() -> None:
    env = make(copies=6000, seed=2)
    seen = env.observe()
    memory = np.zeros((6000, 1), np.int64)
    calm, noisy = (
        act(
            make_script("chase", noise=noise),
            seen.state,
            np.zeros(6000, int),
            seen.avail[:, 0],
            memory,
            np.random.default_rng(0),
            env.args,
        )[0]
        for noise in (0.0, 0.4)
    )
    assert (calm != noisy).mean() == pytest.approx(0.4 * 4 / 5, abs=0.02)


@given(data=st.data(), place=st.sampled_from(ROLES), noise=st.sampled_from([0.0, 0.5]))
def test_any_mask_is_respected(data: st.DataObject, place: tuple[str, int], noise: float) -> None:
    name, seat = place
    env = make(copies=16, seed=data.draw(st.integers(0, 999)))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    avail = rng.random((16, 5)) < 0.3
    avail[np.arange(16), rng.integers(5, size=16)] = True
    script = make_script(name, noise=noise)
    memory = np.zeros((16, 1), np.int64)
    for _ in range(3):
        actions, memory = act(
            script, env.observe().state, np.full(16, seat), avail, memory, rng, env.args
        )
        assert avail[np.arange(16), actions].all()


@pytest.mark.parametrize("name", ["chase", "corner"])
def test_acting_leaves_its_inputs_alone_and_repeats(name: str) -> None:
    env = make(copies=8)
    seat = 0 if name == "chase" else 3
    script, seen = make_script(name, noise=0.5), env.observe()
    memory, kept = np.zeros((8, 1), np.int64), seen.state.copy()
    first, second = (
        act(
            script,
            seen.state,
            np.full(8, seat),
            seen.avail[:, seat],
            memory,
            np.random.default_rng(3),
            env.args,
        )[0]
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(seen.state, kept)
    assert not memory.any()


def test_a_script_refuses_the_seats_of_the_other_role() -> None:
    env = make()
    script: Script = make_script("chase")
    with pytest.raises(ValueError, match="'chase' plays predator"):
        target(script, env.observe().state, np.array([3]), np.zeros((1, 1), np.int64), env.args)
    with pytest.raises(ValueError, match="'flee' plays prey"):
        action_of(env, "flee", 0)


def test_states_that_do_not_fit_the_sizes_are_refused() -> None:
    script = make_script("chase")
    with pytest.raises(ValueError, match="4 agents and 2 obstacles"):
        target(
            script,
            np.zeros((2, 9), np.float32),
            np.zeros(2, int),
            np.zeros((2, 1), np.int64),
            board_of({}),
        )


def test_the_board_follows_the_arguments_of_the_environment() -> None:
    board = board_of({"n_prey": 2})
    assert (board.n_predators, board.n_prey, board.n_obstacles) == (3, 2, 2)
    with pytest.raises(OmgError, match="n_preys"):
        board_of({"n_preys": 2})


def test_an_unknown_name_is_refused_with_the_nearest_one_and_the_list() -> None:
    with pytest.raises(OmgError, match=r"did you mean 'chase'\?.*ambush.*random"):
        make_script("chas")
    with pytest.raises(OmgError, match="noise"):
        make_script("chase", noise=1.5)
