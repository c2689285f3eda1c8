"""What a case is, and how many of them are run side by side."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from .children import Child, Outcome, Task
from .judging import Judgement
from .world import World


@dataclass(frozen=True)
class Started:
    """A task, and what is to be said of its outcome."""

    task: Task
    verdict: Callable[[Outcome], Judgement]


@dataclass(frozen=True)
class Case(ABC):
    """One trial, which follows from the seed and its number."""

    kind: str
    seed: int
    number: int

    @property
    def id(self) -> str:
        return f"{self.kind}-{self.number}"

    def random(self) -> Random:
        """The stream that everything of this case is drawn from."""
        return Random(f"{self.seed}/{self.id}")

    @abstractmethod
    def start(self, world: World, place: Path) -> Started:
        """Prepare `place`, an empty folder, and say what is to be run there."""


@dataclass(frozen=True)
class Done:
    """A case that has ended."""

    case: Case
    words: tuple[str, ...]
    outcome: Outcome
    judgement: Judgement


def play(
    cases: Iterable[Case], world: World, *, jobs: int, keep: bool = False, until: float = 0.0
) -> Iterator[Done]:
    """Run cases, `jobs` at a time; no new one is begun after `until` (of time.monotonic)."""
    waiting = iter(cases)
    running: list[tuple[Case, Started, Child, Path]] = []
    exhausted = False
    try:
        while running or not exhausted:
            while len(running) < jobs and not exhausted:
                case = next(waiting, None)
                exhausted = case is None or bool(until and time.monotonic() > until)
                if case is None or exhausted:
                    break
                place = world.root / "cases" / case.id
                shutil.rmtree(place, ignore_errors=True)
                place.mkdir(parents=True)
                started = case.start(world, place)
                running.append((case, started, Child(started.task), place))
            for entry in list(running):
                case, started, child, place = entry
                outcome = child.poll()
                if outcome is None:
                    continue
                running.remove(entry)
                yield Done(case, started.task.words, outcome, started.verdict(outcome))
                if not keep:
                    _remove(place)
            time.sleep(0.01)
    finally:  # whoever stops us stops them, too
        for _, _, child, _ in running:
            child.kill()


def _remove(place: Path) -> None:
    def force(function: Any, path: str, error: Any) -> None:
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(path), 0o700)
            function(path)

    shutil.rmtree(place, onerror=force)
