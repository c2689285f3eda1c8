"""The cells of a cross-play and what follows from them: the content of crossplay.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omg.evaluation.agent_runs import AgentRun
from omg.evaluation.statistics import compare, summarise
from omg.opponents.pool import LineupMode, PoolMember, Split
from omg.runners.testing import TestResult

FORMAT = 1
# What the environment and the rollout call it -> what it is called here.
RENAMED = {"own_discounted_return": "discounted_return", "battle_won": "win_rate"}
FIRST = ("own_return", "discounted_return", "return", "ep_length", "win_rate")


def usual_order(names: Sequence[str]) -> list[str]:
    """The metrics everybody looks at first, then the others."""
    return [n for n in FIRST if n in names] + [n for n in names if n not in FIRST]


def cell_metrics(result: TestResult) -> dict[str, float]:
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


def permuted_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """What changes when an agent is fed what it inferred in another episode."""
    kept = ("own_return", "discounted_return", "ep_length")
    return {f"permuted_{name}": metrics[name] for name in kept if name in metrics}


@dataclass(frozen=True, slots=True)
class Cell:
    """What one agent did against one opponent, or against drawn line-ups of one side."""

    agent: str
    opponent: str
    lineup: LineupMode
    split: Split
    episodes: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossplay:
    """All cells of some agents (by id) and opponents."""

    agents: Mapping[str, AgentRun]
    opponents: tuple[PoolMember, ...]
    cells: tuple[Cell, ...]
    baseline: str
    episodes: int
    finetune_episodes: int
    seed: int
    greedy: bool = True
    files: tuple[Path, ...] = ()  # where it was written

    def rows(self) -> list[dict[str, Any]]:
        """One row per cell, e.g. for `pandas.DataFrame(table.rows())`."""
        members = {member.id: member for member in self.opponents}
        rows = []
        for cell in self.cells:
            agent, member = self.agents[cell.agent], members.get(cell.opponent)
            values = {name: cell.metrics.get(name, "") for name in self.metrics()}
            rows.append(
                {
                    "agent": cell.agent,
                    "method": agent.method,
                    "seed": agent.config.seed,
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

    def methods(self) -> dict[str, list[str]]:
        """Ids of the agents by method, in the order given, seeds ascending."""
        found: dict[str, list[str]] = {agent.method: [] for agent in self.agents.values()}
        for agent_id in sorted(self.agents, key=lambda a: self.agents[a].config.seed):
            found[self.agents[agent_id].method].append(agent_id)
        return found

    def blocks(self) -> list[tuple[Split, LineupMode]]:
        """Sides and kinds of line-up that were played."""
        return list(dict.fromkeys((cell.split, cell.lineup) for cell in self.cells))

    def metrics(self) -> list[str]:
        """Names of everything measured."""
        return usual_order(list(dict.fromkeys(n for cell in self.cells for n in cell.metrics)))

    def columns(self, split: Split, lineup: LineupMode) -> list[str]:
        """Opponents of a block."""
        return list(
            dict.fromkeys(c.opponent for c in self.cells if (c.split, c.lineup) == (split, lineup))
        )

    def matrix(
        self, agents: Sequence[str], split: Split, lineup: LineupMode, metric: str
    ) -> NDArray[np.float64]:
        """Values [agents, opponents]; not a number where a cell lacks it."""
        block = [c for c in self.cells if (c.split, c.lineup) == (split, lineup)]
        known = {(c.agent, c.opponent): c.metrics for c in block}
        return np.array(
            [
                [known[agent, name].get(metric, np.nan) for name in self.columns(split, lineup)]
                for agent in agents
            ],
            np.float64,
        )

    def seeds(self, method: str) -> list[int]:
        """Seeds of a method, in the order of its agents."""
        return [self.agents[agent].config.seed for agent in self.methods()[method]]

    def _tables(self) -> Iterator[tuple[tuple[str, Split, LineupMode, str], NDArray[np.float64]]]:
        """Complete matrices by (method, side, line-up, metric)."""
        for split, lineup in self.blocks():
            for metric in self.metrics():
                for method, agents in self.methods().items():
                    values = self.matrix(agents, split, lineup, metric)
                    if np.isfinite(values).all():
                        yield (method, split, lineup, metric), values

    def summary(self) -> list[dict[str, Any]]:
        """Mean and interquartile mean of every method, side, kind of line-up and metric."""
        rows = []
        for (method, split, lineup, metric), values in self._tables():
            found = summarise(values)
            rows.append(
                {
                    "method": method,
                    "split": split,
                    "lineup": lineup,
                    "metric": metric,
                    "mean": found.mean.value,
                    "mean_low": found.mean.low,
                    "mean_high": found.mean.high,
                    "iqm": found.iqm.value,
                    "iqm_low": found.iqm.low,
                    "iqm_high": found.iqm.high,
                    "agents": found.rows,
                    "opponents": found.columns,
                }
            )
        return rows

    def paired(self, baseline: str = "") -> list[dict[str, Any]]:
        """Differences of every other method to the baseline, or to another one."""
        baseline = baseline or self.baseline
        tables = dict(self._tables())
        rows = []
        for (method, split, lineup, metric), values in tables.items():
            theirs = tables.get((baseline, split, lineup, metric))
            if method == baseline or theirs is None:
                continue
            found = compare(
                values,
                theirs,
                method_seeds=self.seeds(method),
                baseline_seeds=self.seeds(baseline),
            )
            rows.append(
                {
                    "method": method,
                    "baseline": baseline,
                    "split": split,
                    "lineup": lineup,
                    "metric": metric,
                    "difference": found.value.value,
                    "low": found.value.low,
                    "high": found.value.high,
                    "same_seeds": found.same_seeds,
                }
            )
        return rows

    def as_dict(self) -> dict[str, Any]:
        """The content of crossplay.json."""
        config = next(iter(self.agents.values())).config
        return {
            "format": FORMAT,
            "env": config.env,
            "env_args": config.as_dict()["env_args"],
            "episodes": self.episodes,
            "finetune_episodes": self.finetune_episodes,
            "seed": self.seed,
            "greedy": self.greedy,
            "agents": [_agent_row(agent_id, agent) for agent_id, agent in self.agents.items()],
            "opponents": [_opponent_row(member) for member in self.opponents],
            "cells": [
                {
                    "agent": c.agent,
                    "opponent": c.opponent,
                    "lineup": c.lineup,
                    "split": c.split,
                    "episodes": c.episodes,
                    "metrics": dict(c.metrics),
                }
                for c in self.cells
            ],
            "summary": self.summary(),
            "paired": self.paired(),
        }


def _agent_row(agent_id: str, agent: AgentRun) -> dict[str, Any]:
    config = agent.config
    return {
        "id": agent_id,
        "method": agent.method,
        "seed": config.seed,
        "run": str(agent.folder),
        "config": config.name,
        "am_model": config.am_model,
        "env_steps": agent.env_steps,
        "model": agent.model.name,
        "gamma": config.gamma,
    }


def _opponent_row(member: PoolMember) -> dict[str, Any]:
    return {
        "id": member.id,
        "run": member.run,
        "algorithm": member.algorithm,
        "seed": member.seed,
        "skill": member.skill,
        "split": member.split,
    }
