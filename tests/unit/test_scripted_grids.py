"""Scripted hunters and snow clearers: what they go for, when they change their mind, that they get
there, and that they say so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from omg.envs.goal_grid.env import GridEnv
from omg.envs.registry import make_batched
from omg.opponents import scripted_snowdrift, scripted_stag_hunt
from omg.opponents.players import Players, ScriptGroup
from omg.opponents.pool_members import ScriptSpec
from omg.opponents.scripts import env_of_script, scripted_envs, scripted_game
from omg.policies.inputs import StepView

MODULES: dict[str, Any] = {"stag_hunt": scripted_stag_hunt, "snowdrift": scripted_snowdrift}
ALL = [(env, name) for env, module in MODULES.items() for name in module.SCRIPTS]
STAG, HARE = 5, 6


class Table:
    """Scripts at the seats of one or more copies of a game."""

    def __init__(self, env_name: str, names: list[str], args: Any = None, **options: Any) -> None:
        self.module = MODULES[env_name]
        args = {"players": len(names), **(args or {})}
        copies = options.get("copies", 1)
        self.env = make_batched(env_name, args, n_copies=copies)
        assert isinstance(self.env, GridEnv)
        self.board = self.module.board_of(args)
        noise = options.get("noise", 0.0)
        self.scripts = [self.module.make_script(name, noise=noise) for name in names]
        self.seats = np.tile(np.arange(len(names)), copies)
        self.members = self.seats.copy()
        self.memory = np.zeros((len(self.seats), self.module.MEMORY_DIM), np.int64)
        self.rng = np.random.default_rng(0)
        self.view: Any = self.env.reset(options.get("seed", 0))

    def put(self, **layout: Any) -> None:
        assert isinstance(self.env, GridEnv)
        self.view = self.env.set_layout(0, **layout)
        self.memory[:] = 0

    def _rows(self) -> Any:
        return np.repeat(self.view.state, self.env.spec.n_agents, axis=0)

    def goals(self) -> list[int]:
        found = self.module.goals(
            self.scripts, self.members, self._rows(), self.seats, self.memory, self.board
        )
        return [int(goal) for goal in found]

    def headings(self) -> Any:
        return self.module.headings(
            self.scripts, self.members, self._rows(), self.seats, self.memory, self.board
        )

    def act(self) -> Any:
        avail = self.view.avail.reshape(len(self.seats), -1)
        actions, self.memory = self.module.act_together(
            self.scripts,
            self.members,
            self._rows(),
            self.seats,
            avail,
            self.memory,
            self.rng,
            self.board,
        )
        assert avail[np.arange(len(actions)), actions].all()
        return actions

    def step(self) -> Any:
        actions = self.act().reshape(self.env.n_copies, -1)
        self.view = self.env.step(actions)
        ended = np.repeat(self.view.terminated | self.view.truncated, self.env.spec.n_agents)
        self.memory[ended] = 0
        return actions


# The stag and four hares; hare 1 is near the first player, hare 3 far from everybody.
TARGETS = [(4, 4), (0, 2), (2, 0), (7, 7), (0, 7)]
PLAYERS = [(0, 0), (4, 1), (1, 6), (0, 5)]


@pytest.mark.parametrize(
    ("name", "goal"),
    [
        ("stag", 0), ("nearest_hare", 1), ("farthest_hare", 3), ("lonely_hare", 3),
        ("hare_1", 1), ("hare_2", 2), ("hare_3", 3), ("hare_4", 4), ("impatient", 0),
        ("persistent", 0), ("waits_3", 0), ("joins", 1), ("opportunist", 0), ("random", -1),
    ],
)  # fmt: skip
def test_a_hunter_goes_for_what_its_script_says_and_tells(name: str, goal: int) -> None:
    table = Table("stag_hunt", [name, "stag", "nearest_hare", "nearest_hare"])
    second = (4, 3) if name == "opportunist" else (3, 1)
    players = [PLAYERS[0], second, *PLAYERS[2:]]
    table.put(players=players, targets=TARGETS)
    assert table.goals()[0] == goal
    if goal >= 0:
        assert table.headings()[0].tolist() == [*TARGETS[goal], 1]
    else:
        assert table.headings()[0].tolist() == [0, 0, 1]


# Stags 1, 2, 3 (near the first player, near the second, between) and two hares.
SEVERAL = [(0, 2), (7, 5), (4, 3), (2, 0), (5, 7)]


@pytest.mark.parametrize(
    ("name", "goal"),
    [
        ("stag", 0), ("farthest_stag", 1), ("lonely_stag", 0), ("meeting_stag", 2),
        ("stag_1", 0), ("stag_2", 1), ("stag_3", 2), ("betrays", 0), ("feints", 4), ("follows", 1),
    ],
)  # fmt: skip
def test_hunters_choose_among_several_stags(name: str, goal: int) -> None:
    table = Table("stag_hunt", [name, "stag_2"], {"stags": 3, "hares": 2})
    table.put(players=[(0, 0), (7, 1)], targets=SEVERAL)
    assert table.goals()[0] == goal


def test_who_betrays_leaves_the_stag_when_the_other_comes_and_goes_for_hares() -> None:
    table = Table("stag_hunt", ["betrays", "stag"], {"hares": 2})
    table.put(players=[(4, 3), (4, 7)], targets=[(4, 4), (0, 0), (7, 7)])
    goals = []
    for _ in range(6):
        goals.append(table.goals()[0])
        table.step()
    assert goals[:3] == [0, 0, 0]
    assert goals[3:] == [2, 2, 2]  # the nearer hare; and it does not come back when it has left
    assert table.view.info["stags"].tolist() == [0.0]


def test_who_feints_turns_to_the_nearest_stag_after_four_steps() -> None:
    table = Table("stag_hunt", ["feints", "stag_2"], {"stags": 3, "hares": 2})
    table.put(players=[(0, 0), (7, 1)], targets=SEVERAL)
    goals = []
    for _ in range(6):
        goals.append(table.goals()[0])
        table.step()
    assert goals[:4] == [4] * 4
    assert set(goals[4:]) <= {0, 1, 2}


def test_a_farthest_stag_is_kept_while_it_is_there() -> None:
    table = Table("stag_hunt", ["farthest_stag", "hare_1"], {"stags": 3, "hares": 2})
    table.put(players=[(0, 0), (7, 1)], targets=SEVERAL)
    goals = []
    for _ in range(10):  # from the middle on another stag is farther
        goals.append(table.goals()[0])
        table.step()
    assert goals == [1] * 10


def test_a_committed_hunter_keeps_its_hare_though_another_comes_nearer() -> None:
    table = Table("stag_hunt", ["farthest_hare", "stag", "stag", "stag"])
    table.put(players=PLAYERS, targets=TARGETS)
    seen = []
    for _ in range(15):
        seen.append(table.goals()[0])
        table.step()
    assert seen == [3] * 15  # fourteen steps and the hunt
    assert table.view.terminated.tolist() == [True]
    assert table.view.reached[0, 0] == 3


def test_the_impatient_hunter_leaves_the_stag_at_step_8() -> None:
    table = Table("stag_hunt", ["impatient", "random"], {"stag_hunters": 2})
    table.put(players=[(4, 3), (7, 0)], targets=TARGETS)
    table.members[1] = 0
    table.seats = np.array([0, 1])
    goals = []
    for _ in range(12):
        goals.append(table.goals()[0])
        table.memory = table.memory.copy()
        avail = table.view.avail[0]
        table.act()
        table.view = table.env.step(np.array([[0, 0]]))
        assert avail.any()
    assert goals[:8] == [0] * 8
    assert all(goal > 0 for goal in goals[8:])
    assert len(set(goals[8:])) == 1


def test_a_waiting_hunter_gives_up_after_so_many_hunts_in_vain() -> None:
    table = Table("stag_hunt", ["waits_3", "hare_4"])
    table.put(players=[(4, 2), (0, 0)], targets=TARGETS)
    actions = [table.step()[0, 0] for _ in range(7)]
    assert actions[:5] == [4, 4, STAG, STAG, STAG]
    assert table.goals()[0] > 0
    assert STAG not in actions[5:]


def test_the_joiner_changes_to_the_stag_when_another_is_there() -> None:
    table = Table("stag_hunt", ["joins", "stag"])
    table.put(players=[(0, 0), (4, 7)], targets=[(4, 4), (7, 7), (7, 6), (6, 7), (5, 7)])
    goals = []
    while table.view.alive.all():
        goals.append(table.goals()[0])
        table.step()
        if table.view.final is not None:
            break
    assert goals[0] > 0
    changed = next(t for t, goal in enumerate(goals) if goal == 0)
    assert changed == 2  # two steps later the other is one step from the stag
    assert set(goals[changed:]) == {0}
    assert table.view.info["stags"].tolist() == [1.0]


def test_two_stag_hunters_meet_and_share() -> None:
    table = Table("stag_hunt", ["stag", "stag", "nearest_hare", "hare_3"])
    table.put(players=PLAYERS, targets=TARGETS)
    returns = np.zeros(4)
    for _ in range(35):
        table.step()
        returns += table.view.reward[0]
        if table.view.terminated[0]:
            break
    assert returns.tolist() == [5.0, 5.0, 1.0, 1.0]
    assert table.view.final is not None


def test_a_hunter_that_has_left_does_nothing_and_has_no_goal() -> None:
    table = Table("stag_hunt", ["nearest_hare", "stag"])
    table.put(players=[(0, 2), (4, 4)], targets=TARGETS)
    assert table.step()[0].tolist() == [HARE, STAG]
    assert table.goals()[0] == -1
    assert table.headings()[0].tolist() == [0, 0, 0]
    assert table.step()[0, 0] == 0


@pytest.mark.parametrize(("obstacles", "seed"), [(0, 0), (4, 1), (4, 2)])
def test_walkers_reach_their_goals_round_obstacles(obstacles: int, seed: int) -> None:
    names = ["hare_1", "hare_2", "hare_3", "hare_4"]
    table = Table("stag_hunt", names, {"obstacles": obstacles}, copies=64, seed=seed)
    ended = np.zeros(64, np.bool_)
    for _ in range(25):
        table.step()
        reached = table.view.reached
        assert (reached[reached >= 0] == (np.where(reached >= 0)[1] + 1)).all()
        ended |= table.view.terminated
    assert ended.all()  # everybody has caught its own hare within 25 steps


def test_a_snow_clearer_goes_on_until_all_is_done_and_a_free_rider_stays() -> None:
    table = Table("snowdrift", ["nearest_drift", "free_rider", "drift_3", "tires_1"])
    start = table.view.state[0].reshape(-1, 3)[6:, :2].copy()
    returns, removed = np.zeros(4), np.zeros(4)
    for _ in range(50):
        table.step()
        returns += table.view.reward[0]
        removed += table.view.reached[0] >= 0
        if table.view.terminated[0]:
            break
        now = table.view.state[0].reshape(-1, 3)[6:, :2]
        np.testing.assert_array_equal(now[1], start[1])
    assert table.view.terminated[0]
    assert removed[3] <= 1
    assert removed[1] == 0
    assert returns[1] == 36.0
    assert removed.sum() == 6


def test_the_late_one_waits_and_the_yielding_one_gives_way() -> None:
    table = Table("snowdrift", ["late", "yields"], {"drifts": 2})
    table.put(players=[(0, 0), (7, 7)], targets=[(0, 1), (7, 6)])
    assert table.goals() == [-1, 1]
    table.put(players=[(0, 0), (3, 3)], targets=[(0, 1), (1, 0)])
    assert table.goals() == [-1, -1]  # the other is nearer to both
    for _ in range(15):
        table.act()
    assert table.goals()[0] == 0


@pytest.mark.parametrize(("env", "name"), ALL)
def test_every_script_plays_whole_games_with_noise_and_obstacles(env: str, name: str) -> None:
    table = Table(env, [name] * 4, {"obstacles": 3}, copies=8, noise=0.2)
    goals = len(table.env.spec.goals)
    for _ in range(60):
        assert all(-1 <= goal < goals for goal in table.goals())
        table.step()
    assert table.memory.shape == (32, table.module.MEMORY_DIM)


@pytest.mark.parametrize("env", list(MODULES))
def test_scripts_act_alike_together_and_one_by_one(env: str) -> None:
    module = MODULES[env]
    names = [name for name in module.SCRIPTS if name != "random"]
    args = {"players": 4}
    game = make_batched(env, args, n_copies=len(names))
    view = game.reset(3)
    board, rng = module.board_of(args), np.random.default_rng(0)
    scripts = [module.make_script(name) for name in names]
    rows = np.arange(len(names))
    seats, memory = rows % 4, np.zeros((len(names), module.MEMORY_DIM), np.int64)
    avail = view.avail[rows, seats]
    together, after = module.act_together(
        scripts, rows, view.state, seats, avail, memory, rng, board
    )
    for row, script in enumerate(scripts):
        at = slice(row, row + 1)
        alone, kept = module.act_together(
            [script], np.zeros(1, np.int64), view.state[at], seats[at], avail[at], memory[at], rng,
            board,
        )  # fmt: skip
        assert alone[0] == together[row]
        np.testing.assert_array_equal(kept[0], after[row])


def test_players_tell_the_goals_of_scripted_seats() -> None:
    group = ScriptGroup([ScriptSpec("stag"), ScriptSpec("hare_2")], "stag_hunt", {})
    players = Players(["stag", "hare_2"], [(group, [0, 1])], 4)
    env = make_batched("stag_hunt", {}, n_copies=2)
    view = env.reset(0)
    carry = players.initial_carry(2)
    players.seat(carry, torch.arange(2), np.array([[-1, 0, 1, 0], [1, -1, -1, 0]]))
    seen = StepView(
        obs=torch.from_numpy(view.obs),
        state=torch.from_numpy(view.state),
        avail=torch.from_numpy(view.avail),
        last_actions=torch.full((2, 4), -1),
    )
    assert players.goals(seen, carry).tolist() == [[-1, 0, 2, 0], [2, -1, -1, 0]]
    found = torch.zeros(2, 4, 3)
    players.targets(seen, carry, found)
    assert found[0, 1].tolist() == view.state[0, :3].tolist()


def test_foragers_pursue_no_named_goals() -> None:
    args = {"key": "Foraging-5x5-2p-1f-v3"}
    group = ScriptGroup([ScriptSpec("nearest_food")], "foraging", args)
    players = Players(["nearest_food"], [(group, [0])], 2)
    view = make_batched("foraging", args, n_copies=1).reset(0)
    carry = players.initial_carry(1)
    players.seat(carry, torch.arange(1), np.array([[0, -1]]))
    seen = StepView(
        obs=torch.from_numpy(view.obs),
        state=torch.from_numpy(view.state),
        avail=torch.from_numpy(view.avail),
        last_actions=torch.full((1, 2), -1),
    )
    assert players.goals(seen, carry).tolist() == [[-1, -1]]


def test_the_scripts_are_found_by_environment_and_by_name() -> None:
    assert {"stag_hunt", "snowdrift"} <= set(scripted_envs())
    assert env_of_script("waits_3") == "stag_hunt"
    assert env_of_script("free_rider") == "snowdrift"
    shared = [
        name
        for name in scripted_game("stag_hunt").SCRIPTS
        if name in scripted_game("snowdrift").SCRIPTS
    ]
    assert shared == ["random"]


@pytest.mark.long
def test_who_is_told_the_goals_answers_them() -> None:
    from benchmarks.oracle_gap import play

    given: dict[str, Any] = {"episodes": 512, "gamma": 1.0, "noise": 0.0}
    told = play("stag_hunt", None, others=("stag",), **given)
    assert told > 2.4  # a quarter of the stag at least
    told = play("stag_hunt", None, others=("farthest_hare",), **given)
    assert told > 0.95  # a hare that nobody takes away
    assert play("stag_hunt", "stag", others=("farthest_hare",), **given) < 0.1
    told = play("snowdrift", None, others=("nearest_drift",), **given)
    assert told > play("snowdrift", "nearest_drift", others=("nearest_drift",), **given)
