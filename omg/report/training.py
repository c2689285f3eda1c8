"""How learning went: curves, losses, chosen subgoals, signs of collapse."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from omg.evaluation.curves import band
from omg.experiment.series import Curve
from omg.report.charts import (
    Series,
    line_chart,
    series_of,
    share_bars,
    share_chart,
    thinned,
)
from omg.report.data import ReportData
from omg.report.html import (
    Child,
    Html,
    details,
    el,
    figure,
    join,
    note,
    number,
    section,
    slug,
    steps_text,
    swatch,
    table,
    tabs,
)
from omg.report.looks import COLOURS, PRIOR_COLOUR, Kind, explained_looks
from omg.report.metrics import COLLAPSE, LOSSES, PRIORS, Metric, tested_metrics
from omg.report.runs import RunRecord, final_accuracy

MAX_TABS = 9


def curves_section(data: ReportData) -> Html:
    """Tests during training, a tab per metric."""
    panels = []
    for metric in tested_metrics(data.metrics_known(), data.metric)[:MAX_TABS]:
        series = _series(data, metric.name)
        if series:
            panels.append((metric.title, _curve_panel(metric, series)))
    if not panels:
        missing = note("No run logged tests, so there are no learning curves.")
        return section("curves", "Learning curves", missing)
    return section(
        "curves",
        "Learning curves",
        legend(data),
        tabs("curve", panels, label="Metric of the learning curves"),
    )


def legend(data: ReportData) -> Html | None:
    """The methods that have runs, as buttons."""
    methods = [m for m in data.methods if data.runs_of(m)]
    return method_buttons({m: data.slot(m) for m in methods}, data.kinds) if methods else None


def method_buttons(looks: Mapping[str, int], kinds: Mapping[str, Kind]) -> Html:
    """Methods and their looks; a click hides a method's curves in this part of the page."""
    buttons = [
        el(
            "button",
            swatch(look),
            el("span", method),
            type="button",
            aria_pressed="true",
            data_toggle=look,
        )
        for method, look in looks.items()
    ]
    row = el("div", buttons, class_="legend", role="group", aria_label="Methods shown")
    meaning = explained_looks(kinds)
    return join(row, el("p", meaning, class_="about looks") if meaning else None)


def _series(data: ReportData, metric: str) -> list[Series]:
    found = [
        series_of(method, data.slot(method), data.curves_of(method, metric), metric)
        for method in data.methods
    ]
    return [series for series in found if series is not None]


def _curve_panel(metric: Metric, series: Sequence[Series]) -> Html:
    chart = line_chart(
        slug(f"curve-{metric.name}"),
        series,
        title=metric.title,
        metric=metric.name,
        y_label=metric.title.lower(),
    )
    about = f" ({metric.about})" if metric.about else ""
    caption = join(
        f"{metric.title}{about}, in tests during training. {_seeds_words(series)} Logged by ",
        el("code", "omg train"),
        " as ",
        el("code", metric.name),
        ".",
    )
    return join(figure(chart, caption), details("Values as a table", _value_table(metric, series)))


def _seeds_words(series: Sequence[Series]) -> str:
    by_count: dict[int, list[str]] = {}
    for s in series:
        by_count.setdefault(min(s.seeds, 3), []).append(s.label)
    if list(by_count) == [1]:
        return "One seed each, so there is no band: the curves describe these runs only."
    words = "Line: mean over seeds."
    if 3 in by_count:
        words += " Band: 95 % t interval of that mean."
    if 2 in by_count:
        words += f" Two seeds have no interval, thin lines show each: {', '.join(by_count[2])}."
    if 1 in by_count:
        words += f" One seed, so no band: {', '.join(by_count[1])}."
    return words


def _value_table(metric: Metric, series: Sequence[Series]) -> Html:
    """Every curve at five moments of the longest one."""
    longest = max(series, key=lambda s: float(s.steps[-1]))
    moments = longest.steps[thinned(len(longest.steps), 5)]
    rows = [
        [join(swatch(s.slot), " ", s.label), *(_value_at(s, float(step)) for step in moments)]
        for s in series
    ]
    head = ["steps", *(steps_text(float(step)) for step in moments)]
    caption = f"{metric.title} over training"
    return table(head, rows, caption=caption, numeric=range(1, len(head)))


def _value_at(series: Series, step: float) -> str:
    """The value logged nearest to a step; none behind the curve's end."""
    if step > series.steps[-1]:
        return "–"
    return series.words(int(abs(series.steps - step).argmin()))


def models_section(data: ReportData) -> Html:
    """Losses, the prior, the chosen k and signs of collapse."""
    parts: list[Child] = []
    missing: list[str] = []
    for title, content, absent in (
        ("Losses", _losses(data), "losses"),
        ("Prior", _priors(data), "the pre-training of a prior (learner=am_learner)"),
        ("Chosen subgoals", _shares(data), "chosen subgoals (subgoal_k1 …)"),
        ("Signs of collapse", _collapse(data), "signs of collapse (am_active_dims)"),
    ):
        if content is None:
            missing.append(absent)
        else:
            parts += [el("h3", title), content]
    if parts:
        parts.insert(0, legend(data))
    if missing:
        parts.append(note(f"No run logged {' or '.join(missing)}."))
    return section("models", "Models and losses", *parts)


