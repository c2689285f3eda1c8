"""Pictures of Predator-Prey: RGB arrays, SVG, and whole episodes as animated SVG or GIF."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from omg.envs import drawing
from omg.envs.drawing import Clock, Oval, require_frames
from omg.envs.predator_prey import scene
from omg.envs.predator_prey.frame import TRAIL, PredatorPreyFrame
from omg.envs.predator_prey.scene import STYLE

_SIZE = scene.WIDTH, scene.HEIGHT


def to_rgb(
    frame: PredatorPreyFrame, *, dark: bool = False, scale: float = 1.0
) -> NDArray[np.uint8]:
    """An RGB array [height, width, 3]."""
    return STYLE.rgb(scene.still(frame), _SIZE, dark=dark, scale=scale)


def to_svg(frame: PredatorPreyFrame) -> str:
    """One picture that follows the reader's light or dark setting."""
    return STYLE.document([STYLE.elements(scene.still(frame))], _SIZE)


def to_animated_svg(frames: Sequence[PredatorPreyFrame], *, seconds_per_step: float = 0.2) -> str:
    """A whole episode as one self-contained SVG that plays in a loop."""
    require_frames(frames)
    first = frames[0]
    seats = range(len(first.agents))
    # The last frame stays for five steps before the loop begins again.
    clock = Clock(len(frames), len(frames) + 4, seconds_per_step)
    body = [STYLE.elements(scene.background(first))]
    # Every frame's place at its tick, and the last one's until the end.
    ticks = [*range(len(frames)), clock.n_ticks]
    paths = [[scene.at(f, f.agents[seat]) for f in (*frames, frames[-1])] for seat in seats]
    for seat in seats:
        for number, frame in enumerate(frames[:-1]):
            mark = scene.footprint(first, seat, frame.agents[seat], scene.TRAIL_OPACITY)
            body.append(_fading(clock, mark, number))
    for seat in seats:
        when = [scene.touched(frame, seat) for frame in frames]
        if any(when):
            star = clock.shown(STYLE.elements(scene.flash(first)), when)
            body.append(clock.along(star, paths[seat], ticks))
    for seat in seats:
        body.append(clock.along(STYLE.elements(scene.agent(first, seat)), paths[seat], ticks))
    body.append(STYLE.elements(scene.score_marks(first)))
    labels = [[scene.step_label(f), scene.contact_label(f), *scene.score_labels(f)] for f in frames]
    return STYLE.document([*body, *clock.changing(STYLE, labels)], _SIZE)


def _fading(clock: Clock, mark: Oval, number: int) -> str:
    """A footprint of frame `number`: there when its owner has left, then paler and paler."""
    last = min(number + 1 + TRAIL, clock.n_ticks)
    left = mark.opacity * (1 - (last - number - 1) / TRAIL)
    values = ";".join(f"{value:.2g}" for value in (0, 0, mark.opacity, left, left))
    ticks = (0, number, number + 1, last, clock.n_ticks)
    return (
        f'<circle cx="{mark.x:.1f}" cy="{mark.y:.1f}" r="{mark.rx:g}" '
        f'{STYLE.paint(mark.fill)} opacity="0"><animate attributeName="opacity" values="{values}" '
        f'keyTimes="{clock.times(ticks)}" {clock.timing}/></circle>'
    )


def write_gif(
    path: Path,
    frames: Sequence[PredatorPreyFrame],
    *,
    seconds_per_step: float = 0.2,
    dark: bool = False,
    scale: float = 1.0,
) -> None:
    """A whole episode as an animated GIF that plays in a loop."""
    pictures = [to_rgb(frame, dark=dark, scale=scale) for frame in frames]
    # A flash brings its own colours.
    busiest = max(range(len(frames)), key=lambda i: len(frames[i].contacts), default=0)
    drawing.write_gif(
        path, pictures, seconds_per_step=seconds_per_step, rest=5, colours=128, busiest=busiest
    )
