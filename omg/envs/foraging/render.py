"""Pictures of the foraging game: RGB arrays, SVG, and whole episodes as animated SVG or GIF.

A frame is one situation as plain numbers; it is drawn as simple shapes, alike by the SVG and the
pixel renderer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from omg.envs import drawing
from omg.envs.drawing import Box, Clock, Oval, Point, Shape, Style, Text, moved, require_frames
from omg.types import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class ForagingFrame:
    """Players by seat, foods that are left, and the players' summed rewards so far."""

    field_size: tuple[int, int]
    player_pos: tuple[tuple[int, int], ...]
    player_levels: tuple[int, ...]
    foods: tuple[tuple[int, int, int], ...]  # (row, col, level)
    step: int = 0
    score: tuple[float, ...] = ()


def frame_of(
    state: FloatArray,
    *,
    field_size: tuple[int, int],
    n_foods: int,
    step: int = 0,
    score: tuple[float, ...] = (),
) -> ForagingFrame:
    """The frame that a state vector [S] describes."""
    rows = [(int(row), int(col), int(level)) for row, col, level in state.reshape(-1, 3)]
    players = rows[n_foods:]
    return ForagingFrame(
        field_size=field_size,
        player_pos=tuple((row, col) for row, col, _ in players),
        player_levels=tuple(level for _, _, level in players),
        foods=tuple(food for food in rows[:n_foods] if food[2] > 0),
        step=step,
        score=score or (0.0,) * len(players),
    )


def frames_from_states(
    states: FloatArray,
    rewards: FloatArray,
    *,
    field_size: tuple[int, int],
    n_foods: int,
) -> list[ForagingFrame]:
    """An episode's frames from its states [T + 1, S] and rewards [T, N]."""
    start = np.zeros((1, rewards.shape[1]))
    scores = np.concatenate([start, np.cumsum(rewards, axis=0, dtype=np.float64)])
    return [
        frame_of(
            state,
            field_size=field_size,
            n_foods=n_foods,
            step=step,
            score=tuple(score.tolist()),
        )
        for step, (state, score) in enumerate(zip(states, scores, strict=True))
    ]


CELL = 56.0
MARGIN = 18.0
HEADER = 40.0
FOOTER = 42.0
# One colour per seat, told apart by people with colour-vision deficiencies as well.
SEATS = ("#2f6fd0", "#e07a1f", "#159a7a", "#b0489e", "#7a5cd6", "#8c6d1f", "#1d93b8", "#d04a5c")
# Surroundings by role: light, dark.
THEME = {
    "card": ("#fbfaf6", "#20242c"),
    "board": ("#eef1e6", "#2a303a"),
    "check": ("#e6ebdc", "#2f3641"),
    "rim": ("#cdd3c1", "#49525f"),
    "ink": ("#3a3f47", "#e4e7ec"),
    "pale": ("#868c92", "#98a1ae"),
}
APPLE, APPLE_SHINE, STEM, LEAF, WHITE = "#cf3b3b", "#e46a62", "#6b4a2b", "#5b9a3c", "#ffffff"
STYLE = Style("lbf", "Level-based foraging", THEME)


def extent(frame: ForagingFrame) -> tuple[float, float]:
    """Width and height of the picture."""
    rows, cols = frame.field_size
    return cols * CELL + 2 * MARGIN, rows * CELL + HEADER + FOOTER


def centre(row: float, col: float) -> tuple[float, float]:
    """The middle of a cell."""
    return MARGIN + (col + 0.5) * CELL, HEADER + (row + 0.5) * CELL


def background(frame: ForagingFrame) -> list[Shape]:
    """The card and the board, which stay the same during an episode."""
    width, height = extent(frame)
    rows, cols = frame.field_size
    shapes: list[Shape] = [
        Box(x=0, y=0, width=width, height=height, fill="card", radius=14),
        Box(x=MARGIN, y=HEADER, width=cols * CELL, height=rows * CELL, fill="board"),
    ]
    shapes += [
        Box(x=MARGIN + col * CELL, y=HEADER + row * CELL, width=CELL, height=CELL, fill="check")
        for row in range(rows)
        for col in range(cols)
        if (row + col) % 2
    ]
    shapes.append(
        Box(
            x=MARGIN - 1,
            y=HEADER - 1,
            width=cols * CELL + 2,
            height=rows * CELL + 2,
            fill="none",
            radius=3,
            rim="rim",
        )
    )
    return shapes


def apple(level: int) -> list[Shape]:
    """A food around (0, 0)."""
    r = 0.24 * CELL
    return [
        Box(x=-1.2, y=-0.40 * CELL, width=2.4, height=0.2 * CELL, fill=STEM, radius=1.2),
        Oval(x=0.11 * CELL, y=-0.33 * CELL, rx=0.1 * CELL, ry=0.05 * CELL, fill=LEAF),
        Oval(x=-0.09 * CELL, y=0.02 * CELL, rx=r, ry=1.12 * r, fill=APPLE),
        Oval(x=0.09 * CELL, y=0.02 * CELL, rx=r, ry=1.12 * r, fill=APPLE),
        Oval(x=-0.17 * CELL, y=-0.11 * CELL, rx=0.06 * CELL, ry=0.045 * CELL, fill=APPLE_SHINE),
        Text(x=0, y=0.03 * CELL, words=str(level), size=0.36 * CELL, fill=WHITE),
    ]


