"""Scripted soldiers: whom each attacks, when it walks, and that either side plays alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from omg.envs.battle import BattleEnv
from omg.opponents.scripted_battle import SCRIPTS, act_together, board_of, headings, make_script
from omg.opponents.scripts import env_of_script, scripted_game
from omg.types import OmgError

NOOP, STOP, NORTH, SOUTH, EAST, WEST, ATTACK = range(7)


def decide(env: BattleEnv, script: str, seats: list[int] | None = None) -> list[int]:
    """What a script does in every seat of the only copy."""
    rows = np.array(seats if seats is not None else range(env.spec.n_agents))
    view = env.observe()
    actions, _ = act_together(
        *([make_script(script)], np.zeros(len(rows), np.int64)),
        *(np.repeat(view.state, len(rows), 0), rows, view.avail[0, rows]),
        *(np.zeros((len(rows), 1), np.int64), np.random.default_rng(0), board_of(env.args)),
    )
    assert view.avail[0, rows, actions].all()
    return actions.tolist()


def put(name: str, places: Any, **more: Any) -> BattleEnv:
    args = {key: more.pop(key) for key in ("enemies",) if key in more}
    env = BattleEnv(args={"map_name": name, **args}, n_copies=1)
    env.reset(0)
    env.set_layout(0, places=places, **more)
    return env


OURS = [(10, 12), (10, 16), (10, 20)]


def test_each_attacks_the_nearest_or_walks_to_it() -> None:
    env = put("3m", [*OURS, (14, 12), (15, 16), (20, 20)])
    assert decide(env, "attack_nearest") == [ATTACK, ATTACK + 1, EAST]
    # Of the third, the second enemy is nearest: 4 east and 5 south are 6.4.
    env = put("3m", [*OURS, (28, 12), (14, 15), (20, 20)])
    assert decide(env, "attack_nearest")[2] == SOUTH


def test_fire_is_focused_on_the_weakest_in_range() -> None:
    health = [45, 45, 45, 45, 9, 3]
    env = put("3m", [*OURS, (14, 12), (15, 14), (28, 20)], health=health)
    assert decide(env, "focus_fire")[:2] == [ATTACK + 1, ATTACK + 1]
    assert decide(env, "attack_nearest")[:2] == [ATTACK, ATTACK + 1]


def test_a_team_has_one_target() -> None:
    places = [(10, 15), (10, 16), (10, 17), (14, 14), (14, 16), (14, 18)]
    env = put("3m", places, health=[45, 45, 45, 45, 45, 20])
    assert decide(env, "team_focus") == [ATTACK + 2] * 3


def test_who_holds_never_walks() -> None:
    env = put("3m", [*OURS, (15, 12), (28, 16), (28, 20)])
    assert decide(env, "hold") == [ATTACK, STOP, STOP]


def test_kiting_walks_away_while_the_weapon_waits_and_fires_when_it_is_ready() -> None:
    places = [(10, 12), (10, 16), (10, 20), (12, 12), (12, 16), (12, 20)]
    shield = [80, 80, 80, 50, 10, 50]
    env = put("3s_vs_3z", places, cooldown=[20, 0, 20, 0, 0, 0], shield=shield)
    assert decide(env, "kite") == [WEST, ATTACK + 1, WEST]


def test_the_hurt_retreat_only_while_others_fight() -> None:
    places = [*OURS, (14, 12), (14, 16), (14, 20)]
    env = put("3m", places, health=[10, 45, 45, 45, 45, 45])
    assert decide(env, "retreat_when_hurt") == [WEST, ATTACK + 1, ATTACK + 2]
    env = put("3m", places, health=[10, 10, 10, 45, 45, 45])
    assert decide(env, "retreat_when_hurt") == [ATTACK, ATTACK + 1, ATTACK + 2]


def test_protecting_attacks_what_threatens_the_one_hurt_most() -> None:
    places = [(10, 15), (10, 16), (10, 17), (13, 14), (13, 16), (12, 18.5)]
    env = put("3m", places, health=[45, 45, 9, 45, 45, 45])
    assert decide(env, "protect")[:2] == [ATTACK + 2, ATTACK + 2]


def test_a_medivac_heals_whoever_is_hurt_most_whatever_the_script() -> None:
    places = [(8, 9 + 1.3 * i) for i in range(10)] + [(26, 9 + 1.3 * i) for i in range(10)]
    health = [125, 125, 45, 45, 45, 45, 20, 40, 45, 150, *[125] * 2, *[45] * 7, 150]
    env = put("MMM", places, health=health)
    for script in set(SCRIPTS) - {"random"}:
        assert decide(env, script, seats=[9]) == [ATTACK + 6]


@pytest.mark.parametrize("script", sorted(set(SCRIPTS) - {"random"}))
def test_nobody_attacks_what_its_weapon_cannot_hurt(script: str) -> None:
    """The medivac, which flies, is the nearest, the weakest, and beside our most hurt unit: marines
    may shoot at it, marauders take a marine."""
    marauders, marines, medivac = [(10, 15), (10, 17)], [(8, 9 + i) for i in range(7)], (5, 22)
    theirs = [(26, 9), (26, 11), (15, 16), *[(27, 13 + i) for i in range(6)], (12, 16)]
    health = [125, 60, *[45] * 7, 150, 125, 125, *[45] * 7, 4]
    env = put("MMM", [*marauders, *marines, medivac, *theirs], health=health)
    assert env.observe().avail[0, 0, [ATTACK + 2, ATTACK + 9]].all()
    assert decide(env, script, seats=[0]) == [ATTACK + 2]
    if script in ("attack_nearest", "focus_fire"):
        places = [*marauders, (10, 16), *marines[1:], medivac, *theirs]
        assert decide(put("MMM", places, health=health), script, seats=[2]) == [ATTACK + 9]


@pytest.mark.parametrize("script", sorted(set(SCRIPTS) - {"random"}))
def test_both_sides_play_alike(script: str) -> None:
    """The enemy's actions are those of our side in the situation turned by half a turn."""
    ours = [(10.0, 14.0), (12.5, 17.0), (11.0, 19.0)]
    theirs = [(15.0, 13.0), (16.0, 18.0), (17.0, 19.5)]
    health, cooldown = [30, 45, 12, 20, 45, 33], [0, 9, 3, 5, 0, 14]
    env = put("3m", [*ours, *theirs], health=health, cooldown=cooldown, enemies="seats")
    turned = [(32 - x, 32 - y) for x, y in (*theirs, *ours)]
    other = put(
        "3m",
        turned,
        health=health[3:] + health[:3],
        cooldown=cooldown[3:] + cooldown[:3],
        enemies="seats",
    )
    assert decide(env, script)[:3] == decide(other, script)[3:]
    assert decide(env, script)[3:] == decide(other, script)[:3]


def test_headings_are_the_places_that_soldiers_are_after() -> None:
    env = put("3m", [*OURS, (14, 12), (15, 16), (20, 20)], health=[45, 45, 45, 45, 9, 45])
    rows, board = np.arange(3), board_of(env.args)
    state = np.repeat(env.observe().state, 3, 0)
    found = headings(
        *([make_script("focus_fire")], np.zeros(3, np.int64), state, rows),
        *(np.zeros((3, 1), np.int64), board),
    )
    columns = env.spec.agent_features
    assert found.shape == (3, len(columns[0]))
    np.testing.assert_allclose(found[1, 2:4] * [30, 16] + 16, [15, 16], atol=1e-4)
    np.testing.assert_array_equal(found[1, :2], state[1, list(columns[1])[:2]])


def test_scripts_are_found_by_name_and_refuse_what_they_cannot_read() -> None:
    assert env_of_script("focus_fire") == "battle"
    assert scripted_game("battle").SCRIPTS is SCRIPTS
    with pytest.raises(OmgError, match="did you mean 'focus_fire'"):
        make_script("focus_fir")
    with pytest.raises(OmgError, match="obs_instead_of_state"):
        board_of({"map_name": "3m", "obs_instead_of_state": True})
