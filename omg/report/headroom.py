"""What there was to gain: the gaps by side, and random play, plain agent and best response with
every opponent."""

from __future__ import annotations

from collections.abc import Sequence

from omg.evaluation.headroom import Headroom, OpponentRow, SideRow, warnings
from omg.report.data import ReportData
from omg.report.html import Child, Html, decimals, el, figure, join, number, section, table
from omg.report.last_tests import range_words
from omg.report.metrics import describe
from omg.report.sides import side_name

CAPTION = (
    "Gaps over all opponents of a side: seeds are the unit, with Welch's 95 % t interval where "
    "there are three. Oracle: an agent that is told what others must infer. Best response: a plain "
    "agent trained with that opponent alone; it is a reference and no method."
)


def headroom_banner(data: ReportData) -> Html | None:
    """What must be known before anything else: a task on which methods cannot differ."""
    said = warnings(data.headroom) if data.headroom else []
    return (
        el("ul", [el("li", el("strong", words)) for words in said], class_="verdict")
        if said
        else None
    )


def headroom_section(data: ReportData) -> Html:
    """The measured headroom of a study."""
    found = data.headroom
    assert found is not None  # the page has this part only where it was measured
    metric = describe(found.metric).title.lower()
    heading = el("h3", f"With each opponent, {metric}")
    return section("headroom", "Headroom", _sides(found), heading, _opponents(found))


def _sides(found: Headroom) -> Html:
    rows = found.sides()
    places = decimals(row.difference for row in rows)
    lines: list[Sequence[Child]] = [_side(row, places) for row in rows]
    head = ["Side", "Gap", "Difference", "Headroom"]
    caption = f"{CAPTION} {found.acting()}".strip()
    return figure(table(head, lines, caption="Headroom by side", numeric=[2]), caption)


def _side(row: SideRow, places: int) -> Sequence[Child]:
    said = {True: "yes", False: "none beyond doubt", None: "too few seeds"}[row.headroom]
    value = join(number(row.difference, places, sign=True), range_words(row.low, row.high, places))
    return [side_name(row.split), row.gap, value, said]


def _opponents(found: Headroom) -> Html:
    rows = found.rows()
    values = [v for r in rows for v in (r.random, r.plain, r.best_response) if v is not None]
    places = decimals(values)
    head = [
        "Opponent",
        "Side",
        "Random play",
        "Plain",
        "Control",
        "Oracle",
        "Best response",
        "Gain",
    ]
    lines: list[Sequence[Child]] = [_opponent(row, places) for row in rows]
    names = ", ".join(f"{role}: {name}" for role, name in found.names.items())
    caption = (
        f"{describe(found.metric).title}; {names}. Gain: best response minus plain. Normalised "
        "returns are 0 at random play and 1 at the best response, for opponents whose best "
        "response is surely better than random play and not worse than the plain agent."
    )
    content = table(head, lines, caption="Headroom by opponent", numeric=range(2, 8))
    return figure(content, caption)


def _opponent(row: OpponentRow, places: int) -> Sequence[Child]:
    values = (row.random, row.plain, row.control, row.oracle, row.best_response)
    gain: Child = "–"
    if row.difference is not None:
        beside = range_words(row.low, row.high, places)
        gain = join(number(row.difference, places, sign=True), beside)
    shown = ["–" if value is None else number(value, places) for value in values]
    return [row.opponent, side_name(row.split).removesuffix(" opponents").lower(), *shown, gain]
