"""`python -m benchmarks.algorithms`: every algorithm on the same tasks, same steps, three seeds.

Runs `omg train` for each algorithm, task and seed (as many at a time as there are cores), skips
what is done, resumes what was broken, and writes the table to results/algorithms/algorithms.csv.
Teams play alone; one-agent algorithms play beside scripted players of a pool made here, and
OMG's prior is trained once per task on the same pool. The number is the mean of the last test's
return (team's, or the agent's own), with a 95 % interval over the seeds by Student's t.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

from omg.catalogue.algorithms import algorithms
from omg.experiment.output import read_metrics
from omg.opponents.pool import OpponentPool

TASKS = ("Foraging-8x8-2p-2f-coop-v3", "Foraging-8x8-3p-3f-v3")
SEEDS = (1, 2, 3)
TEAM_STEPS, AGENT_STEPS = 200_000, 60_000
SCRIPTS = ("nearest_food", "highest_level", "follow", "random")
STUDENT_T = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # 97.5 % quantiles, n - 1 degrees
# The same for all.
COMMON = (
    *("--env-config=foraging", "--use_sacred=False", "--use_tensorboard=False", "--quiet"),
    *("--runner=batch", "--test_nepisode=200", "--test_interval=50000"),
    "--save_model_interval=1000000",
)
# What differs from an algorithm's file.
TEAM_VALUE = ("--batch_size_run=32", "--lr=0.001", "--epsilon_anneal_time=50000")
TEAM_POLICY = (
    "--batch_size_run=32",
    "--batch_size=32",
    "--buffer_size=32",
    "--lr=0.001",
    "--critic_lr=0.001",
)
AGENT = ("--batch_size_run=32", "--is_agent_shift=True")
AGENT_VALUE = ("--lr=0.001", "--epsilon_anneal_time=10000")


@dataclass(frozen=True)
class Job:
    """One `omg train`."""

    folder: Path
    words: tuple[str, ...]

    def done(self) -> bool:
        return (self.folder / "models" / "last" / "meta.json").is_file() and (
            self.folder / "done"
        ).is_file()

    def run(self) -> None:
        if self.done():
            return
        resumable = (self.folder / "config.yaml").is_file() and any(self.folder.glob("resume/*"))
        words = (f"--resume={self.folder}",) if resumable else self.words
        log = self.folder.with_suffix(".log")
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w", encoding="utf-8") as out:
            code = subprocess.call(
                [sys.executable, "-m", "omg", "train", *words], stdout=out, stderr=out
            )
        if code:
            print(f"{self.folder} failed, see {log}", flush=True)
            return
        (self.folder / "done").touch()
        print(f"{self.folder}: {last_test(self.folder):.3f}", flush=True)


def last_test(folder: Path) -> float:
    """The return of a run's last test: the learning agent's own where there is one."""
    tests = [r for r in read_metrics(folder / "metrics.jsonl") if "test_return_mean" in r]
    return float(tests[-1].get("test_own_return_mean", tests[-1]["test_return_mean"]))


def make_pool(root: Path, task: str) -> Path:
    """Scripted players, all of them to train with."""
    pool = root / task / "pool"
    made = OpponentPool.open(pool).members() if pool.is_dir() else ()
    if {member.id for member in made} != {f"script-{name}-0" for name in SCRIPTS}:
        shutil.rmtree(pool, ignore_errors=True)
        for name in SCRIPTS:
            subprocess.check_call(
                [sys.executable, "-m", "omg", "pool", "add", str(pool), f"--script={name}"]
            )
    return pool


def words_of(*, team: bool, on_policy: bool) -> tuple[str, ...]:
    """Settings of an algorithm's runs."""
    if team:
        return TEAM_POLICY if on_policy else TEAM_VALUE
    return AGENT if on_policy else (*AGENT, *AGENT_VALUE)


def prior_of(place: Path, name: str, words: tuple[str, ...]) -> Job:
    """The prior of an algorithm: D3QN's, as a prior does not depend on the policy beside it."""
    of = f"d3qn_{name.partition('_')[2]}"
    run = f"prior-{of}"
    # Two others are harder to tell apart than one.
    steps, often = (60_000, 2) if "2p" in place.name else (30_000, 10)
    made = (
        *(f"--config={of}", f"--t_max={steps}", "--learner=am_learner"),
        *(f"--updates_per_episode={often}", "--prior_kl_weight=0.00001", "--seed=1"),
        *(f"--local_results_path={place}", f"--run_name={run}"),
    )
    return Job(place / run, (*made, *words[1:]))


