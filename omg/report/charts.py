"""Charts: curves, shares, intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from omg.evaluation.curves import band, on_common_steps
from omg.evaluation.metric_bounds import bounds, clipped
from omg.evaluation.statistics import MIN_SEEDS
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
    """A method's mean over seeds with its 95 % interval, within what the metric can be; two seeds
    have none and are shown themselves (`each`)."""

    label: str
    slot: int
    steps: Values
    mean: Values
    band: tuple[Values, Values] | None = None
    each: tuple[Values, ...] = ()
    seeds: int = 1

    def words(self, at: int) -> str:
        """A value with what is known of its seeds."""
        if self.band is not None:
            low, high = (float(edge[at]) for edge in self.band)
            places = decimals([low, high])
            return f"{number(float(self.mean[at]), places)} {interval(low, high, places)}"
        each = ", ".join(number(float(values[at])) for values in self.each)
        return number(float(self.mean[at])) + (f" ({each})" if each else "")


@dataclass(frozen=True, slots=True)
class Interval:
    """A row of an interval plot."""

    label: str
    slot: int
    point: float
    low: float | None
    high: float | None
    strong: bool = False  # its words in bold
    each: tuple[float, ...] = ()  # seeds, where they are too few for an interval

    def ends(self) -> list[float]:
        return [v for v in (self.point, self.low, self.high, *self.each) if v is not None]

    def words(self, places: int, *, sign: bool) -> str:
        """The point with its interval, or with its seeds."""
        beside = interval(self.low, self.high, places)
        if len(self.each) > 1:
            beside = f"(seeds {', '.join(number(v, places) for v in self.each)})"
        return f"{number(self.point, places, sign=sign)} {beside}".strip()


def thinned(count: int, limit: int = MAX_POINTS) -> NDArray[np.int64]:
    """Indices of at most `limit` evenly spread points, with the first and the last."""
    if count <= limit:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, limit).round().astype(np.int64))


def series_of(label: str, slot: int, curves: Sequence[Curve], metric: str = "") -> Series | None:
    """The mean of some seeds' curves over the steps they share; None where they share none."""
    if not curves:
        return None
    steps, rows = on_common_steps(curves)
    if len(steps) == 0:
        return None
    keep = thinned(len(steps))
    _, mean, spread = band(curves)
    mean, seeds = mean[keep], len(curves)
    edges = clipped(metric, mean - spread[keep]), clipped(metric, mean + spread[keep])
    return Series(
        label,
        slot,
        steps[keep],
        mean,
        band=edges if seeds >= MIN_SEEDS else None,
        each=tuple(rows[:, keep]) if 1 < seeds < MIN_SEEDS else (),
        seeds=seeds,
    )


def line_chart(
    name: str,
    series: Sequence[Series],
    *,
    title: str,
    metric: str = "",
    y_label: str = "",
    x_label: str = "environment steps",
    tall: bool = True,
    within: tuple[float, float] | None = None,
) -> Html:
    """Curves over environment steps with a band from three seeds on, or each of two seeds; a small
    one (not tall) stands under a heading that says what it shows. `within`: ends of the y axis."""
    shown = [v for s in series for v in (s.mean, *(s.band or ()), *s.each)]
    ends = within or (min(float(v.min()) for v in shown), max(float(v.max()) for v in shown))
    y_ticks = nice_ticks(*ends, within=bounds(metric))
    x_low = min(float(s.steps[0]) for s in series)
    x_high = max(float(s.steps[-1]) for s in series)
    if x_high == x_low:  # a single record
        x_low, x_high = (0.0, x_high) if x_high > 0 else (0.0, 1.0)
    frame = Frame(x_low, x_high, y_ticks[0], y_ticks[-1])
    bands, lines, dots = [], [], []
    for s in series:
        if s.band is not None and len(s.steps) > 1:
            bands.append(_mark(frame.area(s.steps, *s.band), f"band c{s.slot % 8}", s.slot))
        if len(s.steps) > 1:
            each = f"{line_class(s.slot)} each"
            lines += [_mark(frame.path(s.steps, values), each, s.slot) for values in s.each]
        if len(s.steps) > 1:
            lines.append(_mark(frame.path(s.steps, s.mean), line_class(s.slot), s.slot))
        else:
            dots.append(_dot(frame, s))
    inner = stretched([*bands, *lines])
    described = "; ".join(f"{s.label} ends at {s.words(-1)}" for s in series)
    hover = {
        "x": [frame.x_low, frame.x_high],
        "y": [frame.y_low, frame.y_high],
        "unit": "steps" if x_label == "environment steps" else x_label,
        "series": [
            {
                "label": s.label,
                "slot": s.slot,
                "steps": _rounded(s.steps, 9),
                "mean": _rounded(s.mean),
                "low": None if s.band is None else _rounded(s.band[0]),
                "high": None if s.band is None else _rounded(s.band[1]),
            }
            for s in series
        ],
    }
    picture = drawing(
        name,
        title,
        f"{title} over {x_label}. {described}.",
        [*grid(frame, y_ticks), *x_axis(frame, x_label), inner, *dots],
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
    within: tuple[float, float] = (-math.inf, math.inf),
) -> Html:
    """Points with their intervals or seeds, a row each: its words above, the mark below. The axis
    spans the rows `beside` as well, those of a plot it is compared with."""
    ends = [v for row in (*rows, *beside) for v in row.ends()]
    ends_0 = [*ends, *[0.0] * zero]
    ticks = nice_ticks(min(ends_0), max(ends_0), 4, within=within)
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
        marks += [
            text(row.label, "0", y - 14, anchor="start", class_=f"row-label{strong}"),
            text(
                row.words(places, sign=zero),
                "100%",
                y - 14,
                anchor="end",
                class_=f"row-value{strong}",
            ),
        ]
        colour = f"c{row.slot % 8}"
        if row.low is not None and row.high is not None:
            low, high = percent(frame.x(row.low)), percent(frame.x(row.high))
            marks.append(el("line", x1=low, x2=high, y1=y, y2=y, class_=f"whisker {colour}"))
        marks += [
            el("circle", cx=percent(frame.x(seed)), cy=y, r="3", class_=f"seed {colour}")
            for seed in (row.each if len(row.each) > 1 else ())
        ]
        marks.append(
            el("circle", cx=percent(frame.x(row.point)), cy=y, r="5", class_=f"point {colour}")
        )
    marks += [text(tick_text(t, ticks), percent(frame.x(t)), height, dy="18") for t in ticks]
    marks.append(text(x_label, "50%", height, dy="38", class_="axis"))
    described = "; ".join(f"{row.label}: {row.words(places, sign=zero)}" for row in rows)
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


def _rounded(values: Values, digits: int = 4) -> list[float]:
    found = [float(f"{value:.{digits}g}") for value in values]
    return [int(value) if value.is_integer() else value for value in found]
