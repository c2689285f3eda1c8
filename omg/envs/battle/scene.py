"""What pictures of battles are made of.

Ours are discs, theirs are hexagons, each with its number; nothing is told by colour alone. Above a
unit stand its shield (thin) and its health, below it how long its weapon still waits (a medivac's
energy). Lines are attacks, crosses are graves, pale rings with a tie the places where units are
expected to be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from omg.envs.battle.frames import BattleFrame, UnitFrame
from omg.envs.battle.maps import CLIFF, SIDE
from omg.envs.battle.rules import Rules
from omg.envs.battle.units import HEAL
from omg.envs.drawing import (
    Box,
    Point,
    Polygon,
    Shape,
    Style,
    Text,
    disc,
    moved,
)

# Pixels of the board, at most, and of a cell, at most.
WIDEST, HIGHEST, LARGEST_CELL = 700.0, 480.0, 40.0
# Cells around the units of an episode, and how many cells a picture shows at least.
AROUND, LEAST = 2.0, 12.0
MARGIN, HEADER, FOOTER = 16.0, 40.0, 52.0
OURS, THEIRS, WHITE = "#2f6fd0", "#c8452e", "#ffffff"
HEALTH, SHIELD, WAITS, HEALS, FLASH, FLASH_RIM = (
    *("#3fa34d", "#3fb6d8", "#e0a21f", "#3fa34d"),
    *("#fff3b0", "#d9480f"),
)
GHOST = "#8a5cd6"
THEME = {
    "card": ("#fbfaf6", "#20242c"),
    "pit": ("#dcdfd4", "#15181d"),
    "cliff": ("#b9b4a4", "#4a4437"),
    "field": ("#f1f3ea", "#2a303a"),
    "rim": ("#cdd3c1", "#49525f"),
    "empty": ("#c6cabd", "#3a424e"),
    "grave": ("#a9aea3", "#5a636f"),
    "ink": ("#3a3f47", "#e4e7ec"),
    "pale": ("#868c92", "#98a1ae"),
}
STYLE = Style("battle", "Battle", THEME)


class BattleScene:
    """How the battles of one map are drawn: all of its ground, or where an episode is fought."""

    def __init__(self, rules: Rules, frames: Sequence[BattleFrame] = ()) -> None:
        self.rules = rules
        xs, ys = (rules.grid & 1).nonzero()
        left, right = float(xs.min() - 1), float(xs.max() + 2)
        low, top = float(ys.min() - 1), float(ys.max() + 2)
        if frames:
            seen = [(u.x, u.y) for f in frames for u in f.units if u.health > 0]
            seen += [place for f in frames for _, place in f.ghosts]
            left, right = _span([x for x, _ in seen], left, right)
            low, top = _span([y for _, y in seen], low, top)
        self._left, self._top = max(left, 0.0), min(top, float(SIDE))
        self._wide = min(right, SIDE) - self._left
        self._high = self._top - max(low, 0.0)
        self.zoom = min(WIDEST / self._wide, HIGHEST / self._high, LARGEST_CELL)
        self.size: Point = (
            self._wide * self.zoom + 2 * MARGIN,
            self._high * self.zoom + HEADER + FOOTER,
        )

    def at(self, x: float, y: float) -> Point:
        """Where a point of the map lies in the picture; north is up."""
        return MARGIN + (x - self._left) * self.zoom, HEADER + (self._top - y) * self.zoom

    # --- what there is to draw -------------------------------------------------------------

    def background(self) -> list[Shape]:
        """Card and ground."""
        width, height = self.size
        shapes: list[Shape] = [
            Box(x=0, y=0, width=width, height=height, fill="card", radius=14),
            Box(
                x=MARGIN,
                y=HEADER,
                width=self._wide * self.zoom,
                height=self._high * self.zoom,
                fill="pit",
                radius=4,
            ),
        ]
        for cells, fill in (
            ((self.rules.grid & 1) > 0, "field"),
            (self.rules.grid == CLIFF, "cliff"),
        ):
            shapes += self._cells(cells, fill)
        return shapes

    def _cells(self, cells: NDArray[np.bool_], fill: str) -> list[Shape]:
        """Columns of cells as boxes, equal neighbours as one."""
        shapes: list[Shape] = []
        runs: list[tuple[int, int, int, int]] = []
        bottom = round(self._top - self._high)
        shown = np.zeros_like(cells)
        window = (
            slice(round(self._left), round(self._left + self._wide)),
            slice(bottom, round(self._top)),
        )
        shown[window] = cells[window]
        for x in range(SIDE):
            edges = np.flatnonzero(np.diff(np.concatenate([[0], shown[x].astype(np.int8), [0]])))
            for low, high in edges.reshape(-1, 2).tolist():
                if runs and runs[-1][1:] == (x, low, high):
                    runs[-1] = (runs[-1][0], x + 1, low, high)
                else:
                    runs.append((x, x + 1, low, high))
        for first, last, low, high in runs:
            x0, y0 = self.at(first, high)
            size = (last - first) * self.zoom, (high - low) * self.zoom
            shapes.append(Box(x=x0, y=y0, width=size[0], height=size[1], fill=fill))
        return shapes

    def is_ours(self, unit: int) -> bool:
        """Whether a unit is on our side."""
        return unit < self.rules.n_allies

    def colour(self, unit: int) -> str:
        """A side's colour."""
        return OURS if self.is_ours(unit) else THEIRS

    def radius(self, unit: int) -> float:
        """Of a unit's body in the picture."""
        return max(float(self.rules.radius[unit]) * self.zoom, 7.0)

    def body(self, unit: int) -> list[Shape]:
        """A unit around (0, 0) with its number."""
        radius, colour = self.radius(unit), self.colour(unit)
        number = unit if self.is_ours(unit) else unit - self.rules.n_allies
        shape: Shape = disc(0, 0, radius, fill=colour, rim=WHITE)
        if not self.is_ours(unit):
            turns = [k * math.pi / 3 for k in range(6)]
            corners = tuple((1.1 * radius * math.cos(t), 1.1 * radius * math.sin(t)) for t in turns)
            shape = Polygon(x=0, y=0, corners=corners, fill=colour, rim=WHITE)
        size = min(1.05 * radius, 16.0)
        return [shape, Text(x=0, y=0, words=str(number), size=size, fill=WHITE)]

    def bars(self, unit: int, state: UnitFrame) -> list[tuple[Box, float, str]]:
        """Empty bars around (0, 0), the share that is full, and in which colour: shield, health,
        weapon."""
        radius = self.radius(unit)
        wide = 2 * radius + 2
        top = -radius - 7.5
        bars = []
        if state.shield >= 0:
            bars.append((_bar(wide, top - 3.5, 2.5), state.shield, SHIELD))
        bars.append((_bar(wide, top, 4), state.health, HEALTH))
        if self.rules.n_seats > unit:  # the state does not tell the weapons of scripted units
            bars.append((_bar(wide, radius + 3.5, 2.5), state.waits, WAITS))
        return bars

    def attack(self, frame: BattleFrame, pair: tuple[int, int]) -> Shape:
        """A thin line from one unit to another."""
        one, other = (self._spot(frame, unit) for unit in pair)
        heals = self.rules.weapon[pair[0]] == HEAL
        return _line(one, other, 1.3, HEALS if heals else self.colour(pair[0]))

    def _spot(self, frame: BattleFrame, unit: int) -> Point:
        graves = dict(frame.graves)
        state = frame.units[unit]
        place = graves.get(unit, (state.x, state.y)) if state.health <= 0 else (state.x, state.y)
        return self.at(*place)

    def grave(self, unit: int, place: Point) -> list[Shape]:
        """A cross where a unit fell."""
        x, y = self.at(*place)
        arm = 0.6 * self.radius(unit)
        return [
            _line((x - arm, y - arm), (x + arm, y + arm), 1.6, "grave"),
            _line((x - arm, y + arm), (x + arm, y - arm), 1.6, "grave"),
        ]

    def flash(self, unit: int, place: Point) -> Shape:
        """A star where a unit has just died."""
        outer, inner = 1.7 * self.radius(unit), 0.8 * self.radius(unit)
        corners = tuple(
            (r * math.sin(k * math.pi / 8), -r * math.cos(k * math.pi / 8))
            for k, r in enumerate((outer, inner) * 8)
        )
        x, y = self.at(*place)
        return Polygon(x=x, y=y, corners=corners, fill=FLASH, rim=FLASH_RIM)

    def ghost(self, frame: BattleFrame, unit: int, place: Point) -> list[Shape]:
        """Where a unit is expected: a pale body with its number, tied to where it is."""
        x, y = self.at(*place)
        radius = self.radius(unit)
        number = unit if self.is_ours(unit) else unit - self.rules.n_allies
        return [
            _line(self._spot(frame, unit), (x, y), 0.7, GHOST),
            disc(x, y, radius, fill=GHOST, rim=GHOST, opacity=0.4),
            Text(x=x, y=y, words=str(number), size=min(radius, 14.0), fill="ink"),
        ]

    def labels(self, frame: BattleFrame) -> list[Text]:
        """The step, who is left, and the rewards so far."""
        width, height = self.size
        top, bottom = HEADER / 2 + 1, height - FOOTER / 2 + 9
        left = [0, 0]
        for unit, state in enumerate(frame.units):
            left[not self.is_ours(unit)] += state.health > 0
        words = f"{left[0]} of {self.rules.n_allies} against {left[1]} of {self.rules.n_enemies}"
        score = "  ".join(
            f"{name} {value:.1f}"
            for name, value in zip(("ours", "theirs"), frame.score, strict=False)
        )
        return [
            Text(x=MARGIN, y=top, words=f"Step {frame.step}", size=15, fill="ink", anchor="start"),
            Text(x=width - MARGIN, y=top, words=words, size=13, fill="pale", anchor="end"),
            Text(
                x=width - MARGIN,
                y=bottom,
                words=f"return: {score}" if score else "",
                size=13,
                fill="ink",
                anchor="end",
            ),
        ]

    def legend(self) -> list[Shape]:
        """Which numbers are what, for both sides."""
        rules, height = self.rules, self.size[1]
        shapes: list[Shape] = []
        for row, names in enumerate((rules.map.allies, rules.map.enemies)):
            y = height - FOOTER + 16 + 19 * row
            groups = []
            for name in dict.fromkeys(names):
                low = names.index(name)
                high = low + names.count(name) - 1
                numbers = f"{low}–{high}" if high > low else f"{low}"
                groups.append(f"{numbers} {name.replace('_', ' ')}")
            mark = [disc(0, 0, 6, fill=OURS)] if row == 0 else [self._mark()]
            shapes += moved(mark, (MARGIN + 7, y))
            shapes.append(
                Text(
                    x=MARGIN + 19, y=y, words=", ".join(groups), size=12, fill="ink", anchor="start"
                )
            )
        return shapes

    def _mark(self) -> Shape:
        turns = [k * math.pi / 3 for k in range(6)]
        corners = tuple((7 * math.cos(t), 7 * math.sin(t)) for t in turns)
        return Polygon(x=0, y=0, corners=corners, fill=THEIRS)

    def still(self, frame: BattleFrame) -> list[Shape]:
        """Everything of one frame."""
        shapes = [*self.background(), *self.legend()]
        for unit, place in frame.graves:
            shapes += self.grave(unit, place)
        for unit in frame.deaths:
            shapes.append(self.flash(unit, dict(frame.graves)[unit]))
        for unit, place in frame.ghosts:
            shapes += self.ghost(frame, unit, place)
        shapes += [self.attack(frame, pair) for pair in frame.attacks]
        living = [(unit, state) for unit, state in enumerate(frame.units) if state.health > 0]
        for unit, state in living:
            shapes += moved(self.body(unit), self.at(state.x, state.y))
        for unit, state in living:
            for empty, share, colour in self.bars(unit, state):
                full = _filled(empty, share, colour)
                shapes += moved([empty, full], self.at(state.x, state.y))
        return [*shapes, *(label for label in self.labels(frame) if label.words)]


def _span(values: Sequence[float], low: float, high: float) -> tuple[float, float]:
    """Whole cells around the values, no more than from low to high, no fewer than LEAST."""
    first, last = min(values) - AROUND, max(values) + AROUND
    missing = max(LEAST - (last - first), 0.0) / 2
    return math.floor(max(first - missing, low)), math.ceil(min(last + missing, high))


def _bar(width: float, y: float, height: float) -> Box:
    return Box(x=-width / 2, y=y, width=width, height=height, fill="empty", radius=1)


def _filled(empty: Box, share: float, colour: str) -> Box:
    return Box(
        x=empty.x,
        y=empty.y,
        width=max(empty.width * share, 0.01),
        height=empty.height,
        fill=colour,
        radius=1,
    )


def _line(one: Point, other: Point, half: float, fill: str) -> Polygon:
    """A straight line as a thin polygon."""
    dx, dy = other[0] - one[0], other[1] - one[1]
    length = math.hypot(dx, dy) or 1.0
    nx, ny = -dy / length * half, dx / length * half
    corners = ((nx, ny), (dx + nx, dy + ny), (dx - nx, dy - ny), (-nx, -ny))
    return Polygon(x=one[0], y=one[1], corners=corners, fill=fill)
