"""What a ratio must not fall below (or rise above, where smaller is better), by name and threads.

The numbers lie in floors.json: a recorded ratio with the benchmark's slack for noise. Only ratios
are checked, never times: a slow machine is slow on both sides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.entries import Benchmark
from omg.storage.files import write_text

FLOORS = Path(__file__).with_name("floors.json")
EXACT = 0.9  # slack of what is counted, not timed
Floors = Mapping[str, Mapping[str, float]]  # name -> threads -> floor


def read_floors(path: Path = FLOORS) -> Floors:
    """The recorded floors."""
    floors: Floors = json.loads(path.read_text(encoding="utf-8"))
    return floors


def floor_of(benchmark: Benchmark, ratio: float) -> float:
    """The floor that a ratio gives, to three digits: a share of it, or as much more. Where bytes
    are counted and a goal is reached, the floor is not looser than the goal."""
    loosened = ratio * benchmark.slack if benchmark.larger else ratio / benchmark.slack
    goal = benchmark.wanted
    if goal is not None and benchmark.slack >= EXACT and holds(benchmark, ratio, goal):
        loosened = max(loosened, goal) if benchmark.larger else min(loosened, goal)
    return float(f"{loosened:.3g}")


def holds(benchmark: Benchmark, ratio: float, floor: float) -> bool:
    """Whether a ratio is on the right side."""
    return ratio >= floor if benchmark.larger else ratio <= floor


def complaint(
    name: str, benchmark: Benchmark, result: Mapping[str, Any], floors: Floors
) -> str | None:
    """What is wrong with a result; None when it holds or is not checked."""
    if not benchmark.checked:
        return None
    threads = str(result["threads"])
    floor = floors.get(name, {}).get(threads)
    if floor is None:
        return f"{name} ({threads} threads) has no floor. Record one: --record-floors {name}"
    if holds(benchmark, result["ratio"], floor):
        return None
    side, limit = ("below", "floor") if benchmark.larger else ("above", "ceiling")
    return (
        f"{name} ({threads} threads): the ratio {result['ratio']:.3g} is {side} its {limit} "
        f"{floor:g} ({benchmark.what})"
    )


def record_floors(
    benchmarks: Mapping[str, Benchmark], results: Sequence[Mapping[str, Any]], path: Path = FLOORS
) -> None:
    """Write the floors that results give; those of what was not measured stay."""
    floors = {name: dict(by) for name, by in read_floors(path).items()} if path.is_file() else {}
    for result in results:
        benchmark = benchmarks[result["name"]]
        if benchmark.checked:
            by_threads = floors.setdefault(result["name"], {})
            by_threads[str(result["threads"])] = floor_of(benchmark, result["ratio"])
    ordered = {name: floors[name] for name in benchmarks if name in floors}
    write_text(path, json.dumps(ordered, indent=2) + "\n")
