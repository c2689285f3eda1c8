"""Pictures of the foraging game: RGB arrays, SVG, and whole episodes as animated SVG or GIF."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

from omg.envs.foraging import scene
from omg.envs.foraging.frame import ForagingFrame
from omg.envs.foraging.scene import THEME, Oval, Shape, Text
from omg.types import OmgError

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

# Drawn larger and shrunk, which smooths the edges.
_OVERSAMPLING = 3
_FONT = "ui-sans-serif, system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif"


def to_rgb(frame: ForagingFrame, *, dark: bool = False, scale: float = 1.0) -> NDArray[np.uint8]:
    """An RGB array [height, width, 3]."""
    from PIL import Image, ImageDraw

    width, height = (round(side * scale) for side in scene.extent(frame))
    zoom = _OVERSAMPLING * scale
    card = THEME["card"][dark]
    image = Image.new("RGB", (width * _OVERSAMPLING, height * _OVERSAMPLING), card)
    draw = ImageDraw.Draw(image)
    anchors = {"start": "lm", "middle": "mm", "end": "rm"}
    for shape in scene.still(frame):
        fill = _colour(shape.fill, dark=dark)
        x, y = shape.x * zoom, shape.y * zoom
        if isinstance(shape, Text):
            font = _font(round(shape.size * zoom))
            draw.text((x, y), shape.words, font=font, fill=fill, anchor=anchors[shape.anchor])
            continue
        rim = _colour(shape.rim, dark=dark) if shape.rim else None
        line = round(2 * zoom) if rim else 0
        if isinstance(shape, Oval):
            rx, ry = shape.rx * zoom, shape.ry * zoom
            draw.ellipse((x - rx, y - ry, x + rx, y + ry), fill=fill, outline=rim, width=line)
        else:
            ends = (x, y, x + shape.width * zoom, y + shape.height * zoom)
            draw.rounded_rectangle(ends, shape.radius * zoom, fill=fill, outline=rim, width=line)
    return np.asarray(image.resize((width, height), Image.Resampling.LANCZOS))


def to_svg(frame: ForagingFrame) -> str:
    """One picture that follows the reader's light or dark setting."""
    return _document(frame, [_element(shape) for shape in scene.still(frame)])


def to_animated_svg(frames: Sequence[ForagingFrame], *, seconds_per_step: float = 0.45) -> str:
    """A whole episode as one self-contained SVG that plays in a loop."""
    if not frames:
        raise OmgError("There is nothing to animate: the episode has no frames.")
    first = frames[0]
    # The last frame stays for three steps before the loop begins again.
    clock = _Clock(len(frames), len(frames) + 2, seconds_per_step)
    body = [_element(shape) for shape in scene.background(first)]
    for row, col, level in first.foods:
        at = scene.centre(row, col)
        shown = [any(food[:2] == (row, col) for food in frame.foods) for frame in frames]
        body.append(clock.shown(_elements(scene.moved(scene.apple(level), at)), shown))
    paths = [scene.places(frame) for frame in frames]
    for seat, level in enumerate(first.player_levels):
        path = [spots[seat] for spots in paths]
        body.append(clock.moving(_elements(scene.player(seat, level)), path))
    body += [_element(shape) for shape in scene.score_dots(first)]
    labels = [[scene.step_label(f), scene.food_label(f), *scene.score_labels(f)] for f in frames]
    for column in zip(*labels, strict=True):
        for label in dict.fromkeys(column):
            body.append(clock.shown(_element(label), [other == label for other in column]))
    return _document(first, body)


def write_gif(
    path: Path,
    frames: Sequence[ForagingFrame],
    *,
    seconds_per_step: float = 0.35,
    dark: bool = False,
    scale: float = 1.0,
) -> None:
    """A whole episode as an animated GIF that plays in a loop."""
    from PIL import Image

    if not frames:
        raise OmgError("There is nothing to animate: the episode has no frames.")
    images = [Image.fromarray(to_rgb(frame, dark=dark, scale=scale)) for frame in frames]
    # One palette for all pictures, so that colours do not flicker.
    palette = images[0].quantize(96)
    images = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    step = round(1000 * seconds_per_step)
    data = io.BytesIO()
    images[0].save(
        data,
        format="GIF",
        save_all=True,
        append_images=images[1:],
        duration=[step] * (len(images) - 1) + [3 * step],
        loop=0,
    )
    path.write_bytes(data.getvalue())


