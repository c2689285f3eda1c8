"""Pictures of the foraging game: RGB arrays, SVG, and whole episodes as animated SVG or GIF."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from omg.envs import drawing
from omg.envs.drawing import Clock, Point, require_frames
from omg.envs.foraging import scene
from omg.envs.foraging.frame import ForagingFrame
from omg.envs.foraging.scene import STYLE


def to_rgb(frame: ForagingFrame, *, dark: bool = False, scale: float = 1.0) -> NDArray[np.uint8]:
    """An RGB array [height, width, 3]."""
    return STYLE.rgb(scene.still(frame), scene.extent(frame), dark=dark, scale=scale)


def to_svg(frame: ForagingFrame) -> str:
    """One picture that follows the reader's light or dark setting."""
    return STYLE.document([STYLE.elements(scene.still(frame))], scene.extent(frame))


def to_animated_svg(frames: Sequence[ForagingFrame], *, seconds_per_step: float = 0.45) -> str:
    """A whole episode as one self-contained SVG that plays in a loop."""
    require_frames(frames)
    first = frames[0]
    # The last frame stays for three steps before the loop begins again.
    clock = Clock(len(frames), len(frames) + 2, seconds_per_step)
    body = [STYLE.elements(scene.background(first))]
    for row, col, level in first.foods:
        at = scene.centre(row, col)
        shown = [any(food[:2] == (row, col) for food in frame.foods) for frame in frames]
        body.append(clock.shown(STYLE.elements(drawing.moved(scene.apple(level), at)), shown))
    paths = [scene.places(frame) for frame in frames]
    for seat, level in enumerate(first.player_levels):
        path = [spots[seat] for spots in paths]
        body.append(_moving(clock, STYLE.elements(scene.player(seat, level)), path))
    body.append(STYLE.elements(scene.score_dots(first)))
    labels = [[scene.step_label(f), scene.food_label(f), *scene.score_labels(f)] for f in frames]
    return STYLE.document([*body, *clock.changing(STYLE, labels)], scene.extent(first))


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
