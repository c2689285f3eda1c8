"""`python -m benchmarks.threads [case …]`: what a second torch thread brings, and what it costs
beside other processes.

One process per setting builds the same training and stays; they measure in turns, by the clock on
the wall, against one thread. `--beside N` starts N processes that keep a core busy each, as other
runs do. Our kernels have a pool of threads of their own. With recurrent agents torch's operations
keep to one thread; two settings give them the second one, too, as libgomp comes and as it sleeps.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median

from benchmarks.against import CASES, HERE, Side
from benchmarks.report import markdown_table, plain_table

# Threads, whether torch's operations have them, too, and what libgomp reads when it is loaded.
SETTINGS: dict[str, tuple[int, bool, dict[str, str]]] = {
    "one": (1, False, {}),
    "two (ours)": (2, False, {}),
    "two, torch's too": (2, True, {}),
    "two, torch's too, which spin": (2, True, {"GOMP_SPINCOUNT": "300000"}),
}


@contextmanager
def busy(count: int) -> Iterator[None]:
    """While open, so many processes keep a core busy each."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def compare(words: Sequence[str], *, rounds: int, seconds: float, beside: int) -> list[list[float]]:
    """Speeds of all SETTINGS, round by round."""
    with ExitStack() as stack:
        sides = []
        for threads, torch_too, variables in SETTINGS.values():
            side = Side(
                *(HERE, words, seconds),
                threads=threads,
                torch_too=torch_too,
                clock="perf_counter",
                variables=variables,
            )
            stack.callback(side.close)
            sides.append(side)
        with busy(beside):
            return [[side.measure() for side in sides] for _ in range(rounds)]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.threads",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("cases", nargs="*", help=f"of: {', '.join(CASES)}; default: all")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each measurement")
    parser.add_argument("--beside", type=int, default=0, help="busy processes beside it")
    parser.add_argument("--markdown", action="store_true", help="print a table for documents")
    given = parser.parse_args()
    unknown = set(given.cases) - set(CASES)
    if unknown:
        parser.error(f"no case called {', '.join(sorted(unknown))}")
    rows = []
    for name in given.cases or CASES:
        what, words = CASES[name]
        found = compare(words, rounds=given.rounds, seconds=given.seconds, beside=given.beside)
        for number, setting in enumerate(SETTINGS):
            speeds = [each[number] for each in found]
            ratios = sorted(each[number] / each[0] for each in found)
            rows.append(
                [
                    *(what, setting, f"{median(speeds):,.0f}", f"{median(ratios):.2f}x"),
                    f"{ratios[0]:.2f}-{ratios[-1]:.2f}",
                ]
            )
            print(*rows[-1], sep="  ", file=sys.stderr, flush=True)
    header = ["training", "threads", "env-steps/s", "ratio", "range"]
    print((markdown_table if given.markdown else plain_table)(header, rows))


if __name__ == "__main__":
    main()
