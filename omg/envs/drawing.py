"""Simple shapes, drawn alike as pixels and as SVG, still or moving: what all pictures share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

from omg.types import OmgError

if TYPE_CHECKING:
    from PIL import Image
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont

Point: TypeAlias = tuple[float, float]

# Drawn larger and shrunk, which smooths the edges.
_OVERSAMPLING = 3
_RIM = 2.0
_FONT = "ui-sans-serif, system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif"
_ANCHORS = {"start": "lm", "middle": "mm", "end": "rm"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A rectangle with its upper left corner at (x, y)."""

    x: float
    y: float
    width: float
    height: float
    fill: str  # a colour, or a role of the theme
    radius: float = 0.0
    rim: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Oval:
    """An ellipse around (x, y)."""

    x: float
    y: float
    rx: float
    ry: float
    fill: str
    rim: str = ""
    opacity: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Polygon:
    """Corners around (x, y)."""

    x: float
    y: float
    corners: tuple[Point, ...]
    fill: str
    rim: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """One line of bold text; y is its middle."""

    x: float
    y: float
    words: str
    size: float
    fill: str
    anchor: str = "middle"


Shape: TypeAlias = Box | Oval | Polygon | Text


def disc(
    x: float, y: float, radius: float, *, fill: str, rim: str = "", opacity: float = 1
) -> Oval:
    """A circle around (x, y)."""
    return Oval(x=x, y=y, rx=radius, ry=radius, fill=fill, rim=rim, opacity=opacity)


def moved(shapes: Sequence[Shape], by: Point) -> list[Shape]:
    """The shapes at another place."""
    return [replace(shape, x=shape.x + by[0], y=shape.y + by[1]) for shape in shapes]


@dataclass(frozen=True, slots=True)
class Style:
    """How the pictures of one game are painted."""

    prefix: str  # of its classes, so that two pictures in one page do not disturb each other
    label: str  # what a screen reader says
    theme: Mapping[str, tuple[str, str]]  # colours of the surroundings by role: light, dark

    # --- pixels ----------------------------------------------------------------------------

    def rgb(
        self, shapes: Sequence[Shape], size: Point, *, dark: bool = False, scale: float = 1.0
    ) -> NDArray[np.uint8]:
        """An RGB array [height, width, 3]."""
        from PIL import Image, ImageDraw

        width, height = (round(side * scale) for side in size)
        card = self.theme["card"][dark]
        image = Image.new("RGB", (width * _OVERSAMPLING, height * _OVERSAMPLING), card)
        draw = ImageDraw.Draw(image, "RGBA")
        for shape in shapes:
            self._draw(draw, shape, zoom=_OVERSAMPLING * scale, dark=dark)
        return np.asarray(image.resize((width, height), Image.Resampling.LANCZOS))

    def _draw(self, draw: ImageDraw, shape: Shape, *, zoom: float, dark: bool) -> None:
        fill, x, y = self._colour(shape.fill, dark=dark), shape.x * zoom, shape.y * zoom
        if isinstance(shape, Text):
            font = _font(round(shape.size * zoom))
            draw.text((x, y), shape.words, font=font, fill=fill, anchor=_ANCHORS[shape.anchor])
            return
        rim = self._colour(shape.rim, dark=dark) if shape.rim else None
        line = round(_RIM * zoom) if rim else 0
        if isinstance(shape, Oval):
            if fill is not None and shape.opacity < 1:
                fill = f"{fill}{round(255 * shape.opacity):02x}"
            rx, ry = shape.rx * zoom, shape.ry * zoom
            draw.ellipse((x - rx, y - ry, x + rx, y + ry), fill=fill, outline=rim, width=line)
        elif isinstance(shape, Polygon):
            corners = [(x + dx * zoom, y + dy * zoom) for dx, dy in shape.corners]
            draw.polygon(corners, fill=fill, outline=rim, width=line)
        else:
            ends = (x, y, x + shape.width * zoom, y + shape.height * zoom)
            draw.rounded_rectangle(ends, shape.radius * zoom, fill=fill, outline=rim, width=line)

    def _colour(self, fill: str, *, dark: bool) -> str | None:
        if fill == "none":
            return None
        return self.theme[fill][dark] if fill in self.theme else fill

    # --- SVG -------------------------------------------------------------------------------

    def document(self, body: Sequence[str], size: Point) -> str:
        """A self-contained SVG that follows the reader's light or dark setting."""
        name, (width, height) = self.prefix, size
        schemes = [
            "".join(
                f".{name}-{role}{{fill:{both[dark]}}}.{name}-edge-{role}{{stroke:{both[dark]}}}"
                for role, both in self.theme.items()
            )
            for dark in (False, True)
        ]
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="{name}" '
            f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" '
            f'role="img" aria-label="{self.label}">'
            f"<style>.{name} text{{font-family:{_FONT};font-weight:600;dominant-baseline:central}}"
            f"{schemes[0]}@media(prefers-color-scheme:dark){{{schemes[1]}}}</style>"
            f"{''.join(body)}</svg>"
        )

    def elements(self, shapes: Sequence[Shape]) -> str:
        """Shapes as SVG, in order."""
        return "".join(self.element(shape) for shape in shapes)

    def element(self, shape: Shape) -> str:
        """One shape as SVG."""
        if isinstance(shape, Text):
            place = f'x="{shape.x:g}" y="{shape.y:g}" text-anchor="{shape.anchor}"'
            size, words = f'font-size="{shape.size:.4g}"', escape(shape.words)
            return f"<text {place} {size} {self.paint(shape.fill)}>{words}</text>"
        paint = self.paint(shape.fill, shape.rim)
        if isinstance(shape, Oval):
            opacity = "" if shape.opacity == 1 else f' opacity="{shape.opacity:.2g}"'
            size = f'rx="{shape.rx:.4g}" ry="{shape.ry:.4g}"'
            return f'<ellipse cx="{shape.x:.5g}" cy="{shape.y:.5g}" {size} {paint}{opacity}/>'
        if isinstance(shape, Polygon):
            points = " ".join(f"{shape.x + dx:.1f},{shape.y + dy:.1f}" for dx, dy in shape.corners)
            return f'<polygon points="{points}" stroke-linejoin="round" {paint}/>'
        size = f'width="{shape.width:g}" height="{shape.height:g}" rx="{shape.radius:g}"'
        return f'<rect x="{shape.x:g}" y="{shape.y:g}" {size} {paint}/>'

    def paint(self, fill: str, rim: str = "") -> str:
        """Colours as attributes, roles of the theme as classes."""
        classes = [f"{self.prefix}-{fill}"] if fill in self.theme else []
        colours = "" if fill in self.theme else f' fill="{fill}"'
        if rim:
            classes += [f"{self.prefix}-edge-{rim}"] if rim in self.theme else []
            colours += "" if rim in self.theme else f' stroke="{rim}"'
            colours += f' stroke-width="{_RIM:g}"'
        named = f'class="{" ".join(classes)}"' if classes else ""
        return f"{named}{colours}".strip()