def _losses(data: ReportData) -> Html | None:
    charts = _multiples(data, LOSSES)
    return None if charts is None else figure(charts, _loss_caption(data))


def _loss_caption(data: ReportData) -> str:
    words = "Losses during training; means over seeds."
    most = max(len(data.runs_of(m)) for m in data.methods)
    several = " Bands: 95 % t intervals." if most > 2 else " Thin lines: each seed."
    return words + (several if most > 1 else " One seed each, so no bands.")


def _multiples(data: ReportData, metrics: Sequence[Metric]) -> Html | None:
    charts = []
    for metric in metrics:
        series = _series(data, metric.name)
        if series:
            charts.append(_small(metric, series))
    return el("div", charts, class_="multiples") if charts else None


def _small(metric: Metric, series: Sequence[Series], prefix: str = "loss") -> Html:
    name = slug(f"{prefix}-{metric.name}")
    chart = line_chart(name, series, title=metric.title, metric=metric.name, tall=False)
    about = el("p", el("code", metric.name), ": ", metric.about, class_="about")
    return el("div", el("h4", metric.title), about, chart, class_="small")


def _priors(data: ReportData) -> Html | None:
    groups: dict[str, list[RunRecord]] = {}
    for run in data.priors:
        groups.setdefault(run.method, []).append(run)
    looks = [PRIOR_COLOUR + i % 2 + COLOURS * (i // 2 % 4) for i in range(len(groups))]
    charts = []
    for metric in PRIORS:
        found = [
            series_of(name, look, [r.curves[metric.name] for r in runs if metric.name in r.curves])
            for look, (name, runs) in zip(looks, groups.items(), strict=True)
        ]
        series = [s for s in found if s is not None]
        if series:
            charts.append(_small(metric, series, "prior"))
    if not charts:
        return None
    words = "Pre-training of the prior on games of the frozen players."
    cells, variance = _finished(groups, "cells"), _finished(groups, "variance")
    if cells or variance:
        words += " The curves are means over stretches of training."
    if cells:
        words += f" The finished prior decodes exactly the players of: {cells} of the states."
    if variance:
        words += f" It explains of the variance of the players' features: {variance}."
    names = [el("span", swatch(look), " ", name) for look, name in zip(looks, groups, strict=True)]
    key = el("div", names, class_="legend") if len(names) > 1 else None
    return figure(join(key, el("div", charts, class_="multiples")), words)


def mean_of(runs: Sequence[RunRecord], metric: str) -> float:
    """What finished priors reach, the mean over their seeds."""
    return sum(final_accuracy(run, metric) for run in runs) / len(runs)


def _finished(groups: Mapping[str, Sequence[RunRecord]], measure: str) -> str:
    """What the finished priors reach that are judged by this measure."""
    metric = {"cells": "prior_accuracy", "variance": "prior_explained"}[measure]
    return ", ".join(
        f"{name} {number(100 * mean_of(runs, metric), 1)} %"
        for name, runs in groups.items()
        if metric in runs[0].curves and runs[0].config.get("prior_measure", "cells") == measure
    )


def _shares(data: ReportData) -> Html | None:
    blocks, any_over = [], False
    for method in data.methods:
        curves = _share_curves(data, method)
        if not curves:
            continue
        bands = [band(found) for found in curves]
        count = min(len(steps) for steps, _, _ in bands)
        if count == 0:
            continue
        keep = thinned(count)
        shares = [mean[keep] for _, mean, _ in bands]
        name = slug(f"k-{data.slot(method)}")
        over = None
        if count > 1:
            any_over = True
            over = share_chart(name, bands[0][0][keep], shares, title=f"{method}: k over training")
        final = share_bars(
            f"{name}-final", [float(s[-1]) for s in shares], title=f"{method}: last shares of k"
        )
        blocks.append(
            el("div", el("h4", method), el("div", over, final, class_="pair"), class_="method")
        )
    if not blocks:
        return None
    over_training = "over training (k = 1 at the bottom, strongest), and " * any_over
    caption = (
        f"How many steps ahead the selected subgoal lies: {over_training}at the end. Means over "
        "seeds. Mostly k = 1 means that the selector looks hardly ahead."
    )
    return figure(blocks, caption)


def _share_curves(data: ReportData, method: str) -> list[list[Curve]]:
    """The curves of subgoal_k1, k2, … of all seeds of a method."""
    names = {
        n for run in data.runs_of(method) for n in run.curves if re.fullmatch(r"subgoal_k\d+", n)
    }
    ordered = sorted(names, key=lambda n: int(n.removeprefix("subgoal_k")))
    return [data.curves_of(method, name) for name in ordered]


def _collapse(data: ReportData) -> Html | None:
    charts = _multiples(data, COLLAPSE)
    if charts is None:
        return None
    low = []
    for method in data.methods:
        series = series_of(method, 0, data.curves_of(method, "am_active_dims"))
        if series is not None and series.mean[-1] < 0.1:
            low.append(method)
    words = "A model whose dimensions do not vary says the same about every opponent. "
    words += (
        f"Fewer than a tenth of the dimensions vary at the end for {', '.join(low)}: the model "
        "may have collapsed."
        if low
        else "At the end no method is below a tenth of active dimensions."
    )
    return figure(charts, words)
