"""Pictures of the grid games: RGB arrays, and whole episodes as animated SVG or GIF."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from omg.envs import drawing
from omg.envs.drawing import Box, Clock, Oval, Point, Polygon, Shape, Style, Text, disc, moved
from omg.envs.foraging.render import CELL, FOOTER, HEADER, MARGIN, SEATS, THEME, WHITE, centre
from omg.envs.goal_grid.games import state_parts
from omg.envs.goal_grid.layout import GridSize
from omg.types import FloatArray

STAG, HARE, DRIFT = "stag", "hare", "drift"
Cell = tuple[int, int]
_FUR, _ANTLER, _GREY, _EAR, _SNOW, _SHADE, _ROCK = (
    *("#8a5a33", "#5d3b1f", "#8b8f96", "#e3a6ad", "#dfeaf6", "#a9bfd8", "#7d827c"),
)


@dataclass(frozen=True, slots=True)
class Look:
    """How a game is drawn: its words, and what each of its targets is."""

    prefix: str
    label: str
    left: str  # after the number of targets that are left
    targets: tuple[str, ...]

    @property
    def style(self) -> Style:
        return Style(self.prefix, self.label, THEME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One situation; who or what is gone has no place."""

    field_size: Cell
    players: tuple[Cell | None, ...]
    strengths: tuple[int, ...]
    targets: tuple[Cell | None, ...]
    obstacles: tuple[Cell, ...]
    step: int = 0
    score: tuple[float, ...] = ()

    def at(self, step: int, score: tuple[float, ...]) -> Frame:
        """The same at another step."""
        return replace(self, step=step, score=score)

    @property
    def extent(self) -> Point:
        """Width and height of the picture."""
        rows, cols = self.field_size
        return cols * CELL + 2 * MARGIN, rows * CELL + HEADER + FOOTER


def frames_from_states(states: FloatArray, rewards: FloatArray, size: GridSize) -> list[Frame]:
    """An episode's frames from its states [T + 1, S] and rewards [T, N] (or the team's [T, 1])."""
    start = np.zeros((1, rewards.shape[1]))
    scores = np.concatenate([start, np.cumsum(rewards, axis=0, dtype=np.float64)])
    targets, players, obstacles = state_parts(states, size)
    return [
        Frame(
            field_size=(size.rows, size.cols),
            players=_cells(players[t]),
            strengths=tuple(int(mark) for mark in players[0, :, 2]),
            targets=_cells(targets[t]),
            obstacles=tuple(cell for cell in _cells(obstacles[t]) if cell),
            step=t,
            score=tuple(scores[t].tolist()),
        )
        for t in range(len(states))
    ]


def _cells(things: FloatArray) -> tuple[Cell | None, ...]:
    return tuple((int(row), int(col)) if mark else None for row, col, mark in things)


def background(frame: Frame) -> list[Shape]:
    """The card, the board and its obstacles, which stay the same during an episode."""
    (width, height), (rows, cols) = frame.extent, frame.field_size
    board = Box(x=MARGIN, y=HEADER, width=cols * CELL, height=rows * CELL, fill="board")
    shapes: list[Shape] = [
        Box(x=0, y=0, width=width, height=height, fill="card", radius=14),
        board,
    ]
    shapes += [
        Box(x=MARGIN + col * CELL, y=HEADER + row * CELL, width=CELL, height=CELL, fill="check")
        for row in range(rows)
        for col in range(cols)
        if (row + col) % 2
    ]
    shapes.append(replace(board, fill="none", radius=3, rim="rim"))
    for row, col in frame.obstacles:
        x, y = centre(row, col)
        side = 0.72 * CELL
        shapes.append(
            Box(x=x - side / 2, y=y - side / 2, width=side, height=side, fill=_ROCK, radius=9)
        )
    return shapes


def target(kind: str, number: int) -> list[Shape]:
    """A target around (0, 0) with its number; told apart by shape, not by colour alone."""
    c = CELL
    label = Text(x=0, y=0.36 * c, words=str(number), size=0.2 * c, fill="ink")
    if kind == STAG:
        antlers = [
            Polygon(x=side * 0.14 * c, y=-0.3 * c, corners=corners, fill=_ANTLER)
            for side, corners in (
                (-1.0, ((3, 8), (-9, -8), (-4, -8), (0, -2), (2, -10), (6, -9), (7, 8))),
                (1.0, ((-3, 8), (9, -8), (4, -8), (0, -2), (-2, -10), (-6, -9), (-7, 8))),
            )
        ]
        head = Oval(x=0, y=0.0, rx=0.2 * c, ry=0.26 * c, fill=_FUR)
        return [*antlers, head, Oval(x=0, y=0.17 * c, rx=0.1 * c, ry=0.07 * c, fill=_ANTLER), label]
    if kind == HARE:
        ears = [
            Oval(x=side * 0.09 * c, y=-0.23 * c, rx=rx * c, ry=ry * c, fill=fill)
            for side in (-1, 1)
            for rx, ry, fill in ((0.065, 0.19, _GREY), (0.03, 0.13, _EAR))
        ]
        return [*ears, disc(0, 0.06 * c, 0.19 * c, fill=_GREY), label]
    heap = ((-0.34, 0.24), (-0.2, -0.08), (0.0, -0.28), (0.2, -0.06), (0.34, 0.24))
    corners = tuple((x * c, y * c) for x, y in heap)
    return [Polygon(x=0, y=0, corners=corners, fill=_SNOW, rim=_SHADE), label]


