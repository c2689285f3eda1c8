"""What there is to gain from knowing the others: between a plain agent and one that is told (the
oracle), and between a plain agent and the best response to each opponent alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from omg.evaluation.crossplay_table import Cell, Number, usual_order
from omg.evaluation.metric_bounds import lower_is_better
from omg.evaluation.statistics import Welch, mean_interval
from omg.evaluation.words import ACTED, SIDES, acting_words, spoken

FORMAT: Literal[1] = 1
RANDOM = "random play"
RESPONSE = "best response"
ROLES = ("plain", "control", "oracle")
Gap = Literal["oracle - plain", "control - plain", "best response - plain"]
NORMALISED = "normalised_"


@dataclass(frozen=True, slots=True)
class Agents:
    """Ids of the agents that were measured, by what they are for; `responses` by opponent."""

    plain: tuple[str, ...]
    control: tuple[str, ...] = ()
    oracle: tuple[str, ...] = ()
    responses: Mapping[str, tuple[str, ...]] | None = None

    @property
    def all_responses(self) -> list[str]:
        """Ids of the best responses to whomever."""
        return [agent for each in (self.responses or {}).values() for agent in each]


@dataclass(frozen=True, slots=True)
class OpponentRow:
    """What is earned with one opponent, and by how much its best response beats the plain agent."""

    opponent: str
    split: str
    metric: str
    random: Number
    plain: Number
    control: Number
    oracle: Number
    best_response: Number
    difference: Number
    low: Number
    high: Number
    seeds: int


@dataclass(frozen=True, slots=True)
class SideRow:
    """A gap over all opponents of a side; `headroom` is None where there are too few seeds."""

    split: str
    metric: str
    gap: Gap
    difference: float
    low: Number
    high: Number
    headroom: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """The content of headroom.json. Whatever is said of it is computed from the cells."""

    format: Literal[1]
    env: str
    env_args: Mapping[str, Any]
    metric: str
    episodes: int
    seed: int
    greedy: bool | None = None  # what all were told; None: each acted as it plays
    names: Mapping[str, str]  # what the agents are called: plain, control, oracle
    agents: Agents
    acted: Mapping[str, bool] = field(default_factory=dict)  # greedily? Older files do not say
    which: str = "last"  # the weights that were measured: last, best or a step
    cells: tuple[Cell, ...]

    def acting(self) -> str:
        """How the agents acted, as a sentence; empty where the file does not say."""
        groups = {
            self.names[role]: getattr(self.agents, role) for role in ROLES if role in self.names
        }
        groups["best responses"] = self.agents.all_responses
        told = [(who, self.acted[i]) for who, ids in groups.items() for i in ids if i in self.acted]
        return acting_words(told) if told else ""

    def metrics(self) -> list[str]:
        """What was measured, the primary metric first."""
        known = usual_order(list(dict.fromkeys(n for cell in self.cells for n in cell.metrics)))
        return sorted(known, key=lambda name: name != self.metric)

    def opponents(self, split: str = "") -> dict[str, str]:
        """Opponents and their sides."""
        return {c.opponent: c.split for c in self.cells if split in ("", c.split)}

    def splits(self) -> list[str]:
        """The sides that were played."""
        return [s for s in SIDES if s in {c.split for c in self.cells}]

    def values(self, agents: Sequence[str], opponent: str, metric: str) -> list[float]:
        """What each of some agents earned with an opponent; nothing where one lacks the metric."""
        known = {c.agent: c.metrics.get(metric) for c in self.cells if c.opponent == opponent}
        found = [known.get(agent) for agent in agents]
        return [value for value in found if value is not None] if None not in found else []

    def responses(self, opponent: str) -> tuple[str, ...]:
        """The best responses to an opponent, one per seed."""
        return (self.agents.responses or {}).get(opponent, ())

    def rows(self, metric: str = "") -> list[OpponentRow]:
        """One row per opponent of a metric (the primary one)."""
        return list(self._rows(metric or self.metric))

    def _rows(self, metric: str) -> Iterator[OpponentRow]:
        for opponent, split in self.opponents().items():
            plain = self.values(self.agents.plain, opponent, metric)
            if not plain:
                continue
            best = self.values(self.responses(opponent), opponent, metric)
            gap = Welch.of(best, plain).interval() if best else None
            yield OpponentRow(
                opponent=opponent,
                split=split,
                metric=metric,
                random=_mean(self.values((RANDOM,), opponent, metric)),
                plain=_mean(plain),
                control=_mean(self.values(self.agents.control, opponent, metric)),
                oracle=_mean(self.values(self.agents.oracle, opponent, metric)),
                best_response=_mean(best),
                difference=gap.value if gap else None,
                low=gap.low if gap else None,
                high=gap.high if gap else None,
                seeds=len(best),
            )

    def sides(self, metric: str = "") -> list[SideRow]:
        """The gaps of each side: every seed counts by its mean over the side's opponents."""
        metric = metric or self.metric
        rows: list[SideRow] = []
        for split in self.splits():
            plain = self._seeds(dict.fromkeys(self.opponents(split), self.agents.plain), metric)
            gaps: tuple[tuple[Gap, Mapping[str, Sequence[str]]], ...] = (
                ("control - plain", dict.fromkeys(self.opponents(split), self.agents.control)),
                ("oracle - plain", dict.fromkeys(self.opponents(split), self.agents.oracle)),
                ("best response - plain", {o: self.responses(o) for o in self.opponents(split)}),
            )
            for gap, agents in gaps:
                better = self._seeds(agents, metric)
                if better and plain:
                    found = Welch.of(better, plain).interval()
                    room = _room(found.low, found.high, metric)
                    place = (split, metric, gap)
                    rows.append(SideRow(*place, found.value, found.low, found.high, room))
        return rows

    def _seeds(self, agents: Mapping[str, Sequence[str]], metric: str) -> list[float]:
        """Means over opponents of the first, second … agent of each; nothing if one lacks any."""
        values = [self.values(each, opponent, metric) for opponent, each in agents.items()]
        count = min(map(len, values), default=0)
        return [float(np.mean([v[i] for v in values])) for i in range(count)]

    def references(self, metric: str) -> dict[str, tuple[float, float]]:
        """Random play and best response by opponent, where the latter is one: surely better than
        random play (with three seeds, the worse end of its interval), and in the mean not worse
        than the plain agent, which learned with everybody."""
        found: dict[str, tuple[float, float]] = {}
        sign = -1.0 if lower_is_better(metric) else 1.0
        for opponent in self.opponents():
            best = self.values(self.responses(opponent), opponent, metric)
            random = self.values((RANDOM,), opponent, metric)
            plain = self.values(self.agents.plain, opponent, metric)
            if not (best and random):
                continue
            mean = mean_interval(best)
            ends = (mean.low, mean.high) if mean.low is not None else (mean.value, mean.value)
            worst = min(sign * (end or 0.0) for end in ends)
            beaten = bool(plain) and sign * mean.value < sign * float(np.mean(plain))
            if worst > sign * random[0] and not beaten:
                found[opponent] = random[0], mean.value
        return found

    def as_dict(self) -> dict[str, Any]:
        """The content of headroom.json."""
        rows = [asdict(row) for row in self.rows()]
        return {**asdict(self), "rows": rows, "sides": [asdict(row) for row in self.sides()]}


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _room(low: float | None, high: float | None, metric: str) -> bool | None:
    """Whether there is something to gain beyond doubt."""
    if low is None or high is None:
        return None
    return high < 0 if lower_is_better(metric) else low > 0


