"""`python -m benchmarks.against <checkout> [case …]`: this code against another checkout of it.

One process per checkout builds the same training and stays; they measure in turns, each from update
to update, in CPU seconds of its one torch thread, so that other work on the machine disturbs both
alike. The median of the ratios of all rounds counts.

    git worktree add ../before 118f9c8
    python -m benchmarks.against ../before
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from types import MappingProxyType

from benchmarks.report import markdown_table, plain_table

HERE = Path(__file__).parents[1]
IPPO = (
    *("--config=ippo", "--env-config=spread", "--batch_size_run=64", "--batch_size=64"),
    *("--rnn_hidden_dim=64", "--critic_hidden_dims=[64]", "--ppo_epochs=4", "--ppo_minibatches=2"),
)
CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "qmix_spread": (
        "QMIX-RNN, Spread, 8 copies, 32 x 26",
        (
            *("--config=qmix", "--env-config=spread", "--batch_size_run=8", "--batch_size=32"),
            *("--rnn_hidden_dim=64", "--updates_per_episode=1"),
        ),
    ),
    "qmix_foraging": (  # at random, so that all sides learn from episodes of the same lengths
        "QMIX-RNN, Foraging-8x8-2p-3f, 16 copies, 32 x 50",
        (
            "--config=qmix",
            "--env-config=foraging",
            "--env_args.key=Foraging-8x8-2p-3f-v3",
            "--epsilon_finish=1",
        ),
    ),
    "ippo_spread": ("IPPO-RNN, Spread, 64 copies x 25, critic [64]", IPPO),
    "ippo_spread_wide": (
        "the same with the default critic, [128, 128]",
        tuple(word for word in IPPO if "critic" not in word),
    ),
}
# Runs in both checkouts, so it uses only what both have. Answers every line with a speed.
WORKER = """
import sys, time
import torch
from benchmarks.training import Training, config_of
from omg.modules.device import set_up_torch
threads, torch_too, seconds, clock, *words = sys.argv[1:]
config = config_of([*words, "--torch_threads=" + threads])
set_up_torch(config)
if torch_too == "True":
    torch.set_num_threads(int(threads))
training = Training(config)
training.warm(3)
print("ready", flush=True)
for _ in sys.stdin:
    print(training.steps_per_second(float(seconds), getattr(time, clock)), flush=True)
"""


class Worker:
    """A process that says "ready", and then a speed for every line it is given. It may print
    something itself before it is ready."""

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], name: str, cwd: Path | None = None
    ) -> None:
        self._name = name
        self._process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        while self._answer() != "ready":
            pass

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._name} could not run; its message is above.")
        return line.strip()

    def measure(self) -> float:
        """Environment steps per second of the clock."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        return float(self._answer())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Side(Worker):
    """A training with the code of one checkout. A `clock` is a function of the module time: CPU
    seconds of one thread, or all that pass (`perf_counter`). `torch_too`: torch's own operations
    have as many threads as our kernels."""

    def __init__(
        self,
        checkout: Path,
        words: Sequence[str],
        seconds: float,
        *,
        threads: int = 1,
        torch_too: bool = False,
        clock: str = "thread_time",
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONSAFEPATH": "1"}
        environment |= variables
        told = [str(threads), str(torch_too), str(seconds), clock]
        command = [sys.executable, "-c", WORKER, *told, *words]
        super().__init__(command, env=environment, name="A checkout", cwd=checkout)


def compare(
    other: Path, words: Sequence[str], more: Sequence[str], *, rounds: int, seconds: float
) -> tuple[list[float], list[float]]:
    """Speeds of this code, which also gets the words `more`, and of the other, round by round."""
    sides = Side(HERE, [*words, *more], seconds), Side(other, words, seconds)
    try:
        pairs = [tuple(side.measure() for side in sides) for _ in range(rounds)]
    finally:
        for side in sides:
            side.close()
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.against",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkout", type=Path, help="folder of another checkout")
    parser.add_argument("cases", nargs="*", help=f"of: {', '.join(CASES)}; default: all")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each measurement")
    parser.add_argument(
        "--ours", action="append", default=[], help="a word for this code only: --ours=--key=value"
    )
    parser.add_argument("--markdown", action="store_true", help="print a table for documents")
    given = parser.parse_args()
    unknown = set(given.cases) - set(CASES)
    if unknown:
        parser.error(f"no case called {', '.join(sorted(unknown))}")
    checkout = given.checkout.resolve()
    if not (checkout / "benchmarks" / "training.py").is_file():
        parser.error(f"{checkout} is no checkout of this repository")
    rows = []
    for name in given.cases or CASES:
        what, words = CASES[name]
        ours, theirs = compare(
            checkout, words, given.ours, rounds=given.rounds, seconds=given.seconds
        )
        ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
        rows.append(
            [
                " ".join([what, *given.ours]),
                f"{median(ours):,.0f}",
                f"{median(theirs):,.0f}",
                f"{median(ratios):.2f}x",
                f"{ratios[0]:.2f}-{ratios[-1]:.2f}",
            ]
        )
        print(*rows[-1], sep="  ", file=sys.stderr, flush=True)
    header = ["training", "env-steps/s", "before", "ratio", "range"]
    print((markdown_table if given.markdown else plain_table)(header, rows))


if __name__ == "__main__":
    main()
