"""The sides of the pool: what they are called, and plots of them beside each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from omg.evaluation.metric_bounds import bounds
from omg.report.html import Html, el, slug
from omg.report.intervals import Interval, interval_plot

SPLITS = (
    ("train", "Seen opponents"),
    ("validation", "Validation opponents"),
    ("heldout", "Unseen opponents"),
)


def side_name(split: str) -> str:
    """What a side of the pool is called on the page."""
    return dict(SPLITS).get(split, split)


def splits_of(names: Iterable[str]) -> list[str]:
    """The sides there are, seen ones first."""
    known = [split for split, _ in SPLITS]
    return sorted(set(names), key=lambda s: (known.index(s) if s in known else 9, s))


def side_by_side(
    marks: Mapping[str, Sequence[Interval]], name: str, *, title: str, zero: bool, metric: str = ""
) -> Html:
    """An interval plot per side of the pool, on equal axes within what the metric can be."""
    every = [row for rows in marks.values() for row in rows]
    charts = []
    for split, rows in marks.items():
        words = f"{title}, {side_name(split).lower()}"
        plot = interval_plot(
            slug(f"{name}-{split}"),
            rows,
            title=words,
            zero=zero,
            x_label=title.lower(),
            beside=every,
            within=bounds(metric),
        )
        charts.append(el("div", el("h4", side_name(split)), plot))
    return el("div", charts, class_="pair")
