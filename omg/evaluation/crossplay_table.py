"""The cells of a cross-play and what follows from them: the content of crossplay.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, FiniteFloat

from omg.evaluation.metric_bounds import within
from omg.evaluation.statistics import compare, mean_interval, performance_profile, summarise
from omg.evaluation.words import acting_words
from omg.runners.rollout import EpisodeStats
from omg.types import EnvSpec

FORMAT: Literal[1] = 1
Number: TypeAlias = FiniteFloat | None  # None where a value was not finite
# What the environment and the rollout call it -> what it is called here.
RENAMED = {"own_discounted_return": "discounted_return", "battle_won": "win_rate"}
FIRST = ("own_return", "discounted_return", "return", "ep_length", "win_rate")


def usual_order(names: Sequence[str]) -> list[str]:
    """The metrics everybody looks at first, then the others."""
    return [n for n in FIRST if n in names] + [n for n in names if n not in FIRST]


def cell_metrics(result: EpisodeStats) -> dict[str, float]:
    """Means over a cell's episodes. What an episode does not report (not a number) is left out of
    its mean."""
    values: dict[str, NDArray[Any]] = {
        **{RENAMED.get(name, name): value for name, value in result.info.items()},
        "return": result.team_returns,
        "ep_length": result.lengths,
        "truncated": result.truncated,
    }
    known = {name: array[np.isfinite(array)] for name, array in values.items()}
    return {
        name: float(known[name].mean(dtype=np.float64))
        for name in usual_order(list(known))
        if known[name].size
    }


def known_metrics(spec: EnvSpec) -> set[str]:
    """What is measured whoever plays."""
    always = {"own_return", "discounted_return", "return", "ep_length", "truncated"}
    return always | {RENAMED.get(name, name) for name in spec.statistics}


PERMUTED = ("own_return", "discounted_return", "ep_length")


def permuted_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """What changes when an agent is fed what it inferred in another episode."""
    return {f"permuted_{name}": metrics[name] for name in PERMUTED if name in metrics}


@dataclass(frozen=True, slots=True)
class Agent:
    """A trained agent."""

    id: str
    method: str
    seed: int | None = None
    run: str = ""
    config: str = ""
    am_model: str = ""
    env_steps: int | None = None
    model: str = ""  # the folder of its weights
    gamma: float | None = None
    prior_steps: int | None = None  # of the prior it began with; None: not known
    greedy: bool | None = None  # how it acted; None: as the table says

    @property
    def total_steps(self) -> int | None:
        """All steps that were played to train it, those of its prior included."""
        known = self.env_steps is not None and self.prior_steps is not None
        return (self.env_steps or 0) + (self.prior_steps or 0) if known else None


@dataclass(frozen=True, slots=True)
class Opponent:
    """A member of a pool."""

    id: str
    run: str
    algorithm: str
    seed: int | None
    skill: str
    split: str
    env_steps: int | None = None  # of a checkpoint: when it was saved


@dataclass(frozen=True, slots=True)
class Cell:
    """What one agent did against one opponent, or against drawn line-ups of one side."""

    agent: str
    opponent: str
    lineup: str
    split: str
    episodes: int
    metrics: Mapping[str, Number]


@dataclass(frozen=True, slots=True)
class Summary:
    """A method's metric, with a 95 % interval over its seeds where there are three; `seeds` are
    their means over the opponents, in the order of the seeds."""

    method: str
    split: str
    lineup: str
    metric: str
    mean: Number
    mean_low: Number = None
    mean_high: Number = None
    iqm: Number = None
    agents: int = 0
    opponents: int = 0
    seeds: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Paired:
    """A method minus a baseline with the same opponents, with Welch's 95 % interval, and how
    probable it is that a seed of the method has the higher value (rliable)."""

    method: str
    baseline: str
    split: str
    lineup: str
    metric: str
    difference: Number
    low: Number = None
    high: Number = None
    higher: Number = None


@dataclass(frozen=True, slots=True)
class Permutation:
    """What a method loses when it is fed what it inferred in another episode. Every agent is
    compared with itself, so the interval is over the seeds' own losses (`seeds`)."""

    method: str
    split: str
    lineup: str
    metric: str
    mean: float
    permuted: float
    difference: float
    low: Number = None
    high: Number = None
    seeds: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Against:
    """What the rows of `paired` in a file are read for."""

    baseline: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossplay:
    """All cells of some agents and opponents: the content of crossplay.json. Whatever is said of
    methods is computed from the cells."""

    format: Literal[1]
    env: str
    env_args: Mapping[str, Any] = field(default_factory=dict)
    episodes: int = 0
    finetune_episodes: int = 0
    seed: int = 0
    greedy: bool | None = True  # None: each agent as it plays, see `Agent.greedy`
    metric: str = ""  # shown first; empty: own_return
    replays: int = 0  # per method
    agents: tuple[Agent, ...]
    opponents: tuple[Opponent, ...]
    cells: tuple[Cell, ...]
    against: Annotated[tuple[Against, ...], Field(alias="paired")] = ()
    # Of a table that was just played:
    baseline: str = ""
    strangers: tuple[str, ...] = ()  # opponents that were trained with other env_args
    remarks: tuple[str, ...] = ()  # what a reader of its numbers should know
    files: tuple[Path, ...] = ()  # where it was written

    def acted_greedily(self, agent: Agent) -> bool:
        """Whether an agent took its best action; older files say it of all together."""
        return agent.greedy if agent.greedy is not None else bool(self.greedy)

    def acting(self) -> str:
        """How the agents acted, as a sentence."""
        return acting_words((agent.method, self.acted_greedily(agent)) for agent in self.agents)

    def rows(self) -> list[dict[str, Any]]:
        """One row per cell, e.g. for `pandas.DataFrame(table.rows())`."""
        members = {member.id: member for member in self.opponents}
        agents = {agent.id: agent for agent in self.agents}
        rows = []
        for cell in self.cells:
            agent, member = agents[cell.agent], members.get(cell.opponent)
            values = {name: cell.metrics.get(name, "") for name in self.metrics()}
            rows.append(
                {
                    "agent": cell.agent,
                    "method": agent.method,
                    "seed": agent.seed,
                    "split": cell.split,
                    "lineup": cell.lineup,
                    "opponent": cell.opponent,
                    "opponent_algorithm": member.algorithm if member else "",
                    "opponent_run": member.run if member else "",
                    "opponent_skill": member.skill if member else "",
                    "episodes": cell.episodes,
                    **values,
                }
            )
        return rows

    def steps(self) -> list[dict[str, Any]]:
        """One row per agent: how many steps were played to train it and its prior."""
        names = ("method", "seed", "config", "am_model", "env_steps", "prior_steps", "total_steps")
        return [
            {"agent": agent.id, **{name: getattr(agent, name) for name in names}}
            for agent in self.agents
        ]

    def methods(self) -> dict[str, list[str]]:
        """Ids of the agents by method, in the order given, seeds ascending."""
        found: dict[str, list[str]] = {agent.method: [] for agent in self.agents}
        for agent in sorted(self.agents, key=lambda agent: agent.seed or 0):
            found[agent.method].append(agent.id)
        return found

    def blocks(self) -> list[tuple[str, str]]:
        """Sides and kinds of line-up that were played."""
        return list(dict.fromkeys((cell.split, cell.lineup) for cell in self.cells))

    def metrics(self) -> list[str]:
        """Names of everything measured, the one shown first at the head."""
        names = usual_order(list(dict.fromkeys(n for cell in self.cells for n in cell.metrics)))
        return sorted(names, key=lambda name: name != self.metric)

    def columns(self, split: str, lineup: str) -> list[str]:
        """Opponents of a block."""
        return list(
            dict.fromkeys(c.opponent for c in self.cells if (c.split, c.lineup) == (split, lineup))
        )

    def matrix(
        self, agents: Sequence[str], split: str, lineup: str, metric: str
    ) -> NDArray[np.float64]:
        """Values [agents, opponents]; not a number where a cell lacks it."""
        block = [c for c in self.cells if (c.split, c.lineup) == (split, lineup)]
        known = {(c.agent, c.opponent): c.metrics for c in block}
        return np.array(
            [
                [
                    known.get((agent, name), {}).get(metric, np.nan)
                    for name in self.columns(split, lineup)
                ]
                for agent in agents
            ],
            np.float64,
        )

    def _tables(self) -> Iterator[tuple[tuple[str, str, str, str], NDArray[np.float64]]]:
        """Complete matrices by (method, side, line-up, metric)."""
        for split, lineup in self.blocks():
            for metric in self.metrics():
                for method, agents in self.methods().items():
                    values = self.matrix(agents, split, lineup, metric)
                    if metric.startswith("normalised_"):  # over opponents that have references
                        values = values[:, ~np.isnan(values).all(0)]
                    if values.size and np.isfinite(values).all():
                        yield (method, split, lineup, metric), values

    @property
    def compared_to(self) -> str:
        """The baseline: the one asked for, that of the file, or the first method."""
        named = self.baseline or next((row.baseline for row in self.against), "")
        return named or next(iter(self.methods()), "")

    def summaries(self) -> list[Summary]:
        """What is said of every method, side, kind of line-up and metric."""
        rows = []
        for (method, split, lineup, metric), values in self._tables():
            found = summarise(values)
            mean = found.mean
            rows.append(
                Summary(
                    *(method, split, lineup, metric),
                    *(mean.value, *within(metric, mean.low, mean.high), found.iqm),
                    *(len(found.seeds), found.opponents, found.seeds),
                )
            )
        return rows

    def differences(self, baseline: str = "") -> list[Paired]:
        """Differences of every other method to the baseline, or to another one."""
        baseline = baseline or self.compared_to
        tables = dict(self._tables())
        rows = []
        for (method, split, lineup, metric), values in tables.items():
            theirs = tables.get((baseline, split, lineup, metric))
            if method == baseline or theirs is None:
                continue
            found = compare(values, theirs)
            value = found.value
            rows.append(
                Paired(
                    *(method, baseline, split, lineup, metric),
                    *(value.value, value.low, value.high, found.improvement),
                )
            )
        return rows

    def permutations(self) -> list[Permutation]:
        """The permutation test of every method that infers something."""
        tables = dict(self._tables())
        rows = []
        for (method, split, lineup, metric), values in tables.items():
            other = tables.get((method, split, lineup, f"permuted_{metric}"))
            if other is not None:
                seeds = (other - values).mean(1)
                found = mean_interval(seeds)
                rows.append(
                    Permutation(
                        *(method, split, lineup, metric),
                        *(float(values.mean()), float(other.mean()), found.value),
                        low=found.low,
                        high=found.high,
                        seeds=tuple(seeds.tolist()),
                    )
                )
        return rows

    def permuted_metric(self) -> str:
        """The metric that the permutation test is shown in."""
        return self.metric if self.metric in PERMUTED else PERMUTED[0]

    def summary(self) -> list[dict[str, Any]]:
        """`summaries`, e.g. for pandas."""
        return [asdict(row) for row in self.summaries()]

    def paired(self, baseline: str = "") -> list[dict[str, Any]]:
        """`differences`, e.g. for pandas."""
        return [asdict(row) for row in self.differences(baseline)]

    def profiles(self, metric: str = "", points: int = 41) -> list[dict[str, Any]]:
        """Performance profiles: per method the share of seeds and opponents above thresholds that
        span what all methods of a block reached; of one metric, or of all."""
        tables = {key: x for key, x in self._tables() if key[3] == (metric or key[3])}
        rows = []
        for (method, split, lineup, name), values in tables.items():
            block = [x for key, x in tables.items() if key[1:] == (split, lineup, name)]
            ends = min(float(x.min()) for x in block), max(float(x.max()) for x in block)
            thresholds = np.linspace(*ends, points)
            place = {"method": method, "split": split, "lineup": lineup, "metric": name}
            shares = performance_profile(values, thresholds)
            rows += [
                {**place, "threshold": float(t), "share": float(share)}
                for t, share in zip(thresholds, shares, strict=True)
            ]
        return rows

    def scores(self) -> dict[str, dict[str, dict[str, list[list[float]]]]]:
        """What rliable reads: by metric and "<side> <line-up>", per method [runs, opponents]."""
        found: dict[str, dict[str, dict[str, list[list[float]]]]] = {}
        for (method, split, lineup, metric), values in self._tables():
            block = found.setdefault(metric, {}).setdefault(f"{split} {lineup}", {})
            block[method] = values.tolist()
        return found

    def as_dict(self) -> dict[str, Any]:
        """The content of crossplay.json."""
        content = asdict(self)
        for name in ("against", "baseline", "strangers", "remarks", "files"):
            del content[name]
        found = {"summary": self.summary(), "paired": self.paired()}
        return {**content, **found, "permutation": [asdict(row) for row in self.permutations()]}
