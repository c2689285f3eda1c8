"""`python -m benchmarks.ray_overhead`: what Ray costs, in seconds.

Starting Ray here; a step of a study that does nothing, as a process of this machine and as a task;
the copies of an environment, in worker processes and in actors. The last two pairs alternate in one
run; medians are reported.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, sleep

from omg.config.loader import load_command_line
from omg.integrations.ray.cluster import connected
from omg.runners import runner_of
from omg.studies.execute import EXECUTORS, Where
from omg.studies.plan import plan_of

# Stands for `omg`: it does nothing.
NOTHING = (sys.executable, "-S", "-c", "pass")


def seconds(action: Callable[[], object]) -> float:
    begin = perf_counter()
    action()
    return perf_counter() - begin


def step_times(rounds: int) -> dict[str, list[float]]:
    """From the start of a step to the moment its end is noticed, by executor."""
    found: dict[str, list[float]] = {"local": [], "ray": []}
    with tempfile.TemporaryDirectory() as folder:
        plan = plan_of(pipeline="tiny", out=folder)
        step = plan.steps[0]
        with (
            EXECUTORS["local"](plan, Where(program=NOTHING)) as here,
            EXECUTORS["ray"](plan, Where(program=NOTHING)) as there,
        ):

            def run(place: object) -> None:
                child = place.start(step, ("nothing",), Path(folder), append=False)  # type: ignore[attr-defined]
                while child.ended() is None:
                    sleep(0.005)

            run(there)  # the first task starts a process of Ray
            for _ in range(rounds):
                found["local"].append(seconds(lambda: run(here)))
                found["ray"].append(seconds(lambda: run(there)))
    return found


def start_times(rounds: int) -> dict[str, list[float]]:
    """Until four copies of Foraging in two workers can be reset, by runner."""
    found: dict[str, list[float]] = {"parallel": [], "ray": []}
    words = ["--config=iql", "--env-config=foraging", "--n_workers=2", "--batch_size_run=4"]
    for _ in range(rounds):
        for name, times in found.items():
            runner = runner_of(load_command_line([*words, f"--runner={name}"]).config)
            begin = perf_counter()
            env = runner.copies(4)
            times.append(perf_counter() - begin)
            env.close()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray_overhead")
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    begin = perf_counter()
    with connected():
        print(f"Ray starts here in {perf_counter() - begin:.1f} s")
        for title, times in (
            ("a step that does nothing", step_times(rounds)),
            ("copies in two workers are ready", start_times(rounds)),
        ):
            told = ", ".join(f"{name} {median(found):.2f} s" for name, found in times.items())
            print(f"{title}: {told}", flush=True)


if __name__ == "__main__":
    main()