def player(seat: int, strength: int) -> list[Shape]:
    """A player around (0, 0); its strength is shown where it is not 1."""
    colour = SEATS[seat % len(SEATS)]
    words = f"P{seat}" if strength == 1 else f"P{seat}·{strength}"
    return [
        disc(0, 0, 0.27 * CELL, fill=colour, rim=WHITE),
        Text(x=0, y=0, words=words, size=0.46 * CELL / max(len(words), 2.3), fill=WHITE),
    ]


def places(frame: Frame) -> list[Point | None]:
    """Where to draw the players, in the corners of a cell that others are on, too."""
    spots: list[Point | None] = []
    for seat, cell in enumerate(frame.players):
        if cell is None:
            spots.append(None)
            continue
        together = [s for s, other in enumerate(frame.players) if other == cell]
        x, y = centre(*cell)
        if len(together) > 1:
            angle = 2 * np.pi * together.index(seat) / len(together) + np.pi / 4
            x, y = x + 0.24 * CELL * np.cos(angle), y + 0.24 * CELL * np.sin(angle)
        spots.append((float(x), float(y)))
    return spots


def labels(frame: Frame, look: Look) -> list[Text]:
    """The step, what is left, and the summed rewards, which stay when a player has left."""
    left = sum(cell is not None for cell in frame.targets)
    top, bottom = HEADER / 2 + 1, frame.extent[1] - FOOTER / 2
    words = [
        Text(x=MARGIN, y=top, words=f"Step {frame.step}", size=15, fill="ink", anchor="start"),
        Text(
            x=frame.extent[0] - MARGIN,
            y=top,
            words=f"{left} {look.left}",
            size=13,
            fill="pale",
            anchor="end",
        ),
    ]
    for seat, score in enumerate(frame.score):
        x = _score_x(frame, seat) + 11
        words.append(Text(x=x, y=bottom, words=f"{score:.4g}", size=13, fill="ink", anchor="start"))
    return words


def score_dots(frame: Frame) -> list[Shape]:
    """The players' colours below the board."""
    y = frame.extent[1] - FOOTER / 2
    return [
        disc(_score_x(frame, seat), y, 6, fill=SEATS[seat % len(SEATS)])
        for seat in range(len(frame.players))
    ]


def _score_x(frame: Frame, seat: int) -> float:
    room = frame.field_size[1] * CELL / len(frame.players)
    return MARGIN + seat * min(room, 84.0) + 8


def still(frame: Frame, look: Look) -> list[Shape]:
    """Everything of one frame."""
    shapes = background(frame)
    for number, (kind, cell) in enumerate(zip(look.targets, frame.targets, strict=True)):
        if cell is not None:
            shapes += moved(target(kind, _number(look, number)), centre(*cell))
    for seat, spot in enumerate(places(frame)):
        if spot is not None:
            shapes += moved(player(seat, frame.strengths[seat]), spot)
    return [*shapes, *labels(frame, look), *score_dots(frame)]


def _number(look: Look, index: int) -> int:
    """The number of a target among those of its kind, from 1."""
    return look.targets[: index + 1].count(look.targets[index])


def to_rgb(frame: Frame, look: Look, *, dark: bool = False) -> NDArray[np.uint8]:
    """An RGB array [height, width, 3]."""
    return look.style.rgb(still(frame, look), frame.extent, dark=dark)


def to_animated_svg(frames: Sequence[Frame], look: Look, *, seconds_per_step: float = 0.45) -> str:
    """A whole episode as one self-contained SVG that plays in a loop."""
    drawing.require_frames(frames)
    first, style = frames[0], look.style
    # The last frame stays for three steps before the loop begins again.
    clock = Clock(len(frames), len(frames) + 2, seconds_per_step)
    body = [style.elements(background(first))]
    for number, kind in enumerate(look.targets):
        cell = first.targets[number]
        if cell is not None:
            shapes = moved(target(kind, _number(look, number)), centre(*cell))
            shown = [frame.targets[number] is not None for frame in frames]
            body.append(clock.shown(style.elements(shapes), shown))
    paths = [places(frame) for frame in frames]
    for seat, strength in enumerate(first.strengths):
        path = [spots[seat] for spots in paths]
        if path[0] is not None:
            inner = style.elements(player(seat, strength))
            moving = _moving(clock, inner, _until_gone(path))
            body.append(clock.shown(moving, [spot is not None for spot in path]))
    body.append(style.elements(score_dots(first)))
    words = [labels(frame, look) for frame in frames]
    return style.document([*body, *clock.changing(style, words)], first.extent)


def _until_gone(path: Sequence[Point | None]) -> list[Point]:
    """A player that has left stays, unseen, where it was."""
    kept: list[Point] = []
    for spot in path:
        kept.append(spot if spot is not None else kept[-1])
    return kept


def _moving(clock: Clock, inner: str, path: Sequence[Point]) -> str:
    """Glides to each frame's place at the end of the step before it, then rests."""
    spots, ticks = [path[0]], [0.0]
    for i in range(1, len(path)):
        if path[i] != path[i - 1]:
            spots += [path[i - 1], path[i]]
            ticks += [i - 0.4, float(i)]
    return clock.along(inner, [*spots, path[-1]], [*ticks, clock.n_ticks])


def write_gif(
    path: Path, frames: Sequence[Frame], look: Look, *, seconds_per_step: float = 0.35
) -> None:
    """A whole episode as an animated GIF that plays in a loop."""
    pictures = [to_rgb(frame, look) for frame in frames]
    drawing.write_gif(path, pictures, seconds_per_step=seconds_per_step, rest=3, colours=96)
