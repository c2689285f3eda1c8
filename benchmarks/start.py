"""`python -m benchmarks.start [words …]`: seconds from the command to the first step of a run.

A new process gets the words of `omg train`, and ends when its first step in the environment is
made: imports, configuration, kernels (compiled before), networks and memory. Seconds of the clock,
and of the CPU. Medians of some rounds, after one that is not counted.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from statistics import median
from time import perf_counter

WORDS = ("--config=qmix", "--env-config=spread")
CHILD = """
import os, sys, time
from omg.cli.app import main
from omg.runners.rollout import Rollout
step = Rollout.step
def first(self, env_steps):
    step(self, env_steps)
    print("first step", time.process_time(), flush=True)
    os._exit(0)
Rollout.step = first
sys.argv = ["omg", "train", *sys.argv[1:]]
main()
"""


def seconds_to_first_step(words: list[str]) -> tuple[float, float]:
    """(of the clock, of the CPU)"""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", CHILD, *words, f"--local_results_path={folder}"]
        start = perf_counter()
        found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        passed = perf_counter() - start
    told = [line for line in found.stdout.splitlines() if line.startswith("first step")]
    if not told:
        raise SystemExit(f"The run made no step; it said: {found.stdout[-500:]}")
    return passed, float(told[0].split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.start",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=5)
    given, words = parser.parse_known_args()
    words = words or list(WORDS)
    found = [seconds_to_first_step(words) for _ in range(given.rounds + 1)][1:]
    for name, values in zip(("clock", "CPU"), zip(*found, strict=True), strict=True):
        print(f"{name}: {median(values):.2f} s ({min(values):.2f}-{max(values):.2f})")


if __name__ == "__main__":
    main()
