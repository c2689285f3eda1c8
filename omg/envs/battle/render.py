"""Pictures of battles: RGB arrays, SVG, and whole episodes as moving SVG or GIF."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from omg.envs import drawing
from omg.envs.battle.frames import BattleFrame
from omg.envs.battle.scene import STYLE, BattleScene
from omg.envs.drawing import Box, Clock, Shape, require_frames

_REST = 6  # steps for which the last frame stays


class BattlePictures(BattleScene):
    """A scene as pixels, as SVG, still or moving."""

    def to_rgb(
        self, frame: BattleFrame, *, dark: bool = False, scale: float = 1.0
    ) -> NDArray[np.uint8]:
        """An RGB array [height, width, 3]."""
        return STYLE.rgb(self.still(frame), self.size, dark=dark, scale=scale)

    def to_svg(self, frame: BattleFrame) -> str:
        """One picture that follows the reader's light or dark setting."""
        return STYLE.document([STYLE.elements(self.still(frame))], self.size)

    def to_animated_svg(
        self, frames: Sequence[BattleFrame], *, seconds_per_step: float = 0.25
    ) -> str:
        """A whole episode as one self-contained SVG that plays in a loop."""
        require_frames(frames)
        clock = Clock(len(frames), len(frames) + _REST - 1, seconds_per_step)
        body = [STYLE.elements([*self.background(), *self.legend()])]
        body += self._fallen(clock, frames)
        body += self._passing(clock, frames)
        for part in (self._body, self._bars):
            for unit in range(self.rules.n_units):
                body.append(self._living(clock, frames, unit, part(clock, frames, unit)))
        labels = [self.labels(frame) for frame in frames]
        return STYLE.document([*body, *clock.changing(STYLE, labels)], self.size)

    def _fallen(self, clock: Clock, frames: Sequence[BattleFrame]) -> list[str]:
        """Graves from a death on, and the star in its step."""
        body = []
        for unit, place in frames[-1].graves:
            when = [unit in dict(frame.graves) for frame in frames]
            body.append(clock.shown(STYLE.elements(self.grave(unit, place)), when))
            dies = [unit in frame.deaths for frame in frames]
            body.append(clock.shown(STYLE.element(self.flash(unit, place)), dies))
        return body

    def _passing(self, clock: Clock, frames: Sequence[BattleFrame]) -> list[str]:
        """Attacks and ghosts, each as long as its frame."""
        body = []
        for number, frame in enumerate(frames):
            shapes: list[Shape] = []
            for unit, place in frame.ghosts:
                shapes += self.ghost(frame, unit, place)
            shapes += [self.attack(frame, pair) for pair in frame.attacks]
            if shapes:
                when = [other == number for other in range(len(frames))]
                body.append(clock.shown(STYLE.elements(shapes), when))
        return body

    def _body(self, clock: Clock, frames: Sequence[BattleFrame], unit: int) -> str:
        return STYLE.elements(self.body(unit))

    def _bars(self, clock: Clock, frames: Sequence[BattleFrame], unit: int) -> str:
        states = [frame.units[unit] for frame in frames]
        inner = ""
        for number, (empty, _, colour) in enumerate(self.bars(unit, states[0])):
            shares = [self.bars(unit, state)[number][1] for state in states]
            inner += STYLE.element(empty) + _growing(clock, empty, shares, colour)
        return inner

    def _living(self, clock: Clock, frames: Sequence[BattleFrame], unit: int, inner: str) -> str:
        """Something of a unit that glides with it from place to place, until it dies."""
        alive = [frame.units[unit].health > 0 for frame in frames]
        spots = [self._spot(frame, unit) for frame in (*frames, frames[-1])]
        ticks = [*range(len(frames)), clock.n_ticks]
        return clock.along(clock.shown(inner, alive), spots, ticks)

    def write_gif(
        self,
        path: Path,
        frames: Sequence[BattleFrame],
        *,
        seconds_per_step: float = 0.25,
        dark: bool = False,
        scale: float = 0.75,
    ) -> None:
        """A whole episode as an animated GIF that plays in a loop."""
        pictures = [self.to_rgb(frame, dark=dark, scale=scale) for frame in frames]
        busy = [2 * len(f.deaths) + len(f.attacks) + len(f.ghosts) for f in frames]
        drawing.write_gif(
            path,
            pictures,
            seconds_per_step=seconds_per_step,
            rest=_REST,
            colours=128,
            busiest=busy.index(max(busy)) if busy else 0,
        )


def _growing(clock: Clock, empty: Box, shares: Sequence[float], colour: str) -> str:
    """A bar that has each frame's width at its tick."""
    turns = [i for i in range(len(shares)) if i == 0 or shares[i] != shares[i - 1]]
    widths = ";".join(f"{max(empty.width * shares[i], 0):.3g}" for i in turns)
    first = f"{max(empty.width * shares[0], 0):.3g}"
    rect = (
        f'<rect x="{empty.x:g}" y="{empty.y:g}" width="{first}" height="{empty.height:g}" '
        f'rx="1" {STYLE.paint(colour)}'
    )
    if len(turns) == 1:
        return f"{rect}/>"
    return (
        f'{rect}><animate attributeName="width" calcMode="discrete" values="{widths}" '
        f'keyTimes="{clock.times(turns)}" {clock.timing}/></rect>'
    )
