"""What came of a sweep, read from the folders of its runs; `sweep.csv`."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omg.config.arguments import Arguments
from omg.config.loader import load_saved
from omg.evaluation.statistics import Interval, mean_interval
from omg.experiment.output import read_metrics
from omg.experiment.series import Curve, curves_of
from omg.storage.files import write_text
from omg.studies.sweep.marks import read_mark
from omg.studies.sweep.plan import SweepPlan

CHOSEN = "configurations.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """One run of a sweep. `status`: waiting, running, finished, stopped (early) or failed."""

    name: str
    number: int
    seed: int
    status: str
    steps: int
    value: float | None
    seconds: float
    note: str
    folder: Path
    curve: Curve | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A configuration with all its seeds; its score is the mean of their last tests."""

    number: int
    settings: Mapping[str, Any]
    runs: tuple[RunOutcome, ...]

    @property
    def finished(self) -> int:
        return sum(run.status == "finished" for run in self.runs)

    @property
    def complete(self) -> bool:
        return self.finished == len(self.runs)

    def values(self) -> list[float]:
        """The last tests of the runs that went to their end, else of all that were tested."""
        whole = [run for run in self.runs if run.status == "finished"]
        return [run.value for run in whole or self.runs if run.value is not None]

    def score(self) -> Interval | None:
        values = self.values()
        return mean_interval(values) if values else None


def outcomes(plan: SweepPlan, chosen: Sequence[Mapping[str, Any]] | None = None) -> list[Outcome]:
    """Every configuration that is known by now, in the order of their numbers."""
    known = (plan.configurations or read_chosen(plan.out)) if chosen is None else chosen
    runs: dict[int, list[RunOutcome]] = {}
    for index in range(plan.runs):
        number, seed = plan.place(index)
        if number < len(known):
            runs.setdefault(number, []).append(_run(plan, number, seed))
    return [
        Outcome(number=n, settings=_settings(plan, known[n], each), runs=tuple(each))
        for n, each in runs.items()
    ]


def _settings(
    plan: SweepPlan, settings: Mapping[str, Any], runs: Sequence[RunOutcome]
) -> Mapping[str, Any]:
    """With PBT those that a run has now; they are in its folder."""
    path = runs[0].folder / "config.yaml"
    if plan.spec.scheduler != "pbt" or not path.is_file():
        return settings
    now = load_saved(path, Arguments()).config.as_dict()
    return {key: now[key] for key in settings}


def read_chosen(out: Path) -> list[dict[str, Any]]:
    """The configurations that a search has chosen so far."""
    try:
        found = json.loads((out / CHOSEN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return found if isinstance(found, list) else []


def _run(plan: SweepPlan, number: int, seed: int) -> RunOutcome:
    name = plan.run_name(number, seed)
    folder = plan.out / "runs" / name
    mark = read_mark(plan.out, name)
    curve: Curve | None = None
    if (folder / "metrics.jsonl").is_file():
        curve = curves_of(read_metrics(folder / "metrics.jsonl")).get(plan.spec.metric)
    begun = "running" if folder.exists() else "waiting"
    return RunOutcome(
        name=name,
        number=number,
        seed=seed,
        status=str(mark.get("status") or begun),
        steps=0 if curve is None else int(curve.steps[-1]),
        value=None if curve is None else float(curve.values[-1]),
        seconds=float(mark.get("seconds", 0.0)),
        note=str(mark.get("note", "")),
        folder=folder,
        curve=curve,
    )


def ranked(found: Sequence[Outcome], mode: str) -> list[Outcome]:
    """The best first. A configuration with more seeds that went to their end stands before one
    with fewer: a run that was stopped early or failed has no last test to compare."""
    sign = -1.0 if mode == "max" else 1.0

    def key(outcome: Outcome) -> tuple[float, float, int]:
        score = outcome.score()
        value = math.inf if score is None else sign * score.value
        return (-outcome.finished, value, outcome.number)

    return sorted(found, key=key)


def best_of(found: Sequence[Outcome], mode: str) -> Outcome | None:
    """The best configuration that was tested."""
    tested = [outcome for outcome in found if outcome.score() is not None]
    return ranked(tested, mode)[0] if tested else None


def write_csv(plan: SweepPlan, found: Sequence[Outcome]) -> Path:
    """A row per run, with the settings and the score of its configuration."""
    keys = [dimension.key for dimension in plan.dimensions]
    metric = plan.spec.metric
    head = ["configuration", *keys, "seed", "status", "steps", metric]
    head += ["score", "score_low", "score_high", "seconds", "run", "note"]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(head)
    for outcome in found:
        score = outcome.score() or Interval(math.nan)
        for run in outcome.runs:
            settings = [outcome.settings[key] for key in keys]
            ends = [_cell(v) for v in (score.value, score.low, score.high)]
            writer.writerow(
                [
                    *(outcome.number, *settings, run.seed, run.status, run.steps),
                    *(_cell(run.value), *ends, run.seconds),
                    *(run.folder.relative_to(plan.out), run.note),
                ]
            )
    path = plan.out / "sweep.csv"
    write_text(path, buffer.getvalue())
    return path


def _cell(value: float | None) -> str:
    return "" if value is None or not math.isfinite(value) else repr(value)
