"""What the CSV files beside a results page carry, and what follows from them: means over seeds with
half intervals, each seed, differences, permutation tests."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, permutations
from pathlib import Path

import numpy as np

from omg.evaluation.statistics import half_width, probability_of_improvement, welch_interval

PLACES = ("agent", "method", "seed", "split", "side", "lineup", "opponent", "episodes")
# Columns that say whom a row is about.
NAMES = ("method", "baseline", "other", "algorithm", "map", "player")
_NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?(?:e-?\d+)?")
_LIST = re.compile(r"(?=.*\d)[\d\s.,e\[\]−-]+")
Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]


SIDES = {"train": "seen", "validation": "validation", "heldout": "unseen"}
PAPER = "paper.csv"  # figures of others, by task and method
CURVES = "curves.csv"  # tests during training: so many that any number would be among them


@dataclass(frozen=True, slots=True)
class Fact:
    """A number that a file carries, and what it is about."""

    value: float
    half: float | Callable[[], float | None] | None = None  # its half interval, or how to get it
    who: tuple[str, ...] = ()  # methods, in lower case; of a difference the first minus the second
    metric: str = ""
    column: str = ""  # of the file; "difference" also for those from cross-play
    side: str = ""  # one of SIDES' values, where the file says it
    lineup: str = ""
    task: str = ""
    texts: frozenset[str] = frozenset()  # the words of its row, in lower case
    source: str = ""  # which row of which file, or rows that belong together; empty: cross-play

    def width(self) -> float | None:
        """The half interval."""
        return self.half() if callable(self.half) else self.half


def facts_of(folder: Path) -> list[Fact]:
    """All facts of the files in a folder."""
    found: list[Fact] = []
    for path in sorted(folder.glob("*.csv")):
        if path.name == CURVES:
            continue
        rows = _rows(path)
        if path.name == PAPER:
            found += _of_others(rows)
        else:
            found += _crossplay(rows) if path.name == "crossplay.csv" else _plain(rows, path.stem)
    return found


def methods_in(folder: Path) -> set[str]:
    """The methods of a study, as its files write them."""
    rows = (row for path in sorted(folder.glob("*.csv")) for row in _rows(path))
    return {row[key] for row in rows for key in NAMES if row.get(key)}


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _of_others(rows: Sequence[dict[str, str]]) -> Iterator[Fact]:
    """Figures of others; their columns on pages are called "the paper: …"."""
    for row in rows:
        who = (row["method"].lower(),)
        for key in ("maximum", "average"):
            if row[key]:
                half = float(row[f"{key}_half"]) if row[f"{key}_half"] else None
                yield Fact(float(row[key]), half, who, column=f"the paper: {key}", task=row["task"])


# --- any table -----------------------------------------------------------------------------------


def _source(row: dict[str, str], file: str, number: int) -> str:
    """Rows of one configuration, or of one player in several metrics, belong together."""
    if "configuration" in row:
        return f"{file}/{row['configuration']}"
    names = [v for k, v in row.items() if k != "metric" and v and not _NUMBER.search(v)]
    together = "metric" in row and "p" not in row and names
    return f"{file}/{'/'.join(names)}" if together else f"{file}/{number}"


def _plain(rows: Sequence[dict[str, str]], file: str) -> Iterator[Fact]:
    """Every number of every cell, halves of intervals, and means over seeds."""
    for number, row in enumerate(rows):
        fact = partial(
            Fact,
            who=tuple(row[key].lower() for key in NAMES if row.get(key)),
            metric=row.get("metric", ""),
            side=SIDES.get(row.get("split", ""), ""),
            lineup=row.get("lineup", ""),
            task=row.get("task", ""),
            texts=frozenset(v.lower() for v in row.values() if v and not _is_number(v)),
            source=_source(row, file, number),
        )
        numbers = {k: float(v) for k, v in row.items() if v and _is_number(v)}
        half = numbers.get("half_interval", numbers.get("half"))
        for key, text in row.items():
            if key in numbers:
                yield fact(numbers[key], half, column=key)
            elif _LIST.fullmatch(text or "-"):
                yield from (fact(_read(n), None) for n in _NUMBER.findall(text))
        for key in list(numbers):
            low, high = numbers.get(f"{key}_low"), numbers.get(f"{key}_high")
            low, high = (
                (numbers.get("low"), numbers.get("high")) if key == "difference" else (low, high)
            )
            if low is not None and high is not None:
                yield fact(numbers[key], (high - low) / 2, column=key)
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
            yield replace(_mean(values, Fact(0.0, column=key)), source=f"{file}/{name}")
        for mine, theirs in permutations(groups.values(), 2):
            yield _difference(mine, theirs, Fact(0.0))


def _is_number(text: str | None) -> bool:
    try:
        return text is not None and math.isfinite(float(text))
    except ValueError:
        return False


def _read(text: str) -> float:
    return float(text.replace("−", "-"))


def _mean(values: Sequence[float], about: Fact) -> Fact:
    half = float(half_width(np.std(values, ddof=1), len(values))) if len(values) > 2 else None
    return replace(about, value=float(np.mean(values)), half=half)


def _difference(mine: Sequence[float], theirs: Sequence[float], about: Fact) -> Fact:
    value = float(np.mean(mine) - np.mean(theirs))
    return replace(about, value=value, half=partial(_welch, mine, theirs), column="difference")


def _welch(mine: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Half of Welch's interval; asked for only where the difference is the one that is written."""
    found = welch_interval(mine, theirs)
    return None if found.high is None else found.high - found.value


