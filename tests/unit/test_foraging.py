"""The foraging game by hand-made situations, its random layouts, and its pictures."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from omg.envs.foraging import ForagingArgs, ForagingEnv, frames_from_states
from omg.envs.foraging.render import to_animated_svg, to_rgb, to_svg, write_gif
from omg.types import OmgError, TimeStep

NONE, NORTH, SOUTH, WEST, EAST, LOAD = range(6)


def make(key: str = "Foraging-6x6-2p-2f-v3", copies: int = 1, **args: Any) -> ForagingEnv:
    env = ForagingEnv(args={"key": key, **args}, n_copies=copies)
    env.reset(0)
    return env


def act(env: ForagingEnv, *actions: int) -> TimeStep:
    return env.step(np.array([actions]))


def put(env: ForagingEnv, players: Any, foods: Any, levels: Any = None, **others: Any) -> None:
    levels = levels or [1] * len(players)
    env.set_layout(0, player_pos=players, player_levels=levels, foods=foods, **others)


def positions(env: ForagingEnv) -> tuple[tuple[int, int], ...]:
    return env.frame().player_pos


FAR = [(4, 4, 1)]


def test_two_players_who_want_the_same_cell_both_stay() -> None:
    env = make()
    put(env, [(0, 0), (0, 2)], FAR)
    act(env, EAST, WEST)
    assert positions(env) == ((0, 0), (0, 2))


def test_nobody_enters_the_cell_of_a_player_who_stays() -> None:
    env = make()
    put(env, [(0, 0), (0, 1)], FAR)
    act(env, EAST, NONE)
    assert positions(env) == ((0, 0), (0, 1))


def test_neighbours_may_swap_places() -> None:
    env = make()
    put(env, [(0, 0), (0, 1)], FAR)
    act(env, EAST, WEST)
    assert positions(env) == ((0, 1), (0, 0))


def test_a_player_enters_the_cell_of_one_who_failed_to_leave_it() -> None:
    env = make("Foraging-6x6-3p-2f-v3")
    put(env, [(0, 0), (0, 1), (0, 3)], FAR)
    act(env, EAST, EAST, WEST)
    assert positions(env) == ((0, 1), (0, 1), (0, 3))


def test_food_and_walls_block_and_are_not_available() -> None:
    env = make()
    put(env, [(0, 0), (1, 1)], [(2, 1, 1)])
    avail = env.observe().avail[0]
    assert avail.tolist() == [
        [True, False, True, False, True, False],
        [True, True, False, True, True, True],
    ]
    act(env, NORTH, SOUTH)
    assert positions(env) == ((0, 0), (1, 1))


def test_players_load_together_what_is_too_heavy_for_one_and_share_by_level() -> None:
    env = make()
    put(env, [(1, 2), (3, 2)], [(2, 2, 3), (4, 4, 1)], [1, 2])
    alone = act(env, LOAD, NONE)
    assert alone.reward.tolist() == [[0.0, 0.0]]
    together = act(env, LOAD, LOAD)
    np.testing.assert_allclose(together.reward, [[1 * 3 / (3 * 4), 2 * 3 / (3 * 4)]], rtol=1e-6)
    assert together.info["food_collected"][0] == pytest.approx(0.75)
    assert env.frame().foods == ((4, 4, 1),)
    assert together.state[0, :6].tolist() == [4, 4, 1, -1, -1, 0]


def test_unnormalised_rewards_are_level_times_food() -> None:
    env = make(normalize_reward=False)
    put(env, [(1, 2), (3, 2)], [(2, 2, 3)], [1, 2])
    assert act(env, LOAD, LOAD).reward.tolist() == [[3.0, 6.0]]


def test_a_failed_load_costs_the_penalty_only_for_those_who_tried() -> None:
    env = make("Foraging-6x6-2p-2f-coop-pen-v3")
    put(env, [(1, 2), (3, 2)], [(2, 2, 3)], [1, 2])
    np.testing.assert_allclose(act(env, LOAD, NONE).reward, [[-0.1, 0.0]], rtol=1e-6)
    assert env.frame().score == pytest.approx((-0.1, 0.0))


def test_two_foods_of_one_copy_can_go_in_one_step() -> None:
    env = make("Foraging-8x8-2p-3f-v3")
    put(env, [(0, 1), (6, 5)], [(1, 1, 1), (3, 3, 2), (6, 6, 1)])
    step = act(env, LOAD, LOAD)
    np.testing.assert_allclose(step.reward, [[0.25, 0.25]])
    assert env.frame().foods == ((3, 3, 2),)
    assert step.info["food_collected"][0] == pytest.approx(0.5)


def test_the_cell_of_a_collected_food_can_be_entered() -> None:
    env = make()
    put(env, [(1, 2), (0, 0)], [(2, 2, 1), (4, 4, 1)])
    after = act(env, LOAD, NONE).avail[0, 0]
    assert after[SOUTH]
    assert not after[LOAD]
    act(env, SOUTH, NONE)
    assert positions(env)[0] == (2, 2)


def test_the_step_limit_truncates() -> None:
    env = make()
    put(env, [(0, 0), (0, 1)], FAR, step=48)
    assert not act(env, NONE, NONE).truncated[0]
    step = act(env, NONE, NONE)
    assert step.truncated.tolist() == [True]
    assert step.terminated.tolist() == [False]
    assert step.final is not None
    assert step.final.state[0, -6:].tolist() == [0, 0, 1, 0, 1, 1]
    assert env.frame().step == 0


def test_the_last_food_at_the_limit_terminates_and_does_not_truncate() -> None:
    env = make()
    put(env, [(1, 2), (0, 0)], [(2, 2, 1)], step=49)
    step = act(env, LOAD, NONE)
    assert step.terminated.tolist() == [True]
    assert step.truncated.tolist() == [False]
    assert step.info["food_collected"].tolist() == [1.0]


def test_players_near_the_upper_left_walls_see_others_beyond_their_sight() -> None:
    env = make("Foraging-1s-6x6-2p-2f-v3")
    put(env, [(0, 0), (2, 2)], [(1, 1, 1), (4, 4, 2)])
    obs = env.observe().obs[0]
    assert obs[0].tolist() == [1, 1, 1, -1, -1, 0, 0, 0, 1, 2, 2, 1]
    assert obs[1].tolist() == [0, 0, 1, -1, -1, 0, 1, 1, 1, -1, -1, 0]


def test_actions_out_of_range_or_shape_are_refused() -> None:
    env = make()
    for actions in ([[0, 6]], [[-1, 0]], [[0]]):
        with pytest.raises(OmgError, match="from 0 to 5"):
            env.step(np.array(actions))
    with pytest.raises(RuntimeError, match="reset"):
        ForagingEnv(args={"key": "Foraging-6x6-2p-2f-v3"}, n_copies=1).step(np.zeros((1, 2), int))


def run(env: ForagingEnv, actions: Any) -> list[TimeStep]:
    return [env.step(step) for step in actions]


def assert_same(ours: list[TimeStep], theirs: list[TimeStep], pick: Any = slice(None)) -> None:
    for one, other in zip(ours, theirs, strict=True):
        for name in ("obs", "state", "avail", "reward", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name)[pick])
        np.testing.assert_array_equal(
            one.info["food_collected"], other.info["food_collected"][pick]
        )


def random_actions(copies: int, players: int, steps: int = 130) -> Any:
    return np.random.default_rng(1).integers(0, 6, (steps, copies, players))


KEYS = ["Foraging-5x5-2p-1f-v3", "Foraging-2s-7x6-3p-3f-coop-v3"]


@pytest.mark.parametrize("key", KEYS)
def test_a_seed_reproduces_and_another_differs(key: str) -> None:
    env = ForagingEnv(args={"key": key}, n_copies=6)
    actions = random_actions(6, env.spec.n_agents)
    first = env.reset(5)
    steps = run(env, actions)
    again = env.reset(5)
    np.testing.assert_array_equal(first.state, again.state)
    assert_same(run(env, actions), steps)
    assert not np.array_equal(env.reset(6).state, first.state)
    assert len(np.unique(first.state, axis=0)) == 6


@pytest.mark.parametrize("key", KEYS)
def test_copies_split_over_two_environments_play_the_same_episodes(key: str) -> None:
    whole = ForagingEnv(args={"key": key}, n_copies=7)
    upper = ForagingEnv(args={"key": key}, n_copies=3)
    lower = ForagingEnv(args={"key": key}, n_copies=4, first_copy=3)
    for env in (whole, upper, lower):
        env.reset(9)
    actions = random_actions(7, whole.spec.n_agents)
    together = run(whole, actions)
    assert_same(run(upper, actions[:, :3]), together, slice(0, 3))
    assert_same(run(lower, actions[:, 3:]), together, slice(3, 7))


def test_a_copy_does_not_depend_on_what_the_others_do() -> None:
    env = ForagingEnv(args={"key": KEYS[0]}, n_copies=5)
    actions = random_actions(5, 2)
    env.reset(3)
    before = run(env, actions)
    env.reset(3)
    changed = actions.copy()
    changed[:, 1:] = LOAD
    after = run(env, changed)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one.state[0], other.state[0])
        np.testing.assert_array_equal(one.reward[0], other.reward[0])


@pytest.mark.parametrize("key", KEYS)
def test_a_restored_snapshot_continues_bit_for_bit(key: str) -> None:
    env = ForagingEnv(args={"key": key}, n_copies=6)
    actions = random_actions(6, env.spec.n_agents)
    env.reset(2**70 + 11)
    run(env, actions[:37])
    snapshot = env.snapshot()
    seen, frame = env.observe(), env.frame(2)
    rest = run(env, actions[37:])
    fresh = ForagingEnv(args={"key": key}, n_copies=6)
    restored = fresh.restore(snapshot)
    np.testing.assert_array_equal(restored.obs, seen.obs)
    np.testing.assert_array_equal(restored.avail, seen.avail)
    assert fresh.frame(2) == frame
    assert_same(run(fresh, actions[37:]), rest)
    np.testing.assert_array_equal(fresh.restart().state, env.restart().state)
    with pytest.raises(OmgError, match="does not fit"):
        ForagingEnv(args={"key": key}, n_copies=5).restore(snapshot)


def test_arrays_handed_out_are_not_written_to_afterwards() -> None:
    env = make(copies=3)
    steps = [env.step(step) for step in random_actions(3, 2)[:1]]
    kept = [array.copy() for array in (steps[0].obs, steps[0].state, steps[0].avail)]
    run(env, random_actions(3, 2))
    for array, copy in zip((steps[0].obs, steps[0].state, steps[0].avail), kept, strict=True):
        np.testing.assert_array_equal(array, copy)


def histogram(values: Any, size: int) -> Any:
    return np.bincount(np.asarray(values).ravel(), minlength=size).astype(float)


@pytest.mark.long
@pytest.mark.parametrize(
    "settings",
    [
        {"field_size": (5, 6), "players": 3, "max_num_food": 3},
        {"field_size": (6, 5), "players": 2, "max_num_food": 2, "force_coop": True},
        {
            "field_size": (6, 6),
            "players": 2,
            "max_num_food": 3,
            "min_player_level": [1, 3],
            "max_player_level": [2, 5],
            "min_food_level": [1, 2, 4],
            "max_food_level": [1, 3, 4],
        },
    ],
)
def test_layouts_are_distributed_like_those_of_the_reference(settings: dict[str, Any]) -> None:
    reference = pytest.importorskip("lbforaging.foraging.environment")
    rows, cols = settings["field_size"]
    # The reference tries a thousand times where a third food finds no room.
    draws = 600 if (rows, cols) == (5, 6) else 3_000
    defaults = {"min_player_level": 1, "max_player_level": 2, "min_food_level": 1}
    theirs = reference.ForagingEnv(
        **{**defaults, "max_food_level": None, "force_coop": False, **settings},
        sight=6,
        max_episode_steps=50,
    )
    theirs.np_random = np.random.default_rng(0)
    theirs._make_gym_obs = lambda: None
    states = []
    for _ in range(draws):
        for player in theirs.players:
            player.position = None  # else old positions stay blocked while new ones are drawn
        theirs.reset()
        foods = [(r, c, theirs.field[r, c]) for r, c in np.argwhere(theirs.field)]
        foods += [(-1, -1, 0)] * (settings["max_num_food"] - len(foods))
        states.append([*foods, *((*player.position, player.level) for player in theirs.players)])
    ours = ForagingEnv(args=settings, n_copies=draws).reset(1).state.reshape(draws, -1, 3)
    for slot in range(ours.shape[1]):
        for part in ("cell", "level"):
            counts = []
            for side in (ours[:, slot].astype(int), np.array(states, int)[:, slot]):
                cells = np.where(side[:, 2] > 0, side[:, 0] * cols + side[:, 1], rows * cols)
                values = cells if part == "cell" else side[:, 2]
                counts.append(histogram(values, rows * cols + 1))
            total = counts[0] + counts[1]
            used = total > 0
            chi2 = (((counts[0] - counts[1]) ** 2)[used] / total[used]).sum()
            freedom = used.sum() - 1
            assert chi2 <= freedom + 4 * np.sqrt(2 * freedom) + 4, (slot, part)


def test_foods_keep_their_distance_and_fewer_come_when_there_is_no_room() -> None:
    env = ForagingEnv(args={"field_size": 5, "players": 2, "max_num_food": 5}, n_copies=400)
    foods = env.reset(0).state[:, :15].reshape(400, 5, 3)
    assert (foods[:, 4, 2] == 0).all()
    assert (foods[:, 0, 2] > 0).all()
    for places in foods:
        places = places[places[:, 2] > 0, :2]
        apart = ((places[:, None] - places[None]) ** 2).sum(-1)[np.triu_indices(len(places), 1)]
        assert not np.isin(apart, [0, 1, 2, 4]).any()


def test_version_1_draws_no_food_as_heavy_as_three_players_and_leaves_the_last_row_and_column() -> (
    None
):
    env = make("Foraging-5x6-2p-1f-v1", copies=6_000)
    state = env.reset(0).state.astype(int)
    food, players = state[:, 2], state[:, 3:].reshape(-1, 2, 3)
    assert env.spec.name == "Foraging-5x6-2p-1f-v1"
    for together, highest in ((2, 1), (3, 2), (4, 3)):
        drawn = food[players[..., 2].sum(1) == together]
        counts = np.bincount(drawn, minlength=6)
        assert counts.nonzero()[0].tolist() == list(range(1, highest + 1))
        each = len(drawn) / highest
        assert np.abs(counts[1 : highest + 1] - each).max() < 5 * np.sqrt(each)
    cells = np.bincount((players[..., 0] * 6 + players[..., 1]).ravel(), minlength=30).reshape(5, 6)
    each = cells.sum() / 20
    assert cells[4].sum() == cells[:, 5].sum() == 0
    assert np.abs(cells[:4, :5] - each).max() < 5 * np.sqrt(each)
    same = (players[:, 0, :2] == players[:, 1, :2]).all(1)
    assert not same.any()
    coop = make("Foraging-5x6-2p-1f-coop-v1", copies=500).reset(0).state
    np.testing.assert_array_equal(coop[:, 2], coop[:, 5] + coop[:, 8])
    parts = {"players": 2, "field_size": (5, 6), "max_num_food": 1}
    again = ForagingEnv(args={**parts, "version": 1}, n_copies=6_000)
    np.testing.assert_array_equal(again.reset(0).state, state)
    later = make("Foraging-5x6-2p-1f-v1", copies=6_000, version=3).reset(0).state
    np.testing.assert_array_equal(later, make("Foraging-5x6-2p-1f-v3", 6_000).reset(0).state)


def test_an_id_gives_the_reference_settings_and_fields_beside_it_override() -> None:
    rules = ForagingArgs(key="Foraging-3s-7x9-3p-2f-coop-ind-pen-v3").resolve()
    assert (rules.rows, rules.cols, rules.n_players, rules.max_num_food) == (7, 9, 3, 2)
    assert (rules.sight, rules.force_coop, rules.max_food_level) == (3, True, (1, 1))
    assert (rules.penalty, rules.max_player_level) == (0.1, (2, 2, 2))
    other = ForagingArgs(key="Foraging-3s-7x9-3p-2f-v3", sight=None, players=2, field_size=6)
    assert (other.resolve().sight, other.resolve().n_players, other.resolve().rows) == (6, 2, 6)
    assert make("Foraging-8x8-2p-3f-v3").spec.obs_dtype == "int8"
    assert make("Foraging-8x8-2p-3f-v3", max_player_level=200).spec.obs_dtype == "float32"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"key": "Foraging-8x8-2p-v3"}, "not a foraging id.*e.g. 'Foraging-8x8-2p-3f-v3'"),
        ({"key": "Foraging-8x8-2p-3f-v2"}, "not a foraging id"),
        ({"key": "Foraging-8x8-2p-3f-ind-v1"}, "not a foraging id.*or .-coop.-v1"),
        ({"key": "Foraging-8x8-2p-3f-v1", "max_food_level": 2}, "is version 1, which knows no"),
        ({"key": "Foraging-8x8-2p-3f-v1", "min_food_level": 2}, "Leave them out, or use version 3"),
        ({"key": "Foraging-3x3-4p-1f-v1"}, "`players` is 4.*between 1 and 3"),
        ({"key": KEYS[0], "version": 2}, "argument 'version' is 2"),
        ({"key": "Foraging-grid-8x8-2p-3f-v3"}, "only the vector observation"),
        ({"players": 2}, "needs `field_size` and `max_num_food`"),
        ({"key": "Foraging-2x2-2p-1f-v3"}, "`field_size` is 2.*between 3"),
        ({"key": "Foraging-5x5-0p-1f-v3"}, "`players` is 0"),
        ({"key": "Foraging-5x5-2p-0f-v3"}, "`max_num_food` is 0"),
        ({"key": KEYS[0], "min_player_level": 3}, "`min_player_level` 3 and `max_player_level` 2"),
        ({"key": KEYS[0], "max_player_level": [1, 2, 3]}, "lists 3 levels for 2 players"),
        ({"key": KEYS[0], "min_food_level": 5}, "sum of the three lowest player levels"),
        ({"key": KEYS[0], "max_food_level": 0}, "leave no level"),
        ({"key": KEYS[0], "penalty": -1}, "`penalty` is -1"),
        ({"key": KEYS[0], "sigth": 2}, "no argument 'sigth', did you mean 'sight'"),
        ({"key": KEYS[0], "players": "many"}, "argument 'players'"),
    ],
)
def test_bad_arguments_are_explained_in_a_sentence(args: dict[str, Any], words: str) -> None:
    with pytest.raises(OmgError, match=words) as caught:
        ForagingEnv(args=args, n_copies=1)
    assert "\n" not in str(caught.value)


def test_set_layout_refuses_what_the_game_cannot_reach() -> None:
    env = make()
    for foods in ([(0, 2, 1)], [(2, 2, 1), (2, 4, 1)], [(1, 1, 1), (1, 4, 1), (4, 1, 1)]):
        with pytest.raises(OmgError):
            put(env, [(0, 0), (0, 1)], foods)


def episode() -> list[Any]:
    env = make("Foraging-5x7-3p-2f-v3")
    states, rewards = [env.observe().state[0]], []
    for actions in random_actions(1, 3, 50):
        step = env.step(actions)
        rewards.append(step.reward[0])
        if step.final is not None:
            states.append(step.final.state[0])
            break
        states.append(step.state[0])
    return frames_from_states(np.array(states), np.array(rewards), field_size=(5, 7), n_foods=2)


@pytest.mark.long
def test_pictures_have_the_shape_of_the_field_and_show_differences() -> None:
    env = make("Foraging-5x7-3p-2f-v3")
    picture = env.render()
    assert picture.dtype == np.uint8
    assert picture.shape[2] == 3
    assert picture.shape[1] > picture.shape[0] > 5 * 40
    frames = episode()
    assert not np.array_equal(to_rgb(frames[0]), to_rgb(frames[-1]))
    assert to_rgb(frames[0], dark=True).mean() < 100 < to_rgb(frames[0]).mean()
    assert to_rgb(frames[0], scale=0.5).shape[0] == round(picture.shape[0] / 2)


def test_svg_pictures_are_well_formed_and_name_every_player() -> None:
    frames = episode()
    for text in (to_svg(frames[0]), to_animated_svg(frames)):
        root = ET.fromstring(text)
        words = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
        assert {"P0", "P1", "P2", "Step 0"} <= set(words)
        assert "href" not in text
    root = ET.fromstring(to_animated_svg(frames))
    changes = [node for node in root.iter() if "keyTimes" in node.attrib]
    assert {node.tag.split("}")[1] for node in changes} == {"animate", "animateTransform"}
    for node in changes:
        times = [float(time) for time in node.attrib["keyTimes"].split(";")]
        assert len(times) == len(node.attrib["values"].split(";"))
        assert times == sorted(times)
        assert times[0] == 0
        assert times[-1] == 1 or node.attrib.get("calcMode") == "discrete"


def test_a_gif_holds_every_frame_of_an_episode(tmp_path: Path) -> None:
    frames = episode()[:6]
    write_gif(tmp_path / "episode.gif", frames, scale=0.5)
    with Image.open(tmp_path / "episode.gif") as image:
        assert image.n_frames == len(frames)
    with pytest.raises(OmgError, match="no frames"):
        write_gif(tmp_path / "empty.gif", [])
