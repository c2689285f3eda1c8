"""Tests of the differences that a study is made for: in its primary metric, every method against
the baseline and against the best other method, corrected for how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from omg.evaluation.crossplay_table import Crossplay, Number, Summary
from omg.evaluation.metric_bounds import lower_is_better
from omg.evaluation.statistics import Welch, holm
from omg.evaluation.words import SIDES, value_words

# Methods that are told what others must infer: nobody competes with them.
TOLD = ("oracle_am",)
HOLM = (
    "p: Welch's test over seeds, two-sided. p (Holm): corrected for all comparisons of the side "
    "and line-up, each pair once; the best other method is chosen by the same numbers."
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One method minus another, over the same opponents; seeds are the unit and are not paired.
    No interval and no p-value with fewer than three seeds."""

    method: str
    other: str
    against: Literal["baseline", "best other"]
    split: str
    lineup: str
    metric: str
    difference: float
    low: Number
    high: Number
    p: Number
    p_holm: Number
    comparisons: int  # of the family that Holm's correction is over
    seeds: int
    other_seeds: int


def primary_metric(table: Crossplay) -> str:
    """The metric that a study is about: the one it was asked for before anything was played."""
    return table.metric or "own_return"


def comparisons(table: Crossplay, metric: str = "") -> list[Comparison]:
    """All comparisons of a metric (the primary one), by side and kind of line-up."""
    metric = metric or primary_metric(table)
    told = {agent.method for agent in table.agents if agent.am_model in TOLD}
    rows: list[Comparison] = []
    for split, lineup in table.blocks():
        found = [
            row
            for row in table.summaries()
            if (row.split, row.lineup, row.metric) == (split, lineup, metric)
        ]
        rows += _corrected(_pairs(found, table.compared_to, told))
    return rows


def _pairs(rows: Sequence[Summary], baseline: str, told: set[str]) -> list[Comparison]:
    """Each method against the baseline, and each that is told nothing against the best such."""
    by_method = {row.method: row for row in rows}
    found = [
        _compare(row, by_method[baseline], "baseline")
        for row in rows
        if baseline in by_method and row.method != baseline
    ]
    rivals = [row for row in rows if row.method not in told]
    for row in rivals:
        others = [other for other in rivals if other.method != row.method]
        if others:
            found.append(_compare(row, best_of(others), "best other"))
    return found


def best_of(rows: Sequence[Summary]) -> Summary:
    """The row with the best mean."""
    lower = lower_is_better(rows[0].metric)
    return (min if lower else max)(rows, key=lambda row: row.mean or 0.0)


def _compare(
    mine: Summary, theirs: Summary, against: Literal["baseline", "best other"]
) -> Comparison:
    welch = Welch.of(mine.seeds, theirs.seeds)
    interval = welch.interval()
    return Comparison(
        *(mine.method, theirs.method, against, mine.split, mine.lineup, mine.metric),
        *(welch.value, interval.low, interval.high, welch.p_value(), None, 0),
        *(len(mine.seeds), len(theirs.seeds)),
    )


def _corrected(rows: Sequence[Comparison]) -> list[Comparison]:
    """With Holm's p-values; a pair that is compared twice is one comparison."""
    pairs = {frozenset((row.method, row.other)): row.p for row in rows if row.p is not None}
    adjusted = dict(zip(pairs, holm([p for p in pairs.values() if p is not None]), strict=True))
    return [
        replace(
            row,
            p_holm=adjusted.get(frozenset((row.method, row.other))),
            comparisons=len(pairs),
        )
        for row in rows
    ]


def p_words(p: float | None) -> str:
    """A p-value as it is written."""
    if p is None:
        return "-"
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def comparison_words(table: Crossplay) -> tuple[list[str], list[list[str]]]:
    """Titles and rows of the comparisons for a terminal, each pair once; the kind of line-up
    where there are several."""
    rows, shown = [], set()
    several = len({lineup for _, lineup in table.blocks()}) > 1
    for row in comparisons(table):
        pair = (row.split, row.lineup, frozenset((row.method, row.other)))
        if pair in shown:
            continue
        shown.add(pair)
        value = value_words({**asdict(row), "seeds": ()}, "difference", sign=True)
        place = [row.lineup] * several
        side = SIDES.get(row.split, row.split)
        rows.append(
            [row.method, row.other, side, *place, value, p_words(row.p), p_words(row.p_holm)]
        )
    titles = ["method", "minus", "side", *["line-up"] * several, "difference [95 %]"]
    return [*titles, "p", "p (Holm)"], rows


def as_rows(table: Crossplay) -> list[dict[str, Any]]:
    """One dictionary per comparison, e.g. for pandas."""
    return [asdict(row) for row in comparisons(table)]
