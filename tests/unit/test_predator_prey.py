"""Predator-Prey by hand-made situations, its seats, seeds and snapshots, and its pictures."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from omg.envs.check import check_batched_env
from omg.envs.predator_prey import SCENE, PredatorPreyArgs, PredatorPreyEnv
from omg.types import OmgError, TimeStep

NONE, LEFT, RIGHT, DOWN, UP = range(5)
FAR = [(-0.8, -0.8), (0.8, -0.8)]
ALONE = {"n_predators": 1, "n_prey": 1, "n_obstacles": 0}


def make(copies: int = 1, seed: int = 0, **args: Any) -> PredatorPreyEnv:
    env = PredatorPreyEnv(args=args, n_copies=copies)
    env.reset(seed)
    return env


def act(env: PredatorPreyEnv, *actions: int) -> TimeStep:
    return env.step(np.array([actions]))


def agents_of(state: Any, n: int) -> Any:
    return state[: 4 * n].reshape(n, 4)


@pytest.mark.parametrize(
    ("action", "push"),
    [(NONE, (0, 0)), (LEFT, (-1, 0)), (RIGHT, (1, 0)), (DOWN, (0, -1)), (UP, (0, 1))],
)
def test_an_action_pushes_its_way_and_prey_harder_than_predators(
    action: int, push: tuple[int, int]
) -> None:
    env = make(**ALONE)
    env.set_layout(0, agent_pos=[(-0.5, 0.0), (0.5, 0.0)])
    first = agents_of(act(env, action, action).state[0], 2)
    np.testing.assert_allclose(first[:, :2], [(-0.5, 0.0), (0.5, 0.0)])  # nobody has moved yet
    np.testing.assert_allclose(first[:, 2:], np.outer([0.3, 0.4], push), rtol=1e-6)
    second = agents_of(act(env, NONE, NONE).state[0], 2)
    moved = np.array([(-0.5, 0.0), (0.5, 0.0)]) + np.outer([0.03, 0.04], push)
    np.testing.assert_allclose(second[:, :2], moved, rtol=1e-6)
    np.testing.assert_allclose(second[:, 2:], np.outer([0.225, 0.3], push), rtol=1e-6)


def test_speed_is_limited_by_role() -> None:
    env = make(**ALONE)
    env.set_layout(0, agent_pos=[(-0.5, -0.9), (0.5, -0.9)])
    for _ in range(20):
        step = act(env, UP, UP)
    np.testing.assert_allclose(agents_of(step.state[0], 2)[:, 3], [1.0, 1.3], rtol=1e-6)


def test_a_contact_pays_every_predator_and_costs_the_prey() -> None:
    env = make(n_predators=2, n_prey=2, n_obstacles=0)
    env.set_layout(0, agent_pos=[(0.0, 0.0), (-0.7, 0.7), (0.12, 0.0), (0.6, -0.6)])
    step = act(env, NONE, NONE, NONE, NONE)
    assert step.reward.tolist() == [[10.0, 10.0, -10.0, 0.0]]
    assert step.info["collisions"].tolist() == [1.0]
    assert step.info["survival"].tolist() == [1.0]
    # They push each other apart, so the next step sees no contact.
    after = act(env, NONE, NONE, NONE, NONE)
    assert after.reward.tolist() == [[0.0] * 4]
    assert after.info["collisions"].tolist() == [1.0]


def test_two_predators_at_one_prey_count_twice() -> None:
    env = make(n_predators=2, n_prey=1, n_obstacles=0)
    env.set_layout(0, agent_pos=[(-0.12, 0.0), (0.12, 0.0), (0.0, 0.0)])
    step = act(env, NONE, NONE, NONE)
    assert step.reward.tolist() == [[20.0, 20.0, -20.0]]
    assert step.info["collisions"].tolist() == [2.0]


def test_survival_is_the_step_of_the_first_contact_or_the_limit() -> None:
    env = make(**ALONE, max_cycles=30)
    env.set_layout(0, agent_pos=[(-0.5, 0.0), (0.0, 0.0)])
    seen = []
    for _ in range(29):
        step = act(env, RIGHT, NONE)
        seen.append((bool(step.info["collisions"][0]), int(step.info["survival"][0])))
    touched = next(number for number, (hit, _) in enumerate(seen) if hit)
    assert {survival for hit, survival in seen if not hit} == {30}
    assert {survival for hit, survival in seen if hit} == {touched + 1}


@pytest.mark.parametrize(
    ("place", "penalty"),
    [
        ((0.89, 0.0), 0.0),
        ((0.95, 0.0), 0.5),
        ((-0.95, 0.93), 0.5 + 0.3),
        ((1.0, 0.0), 1.0),
        ((0.0, -1.5), np.exp(1.0)),
        ((5.0, 0.0), 10.0),
        ((1e6, 5.0), 20.0),
    ],
)
def test_prey_loses_at_the_border_and_predators_do_not(
    place: tuple[float, float], penalty: float
) -> None:
    env = make(**ALONE)
    env.set_layout(0, agent_pos=[(1.0, -3.0), place])
    np.testing.assert_allclose(act(env, NONE, NONE).reward, [[0.0, -penalty]], rtol=1e-6)


def test_shaped_rewards_add_what_the_reference_leaves_switched_off() -> None:
    plain, shaped = make(), make(shaped_reward=True)
    places = np.array([(-0.5, 0.1), (0.3, 0.4), (0.6, -0.2), (0.1, -0.6)])
    rewards = []
    for env in (plain, shaped):
        env.set_layout(0, agent_pos=places, obstacles=FAR)
        rewards.append(act(env, NONE, NONE, NONE, NONE).reward[0])
    gaps = [float(np.hypot(*(place - places[3]))) for place in places[:3]]
    wanted = [-0.1 * sum(gaps)] * 3 + [0.1 * sum(gaps)]
    np.testing.assert_allclose(rewards[1] - rewards[0], wanted, rtol=1e-6)


def test_shaped_predators_count_only_the_nearest_prey() -> None:
    env = make(**{**ALONE, "n_prey": 2}, shaped_reward=True)
    env.set_layout(0, agent_pos=[(0.0, 0.0), (0.3, 0.0), (0.0, 0.8)])
    np.testing.assert_allclose(act(env, NONE, NONE, NONE).reward, [[-0.03, 0.03, 0.08]], rtol=1e-5)


def test_seats_have_roles_and_see_themselves_obstacles_others_and_moving_prey() -> None:
    env = make(n_predators=1, n_prey=2, n_obstacles=1)
    spec = env.spec
    assert spec.roles == ("predator", "prey", "prey")
    assert spec.obs_dims == (14, 12, 12)
    assert (spec.obs_dim, spec.state_dim) == (14, 14)
    assert spec.agent_features == ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11))
    assert not spec.shared_reward
    seen = env.set_layout(
        0,
        agent_pos=[(0.1, 0.2), (-0.5, 0.5), (0.5, -0.5)],
        agent_vel=[(0.01, 0.02), (0.03, 0.04), (0.05, 0.06)],
        obstacles=[(0.6, 0.7)],
    )
    hunter = [0.01, 0.02, 0.1, 0.2, 0.5, 0.5, -0.6, 0.3, 0.4, -0.7, 0.03, 0.04, 0.05, 0.06]
    prey = [0.03, 0.04, -0.5, 0.5, 1.1, 0.2, 0.6, -0.3, 1.0, -1.0, 0.05, 0.06, 0.0, 0.0]
    np.testing.assert_allclose(seen.obs[0, 0], hunter, atol=1e-7)
    np.testing.assert_allclose(seen.obs[0, 1], prey, atol=1e-7)
    state = [0.1, 0.2, 0.01, 0.02, -0.5, 0.5, 0.03, 0.04, 0.5, -0.5, 0.05, 0.06, 0.6, 0.7]
    np.testing.assert_allclose(seen.state[0], state, atol=1e-7)
    assert seen.avail.all()


def test_the_default_game_has_the_reference_widths() -> None:
    spec = make().spec
    assert (spec.n_agents, spec.n_actions, spec.episode_limit) == (4, 5, 25)
    assert spec.obs_dims == (16, 16, 16, 14)
    assert spec.seats_of("prey") == (3,)


def test_the_limit_truncates_and_nothing_terminates() -> None:
    env = make(copies=3, max_cycles=4)
    env.set_layout(1, agent_pos=np.zeros((4, 2)) + np.eye(4, 2), obstacles=FAR, step=2)
    ends = []
    for _ in range(4):
        step = env.step(np.zeros((3, 4), np.int64))
        assert not step.terminated.any()
        ends.append(step.truncated.tolist())
    assert ends == [[False] * 3, [False, True, False], [False] * 3, [True, False, True]]
    assert step.final is not None
    assert step.final.copies.tolist() == [0, 2]


def test_bodies_on_one_spot_stay_finite() -> None:
    env = make()
    env.set_layout(0, agent_pos=np.zeros((4, 2)), obstacles=np.zeros((2, 2)))
    for _ in range(5):
        step = act(env, LEFT, RIGHT, UP, DOWN)
        assert np.isfinite(step.obs).all()
        assert np.isfinite(step.reward).all()


def run(env: PredatorPreyEnv, actions: Any) -> list[TimeStep]:
    return [env.step(step) for step in actions]


def assert_same(ours: list[TimeStep], theirs: list[TimeStep], pick: Any = slice(None)) -> None:
    for one, other in zip(ours, theirs, strict=True):
        for name in ("obs", "state", "reward", "truncated"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name)[pick])
        for name in ("collisions", "survival"):
            np.testing.assert_array_equal(one.info[name], other.info[name][pick])


def random_actions(copies: int, agents: int = 4, steps: int = 60) -> Any:
    return np.random.default_rng(1).integers(0, 5, (steps, copies, agents))


def test_a_seed_reproduces_and_another_differs() -> None:
    env, actions = make(copies=6), random_actions(6)
    first = env.reset(5)
    steps = run(env, actions)
    again = env.reset(5)
    np.testing.assert_array_equal(first.state, again.state)
    assert_same(run(env, actions), steps)
    assert not np.array_equal(env.reset(6).state, first.state)
    assert len(np.unique(first.state, axis=0)) == 6
    assert not np.array_equal(env.restart().state, env.restart().state)


def test_copies_split_over_two_environments_play_the_same_episodes() -> None:
    whole = make(copies=7, seed=9)
    upper, lower = (PredatorPreyEnv(args={}, n_copies=n, first_copy=f) for n, f in ((3, 0), (4, 3)))
    upper.reset(9)
    lower.reset(9)
    actions = random_actions(7)
    together = run(whole, actions)
    assert_same(run(upper, actions[:, :3]), together, slice(0, 3))
    assert_same(run(lower, actions[:, 3:]), together, slice(3, 7))


def test_a_restored_snapshot_continues_bit_for_bit() -> None:
    args = {"n_predators": 2, "n_prey": 2, "n_obstacles": 3, "max_cycles": 20}
    env = PredatorPreyEnv(args=args, n_copies=5)
    actions = random_actions(5)
    env.reset(2**70 + 11)
    run(env, actions[:37])
    snapshot, seen, frame = env.snapshot(), env.observe(), env.frame(2)
    rest = run(env, actions[37:])
    fresh = PredatorPreyEnv(args=args, n_copies=5)
    np.testing.assert_array_equal(fresh.restore(snapshot).obs, seen.obs)
    assert fresh.frame(2) == frame
    assert_same(run(fresh, actions[37:]), rest)
    np.testing.assert_array_equal(fresh.restart().state, env.restart().state)
    with pytest.raises(OmgError, match="does not fit"):
        PredatorPreyEnv(args=args, n_copies=4).restore(snapshot)


@pytest.mark.long
@pytest.mark.parametrize(
    "args",
    [
        {},
        {"n_predators": 2, "n_prey": 2, "n_obstacles": 0, "max_cycles": 9},
        {"n_predators": 1, "n_prey": 3, "n_obstacles": 1, "shaped_reward": True},
    ],
)
def test_the_contract_is_kept(args: dict[str, Any]) -> None:
    for result in check_batched_env(partial(PredatorPreyEnv, args=args), steps=80):
        assert result.ok, f"{result.name}: {result.detail}"
        assert not result.detail.startswith("warning")


def test_set_layout_changes_one_copy_and_clears_its_counters() -> None:
    env = make(copies=2)
    run(env, random_actions(2, steps=3))
    before = env.observe().state[0]
    seen = env.set_layout(1, agent_pos=np.eye(4, 2), obstacles=FAR)
    np.testing.assert_array_equal(seen.state[0], before)
    np.testing.assert_allclose(seen.state[1, -4:], np.ravel(FAR), rtol=1e-6)
    assert (env.frame(1).step, env.frame(1).score) == (0, (0.0,) * 4)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"agent_pos": np.zeros((3, 2))}, "agent_pos.*each of 4"),
        ({"obstacles": [(0.0, 0.0)]}, "obstacles.*each of 2"),
        ({"agent_vel": [(0.0, 0.0)]}, "agent_vel"),
        ({"agent_pos": np.full((4, 2), np.nan)}, "finite"),
        ({"step": 25}, "from 0 to 24"),
    ],
)
def test_set_layout_refuses_what_does_not_fit(given: dict[str, Any], words: str) -> None:
    env = make()
    fitting: dict[str, Any] = {"agent_pos": np.eye(4, 2), "obstacles": FAR}
    with pytest.raises(OmgError, match=words):
        env.set_layout(0, **{**fitting, **given})


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"n_predator": 2}, "no argument 'n_predator', did you mean 'n_predators'"),
        ({"num_obstacles": 2}, "did you mean 'n_obstacles'.*Choose among: n_predators"),
        ({"n_prey": 0}, "'n_prey' is 0"),
        ({"n_predators": 0}, "'n_predators' is 0"),
        ({"n_obstacles": -1}, "'n_obstacles' is -1"),
        ({"max_cycles": 0}, "'max_cycles' is 0"),
        ({"n_prey": "many"}, "'n_prey' is 'many'"),
    ],
)
def test_bad_arguments_are_explained_in_a_sentence(args: dict[str, Any], words: str) -> None:
    with pytest.raises(OmgError, match=words) as caught:
        PredatorPreyEnv(args=args, n_copies=1)
    assert "\n" not in str(caught.value)


def test_actions_out_of_range_or_shape_are_refused() -> None:
    env = make(**ALONE)
    for actions in ([[0, 5]], [[-1, 0]], [[0]]):
        with pytest.raises(OmgError, match="from 0 to 4"):
            env.step(np.array(actions))
    with pytest.raises(RuntimeError, match="reset"):
        PredatorPreyEnv(args={}, n_copies=1).step(np.zeros((1, 4), int))
    with pytest.raises(OmgError, match="at least one copy"):
        PredatorPreyEnv(args={}, n_copies=0)


def test_games_of_equal_width_are_told_apart() -> None:
    one, other = make().spec, make(n_predators=4, n_obstacles=1).spec
    assert one.obs_dim == other.obs_dim
    assert one.obs_format != other.obs_format
    assert one.name == "PredatorPrey-3v1-2o"


def episode() -> tuple[Any, Any, PredatorPreyArgs]:
    """A predator that runs through its prey and out of the field."""
    env = make(n_predators=2, n_prey=1, n_obstacles=1)
    seen = env.set_layout(
        0, agent_pos=[(-0.4, 0.0), (-0.6, 0.8), (0.0, 0.0)], obstacles=[(0.5, 0.5)]
    )
    states, rewards = [seen.state[0]], []
    for _ in range(15):
        step = act(env, RIGHT, LEFT, NONE)
        states.append(step.state[0])
        rewards.append(step.reward[0])
    return np.array(states), np.array(rewards), env.args


def test_frames_count_contacts_as_the_game_does_and_share_one_view() -> None:
    states, rewards, args = episode()
    frames = PredatorPreyEnv(args=args, n_copies=1).frames(states, rewards)
    assert sum(len(frame.contacts) for frame in frames) == rewards[:, 0].sum() / 10 > 0
    assert frames[-1].collisions == rewards[:, 0].sum() / 10
    assert frames[-1].score == pytest.approx(rewards.sum(axis=0).tolist())
    assert {frame.reach for frame in frames} == {frames[-1].reach}
    assert frames[-1].reach > np.abs(states[:, :12].reshape(-1, 3, 4)[..., :2]).max()
    assert frames[3].trails[0] == tuple(frame.predators[0] for frame in frames[:3])
    common = PredatorPreyEnv(args=args, n_copies=1).frames(states, rewards[:, :1])
    assert len(common[-1].score) == 3


def test_pictures_tell_prey_from_predators_by_shape() -> None:
    states, rewards, args = episode()
    svg = SCENE.to_svg(PredatorPreyEnv(args=args, n_copies=1).frames(states, rewards)[0])
    root = ET.fromstring(svg)
    tags = [node.tag.split("}")[1] for node in root.iter()]
    assert tags.count("polygon") == 2  # the prey, and its mark beside the score
    assert tags.count("ellipse") == 2 + 2 + 1


def test_a_contact_flashes() -> None:
    states, rewards, args = episode()
    frames = PredatorPreyEnv(args=args, n_copies=1).frames(states, rewards)
    polygons = [SCENE.to_svg(frame).count("<polygon") for frame in frames]
    assert [count - 2 for count in polygons] == [bool(frame.contacts) for frame in frames]


@pytest.mark.long
def test_pictures_are_arrays_and_show_differences() -> None:
    env = make()
    picture = env.render()
    assert picture.dtype == np.uint8
    assert picture.shape == (522, 476, 3)
    states, rewards, args = episode()
    frames = PredatorPreyEnv(args=args, n_copies=1).frames(states, rewards)
    assert not np.array_equal(SCENE.to_rgb(frames[0]), SCENE.to_rgb(frames[-1]))
    assert SCENE.to_rgb(frames[0], dark=True).mean() < 100 < SCENE.to_rgb(frames[0]).mean()
    assert SCENE.to_rgb(frames[0], scale=0.5).shape[0] == 261


@pytest.mark.long
def test_an_episode_is_drawn_as_moving_svg_and_gif(tmp_path: Path) -> None:
    states, rewards, args = episode()
    env = PredatorPreyEnv(args=args, n_copies=1)
    svg, gif = env.draw_episode(tmp_path / "episode_0", states, rewards)
    root = ET.fromstring(svg.read_text(encoding="utf-8"))
    words = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"0", "1", "2", "Step 0", "Step 15", "0 contacts"} <= set(words)
    changes = [node for node in root.iter() if "keyTimes" in node.attrib]
    assert {node.attrib["attributeName"] for node in changes} == {"display", "transform", "opacity"}
    for node in changes:
        times = [float(time) for time in node.attrib["keyTimes"].split(";")]
        assert len(times) == len(node.attrib["values"].split(";"))
        assert times == sorted(times)
        assert times[0] == 0
        assert times[-1] == 1 or node.attrib.get("calcMode") == "discrete"
    with Image.open(gif) as image:
        assert image.n_frames == 16
    empty = tmp_path / "empty.gif"
    for draw in (SCENE.to_animated_svg, lambda frames: SCENE.write_gif(empty, frames)):
        with pytest.raises(OmgError, match="no frames"):
            draw([])