def normalised(cells: Sequence[Cell], found: Headroom, metrics: Sequence[str]) -> tuple[Cell, ...]:
    """Cells with metrics between random play (0) and the best response (1) to the opponent; what
    has no such references stays as it is."""
    references = {metric: found.references(metric) for metric in metrics}
    result = []
    for cell in cells:
        more = {}
        for metric, known in references.items():
            value = cell.metrics.get(metric)
            if value is not None and cell.opponent in known and cell.lineup == "homologue":
                random, best = known[cell.opponent]
                more[NORMALISED + metric] = (value - random) / (best - random)
        finite = {name: value for name, value in more.items() if math.isfinite(value)}
        metrics_now = {**cell.metrics, **finite}
        result.append(
            Cell(cell.agent, cell.opponent, cell.lineup, cell.split, cell.episodes, metrics_now)
        )
    return tuple(result)


def references_remark(found: Headroom, acted: Collection[bool], which: str) -> str:
    """Sentences where the best responses acted in another way than those they are to measure, or
    with other weights; empty if not."""
    return " ".join(filter(None, (_ways_remark(found, acted), _weights_remark(found, which))))


def _weights_remark(found: Headroom, which: str) -> str:
    if found.which == which or not found.agents.all_responses:
        return ""
    return (
        f"Normalised returns compare weights of two kinds: best responses had which={found.which}, "
        f"these agents which={which}."
    )


