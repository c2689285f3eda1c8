"""Scripted foragers that differ in behaviour, on boards made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pytest
import torch

from omg.envs.foraging import ForagingEnv
from omg.opponents.foraging_field import MEMORY_DIM, NOTE, TARGET
from omg.opponents.scripted_foraging import SCRIPTS, headings, make_script
from omg.runners.rollout import _widened
from omg.types import Observation, TimeStep
from tests.unit.test_scripted_foraging import (
    EAST,
    LOAD,
    NONE,
    NORTH,
    SHARED,
    WEST,
    act_in,
    make,
    nothing,
    play,
    put,
    seats_of,
)

BEHAVIOURS = [name for name, kind in SCRIPTS.items() if kind.behaves is not None]
Place = tuple[int, int]


def board(players: Sequence[Place], foods: Sequence[tuple[int, int, int]]) -> ForagingEnv:
    """The inner 8 x 8 cells of a field, numbered from 0: no food lies at a wall."""
    inner = [(row + 1, col + 1) for row, col in players]
    inside = [(row + 1, col + 1, level) for row, col, level in foods]
    return put(inner, inside, key="Foraging-10x10-2p-3f-v3")


class Trip:
    """One player's way beside another that does what it is told, in the cells of `board`."""

    def __init__(self, env: ForagingEnv, name: str, steps: int, others: Sequence[int] = ()) -> None:
        script, memory = make_script(name), nothing(1)
        self.actions: list[int] = []
        self.targets: list[Place] = []
        self.places: list[Place] = []
        for t in range(steps):
            seen = env.observe()
            at = (seats_of(env, 0), memory, env.rules)
            to = headings([script], np.zeros(1, np.int64), seen.state, *at)[0]
            self.targets.append((int(to[0]) - 1, int(to[1]) - 1))
            action, memory = act_in(env, script, 0, memory, seen=seen)
            self.actions.append(int(action[0]))
            other = others[t] if t < len(others) else NONE
            ended = env.step(np.array([[self.actions[-1], other]])).terminated[0]
            if ended:
                break
            row, col = env.frame().player_pos[0]
            self.places.append((row - 1, col - 1))
        self.memory = memory

    def stages(self) -> list[tuple[Place, int]]:
        """Each target in turn, and for how many steps it was one."""
        return [(place, len(list(run))) for place, run in groupby(self.targets)]


def test_the_behaviours_are_these() -> None:
    names = "changes_mind waits leads follows_moves deceives avoids alternates"
    later = "dawdles gives_way helps switches dodges joins returns patrols"
    assert [*names.split(), *later.split()] == BEHAVIOURS


def test_changes_mind_takes_another_food_every_6_to_15_steps() -> None:
    foods = [(0, 7, 6), (7, 0, 6), (7, 7, 6)]
    lengths = set()
    for col in range(6):
        stages = Trip(board([(0, col), (3, 3)], foods), "changes_mind", 48).stages()
        assert len(stages) >= 3
        assert all(6 <= steps <= 15 for _, steps in stages[:-1])
        lengths |= {steps for _, steps in stages[:-1]}
    assert len(lengths) > 3


def test_changes_mind_keeps_the_only_food_there_is() -> None:
    assert len(Trip(board([(0, 0), (7, 7)], [(4, 4, 6)]), "changes_mind", 40).stages()) == 1


def test_waits_gives_a_food_up_after_six_loads_in_vain_and_comes_back_to_it() -> None:
    trip = Trip(board([(0, 0), (7, 0)], [(0, 3, 6), (0, 7, 6)]), "waits", 40)
    assert trip.actions[:8] == [EAST, EAST, *[LOAD] * 6]
    (first, there), (second, _), (third, _), *_ = trip.stages()
    assert (first, there, second, third) == ((0, 3), 8, (0, 7), (0, 3))


def test_waits_stays_with_a_food_when_there_is_no_other() -> None:
    trip = Trip(board([(0, 2), (7, 0)], [(0, 3, 6)]), "waits", 20)
    assert trip.actions == [LOAD] * 20


def test_waits_does_not_leave_a_food_that_help_comes_to_in_time() -> None:
    env = board([(0, 2), (1, 4)], [(0, 3, 6), (6, 6, 2)])
    trip = Trip(env, "waits", 4, [NONE, NORTH, LOAD])
    assert trip.targets == [(0, 3)] * 3 + [(6, 6)]


def test_leads_waits_for_who_does_not_come_and_then_goes_on_alone() -> None:
    trip = Trip(board([(0, 0), (7, 7)], [(0, 5, 6)]), "leads", 16)
    assert trip.actions == [EAST, *[NONE] * 10, EAST, EAST, EAST, LOAD, LOAD]
    assert trip.stages() == [((0, 5), 16)]


