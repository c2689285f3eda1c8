"""Plays the cells of many agents, several agents at a time, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, TypeAlias

from omg.evaluation.agent_runs import AgentRun
from omg.evaluation.crossplay_table import Cell
from omg.opponents.pool import OpponentPool
from omg.opponents.unseen import recorded
from omg.types import OmgError, RunFailedError, cores

if TYPE_CHECKING:
    from omg.evaluation.crossplay import CrossplayPlan, Task

# Plays one agent's cells; a function of a module, so that a process finds it.
Play: TypeAlias = Callable[
    [str, AgentRun, OpponentPool, "Sequence[Task]", "CrossplayPlan"], Iterable[Cell]
]


@dataclass(frozen=True, slots=True)
class Games:
    """One agent's cells."""

    agent_id: str
    agent: AgentRun
    tasks: Sequence[Task]
    play: Play


def check_jobs(jobs: int) -> int:
    """How many processes are to play; 0 means one per core."""
    if jobs < 0:
        raise OmgError(f"jobs={jobs} is not possible. Use 1 or more, or 0 for one per core.")
    return jobs or cores()


def play_all(
    games: Sequence[Games], pool: OpponentPool, plan: CrossplayPlan, *, jobs: int = 1
) -> Iterator[Cell]:
    """All cells, agent by agent in the order given. What is played does not depend on `jobs`."""
    jobs = min(check_jobs(jobs), len(games))
    if jobs <= 1:
        for each in games:
            yield from each.play(each.agent_id, each.agent, pool, each.tasks, plan)
        return
    executor = ProcessPoolExecutor(
        jobs,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_prepare,
    )
    try:
        # Pickled here: what the executor itself cannot pickle makes its shutdown wait for ever.
        orders = [pickle.dumps((each, pool.path, plan)) for each in games]
        asked: list[Future[list[Cell]]] = [executor.submit(_play, order) for order in orders]
        for future in asked:
            yield from future.result()
    except BrokenProcessPool as error:
        raise RunFailedError(
            "A process that played games was ended from outside, perhaps for lack of memory (or a "
            "script of yours does not guard its start by if __name__ == '__main__'). Nothing was "
            "written; give the command again, with --jobs=1 if it happens again."
        ) from error
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _prepare() -> None:
    """Ctrl-C ends a process of `play_all` without a word, and it does not outlive its parent."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _play(order: bytes) -> list[Cell]:
    """In a process of its own; who gave the order has recorded the look."""
    games, pool, plan = pickle.loads(order)
    opened = OpponentPool.open(pool)
    with recorded():
        return list(games.play(games.agent_id, games.agent, opened, games.tasks, plan))
