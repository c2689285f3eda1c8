"""Puts a study's files beside its results page.

    python -m benchmarks.results_collect results/foraging_strangers docs/results/foraging-strangers
    python -m benchmarks.results_collect results/benchmark_lbf docs/results/benchmark-lbf

Copies the tables and the picture of a pipeline's folder. Adds curves.csv, the tests that every
agent or team had while it learned, priors.csv, what priors decode, looks.csv, the looks at the
held-out side, and named.csv, what was named before the run. A benchmark may be run in parts, here
and elsewhere (then `omg benchmark <folder>` first): its finished runs join those of the page, or
replace them where task, method and seed are the same, and the table is made from all of them.
`python -m benchmarks.results_tables` and `make results-check` read these files.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from benchmarks.results_tables import Rows, read
from omg.config.arguments import Arguments
from omg.config.loader import leaves, load_saved, shipped_defaults
from omg.evaluation.benchmark import RANDOM, TEAM_RETURN, reach, row_of
from omg.evaluation.curves import draw
from omg.evaluation.grouping import settings
from omg.evaluation.named import read_named
from omg.experiment.series import Curve, curves_of, read_records
from omg.opponents.unseen import looks_in

STUDY = ("crossplay", "summary", "comparisons", "steps", "nearest", "tuning")
HEADROOM = ("headroom", "headroom_sides")
TESTS = {  # metrics of a run's tests, and what curves.csv calls them
    "test_own_return_mean": "own_return",
    "test_return_mean": "return",
    "test_greedy_return_mean": "greedy_return",
}


def write(rows: Rows, path: Path) -> None:
    """Rows with the columns of all of them."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def tests_of(run: Path) -> Iterator[dict[str, str]]:
    """A row per test of a run, with the method's name and the seed."""
    config = load_saved(run / "config.yaml", Arguments()).config
    curves = {
        name: dict(zip(curve.steps.tolist(), curve.values.tolist(), strict=True))
        for metric, curve in curves_of(read_records(run)).items()
        if (name := TESTS.get(metric))
    }
    if "own_return" in curves:  # one agent among others: the team's return says little
        curves.pop("return", None)
    for steps in sorted({at for curve in curves.values() for at in curve}):
        told = {name: f"{curve[steps]:.6g}" for name, curve in curves.items() if steps in curve}
        yield {
            "method": config.label or config.name,
            "seed": str(config.seed),
            "env_steps": str(int(steps)),
            **told,
        }


def runs_in(folder: Path) -> list[Path]:
    """The runs of a folder, in order."""
    return sorted(path.parent for path in folder.glob("*/config.yaml"))


def priors(folder: Path) -> Iterator[dict[str, str]]:
    """What the priors of subgoals decode and explain of the others."""
    for run in runs_in(folder):
        meta = json.loads((run / "models" / "last" / "meta.json").read_text(encoding="utf-8"))
        told = {name: f"{meta[name]:.6g}" for name in meta if name.startswith("prior_")}
        if told:
            yield {"prior": run.name, **told}


def looks(study: Path) -> Rows:
    """The looks at the held-out side: when, why, how many runs and opponents, which opponents, and
    the command without paths, which name somebody's machine."""
    return [
        {
            "when": look.when,
            "kind": look.kind,
            "runs": str(len(look.runs)),
            "members": str(len(look.members)),
            "episodes": str(look.episodes),
            "opponents": " ".join(look.members),
            "command": " ".join(word for word in look.command.split() if not _is_path(word)),
        }
        for look in looks_in(study)
    ]


def _is_path(word: str) -> bool:
    return os.sep in word.partition("=")[2] if word.startswith("--") else os.sep in word


def named(study: Path) -> Rows:
    """What was named before the run, and what was changed afterwards."""
    return [
        {
            "when": line.when,
            "looks": str(line.looks),
            "steps": str(line.steps),
            "metric": line.metric,
            "baseline": line.baseline,
            "methods": "; ".join(f"{name} ({seeds})" for name, seeds in line.methods.items()),
            "changed": "; ".join(line.changed),
            "sha256": line.sha256,
            "omg": line.omg,
            "commit": line.commit,
        }
        for line in read_named(study)
    ]


def collect_study(study: Path, page: Path) -> list[Path]:
    """The files of a study with opponents."""
    wanted = [f"{name}.csv" for name in STUDY + HEADROOM] + ["crossplay.png"]
    made = [_copy(study / name, page) for name in wanted if (study / name).is_file()]
    curves = [row for run in runs_in(study / "agents") for row in tests_of(run)]
    if curves:
        made.append(page / "curves.csv")
        write(curves, made[-1])
    if found := list(priors(study / "priors")):
        made.append(page / "priors.csv")
        write(found, made[-1])
    if looked := looks(study):
        made.append(page / "looks.csv")
        write(looked, made[-1])
    if lines := named(study):
        made.append(page / "named.csv")
        write(lines, made[-1])
    return made