def test_leads_walks_while_the_other_comes_nearer() -> None:
    trip = Trip(board([(0, 0), (7, 7)], [(0, 5, 6)]), "leads", 4, [NORTH, WEST, NORTH, WEST])
    assert trip.actions == [EAST] * 4


def test_leads_stops_as_soon_as_the_other_turns_away() -> None:
    trip = Trip(board([(0, 0), (6, 7)], [(0, 7, 6)]), "leads", 4, [NORTH, NORTH, 2, NORTH])
    assert trip.actions == [EAST, EAST, EAST, NONE]


def test_leads_does_not_wait_for_who_is_close() -> None:
    trip = Trip(board([(3, 0), (1, 1)], [(3, 3, 6)]), "leads", 4)
    assert trip.actions == [EAST, EAST, LOAD, LOAD]


def test_leads_takes_food_that_needs_help_first() -> None:
    foods = [(1, 1, 2), (4, 4, 3), (6, 6, 4)]
    for col in range(6):
        assert Trip(board([(0, col), (7, 0)], foods), "leads", 1).targets == [(6, 6)]


CORNERS = [(0, 7, 3), (7, 0, 3)]


def test_follows_moves_reads_the_last_moves_and_not_the_place() -> None:
    """The other stands nearest to the lower food and walks towards the upper one."""
    walks = [EAST, EAST, NONE, NONE, NONE]
    trip = Trip(board([(4, 4), (5, 1)], CORNERS), "follows_moves", 6, walks)
    # Three steps are remembered; standing still, it is believed to want what is nearest.
    assert trip.targets == [(7, 0), (0, 7), (0, 7), (0, 7), (7, 0), (7, 0)]
    assert set(Trip(board([(4, 4), (5, 1)], CORNERS), "follow", 4, walks).targets) == {(7, 0)}


def test_avoids_goes_where_the_other_does_not() -> None:
    trip = Trip(board([(3, 3), (5, 1)], CORNERS), "avoids", 3, [EAST, EAST])
    assert trip.targets == [(0, 7), (7, 0), (7, 0)]


def test_avoids_takes_the_last_food_even_so() -> None:
    assert Trip(board([(3, 3), (5, 1)], [(7, 0, 3)]), "avoids", 2).targets == [(7, 0)] * 2


def test_avoids_prefers_what_it_can_lift_alone() -> None:
    env = board([(3, 3), (7, 1)], [(3, 5, 6), (0, 0, 2), (7, 0, 3)])
    assert Trip(env, "avoids", 1).targets == [(0, 0)]


def test_deceives_turns_half_way() -> None:
    seen = set()
    for level in (4, 5, 6):
        trip = Trip(board([(0, 0), (7, 7)], [(0, 6, level), (6, 0, 6)]), "deceives", 14)
        (decoy, steps), (wanted, _) = trip.stages()
        assert steps == 3  # of six to the decoy
        assert trip.places[2] == ((0, 3) if decoy == (0, 6) else (3, 0))
        assert trip.actions[-1] == LOAD
        row, col = trip.places[-1]
        assert abs(row - wanted[0]) + abs(col - wanted[1]) == 1
        assert {decoy, wanted} == {(0, 6), (6, 0)}
        seen.add(decoy)
    assert seen == {(0, 6), (6, 0)}


def test_deceives_goes_straight_to_the_only_food() -> None:
    assert Trip(board([(0, 0), (7, 7)], [(0, 6, 6)]), "deceives", 6).actions == [*[EAST] * 5, LOAD]


def test_deceives_does_not_load_its_decoy() -> None:
    """The decoy is beside it and light; what it wants lies elsewhere, or else it is no decoy."""
    for col in range(2, 7):
        trip = Trip(board([(0, col), (7, 7)], [(1, col, 2), (5, 1, 2)]), "deceives", 12)
        if trip.targets[0] == (5, 1):
            assert trip.actions[0] != LOAD
            return
    raise AssertionError("no board on which it wants the far one")


def test_alternates_changes_sides_after_its_own_pick_up() -> None:
    """After the left food another left one is nearer than the right one."""
    trip = Trip(board([(2, 2), (7, 7)], [(2, 1, 1), (3, 6, 1), (5, 1, 1)]), "alternates", 20)
    assert [place for place, _ in trip.stages()] == [(2, 1), (3, 6), (5, 1)]


def test_alternates_does_not_count_what_another_picked_up() -> None:
    env = board([(2, 4), (2, 0)], [(2, 1, 1), (5, 1, 1), (6, 7, 1)])
    trip = Trip(env, "alternates", 3, [LOAD])
    assert trip.targets == [(2, 1), (5, 1), (5, 1)]
    assert trip.memory[0, NOTE] == 0


