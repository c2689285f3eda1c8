"""Charts: curves, shares, intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from omg.evaluation.curves import band
from omg.experiment.series import Curve
from omg.report.axes import (
    Frame,
    Values,
    drawing,
    grid,
    nice_ticks,
    percent,
    stretched,
    text,
    tick_text,
    x_axis,
)
from omg.report.html import (
    Html,
    data_script,
    decimals,
    el,
    interval,
    join,
    line_class,
    number,
)

MAX_POINTS = 300


@dataclass(frozen=True, slots=True)
class Series:
    """A method's mean over seeds; `spread` is half a 95 % interval, None with one seed."""

    label: str
    slot: int
    steps: Values
    mean: Values
    spread: Values | None
    seeds: int


@dataclass(frozen=True, slots=True)
class Interval:
    """A row of an interval plot."""

    label: str
    slot: int
    point: float
    low: float | None
    high: float | None
    strong: bool = False  # its words in bold

    def ends(self) -> list[float]:
        return [v for v in (self.point, self.low, self.high) if v is not None]


def thinned(count: int, limit: int = MAX_POINTS) -> NDArray[np.int64]:
    """Indices of at most `limit` evenly spread points, with the first and the last."""
    if count <= limit:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, limit).round().astype(np.int64))


def series_of(label: str, slot: int, curves: Sequence[Curve]) -> Series | None:
    """The mean of some seeds' curves over the steps they share; None where they share none."""
    if not curves:
        return None
    steps, mean, spread = band(curves)
    if len(steps) == 0:
        return None
    keep = thinned(len(steps))
    seeds = len(curves)
    return Series(label, slot, steps[keep], mean[keep], spread[keep] if seeds > 1 else None, seeds)


def line_chart(
    name: str, series: Sequence[Series], *, title: str, y_label: str = "", tall: bool = True
) -> Html:
    """Curves over environment steps with a band where there are several seeds; a small one (not
    tall) stands under a heading that says what it shows."""
    lows = [s.mean - (0 if s.spread is None else s.spread) for s in series]
    highs = [s.mean + (0 if s.spread is None else s.spread) for s in series]
    y_ticks = nice_ticks(min(float(v.min()) for v in lows), max(float(v.max()) for v in highs))
    x_low = min(float(s.steps[0]) for s in series)
    x_high = max(float(s.steps[-1]) for s in series)
    if x_high == x_low:  # a single record
        x_low, x_high = (0.0, x_high) if x_high > 0 else (0.0, 1.0)
    frame = Frame(x_low, x_high, y_ticks[0], y_ticks[-1])
    bands, lines, dots = [], [], []
    for s, low, high in zip(series, lows, highs, strict=True):
        if s.spread is not None and len(s.steps) > 1:
            bands.append(_mark(frame.area(s.steps, low, high), f"band c{s.slot % 8}", s.slot))
        if len(s.steps) > 1:
            lines.append(_mark(frame.path(s.steps, s.mean), line_class(s.slot), s.slot))
        else:
            dots.append(_dot(frame, s))
    inner = stretched([*bands, *lines])
    described = "; ".join(
        f"{s.label} ends at {number(float(s.mean[-1]))}"
        + (f" ± {number(float(s.spread[-1]))}" if s.spread is not None else "")
        for s in series
    )
    hover = {
        "x": [frame.x_low, frame.x_high],
        "y": [frame.y_low, frame.y_high],
        "series": [
            {
                "label": s.label,
                "slot": s.slot,
                "steps": [int(x) for x in s.steps],
                "mean": _rounded(s.mean),
                "spread": None if s.spread is None else _rounded(s.spread),
            }
            for s in series
        ],
    }
    picture = drawing(
        name,
        title,
        f"{title} over environment steps. {described}.",
        [*grid(frame, y_ticks), *x_axis(frame), inner, *dots],
    )
    plot = el(
        "div",
        picture,
        class_="plot hover" + (" tall" if tall else ""),
        tabindex="0",
        role="group",
        aria_label=f"{title}: left and right arrow keys read values",
        data_chart=name,
    )
    head = el("div", y_label, class_="ylabel", aria_hidden="true") if tall else None
    return join(head, plot, data_script(f"{name}-data", hover))


