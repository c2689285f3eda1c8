"""`python -m benchmarks [name …]`: print every ratio and write benchmarks/results.json.

Absolute speeds depend on the machine and its load; each comparison alternates both sides several
times and reports the median ratio, with the smallest and largest. With one torch thread speeds are
those of CPU seconds, so that a busy machine disturbs less; with two they are of the time that
passes, and mean something on an idle machine only. `training` compares whole set-ups
(ours: 16 copies, action masks, episodes without padding, Adam; reference: one game, no masks,
padded episodes, RMSprop); `update` compares one update on equal, full-length batches. `omg_*` and
`stacked` compare parts of ours with each other, see `benchmarks.omg`.

With --check the command fails when a ratio is on the wrong side of its floor (floors.json); one
that seems to be is measured a second time, and the better of both counts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.entries import BENCHMARKS, Benchmark
from benchmarks.floors import Floors, complaint, read_floors, record_floors
from benchmarks.report import RESULTS, markdown_table, merge_results, plain_table

Result = dict[str, Any]
HEADER = ["what", "threads", "unit", "ours", "reference", "ratio", "range", "wanted"]


def measured(name: str, benchmark: Benchmark, threads: int) -> Result:
    """One benchmark, run now."""
    torch.set_num_threads(threads)
    return {"name": name, "threads": threads, "unit": benchmark.unit, **benchmark.run()}


def better(benchmark: Benchmark, one: Result, other: Result) -> Result:
    """The result with the better ratio."""
    return (max if benchmark.larger else min)(one, other, key=lambda result: result["ratio"])


def results_of(
    names: Sequence[str], threads: Sequence[int], floors: Floors | None
) -> Iterator[Result]:
    """Every result as it is found; with floors, a second try where one is missed."""
    for name in names:
        benchmark = BENCHMARKS[name]
        for count in benchmark.threads:
            if threads and len(benchmark.threads) > 1 and count not in threads:
                continue
            result = measured(name, benchmark, count)
            if floors is not None and complaint(name, benchmark, result, floors):
                result = better(benchmark, result, measured(name, benchmark, count))
            told = f"{result['ratio']:.2f}x" if "ratio" in result else f"{result['ours']:,.0f}"
            print(f"{name} ({count} threads): {told}", file=sys.stderr, flush=True)
            yield result


def row(result: Mapping[str, Any], benchmark: Benchmark) -> list[str]:
    """A line of the table."""
    low, high = result.get("lowest"), result.get("highest")
    number = "{:,.0f}" if result["ours"] >= 100 else "{:,.2f}"
    return [
        benchmark.what,
        str(result["threads"]),
        benchmark.unit,
        number.format(result["ours"]),
        number.format(result["reference"]) if "reference" in result else "-",
        f"{result['ratio']:.2f}x" if "ratio" in result else "-",
        "-" if low is None or high is None else f"{low:.2f}-{high:.2f}",
        benchmark.goal,
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", help=f"of: {', '.join(BENCHMARKS)}; default: all")
    parser.add_argument(
        "--threads", type=int, action="append", default=[], help="only so many (may be repeated)"
    )
    parser.add_argument("--check", action="store_true", help="fail when a floor is missed")
    parser.add_argument(
        "--record-floors", action="store_true", help="write the floors that these ratios give"
    )
    parser.add_argument("--markdown", action="store_true", help="print a table for documents")
    parser.add_argument(
        "--from-results", action="store_true", help="measure nothing, take benchmarks/results.json"
    )
    return parser


def _kept(names: Sequence[str], path: Path) -> list[Result]:
    """Results of an earlier run."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return [r for r in known.get("results", []) if r["name"] in names and r["name"] in BENCHMARKS]


def _merged(earlier: Sequence[Result], new: Sequence[Result]) -> list[Result]:
    """New results in place of earlier ones of the same name and threads."""
    both = {(r["name"], r["threads"]): r for r in (*earlier, *new)}
    order = list(BENCHMARKS)
    return sorted(both.values(), key=lambda result: order.index(result["name"]))


def main(words: Sequence[str] | None = None) -> int:
    parser = _parser()
    given = parser.parse_args(words)
    unknown = set(given.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no benchmark called {', '.join(sorted(unknown))}")
    names = given.names or list(BENCHMARKS)
    floors = read_floors() if given.check else None
    if given.from_results:
        results = _kept(names, RESULTS)
    else:
        results = []
        for result in results_of(names, given.threads, floors):
            results.append(result)
            merge_results(RESULTS, "results", _merged(_kept(list(BENCHMARKS), RESULTS), [result]))
    rows = [row(result, BENCHMARKS[result["name"]]) for result in results]
    print((markdown_table if given.markdown else plain_table)(HEADER, rows))
    if given.record_floors:
        record_floors(BENCHMARKS, results)
    found = [complaint(r["name"], BENCHMARKS[r["name"]], r, floors or {}) for r in results]
    missed = [sentence for sentence in found if sentence and given.check]
    there = {result["name"] for result in results}
    for name in names if given.check else ():
        if BENCHMARKS[name].checked and name not in there:
            missed.append(f"{name} was not measured, so that its floor is not checked.")
    for sentence in missed:
        print(sentence, file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
