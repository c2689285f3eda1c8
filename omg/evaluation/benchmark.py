"""The table of a benchmark: the best and the average test return of every team on every task, and
what random play earns there."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from omg.components.seeding import SeedTree
from omg.config.arguments import Arguments
from omg.config.loader import load_saved
from omg.config.schema import Config
from omg.envs.registry import make_batched
from omg.evaluation.curves import draw, on_common_steps
from omg.evaluation.statistics import Interval, Matrix, mean_interval
from omg.experiment.series import Curve, curves_of, read_curve, read_records
from omg.opponents.scripts import random_action
from omg.runners.rewards import team_reward
from omg.storage.files import new_file
from omg.types import OmgError

TEAM_RETURN = "test_return_mean"
GREEDY_RETURN = "test_greedy_return_mean"
RANDOM = "random play"


@dataclass(frozen=True, slots=True)
class Row:
    """What one method earned on one task. The maximum is taken at the test in which the mean over
    the seeds is largest; the average is over all tests of a run, then over the seeds."""

    task: str
    method: str
    tested: str  # as it plays, or greedily
    seeds: int
    steps: int  # environment steps of training, that all seeds reached
    max_return: float
    max_low: float | None
    max_high: float | None
    max_at: int
    average_return: float
    average_low: float | None
    average_high: float | None
    last_returns: str  # of every seed's last test


def write_benchmark(study: Path, *, random_episodes: int) -> list[Row]:
    """Read all runs under `study`/teams/<task>/; write benchmark.csv and a plot per task."""
    tasks = sorted(path for path in (study / "teams").glob("*") if path.is_dir())
    if not tasks:
        raise OmgError(f"{study} has no teams/<task>/<run>. Give the folder of a benchmark.")
    rows: list[Row] = []
    for task in tasks:
        groups = _by_method(task)
        rows += [row for name, runs in groups.items() for row in _rows(task.name, name, runs)]
        first = next(iter(groups.values()))[0]
        rows.append(_random_row(task.name, _config(first), random_episodes))
        curves = {
            name: [read_curve(run, TEAM_RETURN) for run in runs] for name, runs in groups.items()
        }
        every = [value for found in curves.values() for curve in found for value in curve.values]
        picture = study / f"benchmark-{task.name}.png"
        draw(curves, picture, metric=TEAM_RETURN, limits=reach(np.array(every)))
    _write(rows, study / "benchmark.csv")
    return rows


def _by_method(task: Path) -> dict[str, list[Path]]:
    """A task's runs by their label."""
    found: dict[str, list[Path]] = {}
    for run in sorted(path for path in task.iterdir() if (path / "config.yaml").is_file()):
        found.setdefault(_config(run).label, []).append(run)
    if not found:
        raise OmgError(f"{task} has no run. Train some, or remove the folder.")
    return found


def _config(run: Path) -> Config:
    return load_saved(run / "config.yaml", Arguments()).config


def _rows(task: str, method: str, runs: Sequence[Path]) -> Iterator[Row]:
    every = [curves_of(read_records(run)) for run in runs]
    greedy = _config(runs[0]).test_greedy
    for metric, tested in (
        (TEAM_RETURN, "greedy" if greedy else "as it plays"),
        (GREEDY_RETURN, "greedy"),
    ):
        curves = [curves[metric] for curves in every if metric in curves]
        if len(curves) == len(runs):
            yield row_of(task, method, tested, curves)


def row_of(task: str, method: str, tested: str, curves: Sequence[Curve]) -> Row:
    """What seeds of a method earned, each by the curve of its tests."""
    steps, values = on_common_steps(curves)
    best = int(values.mean(0).argmax())
    most, average = mean_interval(values[:, best]), mean_interval(values.mean(1))
    return Row(
        task=task,
        method=method,
        tested=tested,
        seeds=len(curves),
        steps=int(steps[-1]),
        **_interval("max", within_reach(most, values)),
        max_at=int(steps[best]),
        **_interval("average", within_reach(average, values)),
        last_returns=" ".join(f"{curve.values[-1]:.4g}" for curve in curves),
    )


def _interval(name: str, found: Interval) -> dict[str, Any]:
    return {f"{name}_return": found.value, f"{name}_low": found.low, f"{name}_high": found.high}


def reach(values: Matrix) -> tuple[float, float]:
    """What can be earned, as far as tests tell: Foraging's team return lies in [0, 1]. Where all
    tests stay within these bounds, intervals do, too."""
    if values.min() < 0:
        return -np.inf, np.inf
    return 0.0, 1.0 if values.max() <= 1 else np.inf


def within_reach(found: Interval, values: Matrix) -> Interval:
    """An interval that leaves what can be earned says nothing."""
    if found.low is None or found.high is None:
        return found
    low, high = reach(values)
    return Interval(found.value, max(found.low, low), min(found.high, high))


def random_returns(config: Config, episodes: int, *, seed: int = 0) -> Matrix:
    """The team's return in so many episodes of uniformly random available actions; the agents'
    rewards are put together as in a run's tests."""
    copies = min(64, episodes)
    env = make_batched(config.env, config.env_args, n_copies=copies)
    rng = SeedTree(seed).numpy("benchmark.random")
    shared, how = env.spec.shared_reward, config.reward_scalarisation
    found: list[float] = []
    quota = np.full(copies, episodes // copies)
    quota[: episodes % copies] += 1
    earned = np.zeros(copies)
    try:
        avail = env.reset(seed).avail
        while quota.any():
            flat = avail.reshape(-1, avail.shape[-1])
            actions = random_action(flat, rng.random(flat.shape)).reshape(avail.shape[:2])
            step = env.step(actions)
            earned += team_reward(step.reward, shared=shared, how=how)
            over = step.terminated | step.truncated
            counted = over & (quota > 0)
            found += earned[counted].tolist()
            quota -= counted
            earned[over] = 0.0
            avail = step.avail
    finally:
        env.close()
    return np.array(found)


def _random_row(task: str, config: Config, episodes: int) -> Row:
    returns = random_returns(config, episodes)
    mean, none = float(returns.mean()), (None, None)
    return Row(task, RANDOM, "as it plays", 0, 0, mean, *none, 0, mean, *none, "")


def _write(rows: Sequence[Row], path: Path) -> None:
    with new_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, [field.name for field in fields(Row)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def print_rows(rows: Sequence[Row]) -> None:
    """A table per task, within 80 columns."""
    for task in dict.fromkeys(row.task for row in rows):
        table = Table("method", "tested", "seeds", "maximum", "average", title=task)
        for row in (row for row in rows if row.task == task):
            most = _words(row.max_return, row.max_low, row.max_high)
            average = _words(row.average_return, row.average_low, row.average_high)
            seeds = str(row.seeds) if row.seeds else "-"
            table.add_row(row.method, row.tested, seeds, most, average)
        Console(width=None if sys.stdout.isatty() else 80).print(table)


def _words(value: float, low: float | None, high: float | None) -> str:
    interval = "" if low is None or high is None else f" ({low:.3g} to {high:.3g})"
    return f"{value:.3g}{interval}"
