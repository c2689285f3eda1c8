"""Spread by hand-made situations, its seeds and snapshots, and its pictures."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from omg.config.loader import load_command_line
from omg.envs.check import check_batched_env
from omg.envs.registry import make_batched
from omg.envs.spread import SCENE, SpreadArgs, SpreadEnv
from omg.types import OmgError, TimeStep

NONE, LEFT, RIGHT, DOWN, UP = range(5)
APART = [(-0.8, 0.0), (0.0, 0.0), (0.8, 0.0)]
MARKS = [(-0.8, 0.5), (0.0, 0.5), (0.8, 0.5)]


def make(copies: int = 1, seed: int = 0, **args: Any) -> SpreadEnv:
    env = SpreadEnv(args=args, n_copies=copies)
    env.reset(seed)
    return env


def act(env: SpreadEnv, *actions: int) -> TimeStep:
    return env.step(np.array([actions]))


def test_an_action_pushes_with_the_default_strength_and_nothing_limits_speed() -> None:
    env = make(n_agents=1, max_cycles=100)
    env.set_layout(0, agent_pos=[(0.1, 0.2)], landmarks=[(0.0, 0.0)])
    first = act(env, RIGHT).state[0, :4]
    np.testing.assert_allclose(first, [0.1, 0.2, 0.5, 0.0], rtol=1e-6)
    second = act(env, UP).state[0, :4]
    np.testing.assert_allclose(second, [0.15, 0.2, 0.375, 0.5], rtol=1e-6)
    for _ in range(60):
        step = act(env, UP)
    # Damping alone holds it: v = 0.75 v + 0.5 has the solution 2.
    np.testing.assert_allclose(step.state[0, 3], 2.0, rtol=1e-5)


def test_agents_push_each_other_and_pass_over_landmarks() -> None:
    env = make(n_agents=2)
    env.set_layout(0, agent_pos=[(-0.1, 0.0), (0.1, 0.0)], landmarks=[(0.6, 0.0), (-0.1, 0.0)])
    after = act(env, NONE, NONE).state[0].copy()
    # Overlap 0.1: a force of 100 · 0.1 for 0.1 s.
    np.testing.assert_allclose(after[[2, 6]], [-1.0, 1.0], rtol=1e-5)
    np.testing.assert_allclose(after[8:], [0.6, 0.0, -0.1, 0.0], rtol=1e-6)
    alone = make(n_agents=1)
    alone.set_layout(0, agent_pos=[(0.01, 0.0)], landmarks=[(0.0, 0.0)])
    assert not act(alone, NONE).state[0, 2:4].any()


@pytest.mark.parametrize("ratio", [0.0, 0.3, 1.0])
def test_all_share_the_distances_and_each_pays_for_its_own_collisions(ratio: float) -> None:
    env = make(local_ratio=ratio)
    env.set_layout(
        0,
        # 0 and 1 overlap, 1 and 2 overlap, 0 and 2 do not.
        agent_pos=[(-0.2, 0.0), (0.0, 0.0), (0.2, 0.0)],
        landmarks=[(-0.2, 0.3), (0.2, -0.4), (0.6, 0.3)],
    )
    step = act(env, NONE, NONE, NONE)
    shared = -(0.3 + 0.4 + 0.5)  # the last from (0.2, 0): 0.4 aside, 0.3 up
    wanted = [shared * (1 - ratio) - ratio * hits for hits in (1, 2, 1)]
    np.testing.assert_allclose(step.reward[0], wanted, rtol=1e-6)
    assert step.info["collisions"].tolist() == [2.0]


def test_a_collision_begins_where_two_discs_meet() -> None:
    for distance, hits in ((0.2999, 1.0), (0.3001, 0.0)):
        env = make(n_agents=2, local_ratio=1.0)
        env.set_layout(0, agent_pos=[(0.0, 0.0), (0.0, distance)], landmarks=np.eye(2))
        step = act(env, NONE, NONE)
        assert step.reward.tolist() == [[-hits, -hits]]
        assert step.info["collisions"].tolist() == [hits]


def test_covered_is_the_share_of_landmarks_with_an_agent_near_at_the_end() -> None:
    env = make(max_cycles=3)
    # Two landmarks have an agent at 0.09 and 0; the last has none nearer than 0.11.
    marks = [(-0.8, 0.09), (0.0, 0.0), (0.8, 0.11)]
    env.set_layout(0, agent_pos=APART, landmarks=marks)
    seen = [act(env, NONE, NONE, NONE).info["covered"][0]]
    seen.append(act(env, UP, NONE, UP).info["covered"][0])
    step = act(env, NONE, NONE, NONE)  # now the pushes show: both are 0.05 higher
    seen.append(step.info["covered"][0])
    np.testing.assert_allclose(seen, [2 / 3, 2 / 3, 1.0], rtol=1e-6)
    assert step.truncated.tolist() == [True]


def test_counters_begin_anew_with_every_episode() -> None:
    env = make(n_agents=2, max_cycles=2)
    env.set_layout(0, agent_pos=[(0.0, 0.0), (0.1, 0.0)], landmarks=np.eye(2), step=1)
    step = act(env, NONE, NONE)
    assert step.truncated.all()
    assert step.info["collisions"].tolist() == [1.0]
    assert (env.frame().collisions, env.frame().step, env.frame().score) == (0, 0, (0.0, 0.0))


def test_agents_see_themselves_landmarks_others_and_silence() -> None:
    env = make(n_agents=2)
    spec = env.spec
    assert (spec.obs_dim, spec.state_dim, spec.n_actions, spec.episode_limit) == (12, 12, 5, 25)
    assert spec.agent_features == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert (spec.roles, spec.obs_dims, spec.shared_reward) == ((), (), False)
    assert spec.statistics == ("covered", "collisions")
    seen = env.set_layout(
        0,
        agent_pos=[(0.1, 0.2), (-0.5, 0.5)],
        agent_vel=[(0.01, 0.02), (0.03, 0.04)],
        landmarks=[(0.6, 0.7), (0.0, -1.0)],
    )
    first = [0.01, 0.02, 0.1, 0.2, 0.5, 0.5, -0.1, -1.2, -0.6, 0.3, 0.0, 0.0]
    second = [0.03, 0.04, -0.5, 0.5, 1.1, 0.2, 0.5, -1.5, 0.6, -0.3, 0.0, 0.0]
    np.testing.assert_allclose(seen.obs[0], [first, second], atol=1e-7)
    state = [0.1, 0.2, 0.01, 0.02, -0.5, 0.5, 0.03, 0.04, 0.6, 0.7, 0.0, -1.0]
    np.testing.assert_allclose(seen.state[0], state, atol=1e-7)
    assert seen.avail.all()
    assert make().spec.obs_dim == 18  # mpe2's


def test_the_limit_truncates_and_nothing_terminates() -> None:
    env = make(copies=3, max_cycles=4)
    env.set_layout(1, agent_pos=MARKS, landmarks=MARKS, step=2)  # covered: no reason to end
    ends = []
    for _ in range(4):
        step = env.step(np.zeros((3, 3), np.int64))
        assert not step.terminated.any()
        ends.append(step.truncated.tolist())
    assert ends == [[False] * 3, [False, True, False], [False] * 3, [True, False, True]]
    assert step.final is not None
    assert step.final.copies.tolist() == [0, 2]


def run(env: SpreadEnv, actions: Any) -> list[TimeStep]:
    return [env.step(step) for step in actions]


def assert_same(ours: list[TimeStep], theirs: list[TimeStep], pick: Any = slice(None)) -> None:
    for one, other in zip(ours, theirs, strict=True):
        for name in ("obs", "state", "reward", "truncated"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name)[pick])
        for name in ("covered", "collisions"):
            np.testing.assert_array_equal(one.info[name], other.info[name][pick])


def random_actions(copies: int, agents: int = 3, steps: int = 60) -> Any:
    return np.random.default_rng(1).integers(0, 5, (steps, copies, agents))


def test_a_seed_reproduces_and_another_differs() -> None:
    env, actions = make(copies=6), random_actions(6)
    first = env.reset(5)
    steps = run(env, actions)
    np.testing.assert_array_equal(first.state, env.reset(5).state)
    assert_same(run(env, actions), steps)
    assert not np.array_equal(env.reset(6).state, first.state)
    assert len(np.unique(first.state, axis=0)) == 6


def test_copies_split_over_two_environments_play_the_same_episodes() -> None:
    whole, actions = make(copies=7, seed=9), random_actions(7)
    upper, lower = (SpreadEnv(args={}, n_copies=n, first_copy=f) for n, f in ((3, 0), (4, 3)))
    upper.reset(9)
    lower.reset(9)
    together = run(whole, actions)
    assert_same(run(upper, actions[:, :3]), together, slice(0, 3))
    assert_same(run(lower, actions[:, 3:]), together, slice(3, 7))


def test_a_restored_snapshot_continues_bit_for_bit() -> None:
    args = {"n_agents": 4, "max_cycles": 20}
    env, actions = SpreadEnv(args=args, n_copies=5), random_actions(5, agents=4)
    env.reset(2**70 + 11)
    run(env, actions[:37])
    snapshot, seen, frame = env.snapshot(), env.observe(), env.frame(2)
    rest = run(env, actions[37:])
    fresh = SpreadEnv(args=args, n_copies=5)
    np.testing.assert_array_equal(fresh.restore(snapshot).obs, seen.obs)
    assert fresh.frame(2) == frame
    assert_same(run(fresh, actions[37:]), rest)
    np.testing.assert_array_equal(fresh.restart().state, env.restart().state)
    for other in (SpreadEnv(args=args, n_copies=4), SpreadEnv(args={}, n_copies=5)):
        with pytest.raises(OmgError, match="does not fit"):
            other.restore(snapshot)


@pytest.mark.long
@pytest.mark.parametrize(
    "args", [{}, {"n_agents": 1, "max_cycles": 9}, {"n_agents": 5, "local_ratio": 0.0}]
)
def test_the_contract_is_kept(args: dict[str, Any]) -> None:
    for result in check_batched_env(partial(SpreadEnv, args=args), steps=80):
        assert result.ok, f"{result.name}: {result.detail}"
        assert not result.detail.startswith("warning")


def test_the_shipped_configuration_makes_the_default_game() -> None:
    config = load_command_line(["--config=qmix", "--env-config=spread"]).config
    env = make_batched(config.env, config.env_args, n_copies=2)
    assert isinstance(env, SpreadEnv)
    assert env.args == SpreadArgs()
    assert (config.common_reward, config.reward_scalarisation) == (True, "sum")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"agent_pos": np.zeros((2, 2))}, "agent_pos.*each of 3"),
        ({"landmarks": [(0.0, 0.0)]}, "landmarks.*each of 3"),
        ({"agent_vel": [(0.0, 0.0)]}, "agent_vel"),
        ({"landmarks": np.full((3, 2), np.inf)}, "finite"),
        ({"step": 25}, "from 0 to 24"),
    ],
)
def test_set_layout_refuses_what_does_not_fit(given: dict[str, Any], words: str) -> None:
    env = make()
    fitting: dict[str, Any] = {"agent_pos": APART, "landmarks": MARKS}
    with pytest.raises(OmgError, match=words):
        env.set_layout(0, **{**fitting, **given})


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"N": 3}, "no argument 'N'.*Choose among: n_agents, local_ratio, max_cycles"),
        ({"n_agent": 3}, "did you mean 'n_agents'"),
        ({"n_agents": 0}, "'n_agents' is 0"),
        ({"local_ratio": 1.5}, "'local_ratio' is 1.5"),
        ({"local_ratio": float("nan")}, "'local_ratio' is nan"),
        ({"max_cycles": 0}, "'max_cycles' is 0"),
    ],
)
def test_bad_arguments_are_explained_in_a_sentence(args: dict[str, Any], words: str) -> None:
    with pytest.raises(OmgError, match=words) as caught:
        SpreadEnv(args=args, n_copies=1)
    assert "\n" not in str(caught.value)


def episode() -> tuple[Any, Any, Any, SpreadArgs]:
    """Agent 0 runs over its landmark and through agent 1, agent 2 rests on its own."""
    env = make(max_cycles=30)
    marks = [(-0.2, 0.0), (0.9, -0.9), (0.0, 0.8)]
    seen = env.set_layout(0, agent_pos=[(-0.7, 0.0), (0.4, 0.0), (0.0, 0.85)], landmarks=marks)
    states, rewards, covered = [seen.state[0]], [], []
    for _ in range(14):
        step = act(env, RIGHT, NONE, NONE)
        states.append(step.state[0])
        rewards.append(step.reward[0])
        covered.append(float(step.info["covered"][0]))
    assert step.info["collisions"][0] > 0
    return np.array(states), np.array(rewards), covered, env.args


def test_frames_tell_collisions_and_coverage_as_the_game_does() -> None:
    states, rewards, covered, args = episode()
    frames = SpreadEnv(args=args, n_copies=1).frames(states, rewards)
    assert [sum(frame.covered) / 3 for frame in frames[1:]] == pytest.approx(covered)
    assert {sum(frame.covered) for frame in frames} == {1, 2}
    # All of a reward that is not shared is half a point per collision: 0 and 1 have them equally.
    own = 2 * (rewards[:, 2] - rewards[:, 0])
    assert [len(frame.contacts) for frame in frames[1:]] == np.round(own).astype(int).tolist()
    assert frames[-1].collisions == round(own.sum()) > 0
    assert {pair for frame in frames for pair in frame.contacts} == {(0, 1)}
    assert frames[-1].score == pytest.approx(rewards.sum(axis=0).tolist(), rel=1e-5)


def test_a_covered_landmark_has_a_halo_and_a_collision_flashes() -> None:
    states, rewards, _, args = episode()
    for frame in SpreadEnv(args=args, n_copies=1).frames(states, rewards):
        svg = SCENE.to_svg(frame)
        # Rings, halos, agents, marks beside scores, footprints.
        ovals = 3 + sum(frame.covered) + 3 + 3 + sum(len(trail) for trail in frame.trails)
        assert svg.count("<ellipse") == ovals
        stars = len({seat for pair in frame.contacts for seat in pair})
        assert svg.count("<polygon") == 3 + stars


@pytest.mark.long
def test_pictures_are_arrays_and_show_differences() -> None:
    picture = make().render()
    assert picture.dtype == np.uint8
    assert picture.shape == (522, 476, 3)
    states, rewards, _, args = episode()
    frames = SpreadEnv(args=args, n_copies=1).frames(states, rewards)
    assert not np.array_equal(SCENE.to_rgb(frames[0]), SCENE.to_rgb(frames[-1]))
    assert SCENE.to_rgb(frames[0], dark=True).mean() < 100 < SCENE.to_rgb(frames[0]).mean()


@pytest.mark.long
def test_an_episode_is_drawn_as_moving_svg_and_gif(tmp_path: Path) -> None:
    states, rewards, _, args = episode()
    env = SpreadEnv(args=args, n_copies=1)
    svg, gif = env.draw_episode(tmp_path / "episode_0", states, rewards)
    text = svg.read_text(encoding="utf-8")
    root = ET.fromstring(text)
    words = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"0", "1", "2", "Step 0", "Step 14", "1 of 3 covered, 0 collisions"} <= set(words)
    # One halo always there (agent 2's), one that comes and goes; no halo of the third landmark.
    halos = text.count('fill="#ffd23f"')
    assert halos == 2
    with Image.open(gif) as image:
        assert image.n_frames == 15
    with pytest.raises(OmgError, match="no frames"):
        SCENE.to_animated_svg([])
