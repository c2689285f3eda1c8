"""Cross-play as coloured tables: who earned what with whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from omg.evaluation.crossplay_table import Agent, Crossplay
from omg.report.data import ReportData
from omg.report.html import (
    Html,
    decimals,
    details,
    el,
    figure,
    join,
    note,
    number,
    scroll_box,
    section,
    slug,
    tabs,
)
from omg.report.metrics import Metric, played_metrics
from omg.report.results import crossplay_command
from omg.report.sides import side_name, splits_of

MAX_METRICS = 6
FEW = 10  # columns that fit on a phone
Values = Mapping[tuple[str, str, str], float]  # split, opponent, agent


@dataclass(frozen=True, slots=True)
class _Column:
    """One method, or one agent of it."""

    method: str
    words: str
    agents: tuple[str, ...]


def crossplay_section(data: ReportData) -> Html:
    """A heat map per metric, seen and unseen opponents apart."""
    crossplay = data.crossplay
    if crossplay is None or not crossplay.cells:
        missing = note("No cross-play was found; omg crossplay plays every agent with everybody.")
        return section("crossplay", "Cross-play", missing)
    known = {name for cell in crossplay.cells for name, v in cell.metrics.items() if v is not None}
    chosen = played_metrics(known, data.played)[:MAX_METRICS]
    command = crossplay_command(data)
    panels = [(metric.title, _panel(crossplay, metric, command)) for metric in chosen]
    return section(
        "crossplay", "Cross-play", tabs("heat", panels, label="Metric of the cross-play")
    )


def _panel(crossplay: Crossplay, metric: Metric, command: str) -> Html:
    values = {
        (cell.split, cell.opponent, cell.agent): value
        for cell in crossplay.cells
        if (value := cell.metrics.get(metric.name)) is not None
    }
    with_values = [agent for agent in crossplay.agents if any(k[2] == agent.id for k in values)]
    per_method = [
        _Column(method, method, tuple(a.id for a in with_values if a.method == method))
        for method in dict.fromkeys(agent.method for agent in with_values)
    ]
    per_agent = [_Column(a.method, _agent_name(a), (a.id,)) for a in _sorted(with_values)]
    about = f" ({metric.about})" if metric.about else ""
    caption = join(
        f"{metric.title}{about} with every opponent, mean over a method's seeds. Stronger colour: "
        f"larger value, one scale for both sides. {crossplay.episodes:,} episodes per agent and "
        "opponent. Made by ",
        el("code", command),
        ".",
    )
    main = figure(_sides(crossplay, values, per_method, metric, grouped=False), caption)
    if len(per_agent) == len(per_method):
        return main
    single = _sides(crossplay, values, per_agent, metric, grouped=True)
    return join(main, details("Every seed by itself", single))


def _sorted(agents: Sequence[Agent]) -> list[Agent]:
    order = list(dict.fromkeys(agent.method for agent in agents))
    return sorted(agents, key=lambda agent: order.index(agent.method))


def _agent_name(agent: Agent) -> str:
    return agent.id if agent.seed is None else f"s{agent.seed}"


def _mean(values: Values, split: str, opponent: str, column: _Column) -> float | None:
    keys = [(split, opponent, agent) for agent in column.agents]
    found = [values[key] for key in keys if key in values]
    return sum(found) / len(found) if found else None


def _sides(
    crossplay: Crossplay,
    values: Values,
    columns: Sequence[_Column],
    metric: Metric,
    *,
    grouped: bool,
) -> Html:
    rows = {
        (split, opponent): [_mean(values, split, opponent, column) for column in columns]
        for split, opponent in dict.fromkeys(
            (cell.split, cell.opponent) for cell in crossplay.cells
        )
    }
    shown = [value for row in rows.values() for value in row if value is not None]
    scale = _Scale(min(shown), max(shown), decimals(shown))
    tables = []
    for split in splits_of(split for split, _ in rows):
        side = {opponent: row for (s, opponent), row in rows.items() if s == split}
        tables.append(
            el(
                "div",
                el("h3", side_name(split)),
                _heat_table(side, columns, scale, f"{metric.title}, {side_name(split)}", grouped),
            )
        )
    return el("div", tables, class_="stack" if grouped else "pair")


@dataclass(frozen=True, slots=True)
class _Scale:
    low: float
    high: float
    places: int

    def share(self, value: float) -> int:
        """Where a value lies between the smallest and the largest, in percent."""
        return (
            round(100 * (value - self.low) / (self.high - self.low)) if self.high > self.low else 50
        )


def _heat_table(
    side: Mapping[str, Sequence[float | None]],
    columns: Sequence[_Column],
    scale: _Scale,
    title: str,
    grouped: bool,
) -> Html:
    heads = []
    if grouped:
        groups = [(m, len(list(g))) for m, g in groupby(columns, key=lambda c: c.method)]
        spans = [el("th", m, colspan=n, scope="colgroup") for m, n in groups]
        heads.append(el("tr", el("td", ""), spans))
    names = [el("th", el("span", column.words), scope="col") for column in columns]
    heads.append(el("tr", el("th", "opponent", scope="col"), names))
    plain = {o: row for o, row in side.items() if o != "mixed"}
    lines = [_heat_row(_opponent(o), row, columns, scale) for o, row in plain.items()]
    foot = []
    if len(plain) > 1:
        means = [_average([row[i] for row in plain.values()]) for i in range(len(columns))]
        foot.append(_heat_row("mean", means, columns, scale))
    if "mixed" in side:
        foot.append(_heat_row(_opponent("mixed"), side["mixed"], columns, scale))
    content = el(
        "table",
        el("caption", title, class_="hidden-caption"),
        el("thead", heads),
        el("tbody", lines) if lines else None,
        el("tfoot", foot) if foot else None,
        class_="heat few" if len(columns) <= FEW else "heat",
        style=f"--n:{len(columns)}",
        data_chart=slug(f"heat {title}{' by seed' * grouped}"),
    )
    return scroll_box(content, title)


def _average(values: Sequence[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return sum(found) / len(found) if found else None


def _opponent(name: str) -> str:
    return "mixed line-ups" if name == "mixed" else name


def _heat_row(
    opponent: str, row: Sequence[float | None], columns: Sequence[_Column], scale: _Scale
) -> Html:
    cells = []
    for value, column in zip(row, columns, strict=True):
        if value is None:
            cells.append(el("td", "–", class_="none"))
            continue
        words = number(value, scale.places)
        who = column.method if column.words == column.method else f"{column.method} {column.words}"
        cells.append(
            el(
                "td",
                words,
                style=f"--v:{scale.share(value)}%",
                title=f"{who} with {opponent}: {words}",
            )
        )
    return el("tr", el("th", opponent, scope="row"), cells)
