"""`sweep.html`: the best settings of a sweep, and what each key does, in the report's style."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from omg.evaluation.words import seed_notes
from omg.report.charts import line_chart, series_of
from omg.report.html import (
    Html,
    decimals,
    details,
    el,
    figure,
    interval,
    join,
    note,
    number,
    section,
    swatch,
    table,
)
from omg.report.looks import nth_look
from omg.report.metrics import describe
from omg.report.overview import navigation
from omg.report.page import POLICY, asset, script
from omg.report.sweep_charts import (
    SweepPage,
    SweepRow,
    keys_section,
    parallel_coordinates,
    shown,
    words_of,
)
from omg.storage.files import write_text

PARTS = (("best", "Best"), ("keys", "Keys"), ("all", "All settings"), ("runs", "Runs"))
CURVES = 6  # configurations with a curve


def write_sweep_page(path: Path, page: SweepPage) -> Path:
    """Write the page in one go."""
    write_text(path, render_sweep(page))
    return path


def render_sweep(page: SweepPage) -> str:
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", http_equiv="Content-Security-Policy", content=POLICY),
        el("title", f"{page.title} - sweep"),
        el("style", Html(asset("style.css"))),
    )
    parts = [_best(page), keys_section(page), _all(page), _runs(page)]
    made = time.strftime("%Y-%m-%d %H:%M")
    body = el(
        "body",
        el("a", "To the content", href="#content", class_="skip"),
        _header(page),
        navigation(list(PARTS)),
        el("main", parts, id="content"),
        el("footer", el("p", "Made ", made, " by ", el("code", "omg sweep"), ".")),
        script(),
    )
    return join(Html("<!doctype html>\n"), el("html", head, body, lang="en"), "\n")


def _header(page: SweepPage) -> Html:
    toggle = el(
        "button", "Dark", type="button", id="theme", aria_pressed="false", title="Light or dark"
    )
    facts = [el("div", el("dt", term), el("dd", value)) for term, value in page.facts]
    better = "higher" if page.mode == "max" else "lower"
    lede = f"Settings compared by {describe(page.metric).title.lower()} in the last test; "
    return el(
        "header",
        el("div", el("p", "Sweep", class_="eyebrow"), toggle, class_="topline"),
        el("h1", page.title),
        el("p", f"{lede}{better} is better.", class_="lede"),
        el("dl", facts, class_="facts"),
    )


def _best(page: SweepPage) -> Html:
    rows = page.tested
    if not rows:
        return section("best", "Best", note("No run was tested."))
    best = rows[0]
    places = decimals([best.value, best.low, best.high])
    score = f"{number(best.value, places)} {interval(best.low, best.high, places)}".strip()
    remarks = list(seed_notes([row.runs for row in rows])) if page.shared_seeds else []
    if best.finished < best.runs:
        remarks.append(f"{best.finished} of its {best.runs} seeds went to their end.")
    if best.low is not None and (close := _close(rows)):
        remarks.append(
            f"{close} other configurations have intervals that reach the best mean: more seeds "
            "would tell them apart."
        )
    shown = rows[:CURVES]
    series = [
        found
        for slot, row in enumerate(shown)
        if (found := series_of(words_of(row.settings), nth_look(slot), row.curves, page.metric))
    ]
    title = describe(page.metric).title
    chart = (
        figure(
            join(
                _legend(shown),
                line_chart("sweep-curves", series, title=title, metric=page.metric, y_label=title),
            ),
            f"Tests of the best {len(series)} configurations: mean over seeds"
            " with a 95 % t interval from three seeds on.",
        )
        if series
        else None
    )
    return section(
        "best",
        "Best",
        el("p", el("strong", words_of(best.settings)), f": {title.lower()} {score}."),
        el("p", "Train it again:"),
        _command(best.command),
        [note(words) for words in remarks],
        chart,
    )


def _command(words: str) -> Html:
    """A command to copy; long ones break."""
    return el("pre", el("code", words), style="white-space:pre-wrap;overflow-wrap:anywhere")


def _close(rows: Sequence[SweepRow]) -> int:
    best = rows[0].value
    return sum(
        row.low is not None and row.high is not None and row.low <= best <= row.high
        for row in rows[1:]
        if best is not None
    )


def _legend(rows: Sequence[SweepRow]) -> Html:
    items = [
        el("span", swatch(nth_look(slot)), " ", words_of(row.settings))
        for slot, row in enumerate(rows)
    ]
    return el("div", items, class_="legend")


def _all(page: SweepPage) -> Html:
    if len(page.tested) < 2 or len(page.keys) < 2:
        return section("all", "All settings", _table(page))
    caption = (
        "A line per configuration, from key to key to its score; the best is drawn strong. Keys "
        "with a logarithmic range have a logarithmic axis."
    )
    return section("all", "All settings", figure(parallel_coordinates(page), caption), _table(page))


def _table(page: SweepPage) -> Html:
    title = describe(page.metric).title
    places = decimals(v for row in page.tested for v in (row.value, row.low, row.high))
    rows = [
        [
            str(row.number),
            *(shown(row.settings[key]) for key in page.keys),
            number(row.value, places),
            interval(row.low, row.high, places) or ", ".join(number(v, places) for v in row.seeds),
            f"{row.finished} of {row.runs}",
        ]
        for row in page.rows
    ]
    head = ["Number", *page.keys, title, "95 % interval or seeds", "Finished"]
    numeric = range(1, len(page.keys) + 2)
    return table(head, rows, caption="All configurations, the best first", numeric=numeric)


def _runs(page: SweepPage) -> Html:
    failures = [note(f"{name} failed: {why}") for name, why in page.failures]
    stopped = [
        note(
            f"{page.stopped} runs were stopped early. A configuration with more seeds that went to "
            "their end stands before one with fewer."
        )
    ] * bool(page.stopped)
    commands = [[str(row.number), el("code", row.command)] for row in page.rows]
    return section(
        "runs",
        "Runs",
        el("p", "Searched: ", el("code", " ".join(page.space)), "; every run begins with:"),
        _command(page.common),
        failures,
        stopped,
        details(
            "Commands of all configurations",
            table(["Number", "Command"], commands, caption="Commands", wrap=[1]),
        ),
    )
