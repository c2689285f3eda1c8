"""The comparisons of the primary metric: against the baseline and against the best other method,
with p-values that are corrected for their number."""

from __future__ import annotations

from collections.abc import Sequence

from omg.evaluation.comparisons import HOLM, Comparison, comparisons, p_words, primary_metric
from omg.evaluation.crossplay_table import Crossplay
from omg.report.data import ReportData
from omg.report.html import Child, Html, decimals, el, figure, join, number, swatch, table
from omg.report.last_tests import range_words
from omg.report.metrics import describe
from omg.report.sides import side_name, splits_of

HEADLINE, LEAST = 10, 5  # seeds per method that a headline and any other claim should have
LEVEL = 0.05


def compared_table(data: ReportData, crossplay: Crossplay, lineup: str) -> Html | None:
    """A table of all comparisons of a kind of line-up; None where there is one method."""
    rows = [row for row in comparisons(crossplay) if row.lineup == lineup]
    if not rows:
        return None
    places = decimals(row.difference for row in rows)
    lines: list[Sequence[Child]] = [
        _line(data, row, places)
        for split in splits_of(row.split for row in rows)
        for row in rows
        if row.split == split
    ]
    head = ["Side", "Method", "minus", "Difference", "p", "p (Holm)", "Seeds"]
    content = table(head, lines, caption="Comparisons", numeric=[3, 4, 5, 6])
    title = el("h3", "Comparisons")
    return join(title, figure(content, _caption(data, crossplay, rows)))


def _line(data: ReportData, row: Comparison, places: int) -> Sequence[Child]:
    clear = row.p_holm is not None and row.p_holm < LEVEL
    value = number(row.difference, places, sign=True)
    return [
        side_name(row.split).removesuffix(" opponents"),
        join(swatch(data.slot(row.method)), " ", row.method),
        join(swatch(data.slot(row.other)), " ", f"{row.other} ({row.against})"),
        join(el("strong" if clear else "span", value), range_words(row.low, row.high, places)),
        p_words(row.p),
        el("strong" if clear else "span", p_words(row.p_holm)),
        f"{row.seeds}, {row.other_seeds}",
    ]


def _caption(data: ReportData, crossplay: Crossplay, rows: Sequence[Comparison]) -> str:
    metric = describe(primary_metric(crossplay)).title.lower()
    named = any((source / "pipeline.json").is_file() for source in data.sources)
    late = any(not line.changed and (line.looks or line.steps) for line in data.named)
    named &= not late and not any("metric" in line.changed for line in data.named)
    when = ", named in the pipeline's file before the runs" if named else ""
    family = max(row.comparisons for row in rows)
    words = [f"Primary metric: {metric}{when}.", HOLM]
    if family:
        words.append(f"{family} comparisons per side; bold: p (Holm) below {LEVEL}.")
    fewest = min(min(row.seeds, row.other_seeds) for row in rows)
    if fewest < HEADLINE:
        words.append(
            f"The smallest sample has {fewest} seed{'s'[: fewest != 1]}: a headline asks for "
            f"{HEADLINE} per method, any other claim for {LEAST}."
        )
    return " ".join(words)
