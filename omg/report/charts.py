"""Charts: curves and shares."""

from __future__ import annotations

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
    plotted,
    stretched,
    text,
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
from omg.report.looks import look_class

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
            bands.append(_mark(frame.area(s.steps, *s.band), f"band {look_class(s.slot)}", s.slot))
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
        "ticks": y_ticks,
        "unit": "steps" if x_label == "environment steps" else x_label,
        "title": title,
        "series": [
            {
                "label": s.label,
                "slot": s.slot,
                "look": look_class(s.slot),
                "seeds": s.seeds,
                "steps": _rounded(s.steps, 9),
                "mean": _rounded(s.mean),
                "low": None if s.band is None else _rounded(s.band[0]),
                "high": None if s.band is None else _rounded(s.band[1]),
                "each": [_rounded(values) for values in s.each],
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
    rows = np.stack([steps, *shares], 1)
    return plotted(
        name,
        picture,
        title=title,
        columns=["steps", *(f"k{k + 1}" for k in range(len(shares)))],
        rows=[_rounded(row, 9) for row in rows],
    )


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
    picture = drawing(name, title, f"{title}: {words}.", [*bars, base])
    rows = [[k + 1, share] for k, share in enumerate(shares)]
    return plotted(name, picture, title=title, columns=["k", "share"], rows=rows, kind="bars")


def _dot(frame: Frame, s: Series) -> Html:
    at = {"cx": percent(frame.x(float(s.steps[0]))), "cy": percent(frame.y(float(s.mean[0])))}
    return el("circle", **at, r="4", class_=f"point {look_class(s.slot)}", data_slot=s.slot)


def _mark(path: str, classes: str, slot: int) -> Html:
    return el("path", d=path, class_=classes, data_slot=slot)


def _shade(k: int, count: int) -> str:
    """k = 1 in the full colour, later ones paler."""
    return f"--p:{round(100 - 78 * k / max(count - 1, 1))}%"


def _rounded(values: Values, digits: int = 6) -> list[float]:
    found = [float(f"{value:.{digits}g}") for value in values]
    return [int(value) if value.is_integer() else value for value in found]
