"""Results where no games with others were played: the last tests of the runs."""

from __future__ import annotations

from collections.abc import Sequence

from omg.evaluation.metric_bounds import within
from omg.evaluation.statistics import mean_interval
from omg.evaluation.words import explained, seed_notes
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


def range_words(
    low: float | None, high: float | None, places: int, seeds: Sequence[float] = ()
) -> Html | None:
    """An interval in the second line of a cell, or each seed where there is none."""
    words = interval(low, high, places)
    if not words and len(seeds) > 1:
        words = f"seeds {', '.join(number(seed, places) for seed in seeds)}"
    return el("span", words, class_="range") if words else None


def last_tests(data: ReportData) -> Html:
    """A table of the last tests, with intervals over seeds where there are several."""
    known = [m.name for m in tested_metrics(data.metrics_known(), data.metric)]
    names = [*known[:1], *[name for name in known[1:] if played_name(name) in COLUMNS]]
    methods = [m for m in data.methods if data.runs_of(m)]
    if not names or not methods:
        return note("The runs hold no tests.")
    ends = {
        (m, n): [float(c.values[-1]) for c in data.curves_of(m, n)] for m in methods for n in names
    }
    places = {n: decimals(v for m in methods for v in ends[m, n]) for n in names}
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
        count = str(len(data.runs_of(method)))
        cells: list[Child] = [el("td", count, class_="num", data_label="Seeds")]
        for name in names:
            seeds, digits = ends[method, name], places[name]
            found = mean_interval(seeds) if seeds else None
            shown = el("span", number(found.value if found else None, digits))
            low, high = within(name, found.low, found.high) if found else (None, None)
            beside = range_words(low, high, digits, seeds)
            label = describe(name).title
            cells.append(el("td", shown, beside, class_="num", data_label=label))
        rows.append(el("tr", el("th", swatch(data.slot(method)), " ", method, scope="row"), cells))
    content = el(
        "table",
        el("caption", "Last tests per method", class_="hidden-caption"),
        el("thead", head),
        el("tbody", rows),
        class_="results cards",
    )
    counts = [len(data.runs_of(m)) for m in methods]
    caption = "The last test of every run: mean and 95 % t interval over seeds."
    words = " ".join([caption, *seed_notes(counts), *explained(names)])
    return figure(
        scroll_box(content, "Last tests per method"),
        join(words, " Made by ", el("code", "omg train"), "."),
    )
