"""Runs of `omg train` that a benchmark needs: done once, resumed after a break."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import stdev

from omg.experiment.output import read_metrics

SEEDS = (1, 2, 3)
STUDENT_T = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # 97.5 % quantiles, n - 1 degrees


@dataclass(frozen=True)
class Job:
    """One `omg train`."""

    folder: Path
    words: tuple[str, ...]

    def done(self) -> bool:
        return (self.folder / "models" / "last" / "meta.json").is_file() and (
            self.folder / "done"
        ).is_file()

    def run(self) -> None:
        if self.done():
            return
        resumable = (self.folder / "config.yaml").is_file() and any(self.folder.glob("resume/*"))
        words = (f"--resume={self.folder}",) if resumable else self.words
        log = self.folder.with_suffix(".log")
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w", encoding="utf-8") as out:
            code = subprocess.call(
                [sys.executable, "-m", "omg", "train", *words], stdout=out, stderr=out
            )
        if code:
            print(f"{self.folder} failed, see {log}", flush=True)
            return
        (self.folder / "done").touch()
        print(f"{self.folder}: {last_test(self.folder):.3f}", flush=True)


def last_test(folder: Path) -> float:
    """The return of a run's last test: the learning agent's own where there is one."""
    tests = [r for r in read_metrics(folder / "metrics.jsonl") if "test_return_mean" in r]
    return float(tests[-1].get("test_own_return_mean", tests[-1]["test_return_mean"]))


def interval(values: Sequence[float]) -> float:
    """Half the width of the 95 % interval of the mean."""
    count = len(values)
    return STUDENT_T[count] * stdev(values) / math.sqrt(count) if count in STUDENT_T else math.nan