class Clock:
    """Timing shared by everything that changes in an animated SVG: n_ticks steps, the last of
    which show the last of n_frames frames."""

    def __init__(self, n_frames: int, n_ticks: int, seconds_per_step: float) -> None:
        self.n_frames = n_frames
        self.n_ticks = n_ticks
        self.timing = f'dur="{n_ticks * seconds_per_step:g}s" repeatCount="indefinite"'

    def times(self, ticks: Sequence[float]) -> str:
        """Moments as shares of the whole loop."""
        return ";".join(f"{tick / self.n_ticks:.5g}" for tick in ticks)

    def shown(self, inner: str, when: Sequence[bool]) -> str:
        """Visible in some frames only; without animation, visible if it is in the first."""
        if all(when):
            return inner
        turns = [i for i in range(self.n_frames) if i == 0 or when[i] != when[i - 1]]
        values = ";".join("inline" if when[i] else "none" for i in turns)
        return (
            f'<g display="{"inline" if when[0] else "none"}">'
            f'<animate attributeName="display" calcMode="discrete" values="{values}" '
            f'keyTimes="{self.times(turns)}" {self.timing}/>{inner}</g>'
        )

    def changing(self, style: Style, columns: Sequence[Sequence[Text]]) -> list[str]:
        """Labels, a row of them per frame, each as long as it says the same."""
        return [
            self.shown(style.element(label), [other == label for other in column])
            for column in zip(*columns, strict=True)
            for label in dict.fromkeys(column)
        ]

    def along(self, inner: str, places: Sequence[Point], ticks: Sequence[float]) -> str:
        """Glides from place to place, at each of them at its tick."""
        joined = ";".join(f"{x:.5g},{y:.5g}" for x, y in places)
        return (
            f'<g transform="translate({places[0][0]:.5g},{places[0][1]:.5g})">'
            f'<animateTransform attributeName="transform" type="translate" values="{joined}" '
            f'keyTimes="{self.times(ticks)}" {self.timing}/>{inner}</g>'
        )


def require_frames(frames: Sequence[object]) -> None:
    """Refuse an episode without pictures."""
    if not frames:
        raise OmgError("There is nothing to animate: the episode has no frames.")


def write_gif(
    path: Path,
    pictures: Sequence[NDArray[np.uint8]],
    *,
    seconds_per_step: float,
    rest: int,
    colours: int,
    busiest: int = 0,
) -> None:
    """Pictures as an animated GIF that plays in a loop; the last stays for `rest` steps. All share
    the palette of the `busiest`, so that colours do not flicker."""
    from PIL import Image

    require_frames(pictures)
    images = [Image.fromarray(picture) for picture in pictures]
    palette = images[busiest].quantize(colours)
    images = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    save_gif(path, images, seconds_per_step=seconds_per_step, rest=rest)


def save_gif(
    path: Path, images: Sequence[Image.Image], *, seconds_per_step: float, rest: int
) -> None:
    """Images as an animated GIF that appears in one go."""
    step = round(1000 * seconds_per_step)
    part = path.with_name(f".{path.name}.part")
    try:
        images[0].save(
            part,
            format="GIF",
            save_all=True,
            append_images=images[1:],
            duration=[step] * (len(images) - 1) + [rest * step],
            loop=0,
        )
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@lru_cache(maxsize=32)
def _font(size: int) -> FreeTypeFont:
    """The bold sans-serif face that comes with matplotlib."""
    from matplotlib import get_data_path
    from PIL import ImageFont

    face = Path(get_data_path()) / "fonts" / "ttf" / "DejaVuSans-Bold.ttf"
    return ImageFont.truetype(str(face), size)
