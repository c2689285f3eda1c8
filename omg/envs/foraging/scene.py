"""A foraging situation as simple shapes, drawn alike by the SVG and the pixel renderer."""

from __future__ import annotations

from omg.envs.drawing import Box, Oval, Shape, Style, Text, moved
from omg.envs.foraging.frame import ForagingFrame

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
