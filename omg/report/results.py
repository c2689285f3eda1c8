"""The headline: what each method earns, and what is different from the baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from omg.evaluation.crossplay_table import Crossplay, Paired, Summary
from omg.report.charts import Interval, interval_plot
from omg.report.data import ReportData
from omg.report.html import (
    Html,
    decimals,
    el,
    figure,
    join,
    note,
    number,
    scroll_box,
    section,
    slug,
    swatch,
    tabs,
)
from omg.report.last_tests import COLUMNS, last_tests, range_words
from omg.report.metrics import (
    describe,
    played_metrics,
)

SPLITS = (("train", "Seen opponents"), ("heldout", "Unseen opponents"))


def side_name(split: str) -> str:
    """What a side of the pool is called on the page."""
    return dict(SPLITS).get(split, split)


def splits_of(names: Iterable[str]) -> list[str]:
    """The sides there are, seen ones first."""
    known = [split for split, _ in SPLITS]
    return sorted(set(names), key=lambda s: (known.index(s) if s in known else 9, s))


def results_section(data: ReportData) -> Html:
    """Tables and plots of the games with others, or of the last tests where there are none."""
    crossplay = data.crossplay
    if crossplay is None:
        missing = note(
            "No crossplay.json was found, so these are the last tests during training, with the "
            "opponents of training. Run omg crossplay for unseen ones."
        )
        return section("results", "Results", missing, last_tests(data))
    if not crossplay.summaries:
        return section("results", "Results", note("crossplay.json holds no summary to show."))
    lineups = list(dict.fromkeys(row.lineup for row in crossplay.summaries))
    panels = [(_lineup_name(lineup), _lineup(data, crossplay, lineup)) for lineup in lineups]
    return section("results", "Results", tabs("lineup", panels, label="Line-ups"))


def _lineup_name(lineup: str) -> str:
    return {
        "homologue": "Line-ups of one opponent",
        "mixed": "Mixed line-ups",
    }.get(lineup, lineup)


def _lineup(data: ReportData, crossplay: Crossplay, lineup: str) -> Html:
    rows = [row for row in crossplay.summaries if row.lineup == lineup]
    paired = [row for row in crossplay.differences if row.lineup == lineup]
    return join(
        _verdict(data, paired),
        _summary_table(data, rows, lineup),
        _means(data, rows, lineup),
        _paired(data, paired, lineup),
    )


# --- what the intervals say -----------------------------------------------------------------


def excludes_zero(row: Paired) -> bool:
    """Whether a difference's whole interval lies on one side of zero."""
    return row.low is not None and row.high is not None and (row.low > 0 or row.high < 0)


def _verdict(data: ReportData, paired: Sequence[Paired]) -> Html | None:
    rows = [row for row in paired if row.metric == data.played and row.difference is not None]
    if not rows:
        return None
    items = []
    for baseline, split in dict.fromkeys((row.baseline, row.split) for row in rows):
        group = [row for row in rows if (row.baseline, row.split) == (baseline, split)]
        items.append(el("li", _verdict_words(group, baseline, split, data.played)))
    return el("ul", items, class_="verdict")


def _verdict_words(rows: Sequence[Paired], baseline: str, split: str, metric: str) -> Html:
    places = decimals(row.difference for row in rows)
    inside = [row.method for row in rows if not excludes_zero(row)]
    clear = [row for row in rows if excludes_zero(row)]
    named = [f"{row.method} ({number(row.difference, places, sign=True)})" for row in clear]
    start = el("strong", f"{side_name(split)}, {describe(metric).title.lower()}: ")
    if not clear:
        words = f"no difference from {baseline} has an interval that excludes zero."
    else:
        words = f"the difference from {baseline} excludes zero for {_listed(named)}"
        words += f"; it includes zero for {_listed(inside)}." if inside else "."
    return join(start, words)


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


# --- the table -------------------------------------------------------------------------------


def _summary_table(data: ReportData, rows: Sequence[Summary], lineup: str) -> Html:
    metrics = [m.name for m in played_metrics({row.metric for row in rows}, data.played)]
    names = [metrics[0], *[m for m in metrics[1:] if m in COLUMNS]]
    found = {(row.split, row.method, row.metric): row for row in rows}
    places = {m: decimals(row.mean for row in rows if row.metric == m) for m in names}
    head = el(
        "tr",
        el("th", "Method", scope="col"),
        el("th", describe(names[0]).title, scope="col", class_="num"),
        el("th", "IQM", scope="col", class_="num"),
        [el("th", describe(name).title, scope="col", class_="num") for name in names[1:]],
    )
    bodies = []
    for split in splits_of(row.split for row in rows):
        methods = [m for m in data.methods if any((split, m, name) in found for name in names)]
        best = _best(found, split, methods, names)
        lines = [el("tr", el("th", side_name(split), colspan=len(names) + 2, scope="rowgroup"))]
        for method in methods:
            cells = []
            for position, name in enumerate(names):
                row = found.get((split, method, name))
                strong = best.get(name) == method
                cells.append(_value_cell(row, places[name], strong=strong, iqm=False))
                if position == 0:
                    cells.append(_value_cell(row, places[name], strong=False, iqm=True))
            lines.append(
                el("tr", el("th", swatch(data.slot(method)), " ", method, scope="row"), cells)
            )
        bodies.append(el("tbody", lines))
    content = el(
        "table",
        el("caption", "Results per method and side of the pool", class_="hidden-caption"),
        el("thead", head),
        bodies,
        class_="results",
    )
    return figure(scroll_box(content, "Results per method"), _table_caption(data, rows))


