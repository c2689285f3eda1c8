"""`python -m benchmarks.battle_results`: how fast teams learn to win battles.

Runs `omg train` for each map, algorithm and seed (as many at a time as there are cores), skips what
is done, resumes what was broken. Writes results/battle_teams/{teams,curves}.csv and one picture of
win rates per map.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.jobs import SEEDS, Job
from benchmarks.predator_prey_results import draw, points_of, write_csv
from omg.evaluation.curves import band, read_curve
from omg.experiment.output import read_metrics

ALGORITHMS = ("vdn", "qmix")
STEPS = {"3m": 300_000, "8m": 500_000, "2s3z": 400_000, "3s_vs_5z": 400_000, "5m_vs_6m": 400_000}
# PyMARL's, but for: Adam, λ-returns, and one update per two episodes of 32 copies.
WORDS = (
    *("--env-config=battle", "--use_sacred=False", "--use_tensorboard=False", "--quiet"),
    *("--optimizer=adam", "--lr=0.001", "--q_lambda=0.8", "--updates_per_episode=0.5"),
    *("--test_interval=10000", "--test_nepisode=128", "--test_batch_size_run=64"),
    "--save_model_interval=100000000",
)
WON = "test_battle_won_mean"
ENOUGH = 0.9


def jobs_of(root: Path, maps: list[str]) -> list[Job]:
    """Every map, algorithm and seed; seed by seed, so that an early stop leaves whole rows."""
    return [
        Job(
            root / f"{name}-{alg}-s{seed}",
            (
                *(f"--config={alg}", *WORDS, f"--t_max={STEPS[name]}", f"--seed={seed}"),
                *(f"--env_args.map_name={name}", f"--local_results_path={root}"),
                f"--run_name={name}-{alg}-s{seed}",
            ),
        )
        for name in maps
        for seed in SEEDS
        for alg in ALGORITHMS
    ]


def reached(run: Path) -> tuple[float, float]:
    """Steps and minutes until a test was won by `ENOUGH`; NaN where none was."""
    for record in read_metrics(run / "metrics.jsonl"):
        if record.get(WON) is not None and record[WON] >= ENOUGH:
            return float(record["t_env"]), record["wall_s"] / 60
    return float("nan"), float("nan")


def summary(root: Path, maps: list[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """One row per run, and the points of all curves; draws a picture per map."""
    rows, points = [], []
    for name in maps:
        lines = {}
        for alg in ALGORITHMS:
            runs = [root / f"{name}-{alg}-s{seed}" for seed in SEEDS]
            runs = [run for run in runs if (run / "done").is_file()]
            for run in runs:
                won = [r[WON] for r in read_metrics(run / "metrics.jsonl") if WON in r]
                steps, minutes = reached(run)
                rows.append(
                    {
                        "map": name,
                        "algorithm": alg,
                        "seed": run.name[-1],
                        "last_three": round(sum(won[-3:]) / 3, 3),
                        "best": round(max(won), 3),
                        "steps_to_90": steps,
                        "minutes_to_90": round(minutes, 2),
                    }
                )
            if len(runs) == len(SEEDS):
                line = band([read_curve(run, WON) for run in runs])
                lines[f"{alg}, {len(runs)} seeds"] = line
                points += points_of(f"{name} {alg}", "battle_won", line)
        if lines:
            title = f"{name}: battles won in greedy tests"
            axis = "share of battles won"
            draw(lines, root / f"{name}.png", title=title, axis=axis, metric=WON)
    return rows, points


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.battle_results", description=__doc__
    )
    parser.add_argument("--results", type=Path, default=Path("results/battle_teams"))
    parser.add_argument("--maps", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--table", action="store_true", help="only tables of what is done")
    given = parser.parse_args()
    given.results.mkdir(parents=True, exist_ok=True)
    if not given.table:
        with ThreadPoolExecutor(given.jobs) as pool:
            list(pool.map(Job.run, jobs_of(given.results, given.maps)))
    rows, points = summary(given.results, given.maps)
    if not rows:
        raise SystemExit(f"Nothing is done in {given.results} yet. Leave out --table.")
    write_csv(rows, given.results / "teams.csv")
    write_csv(points, given.results / "curves.csv")
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
