"""Several studies beside each other: the same methods in other games, or with other settings."""

from __future__ import annotations

from collections.abc import Sequence

from omg.evaluation.metric_bounds import bounds, within
from omg.evaluation.statistics import mean_interval
from omg.report.charts import Series, line_chart, series_of
from omg.report.data import ReportData, SideBySide
from omg.report.html import (
    Child,
    Html,
    decimals,
    el,
    figure,
    join,
    note,
    number,
    section,
    slug,
    swatch,
    table,
)
from omg.report.intervals import Interval, interval_plot
from omg.report.last_tests import range_words
from omg.report.methods import values_of
from omg.report.metrics import describe
from omg.report.sides import side_name, splits_of
from omg.report.training import method_buttons

LAST = "last"  # in the place of a side of the pool: the last tests of training


def lede(data: SideBySide) -> str:
    """What the page is about."""
    shared = [m for m in data.methods if all(m in s.methods for s in data.studies)]
    return (
        f"{len(data.studies)} studies side by side: {', '.join(data.names)}. {len(data.methods)} "
        f"methods, {len(shared)} of them in every study."
    )


def comparison(data: SideBySide) -> Html:
    """Results, curves and settings of all studies beside each other."""
    rows = [_rows(study) for study in data.studies]
    return section(
        "comparison",
        "Comparison",
        _table(data, rows),
        _intervals(data, rows),
        _curves(data),
        el("h3", "Settings that differ between the studies"),
        _settings(data),
    )


def _rows(study: ReportData) -> dict[str, dict[str, Interval]]:
    """Means of the chosen metric by side of the pool and method; those of the last tests where
    no games with others were played."""
    found: dict[str, dict[str, Interval]] = {}
    summaries = study.crossplay.summaries() if study.crossplay else []
    lineup = next((row.lineup for row in summaries), "")
    for row in summaries:
        if row.lineup == lineup and row.metric == study.played and row.mean is not None:
            each = row.seeds if row.mean_low is None else ()
            found.setdefault(row.split, {})[row.method] = Interval(
                *(row.method, study.slot(row.method), row.mean, row.mean_low, row.mean_high),
                each=each,
            )
    if found:
        return found
    for method in study.methods:
        ends = [float(c.values[-1]) for c in study.curves_of(method, study.metric)]
        if ends:
            mean = mean_interval(ends)
            low, high = within(study.metric, mean.low, mean.high)
            each = tuple(ends) if low is None else ()
            row_of = Interval(method, study.slot(method), mean.value, low, high, each=each)
            found.setdefault(LAST, {})[method] = row_of
    return found


def _side(split: str) -> str:
    return "Last tests" if split == LAST else side_name(split)


def _title(study: ReportData) -> str:
    return describe(study.played).title


def _one_metric(data: SideBySide) -> bool:
    return len({study.played for study in data.studies}) == 1


def _table(data: SideBySide, rows: Sequence[dict[str, dict[str, Interval]]]) -> Html:
    columns = [
        (name, study, split, found[split])
        for name, study, found in zip(data.names, data.studies, rows, strict=True)
        for split in splits_of(found)
    ]
    if not columns:
        return note("No study has results of the chosen metric.")
    head = [
        f"{name}: {_title(study).lower()}, {_side(split).lower()}"
        for name, study, split, _ in columns
    ]
    lines: list[Sequence[Child]] = [
        [join(swatch(data.looks[m]), " ", m), *(_cell(found, m) for *_, found in columns)]
        for m in data.methods
    ]
    content = table(
        ["Method", *head],
        lines,
        caption="Results of all studies",
        numeric=range(1, len(head) + 1),
    )
    caption = (
        "Mean of every method in every study, with a 95 % t interval over seeds, or each seed "
        "where there are fewer than three. Studies may differ in more than their names: see the "
        "settings below before comparing numbers."
    )
    return figure(content, caption)


def _cell(found: dict[str, Interval], method: str) -> Child:
    row = found.get(method)
    if row is None:
        return "–"
    places = decimals(v.point for v in found.values())
    return join(number(row.point, places), range_words(row.low, row.high, places, row.each))


def _intervals(data: SideBySide, rows: Sequence[dict[str, dict[str, Interval]]]) -> Html | None:
    same = _one_metric(data)
    parts: list[Child] = []
    for split in splits_of(split for found in rows for split in found):
        of_side = [found.get(split, {}) for found in rows]
        every = [row for found in of_side for row in found.values()]
        charts = [
            el(
                "div",
                el("h4", name),
                interval_plot(
                    slug(f"compared-{number_}-{split}"),
                    list(found.values()),
                    title=f"{name}: {_title(study).lower()}, {_side(split).lower()}",
                    zero=False,
                    x_label=_title(study).lower(),
                    beside=every if same else (),
                    within=bounds(study.played),
                ),
            )
            for number_, (name, study, found) in enumerate(
                zip(data.names, data.studies, of_side, strict=True), 1
            )
            if found
        ]
        parts += [el("h3", _side(split)), el("div", charts, class_="pair")]
    if not parts:
        return None
    axes = "on equal axes" if same else "each on its own axis, as their metrics differ"
    return figure(parts, f"Means and 95 % t intervals over seeds, {axes}.")


def _curves(data: SideBySide) -> Html | None:
    found: list[tuple[int, str, ReportData, list[Series]]] = []
    for number_, (name, study) in enumerate(zip(data.names, data.studies, strict=True), 1):
        metric = study.metric
        curves = [
            series_of(m, study.slot(m), study.curves_of(m, metric), metric) for m in study.methods
        ]
        series = [s for s in curves if s is not None]
        if series:
            found.append((number_, name, study, series))
    if not found:
        return None
    ends = [
        float(edge)
        for *_, series in found
        for s in series
        for values in (s.mean, *(s.band or ()), *s.each)
        for edge in (values.min(), values.max())
    ]
    equal = (min(ends), max(ends)) if _one_metric(data) else None
    charts = [
        el(
            "div",
            el("h4", name),
            line_chart(
                f"compared-{number_}-curve",
                series,
                title=f"{name}: {describe(study.metric).title.lower()}",
                metric=study.metric,
                tall=False,
                within=equal,
            ),
        )
        for number_, name, study, series in found
    ]
    with_runs = {s.label for *_, series in found for s in series}
    buttons = method_buttons({m: k for m, k in data.looks.items() if m in with_runs}, data.kinds)
    axes = " Equal axes from bottom to top." if equal else ""
    caption = f"Tests during training; line: mean over seeds, band: 95 % t interval.{axes}"
    chart = el("div", charts, class_="pair")
    return join(el("h3", "Learning curves"), buttons, figure(chart, caption))


def _settings(data: SideBySide) -> Html:
    """Keys whose values, over all runs of a study, are not the same in all studies."""
    values = [values_of(study.agents) for study in data.studies]
    if not all(values):
        return note("Not all studies have runs, so their settings cannot be compared.")
    keys = dict.fromkeys(key for found in values for key in found)
    rows: list[Sequence[Child]] = [
        [el("code", key), *(found.get(key, "–") for found in values)]
        for key in keys
        if len({found.get(key, "–") for found in values}) > 1
    ]
    if not rows:
        return note("The runs of all studies have the same settings.")
    columns = range(1, len(values) + 1)
    caption = "Settings that differ between the studies"
    return table(["key", *data.names], rows, caption=caption, wrap=columns)
