"""What belongs beside means: the permutation test and performance profiles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omg.evaluation.crossplay_table import Crossplay, Permutation
from omg.evaluation.words import PERMUTATION
from omg.report.charts import Series, line_chart
from omg.report.data import ReportData
from omg.report.html import Html, el, figure, join, note, number, slug, swatch
from omg.report.intervals import Interval
from omg.report.metrics import describe
from omg.report.sides import side_by_side, side_name, splits_of


def permutation(data: ReportData, rows: Sequence[Permutation], lineup: str) -> Html:
    """What each method that infers something loses when it is fed another episode's inference."""
    heading = el("h3", "Permutation test")
    if not rows:
        return join(heading, note("It was not played: give omg crossplay --permute."))
    metric = data.played if any(r.metric == data.played for r in rows) else rows[0].metric
    marks = {
        split: [
            Interval(
                *(row.method, data.slot(row.method), row.difference, row.low, row.high),
                strong=row.low is not None and row.high is not None and row.low * row.high > 0,
                each=row.seeds if row.low is None else (),
            )
            for row in rows
            if (row.split, row.metric) == (split, metric)
        ]
        for split in splits_of(row.split for row in rows)
    }
    title = f"Change in {describe(metric).title.lower()} when permuted"
    charts = side_by_side(marks, f"permuted-{lineup}", title=title, zero=True)
    values = ", ".join(
        f"{r.method} {number(r.mean)} → {number(r.permuted)} ({side_name(r.split).lower()})"
        for r in rows
        if r.metric == metric
    )
    known = any(row.low is not None for row in rows)
    how = "Each agent is compared with itself" + ("; 95 % t interval over seeds." if known else ".")
    words = f"{PERMUTATION} {how} {values}."
    return join(heading, figure(charts, words))


def profiles(data: ReportData, crossplay: Crossplay, lineup: str) -> Html | None:
    """rliable's performance profiles of the chosen metric."""
    rows = [r for r in crossplay.profiles(data.played) if r["lineup"] == lineup]
    if not rows:
        return None
    title = describe(data.played).title
    better = "worse" if describe(data.played).about.startswith("lower") else "better"
    charts = []
    for split in splits_of(r["split"] for r in rows):
        series = []
        for method in data.methods:
            mine = [r for r in rows if (r["method"], r["split"]) == (method, split)]
            if mine:
                steps = np.array([r["threshold"] for r in mine])
                shares = np.array([r["share"] for r in mine])
                series.append(Series(method, data.slot(method), steps, shares))
        words = f"Share above a threshold, {side_name(split).lower()}"
        chart = line_chart(
            slug(f"profile-{lineup}-{split}"),
            series,
            title=words,
            metric="win_rate",
            x_label=f"{title.lower()}, threshold",
            tall=False,
            within=(0.0, 1.0),
        )
        charts.append(el("div", el("h4", side_name(split)), chart))
    names = [el("span", swatch(data.slot(m)), " ", m) for m in data.methods]
    caption = (
        f"Performance profiles: the share of all seeds and opponents with a higher "
        f"{title.lower()} than a threshold. A curve above another one everywhere is {better} "
        "for every threshold. All scores as rliable reads them: rliable.json."
    )
    content = join(el("div", names, class_="legend"), el("div", charts, class_="pair"))
    return join(el("h3", "Performance profiles"), figure(content, caption))
