"""A Predator-Prey situation as simple shapes, drawn alike by the SVG and the pixel renderer.

Predators are discs, prey are diamonds, obstacles are large plain discs: nothing is told by colour
alone. All have their true size; a diamond's inscribed circle is the prey's body.
"""

from __future__ import annotations

import math

from omg.envs.drawing import Box, Oval, Point, Polygon, Shape, Style, Text, disc, moved
from omg.envs.predator_prey.args import BORDER, BORDER_BEGIN, OBSTACLE_SIZE, PREDATOR, PREY, SIZE
from omg.envs.predator_prey.frame import PredatorPreyFrame

BOARD = 440.0
MARGIN = 18.0
HEADER = 40.0
FOOTER = 42.0
WIDTH, HEIGHT = BOARD + 2 * MARGIN, BOARD + HEADER + FOOTER
# One colour per predator, told apart by people with colour-vision deficiencies as well.
PREDATORS = ("#2f6fd0", "#b0489e", "#159a7a", "#7a5cd6", "#1d93b8", "#d04a5c", "#8c6d1f")
PREY_FILL, PREY_RIM, FLASH, FLASH_RIM, WHITE = "#ffd23f", "#3a2d00", "#fff3b0", "#d9480f", "#ffffff"
# Surroundings by role: light, dark.
THEME = {
    "card": ("#fbfaf6", "#20242c"),
    "board": ("#e4e6de", "#191d23"),
    "field": ("#f1f3ea", "#2a303a"),
    "rim": ("#cdd3c1", "#49525f"),
    "stone": ("#aeb4ab", "#555e6b"),
    "ink": ("#3a3f47", "#e4e7ec"),
    "pale": ("#868c92", "#98a1ae"),
}
TRAIL_OPACITY = 0.55
STYLE = Style("pp", "Predator-Prey", THEME)


def scale(frame: PredatorPreyFrame) -> float:
    """Pixels per unit of the game."""
    return BOARD / (2 * frame.reach)


def at(frame: PredatorPreyFrame, point: Point) -> Point:
    """Where a point of the game lies in the picture; up is up."""
    zoom = scale(frame)
    x = MARGIN + (frame.reach + point[0]) * zoom
    return x, HEADER + (frame.reach - point[1]) * zoom


def background(frame: PredatorPreyFrame) -> list[Shape]:
    """Card, field and obstacles, which stay the same during an episode."""
    shapes: list[Shape] = [
        Box(x=0, y=0, width=WIDTH, height=HEIGHT, fill="card", radius=14),
        Box(x=MARGIN, y=HEADER, width=BOARD, height=BOARD, fill="board", radius=4),
        _square(frame, BORDER, fill="field"),
        _square(frame, BORDER_BEGIN, fill="none", rim="rim"),
    ]
    for point in frame.obstacles:
        x, y = at(frame, point)
        radius = OBSTACLE_SIZE * scale(frame)
        shapes.append(disc(x, y, radius, fill="stone", rim="pale"))
    return shapes


def _square(frame: PredatorPreyFrame, half: float, *, fill: str, rim: str = "") -> Box:
    x, y = at(frame, (-half, half))
    side = 2 * half * scale(frame)
    return Box(x=x, y=y, width=side, height=side, fill=fill, rim=rim)


def colour(frame: PredatorPreyFrame, seat: int) -> str:
    """A seat's colour."""
    return PREDATORS[seat % len(PREDATORS)] if seat < len(frame.predators) else PREY_FILL


def agent(frame: PredatorPreyFrame, seat: int) -> list[Shape]:
    """An agent around (0, 0) with its seat's number."""
    zoom = scale(frame)
    if seat < len(frame.predators):
        radius, ink = SIZE[PREDATOR] * zoom, WHITE
        body: Shape = disc(0, 0, radius, fill=colour(frame, seat), rim=WHITE)
    else:
        radius, ink = SIZE[PREY] * math.sqrt(2) * zoom, PREY_RIM
        body = _diamond(0, 0, radius)
    return [body, Text(x=0, y=0, words=str(seat), size=0.95 * radius, fill=ink)]