def _best(
    found: dict[tuple[str, str, str], Summary],
    split: str,
    methods: Sequence[str],
    names: Sequence[str],
) -> dict[str, str]:
    """The method with the best mean, per metric; nobody where only one was tested."""
    best = {}
    for name in names:
        means = {
            m: row.mean
            for m in methods
            if (row := found.get((split, m, name))) and row.mean is not None
        }
        direction = describe(name).about.partition(" ")[0]
        if len(means) > 1 and direction in ("higher", "lower"):
            pick = min if direction == "lower" else max
            best[name] = pick(means, key=lambda m: means[m])
    return best


def _value_cell(row: Summary | None, places: int, *, strong: bool, iqm: bool) -> Html:
    if row is None:
        return el("td", "–", class_="num")
    value, low, high = (
        (row.iqm, row.iqm_low, row.iqm_high) if iqm else (row.mean, row.mean_low, row.mean_high)
    )
    shown = el("strong" if strong else "span", number(value, places))
    return el("td", shown, range_words(low, high, places), class_="num")


def _table_caption(data: ReportData, rows: Sequence[Summary]) -> Html:
    seeds = sorted({row.agents for row in rows if row.agents})
    words = (
        "Means with 95 % intervals, bootstrapped over seeds and opponents; IQM: mean of the middle "
        f"half of {describe(data.played).title.lower()}. Bold: the best mean, which by itself "
        "is no evidence."
    )
    if seeds == [1]:
        words += " There is one seed, so the intervals say nothing about other seeds."
    elif seeds and seeds[0] < 3:
        words += " With fewer than three seeds the intervals are rough."
    return join(words, " Made by ", el("code", "omg crossplay"), ".")


# --- plots -----------------------------------------------------------------------------------


def _means(data: ReportData, rows: Sequence[Summary], lineup: str) -> Html | None:
    chosen = [row for row in rows if row.metric == data.played and row.mean is not None]
    if not chosen:
        return None
    title = describe(data.played).title
    marks = {
        split: [
            Interval(row.method, data.slot(row.method), row.mean, row.mean_low, row.mean_high)
            for row in sorted(chosen, key=lambda r: data.slot(r.method))
            if row.split == split and row.mean is not None
        ]
        for split in splits_of(row.split for row in chosen)
    }
    charts = _side_by_side(
        marks, slug(f"means-{lineup}"), title=title, zero=False, x_label=title.lower()
    )
    caption = f"{title} of each method: mean and 95 % interval, on equal axes."
    return figure(charts, caption)


def _side_by_side(
    marks: Mapping[str, Sequence[Interval]], name: str, *, title: str, zero: bool, x_label: str
) -> Html:
    """An interval plot per side of the pool, on equal axes."""
    every = [row for rows in marks.values() for row in rows]
    charts = []
    for split, rows in marks.items():
        words = f"{title}, {side_name(split).lower()}"
        plot = interval_plot(
            slug(f"{name}-{split}"), rows, title=words, zero=zero, x_label=x_label, beside=every
        )
        charts.append(el("div", el("h4", side_name(split)), plot))
    return el("div", charts, class_="pair")


def _paired(data: ReportData, paired: Sequence[Paired], lineup: str) -> Html:
    rows = [row for row in paired if row.difference is not None]
    if not rows:
        return note("crossplay.json compares no method with a baseline (paired differences).")
    panels = []
    for metric in played_metrics({row.metric for row in rows}, data.played):
        of_metric = [row for row in rows if row.metric == metric.name]
        panels.append((metric.title, _forest(data, of_metric, f"forest-{lineup}-{metric.name}")))
    heading = el("h3", "Differences from the baseline")
    return join(heading, tabs(slug(f"forest-{lineup}"), panels, label="Metric of the differences"))


def _forest(data: ReportData, rows: Sequence[Paired], name: str) -> Html:
    metric = describe(rows[0].metric)
    marks = {
        split: [
            Interval(
                f"{row.method} − {row.baseline}",
                data.slot(row.method),
                float(row.difference or 0.0),
                row.low,
                row.high,
                strong=excludes_zero(row),
            )
            for row in rows
            if row.split == split
        ]
        for split in splits_of(row.split for row in rows)
    }
    title = f"Difference in {metric.title.lower()}"
    charts = _side_by_side(marks, name, title=title, zero=True, x_label=title.lower())
    clear = sum(excludes_zero(row) for row in rows)
    paired = "seeds and opponents" if all(row.same_seeds for row in rows) else "opponents"
    caption = (
        f"Method minus baseline on the same {paired}: mean and 95 % interval "
        f"({metric.about or 'see the metric'}). {clear} of {len(rows)} intervals exclude zero "
        "(bold); they are not corrected for comparing several."
    )
    return figure(charts, caption)
