"""Do battles go as in the game? Scripts against the scripted enemy and each other, with tolerances
of about four standard errors."""

from __future__ import annotations

import pytest

from benchmarks.battle import play_scripts

pytestmark = pytest.mark.long

NEAREST, FOCUS, TEAM, KITE = ["attack_nearest"], ["focus_fire"], ["team_focus"], ["kite"]


@pytest.mark.parametrize("name", ["3m", "8m", "2s3z"])
def test_equal_scripts_on_both_sides_are_even(name: str) -> None:
    found = play_scripts(name, NEAREST, NEAREST, episodes=768)
    assert found.cut < 0.02
    assert abs(found.won - found.lost) < 0.15


def test_whoever_focuses_its_fire_wins_on_either_side() -> None:
    ours = play_scripts("8m", FOCUS, NEAREST, episodes=256)
    theirs = play_scripts("8m", NEAREST, FOCUS, episodes=256)
    assert ours.won > 0.65
    assert theirs.lost > 0.65
    assert abs(ours.won - theirs.lost) < 0.1  # 2.8 deviations of the difference


def test_focused_fire_beats_spread_fire_against_the_scripted_enemy() -> None:
    for name in ("3m", "8m"):
        spread, focused = (play_scripts(name, who, episodes=512).won for who in (NEAREST, FOCUS))
        assert focused > spread + 0.1
        assert 0.3 < spread < 0.7


def test_kiting_stalkers_beat_zealots_and_standing_ones_do_not() -> None:
    kiting, standing = (play_scripts("3s_vs_5z", who, episodes=256).won for who in (KITE, TEAM))
    assert kiting > 0.5
    assert standing < 0.05


def test_random_play_loses() -> None:
    for name in ("3m", "8m", "2s3z"):
        assert play_scripts(name, ["random"], episodes=256).won < 0.02


def test_a_marine_more_decides_the_battle() -> None:
    assert play_scripts("5m_vs_6m", NEAREST, episodes=256).won < 0.1


def test_the_enemy_is_better_at_higher_levels() -> None:
    levels = ("1", "4", "7", "A")
    rates = [play_scripts("8m", FOCUS, episodes=256, difficulty=level).won for level in levels]
    assert rates[0] >= rates[1] - 0.05 > rates[2] - 0.1
    assert rates[0] > 0.9
    assert rates[3] < rates[2] - 0.2