def test_dawdles_rests_at_every_second_step_and_loads_at_all() -> None:
    trip = Trip(board([(0, 0), (7, 7)], [(0, 3, 6)]), "dawdles", 6)
    assert trip.actions == [EAST, NONE, EAST, LOAD, LOAD, LOAD]


def test_gives_way_leaves_a_food_to_who_is_nearer_and_takes_it_when_nobody_is() -> None:
    foods = [(0, 2, 6), (5, 0, 6)]
    assert Trip(board([(0, 0), (0, 3)], foods), "gives_way", 1).targets == [(5, 0)]
    assert Trip(board([(0, 0), (0, 7)], foods), "gives_way", 1).targets == [(0, 2)]
    both = [(0, 2, 6), (3, 2, 6)]  # the other is nearer to both: the nearest of all
    assert Trip(board([(0, 0), (1, 2)], both), "gives_way", 1).targets == [(0, 2)]


def test_helps_walks_to_the_other_and_loads_where_that_one_stands() -> None:
    env = board([(4, 3), (4, 4)], [(4, 6, 6), (0, 3, 1)])
    trip = Trip(env, "helps", 8, [NONE, EAST, *[LOAD] * 6])
    assert trip.targets[:3] == [(4, 4), (4, 4), (4, 6)]
    assert trip.actions[:2] == [NONE, NONE]  # beside the other: nowhere to go
    assert LOAD in trip.actions
    assert trip.targets[-1] == (4, 5)  # the two of them have lifted it


def test_switches_turns_from_what_it_can_lift_alone_to_what_is_near_the_other() -> None:
    env = board([(4, 0), (0, 7)], [(4, 2, 6), (7, 6, 1), (0, 5, 6)])
    trip = Trip(env, "switches", 24, [NONE] * 24)
    assert trip.stages()[0] == ((7, 6), 9)  # the light one, until it has lifted it alone
    assert trip.stages()[1] == ((4, 2), 3)  # then the nearest, though another is near the other
    assert trip.stages()[2] == ((0, 5), 12)  # from step 12 on


def test_dodges_leaves_its_food_when_the_other_comes_and_then_stays() -> None:
    # The other player waits beside one of two foods; nothing is dodged in the first eight steps.
    foods = [(0, 7, 6), (7, 7, 6)]
    trips = [Trip(board([(start, 0), (0, 6)], foods), "dodges", 20) for start in range(8)]
    dodged = [trip.stages() for trip in trips if trip.targets[0] == (0, 7)]
    stayed = [trip.stages() for trip in trips if trip.targets[0] == (7, 7)]
    assert dodged == [[((0, 7), 8), ((7, 7), 12)]] * len(dodged)
    assert stayed == [[((7, 7), 20)]] * len(stayed)
    assert dodged
    assert stayed


def test_joins_stands_until_the_other_is_beside_a_food() -> None:
    env = board([(7, 7), (0, 0)], [(0, 3, 6), (6, 7, 6)])
    trip = Trip(env, "joins", 6, [EAST, EAST, NONE, NONE, NONE, NONE])
    assert trip.targets[:2] == [(7, 7)] * 2  # where it stands
    assert trip.actions[:2] == [NONE] * 2
    assert trip.targets[2:] == [(0, 3)] * 4
    assert trip.places[-1] != (7, 7)


def test_joins_takes_the_nearest_food_after_ten_steps_in_vain() -> None:
    trip = Trip(board([(7, 7), (0, 0)], [(0, 3, 6), (6, 6, 6)]), "joins", 12)
    assert trip.stages() == [((7, 7), 10), ((6, 6), 2)]


def test_returns_goes_to_the_middle_after_its_own_pick_up() -> None:
    env = board([(0, 0), (7, 7)], [(0, 2, 1), (0, 6, 6)])
    trip = Trip(env, "returns", 12)
    middle = (4, 4)  # of ten by ten cells with their walls, as `board` numbers them
    assert trip.stages() == [((0, 2), 2), (middle, 8), ((0, 6), 2)]


def test_patrols_goes_round() -> None:
    trip = Trip(put([(0, 0), (7, 0)], [(6, 6, 6)]), "patrols", 20)
    places = [place for place, _ in trip.stages()]
    assert places[:5] == [(1, 1), (1, 4), (4, 4), (4, 1), (1, 1)]
    assert LOAD not in trip.actions


def test_patrols_heads_for_places_of_level_0() -> None:
    env = put([(0, 0), (7, 0)], [(6, 6, 6)])
    at = (seats_of(env, 0), nothing(1), env.rules)
    told = headings([make_script("patrols")], np.zeros(1, np.int64), env.observe().state, *at)
    assert told.tolist() == [[2, 2, 0]]


