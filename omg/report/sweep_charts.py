"""What the keys of a sweep do: a plot per key, and parallel coordinates of all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from omg.evaluation.metric_bounds import bounds, within
from omg.evaluation.statistics import mean_interval
from omg.experiment.series import Curve
from omg.report.axes import (
    Frame,
    drawing,
    nice_ticks,
    percent,
    plotted,
    stretched,
    text,
    tick_text,
)
from omg.report.html import Html, el, figure, note, number, section, slug
from omg.report.intervals import Interval, interval_plot
from omg.report.metrics import describe

MOST_VALUES = 12  # of a key that has a row per value; more become a scatter


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """One configuration with the mean of its seeds."""

    number: int
    settings: Mapping[str, Any]
    value: float | None
    low: float | None
    high: float | None
    seeds: tuple[float, ...]
    finished: int
    runs: int
    curves: tuple[Curve, ...]
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPage:
    """All that the page shows; `rows` the best first."""

    title: str
    metric: str
    mode: str
    keys: tuple[str, ...]
    logarithmic: frozenset[str]
    rows: tuple[SweepRow, ...]
    facts: tuple[tuple[str, str], ...]
    space: tuple[str, ...]
    common: str
    failures: tuple[tuple[str, str], ...] = ()
    stopped: int = 0
    shared_seeds: bool = True

    @property
    def tested(self) -> tuple[SweepRow, ...]:
        return tuple(row for row in self.rows if row.value is not None)


def words_of(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={shown(value)}" for key, value in settings.items())


def shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def keys_section(page: SweepPage) -> Html:
    if not page.tested:
        return section("keys", "Keys", note("There is nothing to compare."))
    intro = el(
        "p",
        "All runs with a value of the key count, whatever their other settings are: mean and 95 % "
        "t interval over these runs where there are three or more.",
    )
    return section("keys", "Keys", intro, [_key(page, key) for key in page.keys])


def _key(page: SweepPage, key: str) -> Html:
    values: dict[str, list[float]] = {}
    sortable: dict[str, Any] = {}
    for row in page.tested:
        value = shown(row.settings[key])
        values.setdefault(value, []).extend(row.seeds)
        sortable[value] = row.settings[key]
    name, title = f"key-{slug(key)}", f"{describe(page.metric).title} by {key}"
    if len(values) > MOST_VALUES and all(_is_number(v) for v in sortable.values()):
        return figure(_scatter(page, key, name, title), f"{title}: a point per run.")
    order = sorted(values, key=lambda value: _order(sortable[value]))
    rows = []
    for value in order:
        found = mean_interval(values[value])
        low, high = within(page.metric, found.low, found.high)
        each = tuple(values[value]) if low is None else ()
        rows.append(Interval(f"{key}={value}", 0, found.value, low, high, each=each))
    words = describe(page.metric).title
    plot = interval_plot(
        name, rows, title=title, zero=False, x_label=words, within=bounds(page.metric)
    )
    return figure(plot, f"{title}.")


def _order(value: Any) -> tuple[int, float, str]:
    return (0, float(value), "") if _is_number(value) else (1, 0.0, str(value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _scatter(page: SweepPage, key: str, name: str, title: str) -> Html:
    """A point per run over a numeric key."""
    points = [(float(row.settings[key]), v) for row in page.tested for v in row.seeds]
    scale = math.log10 if key in page.logarithmic else float
    xs, ys = [scale(x) for x, _ in points], [y for _, y in points]
    x_ticks = nice_ticks(min(xs), max(xs))
    y_ticks = nice_ticks(min(ys), max(ys), within=bounds(page.metric))
    frame = Frame(x_ticks[0], x_ticks[-1], y_ticks[0], y_ticks[-1])
    height = 260
    marks = [
        el("line", x1="0", x2="100%", y1=percent(frame.y(t)), y2=percent(frame.y(t)), class_="grid")
        for t in y_ticks
    ]
    marks += [
        text(tick_text(t, y_ticks), "0", percent(frame.y(t)), anchor="start", dy="-3")
        for t in y_ticks
    ]
    marks += [
        el("circle", cx=percent(frame.x(x)), cy=percent(frame.y(y)), r="4", class_="point c0")
        for x, y in zip(xs, ys, strict=True)
    ]
    back = (lambda t: 10.0**t) if key in page.logarithmic else float
    marks += [text(f"{back(t):.3g}", percent(frame.x(t)), height, dy="18") for t in x_ticks]
    marks.append(text(key, "50%", height, dy="38", class_="axis"))
    described = f"{title}: {len(points)} runs."
    return plotted(
        name,
        drawing(name, title, described, marks, height=height),
        title=title,
        columns=[key, page.metric],
        rows=points,
        kind="intervals",
    )


def parallel_coordinates(page: SweepPage) -> Html:
    """Parallel coordinates: an axis per key, and one for the score."""
    axes = [_axis(page, key) for key in page.keys]
    scores = [row.value for row in page.tested if row.value is not None]
    low, high = min(scores), max(scores)
    span = high - low or 1.0
    height, count = 300, len(axes) + 1
    lines = []
    for row in reversed(page.tested):
        shares = [axis[shown(row.settings[key])] for axis, key in zip(axes, page.keys, strict=True)]
        shares.append(((row.value or 0.0) - low) / span)
        points = [f"{1000 * i / (count - 1):g} {1000 - 1000 * y:g}" for i, y in enumerate(shares)]
        first = row is page.tested[0]
        style = None if first else "opacity:.35"
        lines.append(
            el(
                "path",
                d="M" + "L".join(points),
                class_="line c0" if first else "line c7",
                style=style,
            )
        )
    marks = [stretched(lines)]
    for i, name in enumerate((*page.keys, describe(page.metric).title)):
        x = percent(100 * i / (count - 1))
        anchor = "start" if i == 0 else "end" if i == count - 1 else "middle"
        marks.append(el("line", x1=x, x2=x, y1="0", y2="100%", class_="base"))
        marks.append(text(name, x, height, dy="20", anchor=anchor, class_="axis"))
        ticks = axes[i] if i < len(axes) else {number(low): 0.0, number(high): 1.0}
        marks += [
            text(words, x, percent(100 - 100 * share), dy="-4", anchor=anchor)
            for words, share in _few(ticks).items()
        ]
    title = "Settings and scores"
    described = (
        f"{title}: {len(page.tested)} configurations; best {words_of(page.tested[0].settings)}."
    )
    return plotted(
        "parallel",
        drawing("parallel", title, described, marks, height=height),
        title=title,
        columns=[*page.keys, page.metric],
        rows=[[*(shown(row.settings[k]) for k in page.keys), row.value] for row in page.tested],
        kind="intervals",
    )


def _few(ticks: Mapping[str, float]) -> dict[str, float]:
    """At most six of the values of an axis, with its ends."""
    order = sorted(ticks.items(), key=lambda pair: pair[1])
    if len(order) <= 6:
        return dict(order)
    keep = {round(i * (len(order) - 1) / 4) for i in range(5)}
    return {words: share for i, (words, share) in enumerate(order) if i in keep}


def _axis(page: SweepPage, key: str) -> dict[str, float]:
    """Where each value of a key lies on its axis, from 0 to 1."""
    values = {shown(row.settings[key]): row.settings[key] for row in page.tested}
    order = sorted(values, key=lambda value: _order(values[value]))
    if key in page.logarithmic or (len(values) > 2 and all(map(_is_number, values.values()))):
        scale = math.log10 if key in page.logarithmic else float
        places = np.array([scale(float(values[value])) for value in order])
    else:
        places = np.arange(len(order), dtype=float)
    span = float(places.max() - places.min()) or 1.0
    return {s: float((p - places.min()) / span) for s, p in zip(order, places, strict=True)}