def _ways_remark(found: Headroom, acted: Collection[bool]) -> str:
    best = {found.acted[i] for i in found.agents.all_responses if i in found.acted}
    if len(best | set(acted)) < 2 or not best:
        return ""
    ways = [
        " and ".join(ACTED[how] for how in sorted(each, reverse=True))
        for each in (best, set(acted))
    ]
    return (
        f"Normalised returns compare two ways to act: best responses acted {ways[0]}, these agents "
        f"{ways[1]}."
    )


# --- in words --------------------------------------------------------------------------------

_ENOUGH: Callable[[float | None], str] = lambda value: "-" if value is None else f"{value:.3f}"  # noqa: E731
COLUMNS = (
    "opponent",
    "side",
    "random",
    "plain",
    "control",
    "oracle",
    "best response",
    "gain [95 %]",
)


def gap_words(low: float | None, high: float | None, value: float) -> str:
    """A difference with its interval."""
    return f"{value:+.3f}" + ("" if low is None else f" [{low:+.3f}, {high:+.3f}]")


def opponent_words(found: Headroom) -> list[tuple[str, ...]]:
    """The rows of the primary metric, for a terminal; `COLUMNS` are their titles."""
    return [
        (
            *(row.opponent, SIDES.get(row.split, row.split)),
            *map(_ENOUGH, (row.random, row.plain, row.control, row.oracle, row.best_response)),
            "-" if row.difference is None else gap_words(row.low, row.high, row.difference),
        )
        for row in found.rows()
    ]


def side_words(found: Headroom) -> list[str]:
    """The gaps of every side in sentences."""
    return [
        f"{SIDES[row.split]} opponents, {row.gap}: {gap_words(row.low, row.high, row.difference)}"
        for row in found.sides()
    ]


def closing_words(found: Headroom) -> list[str]:
    """What is said below the table: the gaps, how the agents acted, and warnings."""
    return [said for said in (*side_words(found), found.acting(), *warnings(found)) if said]


def warnings(found: Headroom) -> list[str]:
    """Sentences to put on top of a study: where there is no headroom, where none can be told, and
    where best responses are none."""
    said = []
    for split in found.splits():
        gaps = {r.gap: r for r in found.sides() if r.split == split}
        gaps.pop("control - plain", None)
        without = [r for r in gaps.values() if r.headroom is False]
        told = ", ".join(f"{r.gap} {gap_words(r.low, r.high, r.difference)}" for r in without)
        oracle = gaps.get("oracle - plain")
        side = f"{SIDES[split]} opponents"
        if without and oracle is not None and oracle.headroom:
            said.append(
                f"The best responses to {side} are no yardstick in {spoken(found.metric)}: {told} "
                "includes zero or less, while the oracle gains. Train them for longer, or with "
                "memory (headroom.best_response)."
            )
        elif without:
            said.append(
                f"No headroom with {side} in {spoken(found.metric)}: {told} "
                "includes zero or less. Methods cannot be told apart here by what they infer."
            )
        elif gaps and all(r.headroom is None for r in gaps.values()):
            said.append(f"Headroom with {side} cannot be told: fewer than three seeds.")
    return said