def player(seat: int, level: int) -> list[Shape]:
    """A player around (0, 0): the level in the disc, the seat in its tag."""
    colour = SEATS[seat % len(SEATS)]
    tag = 0.27 * CELL + (0.1 * CELL if seat > 9 else 0.0)
    return [
        Oval(x=0, y=0, rx=0.37 * CELL, ry=0.37 * CELL, fill=colour, rim=WHITE),
        Text(x=0, y=-0.03 * CELL, words=str(level), size=0.4 * CELL, fill=WHITE),
        Box(
            x=-tag / 2 - 4,
            y=0.2 * CELL,
            width=tag + 8,
            height=0.25 * CELL,
            fill=WHITE,
            radius=0.125 * CELL,
            rim=colour,
        ),
        Text(x=0, y=0.33 * CELL, words=f"P{seat}", size=0.18 * CELL, fill=colour),
    ]


def places(frame: ForagingFrame) -> list[tuple[float, float]]:
    """Where to draw the players; those who share a cell stand side by side."""
    spots = []
    for seat, (row, col) in enumerate(frame.player_pos):
        together = [s for s, pos in enumerate(frame.player_pos) if pos == (row, col)]
        shift = together.index(seat) - (len(together) - 1) / 2
        x, y = centre(row, col)
        spots.append((x + shift * 0.44 * CELL, y + shift * 0.2 * CELL))
    return spots


def step_label(frame: ForagingFrame) -> Text:
    """The step in the upper left corner."""
    return Text(
        x=MARGIN, y=HEADER / 2 + 1, words=f"Step {frame.step}", size=15, fill="ink", anchor="start"
    )


def food_label(frame: ForagingFrame) -> Text:
    """What is left, in the upper right corner."""
    left = len(frame.foods)
    return Text(
        x=extent(frame)[0] - MARGIN,
        y=HEADER / 2 + 1,
        words=f"{left} food{'' if left == 1 else 's'} left",
        size=13,
        fill="pale",
        anchor="end",
    )


def score_dots(frame: ForagingFrame) -> list[Shape]:
    """The players' colours below the board."""
    return [
        Oval(x=_score_x(frame, seat), y=_score_y(frame), rx=6, ry=6, fill=SEATS[seat % len(SEATS)])
        for seat in range(len(frame.player_pos))
    ]


def score_labels(frame: ForagingFrame) -> list[Text]:
    """The players' summed rewards below the board."""
    labels = []
    for seat, score in enumerate(frame.score):
        words = f"{score:.2f}" if abs(score) < 100 else f"{score:.0f}"
        x, y = _score_x(frame, seat) + 11, _score_y(frame)
        labels.append(Text(x=x, y=y, words=words, size=13, fill="ink", anchor="start"))
    return labels


def still(frame: ForagingFrame) -> list[Shape]:
    """Everything of one frame."""
    shapes = background(frame)
    for row, col, level in frame.foods:
        shapes += moved(apple(level), centre(row, col))
    for seat, (spot, level) in enumerate(zip(places(frame), frame.player_levels, strict=True)):
        shapes += moved(player(seat, level), spot)
    return [
        *shapes,
        step_label(frame),
        food_label(frame),
        *score_dots(frame),
        *score_labels(frame),
    ]


def _score_x(frame: ForagingFrame, seat: int) -> float:
    room = frame.field_size[1] * CELL / len(frame.player_pos)
    return MARGIN + seat * min(room, 84.0) + 8


def _score_y(frame: ForagingFrame) -> float:
    return extent(frame)[1] - FOOTER / 2


def to_rgb(frame: ForagingFrame, *, dark: bool = False, scale: float = 1.0) -> NDArray[np.uint8]:
    """An RGB array [height, width, 3]."""
    return STYLE.rgb(still(frame), extent(frame), dark=dark, scale=scale)


def to_svg(frame: ForagingFrame) -> str:
    """One picture that follows the reader's light or dark setting."""
    return STYLE.document([STYLE.elements(still(frame))], extent(frame))


def to_animated_svg(frames: Sequence[ForagingFrame], *, seconds_per_step: float = 0.45) -> str:
    """A whole episode as one self-contained SVG that plays in a loop."""
    require_frames(frames)
    first = frames[0]
    # The last frame stays for three steps before the loop begins again.
    clock = Clock(len(frames), len(frames) + 2, seconds_per_step)
    body = [STYLE.elements(background(first))]
    for row, col, level in first.foods:
        at = centre(row, col)
        shown = [any(food[:2] == (row, col) for food in frame.foods) for frame in frames]
        body.append(clock.shown(STYLE.elements(drawing.moved(apple(level), at)), shown))
    paths = [places(frame) for frame in frames]
    for seat, level in enumerate(first.player_levels):
        path = [spots[seat] for spots in paths]
        body.append(_moving(clock, STYLE.elements(player(seat, level)), path))
    body.append(STYLE.elements(score_dots(first)))
    labels = [[step_label(f), food_label(f), *score_labels(f)] for f in frames]
    return STYLE.document([*body, *clock.changing(STYLE, labels)], extent(first))


def _moving(clock: Clock, inner: str, path: Sequence[Point]) -> str:
    """Glides to each frame's place at the end of the step before it, then rests."""
    places, ticks = [path[0]], [0.0]
    for i in range(1, len(path)):
        if path[i] != path[i - 1]:
            places += [path[i - 1], path[i]]
            ticks += [i - 0.4, float(i)]
    return clock.along(inner, [*places, path[-1]], [*ticks, clock.n_ticks])


def write_gif(
    path: Path,
    frames: Sequence[ForagingFrame],
    *,
    seconds_per_step: float = 0.35,
    dark: bool = False,
    scale: float = 1.0,
) -> None:
    """A whole episode as an animated GIF that plays in a loop."""
    pictures = [to_rgb(frame, dark=dark, scale=scale) for frame in frames]
    drawing.write_gif(path, pictures, seconds_per_step=seconds_per_step, rest=3, colours=96)
