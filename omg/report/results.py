"""The headline: what each method earns, and what is different from the baseline."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from omg.evaluation.crossplay_table import Crossplay, Paired, Summary
from omg.evaluation.words import FIXED, explained, seed_notes
from omg.report.budget import budget_words, steps_cell
from omg.report.compared import compared_table
from omg.report.data import ReportData
from omg.report.evidence import permutation, profiles
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
from omg.report.intervals import Interval
from omg.report.last_tests import COLUMNS, last_tests, range_words
from omg.report.metrics import describe, played_metrics
from omg.report.sides import side_by_side, side_name, splits_of
from omg.report.verdict import excludes_zero, verdict


def results_section(data: ReportData) -> Html:
    """Tables and plots of the games with others, or of the last tests where there are none."""
    crossplay = data.crossplay
    if crossplay is None:
        missing = note(
            "No crossplay.json was found, so these are the last tests during training, with the "
            "opponents of training. Run omg crossplay for unseen ones."
        )
        return section("results", "Results", missing, last_tests(data))
    if not crossplay.summaries():
        return section("results", "Results", note("crossplay.json holds no games to sum up."))
    lineups = list(dict.fromkeys(row.lineup for row in crossplay.summaries()))
    panels = [(_lineup_name(lineup), _lineup(data, crossplay, lineup)) for lineup in lineups]
    return section("results", "Results", tabs("lineup", panels, label="Line-ups"))


def _lineup_name(lineup: str) -> str:
    return {
        "homologue": "Line-ups of one opponent",
        "mixed": "Mixed line-ups",
    }.get(lineup, lineup)


def _lineup(data: ReportData, crossplay: Crossplay, lineup: str) -> Html:
    rows = [row for row in crossplay.summaries() if row.lineup == lineup]
    paired = [row for row in crossplay.differences() if row.lineup == lineup]
    return join(
        verdict(data, paired, rows),
        compared_table(data, crossplay, lineup),
        _summary_table(data, rows),
        _means(data, rows, lineup),
        _paired(data, paired, lineup),
        permutation(data, [r for r in crossplay.permutations() if r.lineup == lineup], lineup),
        profiles(data, crossplay, lineup),
    )


# --- the table -------------------------------------------------------------------------------


def _summary_table(data: ReportData, rows: Sequence[Summary]) -> Html:
    metrics = [m.name for m in played_metrics({row.metric for row in rows}, data.played)]
    shown = (*COLUMNS, f"normalised_{data.played}")
    names = [metrics[0], *[m for m in metrics[1:] if m in shown]]
    found = {(row.split, row.method, row.metric): row for row in rows}
    places = {m: decimals(row.mean for row in rows if row.metric == m) for m in names}
    head = el(
        "tr",
        el("th", "Method", scope="col"),
        el("th", describe(names[0]).title, scope="col", class_="num"),
        el("th", "IQM", scope="col", class_="num"),
        [el("th", describe(name).title, scope="col", class_="num") for name in names[1:]],
        el("th", "Steps", scope="col", class_="num"),
    )
    bodies = []
    for split in splits_of(row.split for row in rows):
        methods = [m for m in data.methods if any((split, m, name) in found for name in names)]
        best = _best(found, split, methods, places)
        lines = [el("tr", el("th", side_name(split), colspan=len(names) + 3, scope="rowgroup"))]
        for method in methods:
            cells = []
            for position, name in enumerate(names):
                row = found.get((split, method, name))
                strong = method in best.get(name, ())
                title = describe(name).title
                cells.append(_value_cell(row, places[name], title, strong=strong))
                if position == 0:
                    cells.append(_value_cell(row, places[name], "IQM", iqm=True))
            cells.append(steps_cell(data, method))
            lines.append(
                el("tr", el("th", swatch(data.slot(method)), " ", method, scope="row"), cells)
            )
        bodies.append(el("tbody", lines))
    content = el(
        "table",
        el("caption", "Results per method and side of the pool", class_="hidden-caption"),
        el("thead", head),
        bodies,
        class_="results cards",
    )
    return figure(scroll_box(content, "Results per method"), _table_caption(data, rows, names))


def _best(
    found: dict[tuple[str, str, str], Summary],
    split: str,
    methods: Sequence[str],
    places: Mapping[str, int],
) -> dict[str, list[str]]:
    """The methods whose mean, as it is shown, is the best, per metric; nobody where only one was
    tested or all are equal."""
    best = {}
    for name, digits in places.items():
        means = {
            m: round(row.mean, digits)
            for m in methods
            if (row := found.get((split, m, name))) and row.mean is not None
        }
        direction = describe(name).about.partition(" ")[0]
        if len(set(means.values())) > 1 and direction in ("higher", "lower"):
            extreme = (min if direction == "lower" else max)(means.values())
            best[name] = [m for m, mean in means.items() if mean == extreme]
    return best


def _value_cell(
    row: Summary | None, places: int, title: str, *, strong: bool = False, iqm: bool = False
) -> Html:
    if row is None:
        return el("td", "–", class_="num none", data_label=title)
    shown = el("strong" if strong else "span", number(row.iqm if iqm else row.mean, places))
    beside = None if iqm else range_words(row.mean_low, row.mean_high, places, row.seeds)
    return el("td", shown, beside, class_="num", data_label=title)


def _table_caption(data: ReportData, rows: Sequence[Summary], names: Sequence[str]) -> Html:
    known = any(row.mean_low is not None for row in rows)
    means = "Means with 95 % t intervals over seeds, within what the metric can be" * known
    words = [
        f"{means or 'Means over the opponents'}; IQM: mean of the middle half of "
        f"{describe(data.played).title.lower()} over seeds and opponents. Bold: the best mean, "
        "which by itself is no evidence.",
        *([data.crossplay.acting()] if data.crossplay else []),
        *seed_notes([row.agents for row in rows]),
        *([FIXED] if known else []),
        *_opponents_words(data),
        *explained(names),
    ]
    words += budget_words(data)
    return join(" ".join(words), " Made by ", el("code", crossplay_command(data)), ".")


def _opponents_words(data: ReportData) -> list[str]:
    """Checkpoints of one run are no independent opponents."""
    trained = [o for o in data.opponents if o.algorithm != "script"]
    runs = {o.run for o in trained}
    if len(runs) == len(trained):
        return []
    from_runs = "one run" if len(runs) == 1 else f"{len(runs)} runs"
    return [f"The opponents' {len(trained)} checkpoints come from {from_runs}."]


HOW: dict[bool | None, list[str]] = {True: ["--greedy"], False: ["--sample"], None: []}


def crossplay_command(data: ReportData) -> str:
    """How the games were asked for, as far as the file says it."""
    found = data.crossplay
    if found is None:
        return "omg crossplay"
    words = ["omg crossplay", f"--episodes={found.episodes}", f"--seed={found.seed}"]
    if found.finetune_episodes:
        words.append(f"--finetune-episodes={found.finetune_episodes}")
    words += ["--permute"] * bool(found.permutations()) + HOW[found.greedy]
    words.append(f"--baseline={shlex.quote(found.compared_to)}")
    return " ".join([*words, *([f"--replays={found.replays}"] if found.replays else [])])


# --- plots -----------------------------------------------------------------------------------


def _means(data: ReportData, rows: Sequence[Summary], lineup: str) -> Html | None:
    chosen = [row for row in rows if row.metric == data.played and row.mean is not None]
    if not chosen:
        return None
    title = describe(data.played).title
    marks = {
        split: [
            Interval(
                *(row.method, data.slot(row.method), row.mean, row.mean_low, row.mean_high),
                each=row.seeds if row.mean_low is None else (),
            )
            for row in sorted(chosen, key=lambda r: data.methods.index(r.method))
            if row.split == split and row.mean is not None
        ]
        for split in splits_of(row.split for row in chosen)
    }
    charts = side_by_side(
        marks, slug(f"means-{lineup}"), title=title, zero=False, metric=data.played
    )
    known = " and 95 % t interval" * any(row.mean_low is not None for row in chosen)
    rings = " Rings: each seed." * any(row.mean_low is None and row.agents > 1 for row in chosen)
    caption = f"{title} of each method: mean{known} over seeds, on equal axes.{rings}"
    return figure(charts, caption)


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
    charts = side_by_side(marks, name, title=title, zero=True)
    known = [row for row in rows if row.low is not None]
    clear = sum(excludes_zero(row) for row in known)
    words = [f"Method minus baseline with the same opponents ({metric.about or 'see the metric'})."]
    if known:
        words.append(
            f"Mean and Welch's 95 % t interval over seeds. {clear} of {len(known)} intervals "
            "exclude zero (bold); uncorrected: see the comparisons."
        )
    if len(known) < len(rows):
        words.append("No interval where a method has fewer than three seeds.")
    words.append(_improvement_words(rows, metric.about.startswith("lower")))
    return figure(charts, " ".join(words))


def _improvement_words(rows: Sequence[Paired], lower: bool) -> str:
    """rliable's probability of improvement, as a sentence."""
    listed = [
        f"{row.method} {number(1 - row.higher if lower else row.higher, 2)} "
        f"({side_name(row.split).lower()})"
        for row in rows
        if row.higher is not None
    ]
    return (
        "Probability of improvement (a random seed of the method is better than one of the "
        f"baseline with the same opponent, ties half; without an interval): {', '.join(listed)}."
    )