def _diamond(x: float, y: float, radius: float) -> Polygon:
    corners = ((0.0, -radius), (radius, 0.0), (0.0, radius), (-radius, 0.0))
    return Polygon(x=x, y=y, corners=corners, fill=PREY_FILL, rim=PREY_RIM)


def flash(frame: PredatorPreyFrame) -> list[Shape]:
    """A star around (0, 0), behind prey that is touched."""
    outer, inner = 0.17 * scale(frame), 0.11 * scale(frame)
    corners = tuple(
        (radius * math.sin(k * math.pi / 12), -radius * math.cos(k * math.pi / 12))
        for k, radius in enumerate((outer, inner) * 12)
    )
    return [Polygon(x=0, y=0, corners=corners, fill=FLASH, rim=FLASH_RIM)]


def touched(frame: PredatorPreyFrame, seat: int) -> bool:
    """Whether the prey in a seat is in contact with a predator."""
    return any(prey == seat - len(frame.predators) for _, prey in frame.contacts)


def footprint(frame: PredatorPreyFrame, seat: int, point: Point, opacity: float) -> Oval:
    """One place of a trail."""
    x, y = at(frame, point)
    fill = colour(frame, seat) if seat < len(frame.predators) else "ink"
    return disc(x, y, 2.6, fill=fill, opacity=opacity)


def step_label(frame: PredatorPreyFrame) -> Text:
    """The step in the upper left corner."""
    y = HEADER / 2 + 1
    return Text(x=MARGIN, y=y, words=f"Step {frame.step}", size=15, fill="ink", anchor="start")


def contact_label(frame: PredatorPreyFrame) -> Text:
    """Contacts so far, in the upper right corner."""
    words = f"{frame.collisions} contact{'' if frame.collisions == 1 else 's'}"
    y = HEADER / 2 + 1
    return Text(x=WIDTH - MARGIN, y=y, words=words, size=13, fill="pale", anchor="end")


def score_marks(frame: PredatorPreyFrame) -> list[Shape]:
    """The agents' shapes and colours below the field."""
    y = HEIGHT - FOOTER / 2
    marks: list[Shape] = []
    for seat in range(len(frame.agents)):
        x = _score_x(frame, seat)
        if seat < len(frame.predators):
            marks.append(disc(x, y, 6, fill=colour(frame, seat)))
        else:
            marks.append(_diamond(x, y, 8))
    return marks


def score_labels(frame: PredatorPreyFrame) -> list[Text]:
    """The agents' summed rewards below the field."""
    y = HEIGHT - FOOTER / 2
    return [
        Text(
            x=_score_x(frame, seat) + 12,
            y=y,
            words=f"{score:.1f}" if abs(score) < 100 else f"{score:.0f}",
            size=13,
            fill="ink",
            anchor="start",
        )
        for seat, score in enumerate(frame.score)
    ]


def _score_x(frame: PredatorPreyFrame, seat: int) -> float:
    return MARGIN + 8 + seat * min(BOARD / len(frame.agents), 84.0)


def still(frame: PredatorPreyFrame) -> list[Shape]:
    """Everything of one frame."""
    shapes = background(frame)
    for seat, trail in enumerate(frame.trails):
        for age, point in enumerate(reversed(trail)):
            opacity = TRAIL_OPACITY * (1 - age / (len(trail) + 1))
            shapes.append(footprint(frame, seat, point, opacity))
    for seat, point in enumerate(frame.agents):
        if touched(frame, seat):
            shapes += moved(flash(frame), at(frame, point))
    for seat, point in enumerate(frame.agents):
        shapes += moved(agent(frame, seat), at(frame, point))
    return [
        *shapes,
        step_label(frame),
        contact_label(frame),
        *score_marks(frame),
        *score_labels(frame),
    ]