class _Clock:
    """Timing shared by everything that changes in an animated SVG."""

    def __init__(self, n_frames: int, n_ticks: int, seconds_per_step: float) -> None:
        self.n_frames = n_frames
        self.n_ticks = n_ticks
        self.step = seconds_per_step
        self.timing = f'dur="{n_ticks * seconds_per_step:g}s" repeatCount="indefinite"'

    def shown(self, inner: str, when: Sequence[bool]) -> str:
        """Visible in some frames only; without animation, visible if it is in the first."""
        if all(when):
            return inner
        turns = [i for i in range(self.n_frames) if i == 0 or when[i] != when[i - 1]]
        values = ";".join("inline" if when[i] else "none" for i in turns)
        times = ";".join(f"{i / self.n_ticks:.5g}" for i in turns)
        return (
            f'<g display="{"inline" if when[0] else "none"}">'
            f'<animate attributeName="display" calcMode="discrete" values="{values}" '
            f'keyTimes="{times}" {self.timing}/>{inner}</g>'
        )

    def moving(self, inner: str, path: Sequence[tuple[float, float]]) -> str:
        """Glides to each frame's place at the end of the step before it, then rests."""
        values, times = [path[0]], [0.0]
        for i in range(1, self.n_frames):
            if path[i] != path[i - 1]:
                values += [path[i - 1], path[i]]
                times += [i - 0.4, float(i)]
        values.append(path[-1])
        times.append(float(self.n_ticks))
        joined = ";".join(f"{x:g},{y:g}" for x, y in values)
        keys = ";".join(f"{time / self.n_ticks:.5g}" for time in times)
        return (
            f'<g transform="translate({path[0][0]:g},{path[0][1]:g})">'
            f'<animateTransform attributeName="transform" type="translate" values="{joined}" '
            f'keyTimes="{keys}" {self.timing}/>{inner}</g>'
        )


def _document(frame: ForagingFrame, body: Sequence[str]) -> str:
    width, height = scene.extent(frame)
    schemes = [
        "".join(f".lbf-{role}{{fill:{both[dark]}}}" for role, both in THEME.items())
        + f".lbf-rim{{fill:none;stroke:{THEME['rim'][dark]}}}"
        for dark in (False, True)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="lbf" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img" aria-label="Level-based foraging">'
        f"<style>.lbf text{{font-family:{_FONT};font-weight:600;dominant-baseline:central}}"
        f"{schemes[0]}@media(prefers-color-scheme:dark){{{schemes[1]}}}</style>"
        f"{''.join(body)}</svg>"
    )


def _elements(shapes: Sequence[Shape]) -> str:
    return "".join(_element(shape) for shape in shapes)


def _element(shape: Shape) -> str:
    if isinstance(shape, Text):
        return (
            f'<text x="{shape.x:g}" y="{shape.y:g}" font-size="{shape.size:g}" '
            f'text-anchor="{shape.anchor}" {_paint(shape.fill)}>{escape(shape.words)}</text>'
        )
    paint = _paint(shape.rim if shape.rim in THEME else shape.fill)
    if shape.rim:
        stroke = "" if shape.rim in THEME else f' stroke="{shape.rim}"'
        paint += f'{stroke} stroke-width="2"'
    if isinstance(shape, Oval):
        radii = f'rx="{shape.rx:g}" ry="{shape.ry:g}"'
        return f'<ellipse cx="{shape.x:g}" cy="{shape.y:g}" {radii} {paint}/>'
    return (
        f'<rect x="{shape.x:g}" y="{shape.y:g}" width="{shape.width:g}" '
        f'height="{shape.height:g}" rx="{shape.radius:g}" {paint}/>'
    )


def _paint(fill: str) -> str:
    return f'class="lbf-{fill}"' if fill in THEME else f'fill="{fill}"'


def _colour(fill: str, *, dark: bool) -> str | None:
    return None if fill == "none" else THEME[fill][dark] if fill in THEME else fill


@lru_cache(maxsize=32)
def _font(size: int) -> FreeTypeFont:
    """The bold sans-serif face that comes with matplotlib."""
    from matplotlib import get_data_path
    from PIL import ImageFont

    face = Path(get_data_path()) / "fonts" / "ttf" / "DejaVuSans-Bold.ttf"
    return ImageFont.truetype(str(face), size)
