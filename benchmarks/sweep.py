"""`python -m benchmarks.sweep`: what `omg sweep` costs over the best that two at a time can do.

The same runs (QMIX on Foraging, one thread each) are trained twice: by `omg sweep` on two cores,
and by plain `omg train` processes, two at any time, the next one starting when one ends. Both sides
alternate for some rounds; the medians are compared. The wall clock of a sweep is that of the whole
command: start of Ray, checks, runs, table and page, end of Ray. `begin` is the part before the
first run starts, which does not grow with the number of runs.

Where the cores are busy with something else both sides are slow, and the ratio says little.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter, sleep, time

RATIO = 1.15  # at most
OMG = (sys.executable, "-m", "omg")
COMMON = (
    *("--config=qmix", "--env-config=foraging", "--test_nepisode=32", "--test_interval=20000"),
    *("--use_sacred=False", "--use_tensorboard=False", "--lr=0.001"),
)


def by_sweep(out: Path, *, seeds: int, steps: int, cores: int) -> tuple[float, float]:
    """Seconds of the whole command, and until the first run began."""
    words = [f"--t_max={steps}", "gamma=grid:0.95", f"--seeds=1:{seeds}", f"--jobs={cores}"]
    began, started = time(), perf_counter()
    subprocess.run([*OMG, "sweep", *COMMON, *words, f"--out={out}", "--quiet"], check=True)
    seconds = perf_counter() - started
    first = min(path.stat().st_mtime for path in (out / "runs").glob("*/config.yaml"))
    return seconds, first - began


def by_hand(out: Path, *, seeds: int, steps: int, cores: int) -> float:
    """Seconds of plain processes, `cores` at a time."""
    started = perf_counter()
    waiting, running = list(range(1, seeds + 1)), []
    while waiting or running:
        running = [process for process in running if process.poll() is None]
        while waiting and len(running) < cores:
            seed = waiting.pop(0)
            words = ["--gamma=0.95", f"--t_max={steps}", f"--seed={seed}", "--quiet"]
            lies = [f"--local_results_path={out}", f"--run_name=s{seed}"]
            running.append(subprocess.Popen([*OMG, "train", *COMMON, *words, *lies]))
        sleep(0.02)
    return perf_counter() - started


def measure(*, runs: int, steps: int, cores: int, rounds: int) -> dict[str, float]:
    sweeps, plain, begins = [], [], []
    for number in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            sizes = {"seeds": runs, "steps": steps, "cores": cores}
            order: Sequence[str] = ("sweep", "hand") if number % 2 else ("hand", "sweep")
            for side in order:
                if side == "hand":
                    plain.append(by_hand(Path(folder, "plain"), **sizes))
                    continue
                seconds, begin = by_sweep(Path(folder, "sweep"), **sizes)
                sweeps.append(seconds)
                begins.append(begin)
        print(f"round {number + 1}: sweep {sweeps[-1]:.1f} s, plain {plain[-1]:.1f} s", flush=True)
    extra = median(sweeps) - median(plain)
    return {
        "runs": runs,
        "steps": steps,
        "cores": cores,
        "sweep_s": median(sweeps),
        "plain_s": median(plain),
        "ratio": median(sweeps) / median(plain),
        "begin_s": median(begins),
        "overhead_per_run_s": extra / runs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="omg sweep against plain processes")
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--steps", type=int, default=200_000, help="of each run")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", default="", help="write the figures there")
    words = parser.parse_args()
    found = measure(runs=words.runs, steps=words.steps, cores=words.cores, rounds=words.rounds)
    for name, value in found.items():
        print(f"{name:<20} {value:,.2f}")
    print("within" if found["ratio"] <= RATIO else "ABOVE", f"{RATIO:g} times")
    if words.json:
        Path(words.json).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
