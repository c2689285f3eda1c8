"""Pictures of a game of moving discs: RGB arrays, SVG, and whole episodes as moving SVG or GIF.

A frame is one situation as plain numbers. A game says what its bodies look like; the field, trails,
flashes, labels and motion are the same.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from omg.envs import drawing
from omg.envs.drawing import (
    Box,
    Clock,
    Oval,
    Point,
    Polygon,
    Shape,
    Style,
    Text,
    disc,
    moved,
    require_frames,
)
from omg.envs.particles.physics import Doubles
from omg.types import FloatArray

# How far a picture reaches from the centre, at least; more if somebody has left the field.
_LEAST_REACH = 1.12
TRAIL = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ParticleFrame:
    """Agents by seat, things, where agents were, and their summed rewards so far."""

    agents: tuple[Point, ...]
    things: tuple[Point, ...]
    contacts: tuple[tuple[int, int], ...] = ()  # who touches whom, where the game counts it
    reach: float = _LEAST_REACH
    step: int = 0
    score: tuple[float, ...] = ()
    collisions: int = 0
    trails: tuple[tuple[Point, ...], ...] = ()  # per seat, oldest first


F = TypeVar("F", bound=ParticleFrame)


def places_of(state: FloatArray, n_agents: int) -> tuple[Doubles, Doubles]:
    """Places [N, 2] of the agents and of the things that a state vector [S] describes."""
    agents = state[: 4 * n_agents].reshape(n_agents, 4)[:, :2].astype(np.float64)
    return agents, state[4 * n_agents :].reshape(-1, 2).astype(np.float64)


def points(array: Doubles) -> tuple[Point, ...]:
    """Rows (x, y) as plain numbers."""
    return tuple((float(x), float(y)) for x, y in array)


def reach_of(agents: Doubles, margin: float) -> float:
    """How far a picture must reach to show these agents with a margin around their centres."""
    return max(_LEAST_REACH, float(np.abs(agents).max()) + margin)


def whole_episode(
    states: FloatArray,
    rewards: FloatArray,
    *,
    n_agents: int,
    frame_of: Callable[[FloatArray, int, tuple[float, ...]], F],
) -> list[F]:
    """An episode's frames from its states [T + 1, S] and rewards [T, N], with `frame_of(state,
    step, score)`; a common reward [T, 1] is shown for everybody."""
    rewards = np.broadcast_to(rewards, (len(rewards), n_agents))
    start = np.zeros((1, n_agents))
    scores = np.concatenate([start, np.cumsum(rewards, axis=0, dtype=np.float64)])
    frames = [
        frame_of(state, step, tuple(score.tolist()))
        for step, (state, score) in enumerate(zip(states, scores, strict=True))
    ]
    counts = np.cumsum([len(frame.contacts) for frame in frames]).tolist()
    reach = max((frame.reach for frame in frames), default=_LEAST_REACH)
    return [
        replace(
            frame,
            reach=reach,
            collisions=counts[at],
            trails=tuple(
                tuple(past.agents[seat] for past in frames[max(0, at - TRAIL) : at])
                for seat in range(n_agents)
            ),
        )
        for at, frame in enumerate(frames)
    ]


BOARD = 440.0
MARGIN = 18.0
HEADER = 40.0
FOOTER = 42.0
WIDTH, HEIGHT = BOARD + 2 * MARGIN, BOARD + HEADER + FOOTER
SIZE = WIDTH, HEIGHT
# One colour per seat, told apart by people with colour-vision deficiencies as well.
COLOURS = ("#2f6fd0", "#b0489e", "#159a7a", "#7a5cd6", "#1d93b8", "#d04a5c", "#8c6d1f")
FLASH, FLASH_RIM, WHITE = "#fff3b0", "#d9480f", "#ffffff"
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
FIELD = 1.0  # half a side of the lighter square
# The last frame stays for so many steps before a loop begins again.
_REST = 5


class Scene(ABC, Generic[F]):
    """How a game's situations are drawn."""

    style: Style
    flash_radii: tuple[float, float]  # of the star behind agents in contact: outer, inner

    # --- what a game decides ---------------------------------------------------------------

    @abstractmethod
    def things(self, frame: F) -> list[Shape]:
        """What does not move, and lines on the field."""

    @abstractmethod
    def agent(self, frame: F, seat: int) -> list[Shape]:
        """An agent around (0, 0) with its seat's number."""

    @abstractmethod
    def touched(self, frame: F, seat: int) -> bool:
        """Whether a star flashes behind an agent."""

    @abstractmethod
    def counted(self, frame: F) -> str:
        """What stands in the upper right corner."""

    def lights(self, frame: F) -> list[tuple[list[Shape], bool]]:
        """Shapes on the field that are on or off, in the same order in every frame."""
        return []

    def colour(self, frame: F, seat: int) -> str:
        """The colour of a seat's trail and of its mark."""
        return COLOURS[seat % len(COLOURS)]

    def mark(self, frame: F, seat: int, x: float, y: float) -> Shape:
        """A seat's sign beside its score."""
        return disc(x, y, 6, fill=self.colour(frame, seat))

    # --- what all share --------------------------------------------------------------------

    def scale(self, frame: F) -> float:
        """Pixels per unit of the game."""
        return BOARD / (2 * frame.reach)

    def at(self, frame: F, point: Point) -> Point:
        """Where a point of the game lies in the picture; up is up."""
        zoom = self.scale(frame)
        x = MARGIN + (frame.reach + point[0]) * zoom
        return x, HEADER + (frame.reach - point[1]) * zoom

    def square(self, frame: F, half: float, *, fill: str, rim: str = "") -> Box:
        """A square around the centre."""
        x, y = self.at(frame, (-half, half))
        side = 2 * half * self.scale(frame)
        return Box(x=x, y=y, width=side, height=side, fill=fill, rim=rim)

    def background(self, frame: F) -> list[Shape]:
        """Card, field and things, which stay the same during an episode."""
        return [
            Box(x=0, y=0, width=WIDTH, height=HEIGHT, fill="card", radius=14),
            Box(x=MARGIN, y=HEADER, width=BOARD, height=BOARD, fill="board", radius=4),
            self.square(frame, FIELD, fill="field"),
            *self.things(frame),
        ]

    def flash(self, frame: F) -> list[Shape]:
        """A star around (0, 0)."""
        outer, inner = (radius * self.scale(frame) for radius in self.flash_radii)
        corners = tuple(
            (radius * math.sin(k * math.pi / 12), -radius * math.cos(k * math.pi / 12))
            for k, radius in enumerate((outer, inner) * 12)
        )
        return [Polygon(x=0, y=0, corners=corners, fill=FLASH, rim=FLASH_RIM)]

    def footprint(self, frame: F, seat: int, point: Point, opacity: float) -> Oval:
        """One place of a trail."""
        x, y = self.at(frame, point)
        return disc(x, y, 2.6, fill=self.colour(frame, seat), opacity=opacity)

    def labels(self, frame: F) -> list[Text]:
        """The step, what is counted, and the agents' summed rewards."""
        top, bottom = HEADER / 2 + 1, HEIGHT - FOOTER / 2
        step, counted = f"Step {frame.step}", self.counted(frame)
        return [
            Text(x=MARGIN, y=top, words=step, size=15, fill="ink", anchor="start"),
            Text(x=WIDTH - MARGIN, y=top, words=counted, size=13, fill="pale", anchor="end"),
            *(
                Text(
                    x=_score_x(frame, seat) + 12,
                    y=bottom,
                    words=f"{score:.1f}" if abs(score) < 100 else f"{score:.0f}",
                    size=13,
                    fill="ink",
                    anchor="start",
                )
                for seat, score in enumerate(frame.score)
            ),
        ]

    def marks(self, frame: F) -> list[Shape]:
        """The agents' signs below the field."""
        y = HEIGHT - FOOTER / 2
        seats = range(len(frame.agents))
        return [self.mark(frame, seat, _score_x(frame, seat), y) for seat in seats]

    def still(self, frame: F) -> list[Shape]:
        """Everything of one frame."""
        shapes = self.background(frame)
        for light, on in self.lights(frame):
            shapes += light if on else []
        for seat, trail in enumerate(frame.trails):
            for age, point in enumerate(reversed(trail)):
                opacity = TRAIL_OPACITY * (1 - age / (len(trail) + 1))
                shapes.append(self.footprint(frame, seat, point, opacity))
        for seat, point in enumerate(frame.agents):
            if self.touched(frame, seat):
                shapes += moved(self.flash(frame), self.at(frame, point))
        for seat, point in enumerate(frame.agents):
            shapes += moved(self.agent(frame, seat), self.at(frame, point))
        labels = self.labels(frame)
        return [*shapes, *labels[:2], *self.marks(frame), *labels[2:]]

    # --- pictures --------------------------------------------------------------------------

    def to_rgb(self, frame: F, *, dark: bool = False, scale: float = 1.0) -> NDArray[np.uint8]:
        """An RGB array [height, width, 3]."""
        return self.style.rgb(self.still(frame), SIZE, dark=dark, scale=scale)

    def to_svg(self, frame: F) -> str:
        """One picture that follows the reader's light or dark setting."""
        return self.style.document([self.style.elements(self.still(frame))], SIZE)

    def to_animated_svg(self, frames: Sequence[F], *, seconds_per_step: float = 0.2) -> str:
        """A whole episode as one self-contained SVG that plays in a loop."""
        require_frames(frames)
        first, style = frames[0], self.style
        seats = range(len(first.agents))
        clock = Clock(len(frames), len(frames) + _REST - 1, seconds_per_step)
        body = [style.elements(self.background(first))]
        for states in zip(*map(self.lights, frames), strict=True):
            when = [on for _, on in states]
            if any(when):
                body.append(clock.shown(style.elements(states[0][0]), when))
        # Every frame's place at its tick, and the last one's until the end.
        ticks = [*range(len(frames)), clock.n_ticks]
        paths = [[self.at(f, f.agents[seat]) for f in (*frames, frames[-1])] for seat in seats]
        for seat in seats:
            for number, frame in enumerate(frames[:-1]):
                mark = self.footprint(first, seat, frame.agents[seat], TRAIL_OPACITY)
                body.append(self._fading(clock, mark, number))
        for seat in seats:
            when = [self.touched(frame, seat) for frame in frames]
            if any(when):
                star = clock.shown(style.elements(self.flash(first)), when)
                body.append(clock.along(star, paths[seat], ticks))
        for seat in seats:
            body.append(clock.along(style.elements(self.agent(first, seat)), paths[seat], ticks))
        body.append(style.elements(self.marks(first)))
        labels = [self.labels(frame) for frame in frames]
        return style.document([*body, *clock.changing(style, labels)], SIZE)

    def _fading(self, clock: Clock, mark: Oval, number: int) -> str:
        """A footprint of frame `number`: there when its owner has left, then paler and paler."""
        last = min(number + 1 + TRAIL, clock.n_ticks)
        left = mark.opacity * (1 - (last - number - 1) / TRAIL)
        values = ";".join(f"{value:.2g}" for value in (0, 0, mark.opacity, left, left))
        times = clock.times((0, number, number + 1, last, clock.n_ticks))
        return (
            f'<circle cx="{mark.x:.1f}" cy="{mark.y:.1f}" r="{mark.rx:g}" '
            f'{self.style.paint(mark.fill)} opacity="0">'
            f'<animate attributeName="opacity" values="{values}" '
            f'keyTimes="{times}" {clock.timing}/></circle>'
        )

    def write_gif(
        self,
        path: Path,
        frames: Sequence[F],
        *,
        seconds_per_step: float = 0.2,
        dark: bool = False,
        scale: float = 1.0,
    ) -> None:
        """A whole episode as an animated GIF that plays in a loop."""
        pictures = [self.to_rgb(frame, dark=dark, scale=scale) for frame in frames]
        # Flashes and lights bring their own colours.
        extras = [len(f.contacts) + sum(on for _, on in self.lights(f)) for f in frames]
        drawing.write_gif(
            path,
            pictures,
            seconds_per_step=seconds_per_step,
            rest=_REST,
            colours=128,
            busiest=extras.index(max(extras)) if extras else 0,
        )


def _score_x(frame: F, seat: int) -> float:
    return MARGIN + 8 + seat * min(BOARD / len(frame.agents), 84.0)