def collect_benchmark(study: Path, page: Path) -> list[Path]:
    """The files of a benchmark of teams, made from the tests of all runs: the page's and, for the
    same task, method and seed instead of them, the folder's."""
    found = [
        {"task": task.name, **_told(run), **row}
        for task in sorted((study / "teams").iterdir())
        for run in runs_in(task)
        if finished(run)
        for row in tests_of(run)
    ]
    there = {_key(row) for row in found}
    tests = [row for row in read(page, "curves") if _key(row) not in there] + found
    _check_alike(tests)
    tests.sort(key=lambda row: (*_key(row)[:2], int(row["seed"]), int(row["env_steps"])))
    random = {
        row["task"]: row
        for folder in (page, study)
        for row in read(folder, "benchmark")
        if row["method"] == RANDOM
    }
    table: Rows = []
    made = [page / "benchmark.csv", page / "curves.csv"]
    for task in dict.fromkeys(row["task"] for row in tests):
        here = [row for row in tests if row["task"] == task]
        groups, ways = _by_method(here), {row["method"]: row["tested"] for row in here}
        for name, seeds in groups.items():
            table += _table(task, name, ways[name], seeds)
        table += [random[task]] if task in random else []
        played = {name: [each["return"] for each in seeds] for name, seeds in groups.items()}
        every = np.array([value for found in played.values() for c in found for value in c.values])
        picture = page / f"benchmark-{task}.png"
        made.append(draw(played, picture, metric=TEAM_RETURN, limits=reach(every)))
    write(table, made[0])
    write(tests, made[1])
    return made


def finished(run: Path) -> bool:
    """Whether a run has come to its end; one that has not would cut those of the page."""
    wanted = load_saved(run / "config.yaml", Arguments()).config.t_max
    there = max((record["t_env"] for record in read_records(run)), default=0)
    if there < wanted:
        print(f"{run} is at {there:,} of {wanted:,} steps and is left out.")
    return bool(there >= wanted)


def _told(run: Path) -> dict[str, str]:
    """How a run's tests are played, and a mark of all settings that are not the shipped ones."""
    config = load_saved(run / "config.yaml", Arguments()).config
    usual = dict(leaves(shipped_defaults()))
    own = {k: v for k, v in settings(config.as_dict()).items() if usual.get(k) != v}
    mark = hashlib.sha256(json.dumps(own, sort_keys=True, default=str).encode()).hexdigest()[:8]
    return {"tested": "greedy" if config.test_greedy else "as it plays", "settings": mark}


def _check_alike(tests: Rows) -> None:
    """Seeds of a method must have the same settings."""
    marks: dict[tuple[str, str], set[str]] = {}
    for row in tests:
        marks.setdefault((row["task"], row["method"]), set()).add(row["settings"])
    for (task, method), found in marks.items():
        if len(found) > 1:
            raise SystemExit(
                f"Runs of {method} on {task} have other settings than those of the page. Remove "
                "the rows of the old ones from curves.csv, or train all alike."
            )


def _key(row: Mapping[str, str]) -> tuple[str, str, str]:
    """The run that a row of curves.csv is of."""
    return row["task"], row["method"], row["seed"]


Seeds = list[dict[str, Curve]]


def _by_method(tests: Rows) -> dict[str, Seeds]:
    """A task's curves: every method's seeds, by what was tested."""
    runs: dict[tuple[str, str, str], Rows] = {}
    for row in tests:
        runs.setdefault(_key(row), []).append(row)
    groups: dict[str, Seeds] = {}
    for (_, method, _), rows in runs.items():
        told = {name: [row for row in rows if row.get(name)] for name in TESTS.values()}
        curves = {
            name: Curve(
                np.array([float(row["env_steps"]) for row in those]),
                np.array([float(row[name]) for row in those]),
            )
            for name, those in told.items()
            if those
        }
        groups.setdefault(method, []).append(curves)
    return groups


def _table(task: str, method: str, tested: str, seeds: Seeds) -> Iterator[dict[str, str]]:
    """A method's rows of benchmark.csv, one for each way in which all its seeds were tested."""
    for name, way in (("return", tested), ("greedy_return", "greedy")):
        if all(name in curves for curves in seeds):
            row = asdict(row_of(task, method, way, [curves[name] for curves in seeds]))
            yield {key: "" if value is None else str(value) for key, value in row.items()}


def _copy(source: Path, page: Path) -> Path:
    shutil.copyfile(source, page / source.name)
    return page / source.name


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results_collect")
    parser.add_argument("study", type=Path, help="the folder of a finished pipeline")
    parser.add_argument("page", type=Path, help="docs/results/<page>")
    given = parser.parse_args(words)
    teams = (given.study / "benchmark.csv").is_file()
    if not teams and not (given.study / "crossplay.csv").is_file():
        parser.error(
            f"{given.study} has neither crossplay.csv nor benchmark.csv. Name the folder of a "
            "finished pipeline; of parts of a benchmark, run 'omg benchmark' on it first."
        )
    given.page.mkdir(parents=True, exist_ok=True)
    for path in (collect_benchmark if teams else collect_study)(given.study, given.page):
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
