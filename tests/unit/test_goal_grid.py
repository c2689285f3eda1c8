"""Stag Hunt and Snowdrift: every transition equals that of a plain loop; rules by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.reference.grid_games import PlainGame, PlainSnowdrift, PlainStagHunt
from omg.envs.check import CHECKS, check_batched_env
from omg.envs.goal_grid.env import GridEnv
from omg.envs.goal_grid.layout import GridSize, Spawner, max_obstacles
from omg.envs.goal_grid.snowdrift import SnowdriftEnv
from omg.envs.goal_grid.stag_hunt import HUNT_HARE, HUNT_STAG, StagHuntEnv
from omg.envs.registry import BatchFactory
from omg.types import OmgError, TimeStep

STAY, NORTH, SOUTH, WEST, EAST = range(5)
GAMES: list[tuple[str, dict[str, Any]]] = [
    ("stag_hunt", {}),
    ("stag_hunt", {"size": 4}),
    ("stag_hunt", {"size": 6, "obstacles": 2, "max_strength": 3, "stag_strength": 4}),
    ("stag_hunt", {"size": 4, "players": 6, "stags": 2, "hares": 1, "stag_hunters": 3}),
    ("stag_hunt", {"players": 2, "size": (3, 5), "max_episode_steps": 7}),
    ("snowdrift", {}),
    ("snowdrift", {"size": 4, "obstacles": 1, "drifts": 2}),
]
IDS = [f"{name}-{n}" for n, (name, _) in enumerate(GAMES)]


def make(name: str, args: dict[str, Any], n_copies: int = 1) -> GridEnv:
    env = BatchFactory(name, args)(0, n_copies)
    assert isinstance(env, GridEnv)
    return env


def plain(env: GridEnv, copy: int) -> PlainGame:
    """The plain loop, begun as a copy that has just begun."""
    cells = [
        [divmod(int(cell), env.size.cols) for cell in places[copy]]
        for places in (env.games.cells, env.games.targets, env.games.obstacles)
    ]
    shared: dict[str, Any] = {
        "side": env.size.rows,
        "players": cells[0],
        "targets": cells[1],
        "limit": env.spec.episode_limit,
    }
    if isinstance(env, SnowdriftEnv):
        return PlainSnowdrift(**shared, obstacles=cells[2])
    assert isinstance(env, StagHuntEnv)
    args = env.args
    return PlainStagHunt(
        **shared,
        obstacles=cells[2],
        stags=args.stags,
        stag_hunters=args.stag_hunters,
        stag_strength=args.stag_strength,
        strengths=env.games.strengths[copy].tolist(),
    )


def test_what_is_played_on_an_oblong_field_stays_on_it() -> None:
    env = make("stag_hunt", {"players": 2, "size": (3, 5), "hares": 2})
    env.reset(0)
    env.set_layout(0, players=[(2, 4), (0, 0)], targets=[(1, 1), (0, 3), (2, 0)])
    avail = env.observe().avail[0]
    assert avail[0, 1:5].tolist() == [True, False, True, False]
    assert avail[1, 1:5].tolist() == [False, True, False, True]


@pytest.mark.parametrize(("name", "args"), [g for g in GAMES if "size" not in g[1] or isinstance(
    g[1]["size"], int)], ids=lambda v: str(v))  # fmt: skip
def test_every_transition_equals_that_of_a_plain_loop(name: str, args: dict[str, Any]) -> None:
    env = make(name, args, n_copies=8)
    view: Any = env.reset(11)
    games = [plain(env, copy) for copy in range(8)]
    rng = np.random.default_rng(1)
    caught = ended = 0
    for _ in range(220):
        # Mostly what is possible, and rather a target than another step; sometimes anything.
        weights = rng.random(view.avail.shape) * view.avail
        weights[..., 5:] *= 3
        actions = np.where(
            rng.random(view.avail.shape[:2]) < 0.9,
            weights.argmax(-1),
            rng.integers(0, env.spec.n_actions, view.avail.shape[:2]),
        )
        view = env.step(actions)
        for copy, game in enumerate(games):
            seen = game.step(actions[copy].tolist())
            np.testing.assert_array_equal(view.reward[copy], np.float32(seen.reward))
            np.testing.assert_array_equal(view.reached[copy], seen.reached)
            assert view.terminated[copy] == seen.terminated
            assert view.truncated[copy] == seen.truncated
            caught += sum(goal >= 0 for goal in seen.reached)
            shown: Any = view
            at = copy
            if seen.terminated or seen.truncated:
                ended += 1
                shown, at = view.final, int(np.flatnonzero(view.final.copies == copy)[0])
            np.testing.assert_array_equal(shown.obs[at], np.float32(seen.obs))
            np.testing.assert_array_equal(shown.state[at], np.float32(seen.state))
            np.testing.assert_array_equal(shown.avail[at], seen.avail)
            if env.spec.leavers:
                np.testing.assert_array_equal(shown.alive[at], seen.alive)
            if seen.terminated or seen.truncated:
                games[copy] = plain(env, copy)
                begun = games[copy].look()
                np.testing.assert_array_equal(view.obs[copy], np.float32(begun.obs))
                np.testing.assert_array_equal(view.avail[copy], begun.avail)
    assert caught > 20
    assert ended > 20


@pytest.mark.long
@pytest.mark.parametrize(("name", "args"), GAMES, ids=IDS)
def test_every_check_passes(name: str, args: dict[str, Any]) -> None:
    def factory(*, n_copies: int, first_copy: int) -> Any:
        return BatchFactory(name, args)(first_copy, n_copies)

    results = check_batched_env(factory, steps=60)
    assert [result for result in results if not result.ok] == []
    assert len(results) == len(CHECKS)


def hunt(**args: Any) -> StagHuntEnv:
    """One game: the stag in the middle, hares in three corners and at (0, 4)."""
    env = make("stag_hunt", {"players": 4, **args})
    assert isinstance(env, StagHuntEnv)
    env.reset(0)
    return env


TARGETS = [(3, 3), (0, 0), (0, 7), (7, 0), (0, 4)]


def test_one_hunter_alone_catches_no_stag_and_two_share_it_and_leave() -> None:
    env = hunt()
    env.set_layout(0, players=[(3, 3), (3, 3), (5, 5), (6, 6)], targets=TARGETS)
    alone = env.step(np.array([[HUNT_STAG, STAY, STAY, STAY]]))
    assert not alone.reward.any()
    assert alone.alive is not None
    assert alone.alive.all()
    both = env.step(np.array([[HUNT_STAG, HUNT_STAG, STAY, STAY]]))
    assert both.reward.tolist() == [[5.0, 5.0, 0.0, 0.0]]
    assert both.alive is not None
    assert both.alive.tolist() == [[False, False, True, True]]
    assert both.reached is not None
    assert both.reached.tolist() == [[0, 0, -1, -1]]
    assert not both.obs[0, 0].any()
    assert both.avail[0, 0].tolist() == [True] + [False] * 6
    assert both.state[0, :3].tolist() == [0, 0, 0]
    later = env.step(np.array([[EAST, HUNT_STAG, STAY, STAY]]))  # who has left does nothing
    assert not later.reward.any()
    assert later.info["stags"].tolist() == [1.0]


def test_three_hunters_share_the_stag_equally() -> None:
    env = hunt()
    env.set_layout(0, players=[(3, 3), (3, 3), (3, 3), (6, 6)], targets=TARGETS)
    step = env.step(np.array([[HUNT_STAG, HUNT_STAG, HUNT_STAG, STAY]]))
    np.testing.assert_allclose(step.reward[0], [10 / 3, 10 / 3, 10 / 3, 0], rtol=1e-6)


def test_a_stag_takes_the_strength_it_takes() -> None:
    env = hunt(max_strength=3, stag_strength=4)
    env.set_layout(
        0, players=[(3, 3), (3, 3), (3, 3), (6, 6)], targets=TARGETS, strengths=[1, 2, 3, 1]
    )
    weak = env.step(np.array([[HUNT_STAG, HUNT_STAG, STAY, STAY]]))
    assert not weak.reward.any()
    strong = env.step(np.array([[HUNT_STAG, STAY, HUNT_STAG, STAY]]))
    assert strong.reward.tolist() == [[5.0, 0.0, 5.0, 0.0]]


def test_a_hare_takes_one_hunter_and_two_at_once_share_it() -> None:
    env = hunt()
    env.set_layout(0, players=[(0, 0), (0, 7), (0, 7), (6, 6)], targets=TARGETS)
    step = env.step(np.array([[HUNT_HARE, HUNT_HARE, HUNT_HARE, HUNT_HARE]]))
    assert step.reward.tolist() == [[1.0, 0.5, 0.5, 0.0]]
    assert step.reached is not None
    assert step.reached.tolist() == [[1, 2, 2, -1]]
    assert step.info["hares"].tolist() == [2.0]


def test_the_episode_terminates_when_nobody_or_nothing_is_left() -> None:
    env = hunt(players=2, hares=2)
    env.set_layout(0, players=[(0, 0), (0, 7)], targets=[(3, 3), (0, 0), (0, 7)])
    nobody = env.step(np.array([[HUNT_HARE, HUNT_HARE]]))
    assert nobody.terminated.tolist() == [True]
    assert nobody.final is not None
    assert nobody.final.alive is not None
    assert not nobody.final.alive.any()
    assert nobody.alive is not None
    assert nobody.alive.all()  # of the next episode
    env = hunt(players=3, hares=1)
    env.set_layout(0, players=[(3, 3), (3, 3), (0, 0)], targets=[(3, 3), (0, 0)])
    nothing = env.step(np.array([[HUNT_STAG, HUNT_STAG, HUNT_HARE]]))
    assert nothing.terminated.tolist() == [True]


def test_the_limit_truncates_and_an_end_at_the_limit_terminates() -> None:
    env = hunt(players=2, hares=1, max_episode_steps=2)
    for last, terminated in ((STAY, False), (HUNT_STAG, True)):
        env.set_layout(0, players=[(3, 3), (3, 3)], targets=[(3, 3), (0, 0)], step=1)
        step = env.step(np.array([[last, last]]))
        assert step.terminated.tolist() == [terminated]
        assert step.truncated.tolist() == [not terminated]


def test_players_pass_neither_walls_nor_obstacles_but_share_cells() -> None:
    env = hunt(obstacles=1)
    env.set_layout(0, players=[(2, 1), (0, 0), (2, 2), (2, 4)], targets=TARGETS, obstacles=[(1, 1)])
    step = env.step(np.array([[NORTH, WEST, EAST, WEST]]))
    players = step.state[0].reshape(-1, 3)[5:9, :2].tolist()
    assert players == [[2, 1], [0, 0], [2, 3], [2, 3]]
    assert not step.avail[0, 0, NORTH]
    assert step.avail[0, 2, 1:5].all()


def test_a_removed_drift_pays_everybody_and_costs_who_removed_it() -> None:
    env = make("snowdrift", {"drifts": 3})
    env.reset(0)
    env.set_layout(0, players=[(1, 1), (2, 2), (2, 2), (6, 6)], targets=[(1, 1), (2, 2), (5, 5)])
    one = env.step(np.array([[5, STAY, STAY, 5]]))
    assert one.reward.tolist() == [[2.0, 6.0, 6.0, 6.0]]
    assert one.alive is None
    two = env.step(np.array([[STAY, 5, 5, STAY]]))  # together they share the cost
    assert two.reward.tolist() == [[6.0, 4.0, 4.0, 6.0]]
    assert two.reached is not None
    assert two.reached.tolist() == [[-1, 1, 1, -1]]
    assert two.info["drifts"].tolist() == [2.0]
    assert not two.terminated.any()
    env.set_layout(0, players=[(1, 1), (2, 2), (5, 5), (6, 6)], targets=[(1, 1), (2, 2), (5, 5)])
    three = env.step(np.array([[5, 5, 5, STAY]]))
    assert three.reward.tolist() == [[14.0, 14.0, 14.0, 18.0]]
    assert three.terminated.all()


def test_layouts_are_uniform_and_nothing_stands_on_anything() -> None:
    size = GridSize(rows=5, cols=5, n_players=2, n_targets=3, n_obstacles=1, max_strength=2)
    layout = Spawner(size).spawn(np.arange(6000, dtype=np.uint64) * np.uint64(7919))
    everything = np.concatenate([layout.players, layout.targets, layout.obstacles], axis=1)
    assert all(len(set(row)) == 6 for row in everything.tolist())
    inner = np.bincount(layout.obstacles[:, 0], minlength=25)
    assert np.flatnonzero(inner).tolist() == [6, 7, 8, 11, 12, 13, 16, 17, 18]
    np.testing.assert_allclose(inner[inner > 0] / 6000, 1 / 9, atol=0.02)
    for column in (layout.players[:, 0], layout.targets[:, 2]):
        shares = np.bincount(column, minlength=25) / 6000
        border = [cell for cell in range(25) if inner[cell] == 0]
        np.testing.assert_allclose(shares[border], 1 / 24, atol=0.012)
    assert abs((layout.strengths == 2).mean() - 0.5) < 0.02


def test_as_many_obstacles_as_allowed_always_find_a_place_and_block_no_cell() -> None:
    size = GridSize(rows=8, cols=8, n_players=4, n_targets=5, n_obstacles=max_obstacles(8, 8))
    layout = Spawner(size).spawn(np.arange(500, dtype=np.uint64))
    for cells in layout.obstacles.tolist():
        blocked = {divmod(cell, 8) for cell in cells}
        assert len(blocked) == 4
        reached, edge = {(0, 0)}, [(0, 0)]
        while edge:
            row, col = edge.pop()
            for down, right in ((0, 1), (1, 0), (0, -1), (-1, 0)):
                cell = (row + down, col + right)
                inside = 0 <= cell[0] < 8 and 0 <= cell[1] < 8
                if inside and cell not in blocked | reached:
                    reached.add(cell)
                    edge.append(cell)
        assert len(reached) == 60


def test_pictures_leave_out_who_has_left_and_keep_the_score(tmp_path: Any) -> None:
    env = hunt()
    env.set_layout(0, players=[(3, 3), (3, 3), (5, 5), (6, 6)], targets=TARGETS)
    states = [env.observe().state[0]]
    step: TimeStep = env.step(np.array([[HUNT_STAG, HUNT_STAG, STAY, STAY]]))
    frame = env.frame()
    assert frame.players[:2] == (None, None)
    assert frame.targets[0] is None
    assert frame.score == (5.0, 5.0, 0.0, 0.0)
    assert env.render().shape[2] == 3
    files = env.draw_episode(tmp_path / "episode", np.stack([*states, step.state[0]]), step.reward)
    svg = files[0].read_text(encoding="utf-8")
    assert svg.count('values="inline;none"') >= 3  # two hunters and the stag vanish
    assert files[1].stat().st_size > 1000


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        ("stag_hunt", {"size": 1}, "'size' is 1"),
        ("stag_hunt", {"size": 3, "players": 5}, "do not fit on 9 cells"),
        ("stag_hunt", {"obstacles": 9}, "between 0 and 4"),
        ("stag_hunt", {"stag_hunters": 5}, "never catch a stag"),
        ("stag_hunt", {"stags": 0, "hares": 0}, "without stags and hares"),
        ("stag_hunt", {"hare": 3}, "no argument 'hare'"),
        ("stag_hunt", {"min_strength": 3}, "'min_strength' is 3"),
        ("snowdrift", {"drifts": 0}, "'drifts'"),
        ("snowdrift", {"cost": -1}, "'cost'"),
    ],
)
def test_a_game_that_cannot_be_played_is_refused_in_words(
    name: str, args: dict[str, Any], words: str
) -> None:
    with pytest.raises(OmgError, match=words):
        make(name, args)


def test_a_snapshot_of_another_game_is_refused() -> None:
    env, other = make("stag_hunt", {}), make("stag_hunt", {"hares": 3})
    env.reset(0)
    other.reset(0)
    with pytest.raises(OmgError, match="does not fit"):
        other.restore(env.snapshot())