def share_chart(name: str, steps: Values, shares: Sequence[Values], *, title: str) -> Html:
    """Shares of k = 1 … H stacked over training, k = 1 at the bottom."""
    frame = Frame(float(steps[0]), max(float(steps[-1]), float(steps[0]) + 1.0), 0.0, 1.0)
    below = np.zeros(len(steps))
    areas = []
    for k, share in enumerate(shares):
        above = below + share
        path = frame.area(steps, below, np.minimum(above, 1.0))
        areas.append(el("path", d=path, class_="share", style=_shade(k, len(shares))))
        below = above
    finals = ", ".join(f"k={k + 1}: {number(100 * v[-1], 0)} %" for k, v in enumerate(shares))
    picture = drawing(
        name,
        title,
        f"{title}. At the end {finals}.",
        [stretched(areas), *grid(frame, [0.0, 0.5, 1.0], shares=True), *x_axis(frame)],
    )
    return el("div", picture, class_="plot")


def share_bars(name: str, shares: Sequence[float], *, title: str) -> Html:
    """The last shares of k = 1 … H as bars with their values."""
    count = len(shares)
    top = max([*shares, 1e-9]) * 1.15
    bars = []
    for k, share in enumerate(shares):
        height = 100 * share / top
        left, width = 100 * (k + 0.14) / count, 72 / count
        middle = percent(100 * (k + 0.5) / count)
        bars += [
            el(
                "rect",
                x=percent(left),
                y=percent(100 - height),
                width=percent(width),
                height=percent(height),
                rx="2",
                class_="bar",
                style=_shade(k, count),
            ),
            text(number(100 * share, 0) + " %", middle, percent(100 - height), dy="-6"),
            text(f"k={k + 1}", middle, "100%", dy="18"),
        ]
    base = el("line", x1="0", x2="100%", y1="100%", y2="100%", class_="base")
    words = ", ".join(f"k={k + 1} {number(100 * v, 0)} %" for k, v in enumerate(shares))
    return el("div", drawing(name, title, f"{title}: {words}.", [*bars, base]), class_="plot bars")


def interval_plot(
    name: str,
    rows: Sequence[Interval],
    *,
    title: str,
    zero: bool,
    x_label: str,
    beside: Sequence[Interval] = (),
) -> Html:
    """Points with their intervals, a row each: its words above, the mark below. The axis spans
    the rows `beside` as well, those of a plot it is compared with."""
    ends = [v for row in (*rows, *beside) for v in row.ends()]
    ticks = nice_ticks(min([*ends, *[0.0] * zero]), max([*ends, *[0.0] * zero]), 4)
    frame = Frame(ticks[0], ticks[-1], 0.0, 1.0)
    places = decimals(ends)
    pitch = 46
    height = pitch * len(rows) + 8
    marks = [
        el("line", x1=x, x2=x, y1="0", y2=height, class_="grid")
        for x in (percent(frame.x(t)) for t in ticks)
    ]
    if zero:
        at = percent(frame.x(0.0))
        marks.append(el("line", x1=at, x2=at, y1="0", y2=height, class_="zero"))
    for i, row in enumerate(rows):
        y = pitch * i + 32
        strong = " strong" if row.strong else ""
        value = number(row.point, places, sign=zero)
        words = f"{value} {interval(row.low, row.high, places)}".strip()
        marks += [
            text(row.label, "0", y - 14, anchor="start", class_=f"row-label{strong}"),
            text(words, "100%", y - 14, anchor="end", class_=f"row-value{strong}"),
        ]
        colour = f"c{row.slot % 8}"
        if row.low is not None and row.high is not None:
            low, high = percent(frame.x(row.low)), percent(frame.x(row.high))
            marks.append(el("line", x1=low, x2=high, y1=y, y2=y, class_=f"whisker {colour}"))
        marks.append(
            el("circle", cx=percent(frame.x(row.point)), cy=y, r="5", class_=f"point {colour}")
        )
    marks += [text(tick_text(t, ticks), percent(frame.x(t)), height, dy="18") for t in ticks]
    marks.append(text(x_label, "50%", height, dy="38", class_="axis"))
    described = "; ".join(
        f"{row.label}: {number(row.point, places, sign=zero)} "
        f"{interval(row.low, row.high, places)}".strip()
        for row in rows
    )
    picture = drawing(name, title, f"{title}. {described}.", marks, height=height)
    return el("div", picture, class_="plot intervals")


def _dot(frame: Frame, s: Series) -> Html:
    at = {"cx": percent(frame.x(float(s.steps[0]))), "cy": percent(frame.y(float(s.mean[0])))}
    return el("circle", **at, r="4", class_=f"point c{s.slot % 8}", data_slot=s.slot)


def _mark(path: str, classes: str, slot: int) -> Html:
    return el("path", d=path, class_=classes, data_slot=slot)


def _shade(k: int, count: int) -> str:
    """k = 1 in the full colour, later ones paler."""
    return f"--p:{round(100 - 78 * k / max(count - 1, 1))}%"


def _rounded(values: Values) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
