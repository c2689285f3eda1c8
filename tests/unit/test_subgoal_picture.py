"""Replays of Foraging as pictures with what was inferred."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from omg.envs.drawing import Oval
from omg.envs.foraging.render import SEATS, centre
from omg.evaluation.subgoal_picture import main, picture, pictures


def replay(**changed: Any) -> dict[str, Any]:
    """Seat 1 learns; seat 0 walks right from (0, 0) to (0, 3), and is expected at (2.5, 1)."""
    frames = [
        {"players": [[0, step, 3], [3, 3, 2]], "foods": [[2, 2, 4]], "score": [0.0, 0.0]}
        for step in range(4)
    ]
    content = {
        "env": "foraging",
        "field_size": [4, 4],
        "seat": 1,
        "players": 2,
        "frames": frames,
        "subgoals": [[[2.5, 1.0]]] * 3,
    }
    return {**content, **changed}


def ovals(content: dict[str, Any], step: int, colour: str) -> set[tuple[float, float]]:
    """Where pale shapes of a colour lie on the board."""
    return {
        (shape.x, shape.y)
        for shape in picture(content, step)
        if isinstance(shape, Oval) and shape.fill == colour and shape.opacity < 1
    }


def test_a_ring_stands_where_the_other_is_expected_and_dots_where_it_goes() -> None:
    found = ovals(replay(), 1, SEATS[0])
    assert centre(2.5, 1) in found  # the ring
    assert {centre(0, 2), centre(0, 3)} <= found  # its way
    assert centre(0, 1) not in found  # where it stands
    assert not ovals(replay(), 1, SEATS[1])


def test_the_last_picture_has_neither() -> None:
    board = {spot for spot in ovals(replay(), 3, SEATS[0]) if spot[1] < centre(4, 0)[1]}
    assert not board


def test_what_is_inferred_is_seen_in_the_pixels() -> None:
    here, there = (
        pictures(replay(subgoals=[[place]] * 3))[0].astype(int)
        for place in ([2.5, 1.0], [1.0, 2.0])
    )
    x, y = (round(value) for value in centre(1.0, 2.0))
    assert np.abs(here[y, x] - there[y, x]).sum() > 20


def test_the_command_writes_a_gif_with_a_picture_per_step(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps(replay()))
    assert main([str(tmp_path / "r.json"), str(tmp_path / "r.gif")]) == 0
    with Image.open(tmp_path / "r.gif") as made:
        assert made.n_frames == 4


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is no replay"),
        (json.dumps(replay(env="stag_hunt")), "a replay of stag_hunt"),
        (json.dumps(replay(subgoals=None)), "of foraging without subgoals"),
    ],
)
def test_anything_else_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, words: str
) -> None:
    (tmp_path / "r.json").write_text(content)
    assert main([str(tmp_path / "r.json"), str(tmp_path / "r.gif")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "r.gif").exists()
    assert main(["one"]) == 2