def plan(root: Path, only: Sequence[str]) -> tuple[list[Job], list[Job]]:
    """Priors first, then everything else."""
    priors: dict[Path, Job] = {}
    jobs: list[Job] = []
    for task in TASKS:
        key = f"--env_args.key={task}"
        for row in algorithms():
            if row.name.endswith(("_beta", "_quick")) or (only and row.name not in only):
                continue
            team, on_policy = row.learns == "a team", row.learning == "on-policy"
            words = (
                f"--config={row.name}",
                *COMMON,
                key,
                *words_of(team=team, on_policy=on_policy),
            )
            if not team:
                words += (f"--opponent_pool={make_pool(root, task)}",)
            if row.opponent_model == "omg_am":
                prior = prior_of(root / task, row.name, words)
                priors.setdefault(prior.folder, prior)
                words += (f"--init_param_path={prior.folder}",)
            steps = TEAM_STEPS if team else AGENT_STEPS
            for seed in SEEDS:
                run = f"{row.name}-s{seed}"
                # One-agent runs last n_agents times t_max (see docs/running.md).
                agents = int(task.split("p-")[0].rpartition("-")[2])
                length = steps if team else steps // agents
                place = (f"--local_results_path={root / task}", f"--run_name={run}")
                jobs.append(
                    Job(
                        root / task / run,
                        (*words, f"--t_max={length}", f"--seed={seed}", *place),
                    )
                )
    jobs.sort(key=lambda job: job.folder.name[-1])  # a whole table of the first seed comes first
    return list(priors.values()), jobs


def interval(values: Sequence[float]) -> float:
    """Half the width of the 95 % interval of the mean."""
    count = len(values)
    return STUDENT_T[count] * stdev(values) / math.sqrt(count) if count in STUDENT_T else math.nan


def write_table(root: Path) -> list[dict[str, str | float]]:
    """One row per algorithm and task, from the runs that are there."""
    rows: list[dict[str, str | float]] = []
    for row in algorithms():
        for task in TASKS:
            runs = [root / task / f"{row.name}-s{seed}" for seed in SEEDS]
            values = [last_test(run) for run in runs if (run / "done").is_file()]
            if not values:
                continue
            rows.append(
                {
                    "algorithm": row.name,
                    "learns": row.learns,
                    "task": task,
                    "mean": mean(values),
                    "half_interval": interval(values),
                    "seeds": len(values),
                    "values": json.dumps([round(value, 4) for value in values]),
                }
            )
    if rows:
        with (root / "algorithms.csv").open("w", newline="", encoding="utf-8") as out:
            writer = csv.DictWriter(out, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return rows


def markdown(rows: Sequence[dict[str, str | float]]) -> str:
    """The table as in docs/results/algorithms.md: a row per algorithm, a column per task."""
    lines: list[str] = []
    for learns in ("a team", "one agent among others"):
        lines += [f"| `--config` | {' | '.join(TASKS)} |", "|---|" + "---|" * len(TASKS)]
        cells = {(row["algorithm"], row["task"]): row for row in rows if row["learns"] == learns}
        for name in dict.fromkeys(name for name, _ in cells):
            found = [cells.get((name, task)) for task in TASKS]
            shown = " | ".join("-" if row is None else _cell(row) for row in found)
            lines.append(f"| `{name}` | {shown} |")
        lines.append("")
    return "\n".join(lines)


def _cell(row: dict[str, str | float]) -> str:
    each = ", ".join(f"{value:.2f}" for value in json.loads(str(row["values"])))
    if row["seeds"] == 1:
        return each
    return f"{row['mean']:.2f} ± {row['half_interval']:.2f} ({each})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results/algorithms"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", nargs="*", default=[], help="names of algorithms")
    parser.add_argument("--table", action="store_true", help="only write the table")
    parser.add_argument("--markdown", action="store_true", help="print it as in the docs")
    given = parser.parse_args()
    if not given.table:
        priors, jobs = plan(given.results, given.only)
        for stage in (priors, jobs):
            with ThreadPoolExecutor(given.jobs) as pool:
                list(pool.map(Job.run, stage))
    rows = write_table(given.results)
    if given.markdown:
        print(markdown(rows))
        return
    for row in rows:
        print(
            f"{row['algorithm']:16} {row['task']:28} {row['mean']:.3f} ± {row['half_interval']:.3f}"
            f"  ({row['seeds']} seeds)"
        )


if __name__ == "__main__":
    main()
