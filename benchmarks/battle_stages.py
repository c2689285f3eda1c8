"""`python -m benchmarks.battle_stages`: the original's three stages on 8m, and what comes of them.

Trains a team with IQL, pre-trains OMG's prior beside it, then trains one agent among seven of that
team (`7iql1iql_omg`), and the same agent without an opponent model (`7iql1iql_am`), three seeds
each. Skips what is done, resumes what was broken. Writes results/battle_stages/stages.csv.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.battle_results import WON, WORDS
from benchmarks.jobs import SEEDS, Job
from benchmarks.predator_prey_results import write_csv
from omg.experiment.output import read_metrics

MAP = "--env_args.map_name=8m"
MIXED = ("--multi_algs", "--mac=multi_module_mac", "--runner=batch")
OMG = ("--config=7iql1iql_omg", "--train_alg=iql_omg", *MIXED)
PLAIN = ("--config=7iql1iql_am", "--train_alg=iql_am", *MIXED, "--am_model=none_am")
PRIOR = ("--am_model=omg_am", "--learner=am_learner", "--updates_per_episode=1")
MODE = ("--learner=omg_learner", "--subgoal_mode=optimistic", "--subgoal_horizon=10")
AGENT = ("--is_agent_shift=True", "--gamma=0.95")
PASS = "--prior_min_accuracy=0.65"


def jobs_of(root: Path, steps: int) -> list[list[Job]]:
    """The stages; the jobs of one do not wait for each other."""

    def job(name: str, *words: str, share: int = 1) -> Job:
        place = (f"--local_results_path={root}", f"--run_name={name}", f"--t_max={steps // share}")
        return Job(root / name, (*words, *WORDS, MAP, *place))

    found = f"--init_param_path={root}"
    return [
        [job("iql", "--config=iql", "--seed=1")],
        [job("iql_omg", *OMG, found, "--seed=1", PASS, *PRIOR)],
        [
            # t_max counts for each of the eight seats that take turns.
            job(f"{name}-s{seed}", *words, *AGENT, found, f"--seed={seed}", share=8)
            for seed in SEEDS
            for name, words in (("plain", PLAIN), ("omg", (*OMG, *MODE, PASS)))
        ],
    ]


def row(run: Path) -> dict[str, Any]:
    won = [r[WON] for r in read_metrics(run / "metrics.jsonl") if WON in r]
    last = round(sum(won[-3:]) / 3, 3)
    return {"run": run.name, "first": won[0], "best": max(won), "last_three": last}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.battle_stages", description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results/battle_stages"))
    parser.add_argument("--steps", type=int, default=200_000, help="of every run")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    given.results.mkdir(parents=True, exist_ok=True)
    stages = jobs_of(given.results, given.steps)
    for jobs in stages:
        with ThreadPoolExecutor(given.jobs) as pool:
            list(pool.map(Job.run, jobs))
        if not all(job.done() for job in jobs):
            raise SystemExit("A stage did not end: see the logs named above, and run this again.")
    rows = [row(job.folder) for job in (*stages[0], *stages[2])]
    write_csv(rows, given.results / "stages.csv")
    for found in rows:
        print("  ".join(f"{key} {value}" for key, value in found.items()))


if __name__ == "__main__":
    main()