@pytest.mark.parametrize(
    ("level", "other", "loads"), [(3, (7, 0), True), (6, (7, 0), False), (6, (1, 3), True)]
)
def test_patrols_loads_what_can_be_lifted_where_it_passes(
    level: int, other: Place, loads: bool
) -> None:
    """Beside its way; too heavy alone, but not where another stands beside the food."""
    trip = Trip(put([(2, 2), other], [(1, 4, level), (6, 6, 6)]), "patrols", 4)
    assert (LOAD in trip.actions) == loads
    assert ((0, 3) in trip.targets) == loads


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_a_lone_player_without_others_or_food_still_acts(name: str) -> None:
    env = make("Foraging-8x8-1p-2f-v3", max_food_level=1)
    play(env, [make_script(name)])
    env.set_layout(0, player_pos=[(0, 0)], player_levels=[1], foods=[])
    action, _ = act_in(env, make_script(name), 0, nothing(1))
    assert name == "patrols" or action.tolist() == [NONE]


@pytest.mark.long
@pytest.mark.parametrize("name", BEHAVIOURS)
@pytest.mark.parametrize(
    "key",
    [
        "Foraging-8x8-2p-3f-v3",
        "Foraging-2s-8x8-3p-3f-v3",
        "Foraging-12x12-4p-4f-v3",
        "Foraging-4x4-2p-1f-v3",
    ],
)
def test_any_number_of_players_and_any_sight_will_do(name: str, key: str) -> None:
    env = make(key, copies=20)
    for noise in (0.0, 0.2):
        play(env, [make_script(name, noise=noise)] * env.spec.n_agents)  # asserts what may be done


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_play_goes_on_exactly_from_what_was_remembered(name: str) -> None:
    """Stopped in mid-episode, the memory stored as a run stores it, and continued."""

    def run(env: ForagingEnv, memory: Any, steps: int) -> tuple[list[Any], Any]:
        script, seen, taken = make_script(name), env.observe(), []
        later: Observation | TimeStep = seen
        for _ in range(steps):
            joint = np.zeros((60, 2), np.int64)
            joint[:, 0], memory = act_in(env, script, 0, memory, seen=later)
            joint[:, 1], _ = act_in(env, make_script("nearest_food"), 1, nothing(60), seen=later)
            later = env.step(joint)
            memory[later.terminated | later.truncated] = 0
            taken.append(joint[:, 0].tolist())
        return taken, memory

    env = make(copies=60, seed=4, **SHARED)
    _, memory = run(env, nothing(60), 7)
    games = env.snapshot()
    stored = torch.from_numpy(memory.copy())
    straight, _ = run(env, memory, 30)
    again = make(copies=60, seed=9, **SHARED)
    again.restore(games)
    assert run(again, stored.numpy(), 30)[0] == straight
    again.restore(games)
    assert run(again, nothing(60), 30)[0] != straight  # the memory matters


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_the_heading_is_what_the_player_then_goes_for(name: str) -> None:
    env = make(copies=50, seed=1, **SHARED)
    script, memory, chance = make_script(name), nothing(50), np.random.default_rng(0)
    for _ in range(40):
        seen = env.observe()
        at = (seats_of(env, 0), memory, env.rules)
        told = headings([script], np.zeros(50, np.int64), seen.state, *at)
        actions, memory = act_in(env, script, 0, memory, seen=seen)
        cells = told[:, 0] * env.rules.cols + told[:, 1] + 1
        aims = memory[:, TARGET] > 0
        np.testing.assert_array_equal(cells[aims], memory[aims, TARGET])
        me = seen.state.reshape(50, -1, 3)[:, env.rules.max_num_food]
        beside = np.abs(told[:, :2] - me[:, :2]).sum(axis=1) == 1
        assert beside[actions == LOAD].all()
        others, _ = act_in(env, make_script("random"), 1, nothing(50), seen=seen, rng=chance)
        after = env.step(np.stack([actions, others], axis=1))
        memory[after.terminated | after.truncated] = 0


def test_behaviours_differ_from_one_another_and_from_every_preference() -> None:
    """On what they do in the first 30 steps beside the same player."""
    taken = {}
    for name in SCRIPTS:
        env = make(copies=40, seed=2, **SHARED)
        taken[name] = play(env, [make_script(name), make_script("nearest_food")]).actions[:30]
    for name in BEHAVIOURS:
        for other in set(SCRIPTS) - {name}:
            assert (taken[name][:, :, 0] != taken[other][:, :, 0]).mean() > 0.1, (name, other)


def test_what_an_older_run_remembered_is_continued_with_zeros() -> None:
    saved, now = torch.ones(4, 2, 5), torch.full((4, 2, MEMORY_DIM), 7)
    wide = _widened(saved, now)
    assert wide.shape == now.shape
    assert wide[..., :5].eq(1).all()
    assert wide[..., 5:].eq(0).all()
    assert _widened(now, now) is now
    assert _widened(saved, None) is saved
