"""Replays of battles: who is where, who attacks whom, who dies; ghosts; files; the report."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from omg.envs.battle import BattleEnv
from omg.envs.battle.frames import BattleFrame, with_ghosts
from omg.envs.battle.render import BattlePictures
from omg.report.data import collect
from omg.report.replays import replays_section
from omg.types import OmgError

STOP, ATTACK = 1, 6
SVG = "{http://www.w3.org/2000/svg}"


def skirmish(**args: Any) -> tuple[BattleEnv, list[BattleFrame]]:
    """Two of ours shoot at one of theirs, which dies in the first step; nobody else fires."""
    env = BattleEnv(args={"map_name": "3m", "enemies": "seats", **args}, n_copies=1)
    env.reset(0)
    places = [(x, y) for x in (10, 14) for y in (12, 14, 16)]
    view: Any = env.set_layout(0, places=places, health=[45, 30, 45, 8, 45, 45])
    states, rewards = [view.state[0]], []
    for actions in ([ATTACK, ATTACK, *[STOP] * 4], [ATTACK + 1, STOP, STOP, 0, ATTACK + 1, STOP]):
        view = env.step(np.array([actions]))
        states.append(view.state[0])
        rewards.append(view.reward[0])
    return env, env.frames(np.array(states), np.array(rewards))


def test_frames_tell_places_conditions_attacks_and_deaths() -> None:
    _, frames = skirmish()
    assert [frame.step for frame in frames] == [0, 1, 2]
    assert frames[0].attacks == ()
    assert set(frames[1].attacks) == {(0, 3), (1, 3)}
    assert set(frames[2].attacks) == {(0, 4), (4, 1)}
    assert [frame.deaths for frame in frames] == [(), (3,), ()]
    assert dict(frames[2].graves)[3] == pytest.approx((14, 12), abs=1e-4)
    assert frames[0].units[1].health == pytest.approx(30 / 45)
    assert frames[0].units[1].shield < 0  # marines have none
    assert frames[0].units[0].waits == 0
    assert 0.3 < frames[1].units[0].waits < 0.7
    assert frames[1].score[0] == pytest.approx((8 + 10) * 20 / 365, rel=1e-5)


def test_attacks_of_scripted_units_are_concluded_from_who_was_hurt() -> None:
    env = BattleEnv(args={"map_name": "2m_vs_1z"}, n_copies=1)
    env.reset(0)
    states = [env.set_layout(0, places=[(10, 14), (10, 18), (11, 14)]).state[0]]
    states.append(env.step(np.array([[STOP, STOP]])).state[0])
    frames = env.frames(np.array(states), np.zeros((1, 1)))
    assert frames[1].attacks == ((2, 0),)


def test_a_state_without_last_actions_shows_the_attacks_that_its_cooldowns_tell() -> None:
    _, frames = skirmish(state_last_action=False)
    assert frames[0].attacks == ()
    assert set(frames[1].attacks) == {(0, 3), (1, 3)}
    # In the second step unit 0 still waits for its weapon, as does 1; 4 fires at 1.
    assert (4, 1) in frames[2].attacks
    assert {shooter for shooter, _ in frames[2].attacks} <= {0, 4}


def test_an_episode_is_written_as_svg_and_gif(tmp_path: Path) -> None:
    env, frames = skirmish()
    states = np.stack([env.observe().state[0]] * 3)
    svg, gif = env.draw_episode(tmp_path / "episode", states, np.zeros((2, 6)))
    assert Image.open(gif).n_frames >= 1
    assert ET.parse(svg).getroot().tag == f"{SVG}svg"
    moving = ET.fromstring(BattlePictures(env.rules, frames).to_animated_svg(frames))
    words = {text.text for text in moving.iter(f"{SVG}text")}
    assert {"Step 0", "Step 1", "Step 2", "3 of 3 against 2 of 3", "0–2 marine"} <= words
    assert any(a.get("attributeName") == "width" for a in moving.iter(f"{SVG}animate"))
    assert env.render().ndim == 3


def test_ghosts_stand_where_the_living_are_expected() -> None:
    env, frames = skirmish()
    expected = [[(1, (12.0, 15.0)), (3, (20.0, 20.0))]] * 3
    shown = with_ghosts(frames, expected)
    assert shown[0].ghosts == ((1, (12.0, 15.0)), (3, (20.0, 20.0)))
    assert shown[1].ghosts == ((1, (12.0, 15.0)),)  # 3 is dead by then
    plain, ghostly = (
        BattlePictures(env.rules, shown).to_rgb(frame) for frame in (frames[0], shown[0])
    )
    assert (plain != ghostly).any()


def test_the_report_shows_films_of_battles_as_images(tmp_path: Path) -> None:
    env, frames = skirmish()
    folder = tmp_path / "replays"
    folder.mkdir()
    film = BattlePictures(env.rules, frames).to_animated_svg(frames)
    (folder / "me-vs-you-0.svg").write_text(film, encoding="utf-8")
    page = replays_section(collect([tmp_path]))
    assert "data:image/svg+xml;base64," in page
    assert "me-vs-you-0" in page
    assert "<svg" not in page


def test_a_state_of_observations_cannot_be_drawn() -> None:
    env = BattleEnv(args={"map_name": "3m", "obs_instead_of_state": True}, n_copies=1)
    env.reset(0)
    with pytest.raises(OmgError, match="obs_instead_of_state"):
        env.render()
