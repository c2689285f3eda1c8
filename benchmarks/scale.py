"""`python -m benchmarks.scale [--plots FOLDER]`: time and memory against sizes.

Copies, agents, hidden size, buffer, pool and horizon grow, one at a time. Every point is measured
in a process of its own: the CPU seconds of a call on one torch thread (the median of several
rounds), and by how much the process grew, at its largest, while it was built and called; the bytes
of a buffer are computed. The exponent p of a curve says that it grows like size^p: the
slope in a plot with two logarithmic axes, over the upper half of the sizes, where fixed costs weigh
less. Faster than linear is more than 1.1; why it may be so stands beside it.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import exp, log
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from time import thread_time

import torch

from benchmarks.curves import AXES, CURVES, Call, Curve, load_everything
from benchmarks.memory import peak_bytes
from benchmarks.report import markdown_table, merge_results, plain_table

SECONDS, ROUNDS = 0.2, 5
LINEAR = 1.1  # an exponent up to here counts as linear


@dataclass(frozen=True)
class Point:
    """What one size of a curve takes."""

    quantity: str
    what: str
    size: int
    seconds: float
    bytes: int


def seconds_of(call: Call, seconds: float, rounds: int = ROUNDS) -> float:
    """CPU seconds of a call: the median of rounds that take about so long together."""
    for _ in range(2):
        call()
    start = thread_time()
    call()
    once = max(thread_time() - start, 1e-6)
    repeats = max(1, round(seconds / rounds / once))
    if repeats == 1:
        rounds = max(3, min(rounds, round(seconds / once)))
    found = []
    for _ in range(rounds):
        start = thread_time()
        for _ in range(repeats):
            call()
        found.append((thread_time() - start) / repeats)
    return median(found)


def _measure(curve: Curve, size: int, seconds: float, answer: Connection) -> None:
    torch.set_num_threads(1)
    before = peak_bytes()
    taken = seconds_of(curve.make(size), seconds)
    answer.send((taken, peak_bytes() - before))


def measured(curve: Curve, size: int, seconds: float) -> Point:
    """One point, in a forked process: it starts small, and leaves nothing behind."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_measure, args=(curve, size, seconds, there))
    child.start()
    there.close()
    try:
        taken, grown = here.recv()
    except EOFError:
        raise SystemExit(f"{curve.what} at {curve.quantity} = {size} failed; see above.") from None
    finally:
        child.join()
    return Point(
        curve.quantity, curve.what, size, taken, curve.exact(size) if curve.exact else grown
    )


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Least-squares slope of log value over log size, in the upper half of the sizes."""
    first = len(sizes) // 2
    xs = [log(size) for size in sizes[first:]]
    ys = [log(max(value, 1e-12)) for value in values[first:]]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    above = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    return above / sum((x - x_mean) ** 2 for x in xs)


def _seconds(value: float) -> str:
    return f"{value * 1e3:.2f} ms" if value >= 1e-4 else f"{value * 1e6:.1f} µs"


def _bytes(value: float) -> str:
    return f"{value / 2**20:,.1f} MB"


def summary(curve: Curve, points: Sequence[Point]) -> list[str]:
    """One line of the table: the ends of a curve and its exponents."""
    sizes = [point.size for point in points]
    time = exponent(sizes, [point.seconds for point in points])
    space = exponent(sizes, [point.bytes for point in points])
    faster = max(time, space) > LINEAR
    first, last = points[0], points[-1]
    return [
        curve.what,
        f"{AXES[curve.quantity]} {first.size:,}-{last.size:,}",
        f"{_seconds(first.seconds)} - {_seconds(last.seconds)}",
        f"{time:.2f}",
        f"{_bytes(first.bytes)} - {_bytes(last.bytes)}",
        f"{space:.2f}",
        "yes" if faster else "no",
    ]


def reasons(found: Sequence[tuple[Curve, Sequence[Point]]]) -> list[str]:
    """A sentence for every reason why something grows faster than linearly."""
    because: dict[str, list[str]] = {}
    for curve, points in found:
        if summary(curve, points)[-1] == "yes":
            why = curve.because or "NOT EXPLAINED"
            because.setdefault(why, []).append(f"{curve.what} (against {AXES[curve.quantity]})")
    return [f"{'; '.join(curves)}: {why}." for why, curves in because.items()]


HEADER = ["what", "against", "time", "p", "memory", "p", "faster than linear"]


def write_csv(points: Sequence[Point], path: Path) -> None:
    """All points in one file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(asdict(points[0])), lineterminator="\n")
        writer.writeheader()
        for point in points:
            writer.writerow({**asdict(point), "seconds": f"{point.seconds:.3g}"})


def plot(quantity: str, curves: Sequence[tuple[Curve, Sequence[Point]]], path: Path) -> None:
    """Time and memory of the curves over one quantity, beside a line of exponent 1."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axis, label, unit in ((left, "CPU milliseconds", 1e3), (right, "megabytes", 2**-20)):
        drawn: list[list[float]] = []
        for curve, points in curves:
            sizes = [point.size for point in points]
            values = [unit * (p.seconds if axis is left else p.bytes) for p in points]
            if axis is right and values in drawn:
                continue  # the same buffer
            drawn.append(values)
            slope = exponent(sizes, values)
            name = "the buffer" if axis is right and curve.exact else curve.what
            axis.loglog(sizes, values, "o-", label=f"{name} (p = {slope:.2f})")
        top = max(drawn, key=lambda values: values[-1])
        line = [top[-1] * size / sizes[-1] for size in sizes]
        shown = [(s, v) for s, v in zip(sizes, line, strict=True) if v >= min(map(min, drawn)) / 2]
        axis.loglog(*zip(*shown, strict=True), ":", color="grey", label="linear (p = 1)")
        axis.set_xlabel(AXES[quantity])
        axis.set_ylabel(label)
        axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        low = min(map(min, drawn))
        axis.set_ylim(bottom=exp(log(low) - 0.5), top=exp(log(top[-1]) + 1.6))
        axis.legend(fontsize=8, loc="upper left")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("quantities", nargs="*", help=f"of: {', '.join(AXES)}; default: all")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each point")
    parser.add_argument("--plots", type=Path, help="write plots and scale.csv into this folder")
    parser.add_argument("--markdown", action="store_true", help="print a table for documents")
    parser.add_argument("--json", type=Path, help="also put the numbers into this file")
    given = parser.parse_args()
    unknown = set(given.quantities) - set(AXES)
    if unknown:
        parser.error(f"nothing grows that is called {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    load_everything()
    found = []
    for curve in CURVES:
        if curve.quantity in (given.quantities or AXES):
            points = [measured(curve, size, given.seconds) for size in curve.sizes]
            found.append((curve, points))
            print(f"{curve.quantity}: {curve.what}", file=sys.stderr, flush=True)
    table = markdown_table if given.markdown else plain_table
    print(table(HEADER, [summary(curve, points) for curve, points in found]))
    for sentence in reasons(found):
        print(f"\n{sentence}")
    every = [point for _, points in found for point in points]
    if given.plots:
        given.plots.mkdir(parents=True, exist_ok=True)
        if not given.quantities:
            write_csv(every, given.plots / "scale.csv")
        for quantity in dict.fromkeys(curve.quantity for curve, _ in found):
            group = [(curve, points) for curve, points in found if curve.quantity == quantity]
            plot(quantity, group, given.plots / f"{quantity}.png")
    if given.json:
        merge_results(given.json, "scale", [asdict(point) for point in every])


if __name__ == "__main__":
    main()
