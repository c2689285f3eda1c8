"""Axes, grid and frame of a chart, in inline SVG that keeps the size of its text at every width.

Positions are percentages of the plot; curves lie in an inner, stretched picture of 1000 x 1000
whose strokes do not stretch. Axis labels stand in the padding of the surrounding box.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from omg.report.html import Html, data_script, el, join, number, steps_text

Values: TypeAlias = NDArray[np.float64]


def nice_ticks(
    low: float,
    high: float,
    count: int = 5,
    *,
    within: tuple[float, float] = (-math.inf, math.inf),
) -> list[float]:
    """Round numbers that span a range, none outside of `within`."""
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        pad = abs(low) * 0.1 or 1.0
        low, high = low - pad, high + pad
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [float(f"{i * step:.10g}") for i in range(first, last + 1)]
    inside = [tick for tick in ticks if within[0] <= tick <= within[1]]
    return inside if len(inside) > 1 else ticks


def tick_text(value: float, ticks: Sequence[float]) -> str:
    """A tick with the decimals its axis needs."""
    if max(abs(t) for t in ticks) >= 10000:
        return steps_text(value).replace("-", "−")
    gap = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
    places = next((p for p in range(9) if abs(gap * 10**p - round(gap * 10**p)) < 1e-6), 8)
    return number(value, places)


@dataclass(frozen=True, slots=True)
class Frame:
    """Data coordinates to percentages, and to the inner picture's thousandths."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> float:
        return 100 * (value - self.x_low) / (self.x_high - self.x_low)

    def y(self, value: float) -> float:
        return 100 - 100 * (value - self.y_low) / (self.y_high - self.y_low)

    def points(self, steps: Values, values: Values) -> list[str]:
        return [
            f"{round(10 * self.x(float(x)), 1):g} {round(10 * self.y(float(y)), 1):g}"
            for x, y in zip(steps, values, strict=True)
        ]

    def path(self, steps: Values, values: Values) -> str:
        return "M" + "L".join(self.points(steps, values))

    def area(self, steps: Values, low: Values, high: Values) -> str:
        there, back = self.points(steps, high), self.points(steps[::-1], low[::-1])
        return "M" + "L".join([*there, *back]) + "Z"


def stretched(marks: Sequence[Html]) -> Html:
    """Marks of the inner picture."""
    return el(
        "svg",
        marks,
        viewBox="0 0 1000 1000",
        preserveAspectRatio="none",
        width="100%",
        height="100%",
        class_="marks",
    )


def drawing(
    name: str, title: str, described: str, marks: Sequence[Html], *, height: int | None = None
) -> Html:
    """The outer picture, with words for those who cannot see it."""
    return el(
        "svg",
        el("title", title, id=f"{name}-title"),
        el("desc", described, id=f"{name}-desc"),
        marks,
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        class_="picture",
        width="100%",
        height=height or "100%",
    )


def plotted(
    name: str,
    picture: Html,
    *,
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    kind: str = "",
) -> Html:
    """A picture in its box, with the numbers that it shows as a table for the script to save."""
    box = el("div", picture, class_=f"plot {kind}".strip(), data_chart=name)
    return join(
        box, data_script(f"{name}-data", {"title": title, "columns": columns, "rows": rows})
    )


def grid(frame: Frame, ticks: Sequence[float], *, shares: bool = False) -> list[Html]:
    """Horizontal lines with their values."""
    marks = []
    for tick in ticks:
        y = percent(frame.y(tick))
        words = f"{number(100 * tick, 0)} %" if shares else tick_text(tick, ticks)
        marks += [
            el("line", x1="0", x2="100%", y1=y, y2=y, class_="grid"),
            text(words, "-8", y, anchor="end", dy=".32em"),
        ]
    return marks


def x_axis(frame: Frame, label: str = "environment steps") -> list[Html]:
    """Environment steps, or something else, below the plot."""
    ticks = nice_ticks(frame.x_low, frame.x_high, 5)
    slack = 1e-4 * (frame.x_high - frame.x_low)
    inside = [t for t in ticks if frame.x_low - slack <= t <= frame.x_high + slack]
    marks = [text(steps_text(t), percent(frame.x(t)), "100%", dy="18") for t in inside]
    return [*marks, text(label, "50%", "100%", dy="37", class_="axis")]


def text(
    words: str,
    x: str,
    y: float | str,
    *,
    anchor: str = "middle",
    dy: str = "0",
    class_: str = "tick",
) -> Html:
    return el("text", words, x=x, y=y, dy=dy, text_anchor=anchor, class_=class_)


def percent(value: float) -> str:
    return f"{round(value, 2):g}%"