# --- cross-play ----------------------------------------------------------------------------------


def _crossplay(rows: Sequence[dict[str, str]]) -> Iterator[Fact]:
    """What is said of methods, from the cells: seeds count by their mean over the opponents."""
    metrics = [k for k in rows[0] if k not in PLACES and not k.startswith("opponent_")]
    blocks = dict.fromkeys((row["split"], row["lineup"]) for row in rows)
    for split, lineup in blocks:
        block = [row for row in rows if (row["split"], row["lineup"]) == (split, lineup)]
        about = Fact(0.0, side=SIDES.get(split, ""), lineup=lineup)
        tables = {metric: _matrices(block, metric) for metric in metrics}
        for metric, methods in tables.items():
            permuted = tables.get(f"permuted_{metric}", {})
            yield from _block(replace(about, metric=metric), methods, permuted)


def _matrices(rows: Sequence[dict[str, str]], metric: str) -> dict[str, Matrix]:
    """Values [seeds, opponents] of each method that has the metric everywhere."""
    found = {}
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == method]
        if all(_is_number(row[metric]) for row in mine):
            seeds = sorted({int(row["seed"]) for row in mine})
            found[method.lower()] = np.array(
                [[float(r[metric]) for r in mine if int(r["seed"]) == seed] for seed in seeds]
            )
    return found


def _block(about: Fact, methods: dict[str, Matrix], permuted: dict[str, Matrix]) -> Iterator[Fact]:
    for method, values in methods.items():
        seeds = values.mean(1).tolist()
        mine = replace(about, who=(method,), texts=frozenset([method]))
        mean = _mean(seeds, mine)
        yield mean
        yield replace(mine, value=len(seeds), column="seeds")
        yield from (replace(mine, value=seed) for seed in seeds)
        if (half := mean.width()) is not None:
            yield from (replace(mine, value=mean.value + s * half) for s in (-1, 1))
        if method in permuted:
            changes = (permuted[method] - values).mean(1).tolist()
            yield _mean(changes, replace(mine, column="permuted"))
    for (first, x), (second, y) in combinations(methods.items(), 2):
        both = replace(about, who=(first, second), texts=frozenset([first, second]))
        yield _difference(x.mean(1).tolist(), y.mean(1).tolist(), both)
        if len(x) == len(y):  # as older pages pair seeds, which new ones do not
            yield _mean((x.mean(1) - y.mean(1)).tolist(), replace(both, column="difference"))
        improvement = probability_of_improvement(x, y)
        yield replace(both, value=improvement, column="probability")
        yield replace(both, value=1 - improvement, column="probability")
