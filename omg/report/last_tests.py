"""Results where no games with others were played: the last tests of the runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omg.evaluation.curves import band
from omg.experiment.series import Curve
from omg.report.data import ReportData
from omg.report.html import (
    Child,
    Html,
    decimals,
    el,
    figure,
    interval,
    join,
    note,
    number,
    scroll_box,
    swatch,
)
from omg.report.metrics import describe, played_name, tested_metrics

# Beside the chosen metric; the others can be seen in the cross-play.
COLUMNS = ("discounted_return", "ep_length", "food_collected", "hit_ratio", "win_rate")


def range_words(low: float | None, high: float | None, places: int) -> Html | None:
    """An interval in the second line of a cell; nothing where there is none."""
    words = interval(low, high, places)
    return el("span", words, class_="range") if words else None


def last_tests(data: ReportData) -> Html:
    """A table of the last tests, with intervals over seeds where there are several."""
    known = [m.name for m in tested_metrics(data.metrics_known(), data.metric)]
    names = [*known[:1], *[name for name in known[1:] if played_name(name) in COLUMNS]]
    methods = [m for m in data.methods if data.runs_of(m)]
    if not names or not methods:
        return note("The runs hold no tests.")
    ends = {(m, n): _end(data.curves_of(m, n)) for m in methods for n in names}
    places = {n: decimals(ends[m, n][0] for m in methods) for n in names}
    head = el(
        "tr",
        [el("th", words, scope="col") for words in ("Method",)],
        [
            el("th", words, scope="col", class_="num")
            for words in ("Seeds", *(describe(n).title for n in names))
        ],
    )
    rows = []
    for method in methods:
        cells: list[Child] = [el("td", str(len(data.runs_of(method))), class_="num")]
        for name in names:
            mean, half = ends[method, name]
            low, high = (None, None) if mean is None or half is None else (mean - half, mean + half)
            shown = el("span", number(mean, places[name]))
            cells.append(el("td", shown, range_words(low, high, places[name]), class_="num"))
        rows.append(el("tr", el("th", swatch(data.slot(method)), " ", method, scope="row"), cells))
    content = el(
        "table",
        el("caption", "Last tests per method", class_="hidden-caption"),
        el("thead", head),
        el("tbody", rows),
        class_="results",
    )
    caption = "The last test of every run: mean and 95 % interval over seeds"
    if all(len(data.runs_of(m)) == 1 for m in methods):
        caption = "The last test of every run; one seed, so no interval"
    elif any(len(data.runs_of(m)) == 2 for m in methods):
        caption += " (two seeds make a very wide one)"
    return figure(
        scroll_box(content, "Last tests per method"),
        join(caption, ". Made by ", el("code", "omg train"), "."),
    )


def _end(curves: Sequence[Curve]) -> tuple[float | None, float | None]:
    """Mean of the seeds' last values, and half its interval where there are several."""
    if not curves:
        return None, None
    last = [Curve(np.zeros(1), curve.values[-1:]) for curve in curves]
    _, mean, spread = band(last)
    return float(mean[0]), float(spread[0]) if len(curves) > 1 else None
