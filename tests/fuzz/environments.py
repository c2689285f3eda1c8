"""Faulty environments: in every runner, and under `omg envs`."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from random import Random

from .cases import Case, Started
from .children import Outcome, Task
from .faulty import ANYWHERE, PLACES, RESULTS
from .judging import Judgement, files_of, judge
from .world import SMALL, World

ENV = "tests.fuzz.faulty:Faulty"
FAULTS = (*(f"{place} {what}" for place in PLACES for what in ANYWHERE), *RESULTS)
# Nothing in this process can survive these, or notice them.
ONLY_IN_WORKERS = ("dies", "crashes")
RUNNERS = ("batch", "batch", "episode", "parallel", "check", "info", "play")


@functools.cache
def combinations(seed: int) -> tuple[tuple[str, str], ...]:
    """Every fault with every way to meet it, in an order drawn from the seed."""
    found = [
        (fault, how)
        for fault in FAULTS
        for how in dict.fromkeys(RUNNERS)
        if how == "parallel" or not fault.endswith(ONLY_IN_WORKERS)
    ]
    Random(f"{seed}/environments").shuffle(found)
    return tuple(found)


def words_of(fault: str, how: str) -> tuple[str, ...]:
    """The command that meets a fault."""
    if how in ("check", "info", "play"):
        more = ("--text",) if how == "play" else ()
        return ("envs", how, ENV, *more, "with", f"fault={fault}")
    return (
        *("train", "--config=iql", *SMALL[1:], f"--env={ENV}", f"--runner={how}"),
        *("--n_workers=1", "--worker_timeout=5", "--local_results_path=new"),
        *("with", f"env_args.fault={fault}"),
    )


@dataclass(frozen=True)
class EnvironmentCase(Case):
    """One fault, met in one way."""

    def start(self, world: World, place: Path) -> Started:
        every = combinations(self.seed)
        fault, how = every[self.number % len(every)]
        folder = place / "here"
        folder.mkdir()
        patience = 30.0 if how == "parallel" else 8.0
        task = Task(words_of(fault, how), folder, world.environ(folder), patience)
        before = files_of(folder)

        def verdict(outcome: Outcome) -> Judgement:
            found = judge(outcome, before, files_of(folder))
            faults = list(found.faults)
            if how == "parallel" and outcome.interrupted:
                faults.append("went on and on in spite of worker_timeout=5")
            where, _, what = fault.partition(" ")
            never = where == "close" or (where in ("reset", "step") and how == "info")
            raised = what in ("raises", "exits", "memory", "recursion") and not never
            if raised and outcome.code == 0 and how != "check":
                faults.append("a fault was passed over in silence")
            faults = [f for f in faults if not (what == "interrupts" and "code 130" in f)]
            faults = [f for f in faults if "left behind" not in f]  # the run had begun
            if faults:
                return Judgement("wrong", tuple(faults))
            return Judgement("ok" if outcome.code in (0, 130) else "refused")

        return Started(task, verdict)
