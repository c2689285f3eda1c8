"""A replay of Foraging as a moving picture: a ring where the learning agent infers that the other
is heading, dots where it really goes.

    python -m omg.evaluation.subgoal_picture results/…/replays/<episode>.json subgoal.gif
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omg.envs.drawing import Shape, Text, disc, moved, write_gif
from omg.envs.foraging.render import (
    CELL,
    MARGIN,
    SEATS,
    STYLE,
    ForagingFrame,
    centre,
    extent,
    places,
    player,
    still,
)
from omg.types import OmgError

AHEAD = 5  # how many of the other's next steps are dotted
KEY = 36.0  # height of the lines below the board that say what is what


def read(path: Path) -> dict[str, Any]:
    """A replay written by `omg evaluate --replays` or `omg crossplay --replays`, of Foraging and
    with subgoals."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        env, subgoals = content["env"], content["subgoals"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OmgError(
            f"{path} is no replay ({type(error).__name__}). Give a .json of a folder replays/."
        ) from error
    if env != "foraging" or subgoals is None:
        raise OmgError(
            f"{path} is a replay of {env}{'' if subgoals else ' without subgoals'}. Give one of an "
            "agent with omg_am in Foraging."
        )
    return content


def frame_of(content: Mapping[str, Any], step: int) -> ForagingFrame:
    """One situation of a replay."""
    there = content["frames"][step]
    rows, cols = content["field_size"]
    return ForagingFrame(
        field_size=(rows, cols),
        player_pos=tuple((row, col) for row, col, _ in there["players"]),
        player_levels=tuple(level for _, _, level in there["players"]),
        foods=tuple((row, col, level) for row, col, level in there["foods"] if level > 0),
        step=step,
        score=tuple(there["score"]),
    )


def picture(content: Mapping[str, Any], step: int) -> list[Shape]:
    """The situation at a step with what is inferred there; the last one has no inference."""
    frame, seat = frame_of(content, step), content["seat"]
    others = [(seat + turn) % content["players"] for turn in range(1, content["players"])]
    shapes = still(frame)
    for other in others:
        ahead = content["frames"][step + 1 : step + 1 + AHEAD]
        shapes += _path([there["players"][other][:2] for there in ahead], SEATS[other])
    if step < len(content["subgoals"]):
        for other, place in zip(others, content["subgoals"][step], strict=True):
            shapes += _ring(place, SEATS[other])
    for number, (spot, level) in enumerate(zip(places(frame), frame.player_levels, strict=True)):
        shapes += moved(player(number, level), spot)  # again, above what was inferred
    return [*shapes, *_key(frame, seat, others[0])]


def _path(cells: Sequence[Sequence[float]], colour: str) -> list[Shape]:
    spots = dict.fromkeys(centre(row, col) for row, col in cells)
    return [disc(x, y, 0.09 * CELL, fill=colour, opacity=0.6) for x, y in spots]


def _ring(place: Sequence[float], colour: str) -> list[Shape]:
    x, y = centre(place[0], place[1])
    rings = [disc(x, y, radius * CELL, fill="none", rim=colour) for radius in (0.5, 0.47, 0.44)]
    return [disc(x, y, 0.5 * CELL, fill=colour, opacity=0.16), *rings]


def _key(frame: ForagingFrame, seat: int, other: int) -> list[Shape]:
    x, y = MARGIN + 8, extent(frame)[1]
    marks = (
        disc(x, y, 7, fill=SEATS[other], rim=SEATS[other], opacity=0.16),
        disc(x, y + 19, 0.09 * CELL, fill=SEATS[other], opacity=0.6),
    )
    words = (
        f"where P{seat}, who learns, infers P{other} is heading",
        f"where P{other} really goes in its next {AHEAD} steps",
    )
    return [
        *marks,
        *(
            Text(x=x + 15, y=y + 19 * row, words=line, size=11.5, fill="pale", anchor="start")
            for row, line in enumerate(words)
        ),
    ]


def pictures(content: Mapping[str, Any], *, scale: float = 1.0) -> list[NDArray[np.uint8]]:
    """Every step as an RGB array."""
    width, height = extent(frame_of(content, 0))
    return [
        STYLE.rgb(picture(content, step), (width, height + KEY), scale=scale)
        for step in range(len(content["frames"]))
    ]


def main(words: Sequence[str]) -> int:
    """Write the picture; the exit code."""
    if len(words) != 2:
        print(f"usage: {(__doc__ or '').strip().splitlines()[-1].strip()}", file=sys.stderr)
        return 2
    try:
        shown = pictures(read(Path(words[0])))
    except OmgError as error:
        print(f"omg: {error}", file=sys.stderr)
        return error.exit_code
    write_gif(Path(words[1]), shown, seconds_per_step=0.8, rest=3, colours=96)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
