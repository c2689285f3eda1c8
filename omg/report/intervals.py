"""Points with intervals, a row each: means and differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from omg.report.axes import Frame, drawing, nice_ticks, percent, plotted, text, tick_text
from omg.report.html import Html, decimals, el, interval, number
from omg.report.looks import look_class

MAX_LINE = 44  # characters beside each other on a phone


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
    # Long words stand in two lines, so that they never run into each other on a phone.
    long = any(len(row.label) + len(row.words(places, sign=zero)) > MAX_LINE for row in rows)
    above = 2 if long else 1
    pitch = 30 + 16 * above
    height = pitch * len(rows) + 8
    marks = [
        el("line", x1=x, x2=x, y1="0", y2=height, class_="grid")
        for x in (percent(frame.x(t)) for t in ticks)
    ]
    if zero:
        at = percent(frame.x(0.0))
        marks.append(el("line", x1=at, x2=at, y1="0", y2=height, class_="zero"))
    for i, row in enumerate(rows):
        y = pitch * i + 16 + 16 * above
        strong = " strong" if row.strong else ""
        marks += [
            # Lines of the grid end where words stand: nothing is struck through.
            el("rect", x="-6", y=pitch * i - 2, width="104%", height=16 * above + 11, class_="gap"),
            text(row.label, "0", pitch * i + 18, anchor="start", class_=f"row-label{strong}"),
            text(
                row.words(places, sign=zero),
                "100%",
                y - 14,
                anchor="end",
                class_=f"row-value{strong}",
            ),
        ]
        colour = look_class(row.slot)
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
    return plotted(
        name,
        picture,
        title=title,
        columns=["label", "value", "low", "high", "seeds"],
        rows=[
            [
                row.label,
                *(None if v is None else float(f"{v:.9g}") for v in (row.point, row.low, row.high)),
                " ".join(f"{v:.9g}" for v in row.each),
            ]
            for row in rows
        ],
        kind="intervals",
    )
