"""What the intervals say, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from omg.evaluation.crossplay_table import Paired, Summary
from omg.evaluation.words import ONE_SEED
from omg.report.data import ReportData
from omg.report.html import Html, decimals, el, join, number
from omg.report.metrics import describe
from omg.report.sides import side_name


def excludes_zero(row: Paired) -> bool:
    """Whether a difference's whole interval lies on one side of zero."""
    return row.low is not None and row.high is not None and (row.low > 0 or row.high < 0)


def verdict(
    data: ReportData, paired: Sequence[Paired], summaries: Sequence[Summary]
) -> Html | None:
    """Sentences about the chosen metric: which differences exclude zero, and a weak oracle."""
    rows = [row for row in paired if row.metric == data.played]
    if max((row.agents for row in summaries), default=0) == 1:
        return el("ul", el("li", ONE_SEED), _oracles(data, summaries), class_="verdict")
    if not rows:
        return None
    items = []
    for baseline, split in dict.fromkeys((row.baseline, row.split) for row in rows):
        group = [row for row in rows if (row.baseline, row.split) == (baseline, split)]
        items.append(el("li", _verdict_words(group, baseline, split, data.played)))
    return el("ul", items, _oracles(data, summaries), class_="verdict")


def _oracles(data: ReportData, summaries: Sequence[Summary]) -> list[Html]:
    """A sentence where an agent that is told what others infer earns less than the baseline."""
    crossplay = data.crossplay
    direction = describe(data.played).about.partition(" ")[0]
    if crossplay is None or direction not in ("higher", "lower"):
        return []
    oracles = {agent.method for agent in crossplay.agents if agent.am_model == "oracle_am"}
    means = {(r.method, r.split): r.mean for r in summaries if r.metric == data.played}
    items = []
    for (method, split), mean in means.items():
        other = means.get((crossplay.compared_to, split))
        if method not in oracles or mean is None or other is None:
            continue
        if (mean < other) == (direction == "higher") and mean != other:
            words = (
                f"{method} is worse than {crossplay.compared_to} ({number(mean)} against "
                f"{number(other)}): being told what others must infer did not pay here, so what a "
                "method gains or loses does not come from foresight."
            )
            items.append(el("li", el("strong", f"{side_name(split)}: "), words))
    return items


def _verdict_words(rows: Sequence[Paired], baseline: str, split: str, metric: str) -> Html:
    places = decimals(row.difference for row in rows)
    known = [row for row in rows if row.low is not None]
    inside = [row.method for row in known if not excludes_zero(row)]
    few = [row.method for row in rows if row.low is None]
    clear = [row for row in known if excludes_zero(row)]
    named = [f"{row.method} ({number(row.difference, places, sign=True)})" for row in clear]
    start = el("strong", f"{side_name(split)}, {describe(metric).title.lower()}: ")
    words = []
    if clear:
        words.append(f"the difference from {baseline} excludes zero for {_listed(named)}")
    if inside and clear:
        words.append(f"it includes zero for {_listed(inside)}")
    elif inside:
        words.append(f"no difference from {baseline} has an interval that excludes zero")
    if few:
        words.append(f"too few seeds for an interval: {_listed(few)}")
    return join(start, "; ".join(words), ".")


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
