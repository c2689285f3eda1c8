"""Chooses the best configuration of a method by its games with validation opponents, and lists all
that were tried."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from omg.config.loader import read_yaml
from omg.evaluation.comparisons import primary_metric
from omg.evaluation.crossplay_table import Crossplay, Summary
from omg.evaluation.metric_bounds import lower_is_better
from omg.report.formats import read_crossplay
from omg.storage.files import write_text
from omg.storage.locks import release_lock, take_lock
from omg.studies.spec import slug
from omg.studies.steps import nested
from omg.types import OmgError

FILE = "tuning.csv"
_LABEL = re.compile(r"(?P<method>.*) c(?P<number>\d+)")


@dataclass(frozen=True, slots=True)
class Trial:
    """A configuration that was tried, with its score on the validation side."""

    method: str
    configuration: int
    chosen: bool
    metric: str
    mean: float
    seeds: str
    opponents: int
    env_steps: int
    settings: str


def choose(scores: Path, *, method: str, keys: Sequence[str], out: Path) -> list[Trial]:
    """Write tuning/<method>.yaml with the best configuration's values of `keys`, and add all its
    configurations to tuning.csv. The first of equals wins: the method's own settings are first."""
    found = read_crossplay(scores / "crossplay.json")
    metric = primary_metric(found)
    rows = {_number(row.method, method): row for row in _rows(found, metric)}
    best = (min if lower_is_better(metric) else max)(
        sorted(rows), key=lambda number: rows[number].mean or 0.0
    )
    values = {number: _values(found, rows[number].method, keys) for number in rows}
    trials = [
        Trial(
            method=method,
            configuration=number,
            chosen=number == best,
            metric=metric,
            mean=float(row.mean or 0.0),
            seeds=" ".join(f"{seed:.6g}" for seed in row.seeds),
            opponents=row.opponents,
            env_steps=max(a.env_steps or 0 for a in found.agents if a.method == row.method),
            settings=", ".join(f"{key}={value}" for key, value in values[number].items()),
        )
        for number, row in sorted(rows.items())
    ]
    folder = out / "tuning"
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / f"{slug(method)}.csv", _csv([asdict(trial) for trial in trials]))
    _list_all(out)
    write_text(folder / f"{slug(method)}.yaml", yaml.safe_dump(nested(values[best])))
    return trials


def _rows(found: Crossplay, metric: str) -> list[Summary]:
    """The summaries that are compared: of the validation side, of one kind of line-up."""
    lineup = found.blocks()[0][1]
    rows = [
        row
        for row in found.summaries()
        if (row.split, row.lineup, row.metric) == ("validation", lineup, metric)
    ]
    if not rows:
        raise OmgError(
            f"The games hold no {metric} with validation opponents. Play them again with "
            "--split=validation."
        )
    return rows


def _number(label: str, method: str) -> int:
    told = _LABEL.fullmatch(label)
    if told is None or told["method"] != method:
        raise OmgError(f"'{label}' is no configuration of '{method}' ('{method} c0', …).")
    return int(told["number"])


def _values(found: Crossplay, label: str, keys: Sequence[str]) -> dict[str, Any]:
    """What the runs of a configuration have at the keys that were searched."""
    run = Path(next(agent.run for agent in found.agents if agent.method == label))
    config = read_yaml(run / "config.yaml", str(run / "config.yaml"))
    values = {}
    for key in keys:
        value: Any = config
        for part in key.split("."):
            value = value[part]
        values[key] = value
    return values


def _list_all(out: Path) -> None:
    """Write tuning.csv from the lists of all methods; one process at a time."""
    lock = out / "tuning" / ".list.lock"
    held = take_lock(lock, lambda owner: f"{lock} is held by {owner}. Try again.", timeout=30.0)
    try:
        write_text(out / FILE, _csv(read_trials(sorted((out / "tuning").glob("*.csv")))))
    finally:
        release_lock(lock, held)


def read_trials(files: Sequence[Path]) -> list[dict[str, Any]]:
    """The rows of lists, as they are."""
    rows: list[dict[str, Any]] = []
    for path in files:
        with path.open(encoding="utf-8", newline="") as file:
            rows += list(csv.DictReader(file))
    return rows


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
