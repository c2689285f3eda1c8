"""What the CSV files beside a results page carry, and what follows from them: means over seeds with
half intervals, each seed, differences, permutation tests."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path

import numpy as np

from omg.evaluation.statistics import half_width, probability_of_improvement, welch_interval

PLACES = ("agent", "method", "seed", "split", "side", "lineup", "opponent", "episodes")
# Columns that say whom a row is about.
NAMES = ("method", "baseline", "other", "algorithm", "map", "player")
_NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?(?:e-?\d+)?")
Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Fact:
    """A number that a file carries; `half` its half interval, `who` the methods it is about."""

    value: float
    half: float | None = None
    who: frozenset[str] = frozenset()
    metric: str = ""
    source: str = ""  # which row of which file, or rows that belong together; empty: cross-play


def facts_of(folder: Path) -> list[Fact]:
    """All facts of the files in a folder."""
    found: list[Fact] = []
    for path in sorted(folder.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        found += _crossplay(rows) if path.name == "crossplay.csv" else _plain(rows, path.stem)
    return found


# --- any table -----------------------------------------------------------------------------------


def _source(row: dict[str, str], file: str, number: int) -> str:
    """Rows of one configuration, or of one player in several metrics, belong together."""
    if "configuration" in row:
        return f"{file}/{row['configuration']}"
    names = [v for k, v in row.items() if k != "metric" and v and not _NUMBER.search(v)]
    return f"{file}/{'/'.join(names)}" if "metric" in row and names else f"{file}/{number}"


def _plain(rows: Sequence[dict[str, str]], file: str) -> Iterator[Fact]:
    """Every number of every cell, halves of intervals, and means over seeds."""
    for number, row in enumerate(rows):
        source = _source(row, file, number)
        who = frozenset(row[k] for k in NAMES if row.get(k))
        metric = row.get("metric", "")
        numbers = {k: float(v) for k, v in row.items() if v and _is_number(v)}
        half = numbers.get("half_interval", numbers.get("half"))
        for key, text in row.items():
            if key in numbers:
                yield Fact(numbers[key], half, who, metric, source)
            elif text:
                yield from (
                    Fact(_read(n), None, who, metric, source) for n in _NUMBER.findall(text)
                )
        for key in list(numbers):
            low, high = numbers.get(f"{key}_low"), numbers.get(f"{key}_high")
            low, high = (
                (numbers.get("low"), numbers.get("high")) if key == "difference" else (low, high)
            )
            if low is not None and high is not None:
                yield Fact(numbers[key], (high - low) / 2, who, metric, source)
    yield from _over_seeds(rows, file)


def _over_seeds(rows: Sequence[dict[str, str]], file: str) -> Iterator[Fact]:
    """Means over the seeds of each configuration, and the differences of their means."""
    if not rows or not {"configuration", "seed"} <= set(rows[0]):
        return
    for key in (
        k for k, v in rows[0].items() if _is_number(v) and k not in ("seed", "configuration")
    ):
        groups: dict[str, list[float]] = {}
        for row in rows:
            if _is_number(row[key]):
                groups.setdefault(row["configuration"], []).append(float(row[key]))
        for name, values in groups.items():
            yield replace(_mean(values, frozenset(), key), source=f"{file}/{name}")
        for mine, theirs in permutations(groups.values(), 2):
            yield _difference(mine, theirs, frozenset(), key)


def _is_number(text: str | None) -> bool:
    try:
        return text is not None and math.isfinite(float(text))
    except ValueError:
        return False


def _read(text: str) -> float:
    return float(text.replace("−", "-"))


def _mean(values: Sequence[float], who: frozenset[str], metric: str) -> Fact:
    half = float(half_width(np.std(values, ddof=1), len(values))) if len(values) > 2 else None
    return Fact(float(np.mean(values)), half, who, metric)


def _difference(
    mine: Sequence[float], theirs: Sequence[float], who: frozenset[str], metric: str
) -> Fact:
    found = welch_interval(mine, theirs)
    half = None if found.high is None else found.high - found.value
    return Fact(found.value, half, who, metric)


# --- cross-play ----------------------------------------------------------------------------------


def _crossplay(rows: Sequence[dict[str, str]]) -> Iterator[Fact]:
    """What is said of methods, from the cells: seeds count by their mean over the opponents."""
    metrics = [k for k in rows[0] if k not in PLACES and not k.startswith("opponent_")]
    blocks = dict.fromkeys((row["split"], row["lineup"]) for row in rows)
    for split, lineup in blocks:
        block = [row for row in rows if (row["split"], row["lineup"]) == (split, lineup)]
        tables = {metric: _matrices(block, metric) for metric in metrics}
        for metric, methods in tables.items():
            yield from _block(metric, methods, tables.get(f"permuted_{metric}", {}))


def _matrices(rows: Sequence[dict[str, str]], metric: str) -> dict[str, Matrix]:
    """Values [seeds, opponents] of each method that has the metric everywhere."""
    found = {}
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == method]
        if all(_is_number(row[metric]) for row in mine):
            seeds = sorted({int(row["seed"]) for row in mine})
            found[method] = np.array(
                [[float(r[metric]) for r in mine if int(r["seed"]) == seed] for seed in seeds]
            )
    return found


def _block(metric: str, methods: dict[str, Matrix], permuted: dict[str, Matrix]) -> Iterator[Fact]:
    for method, values in methods.items():
        who, seeds = frozenset([method]), values.mean(1).tolist()
        mean = _mean(seeds, who, metric)
        yield mean
        yield from (Fact(seed, None, who, metric) for seed in seeds)
        if mean.half is not None:
            yield Fact(mean.value - mean.half, None, who, metric)
            yield Fact(mean.value + mean.half, None, who, metric)
        if method in permuted:
            yield _mean((permuted[method] - values).mean(1).tolist(), who, metric)
    for (mine, x), (theirs, y) in permutations(methods.items(), 2):
        who, seeds = frozenset([mine, theirs]), (x.mean(1).tolist(), y.mean(1).tolist())
        gap = _difference(*seeds, who, metric)
        yield gap
        if gap.half is not None:
            yield from (Fact(gap.value + s * gap.half, None, who, metric) for s in (-1, 1))
        if len(x) == len(y):  # as older pages pair seeds, which new ones do not
            yield _mean((x.mean(1) - y.mean(1)).tolist(), who, metric)
        yield Fact(probability_of_improvement(x, y), None, who, metric)
        yield Fact(1 - probability_of_improvement(x, y), None, who, metric)
