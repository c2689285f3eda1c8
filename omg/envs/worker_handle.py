"""One worker process as its parent sees it: start, ask, notice that it failed, end."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from omg.envs.spawned import CLOSE_SECONDS, SHOWN_LINES, SpawnedProcess
from omg.envs.worker_process import SharedArrays, WorkerOrder, run_worker
from omg.types import OmgError, RunFailedError

ADVICE = (
    "Correct the environment, or set on_worker_failure=restart to drop such episodes and go on."
)
DOING = {"reset_at": "reset", "attach": "start"}


class WorkerFailedError(RunFailedError):
    """A worker process raised, died or hung. `traceback` is all that is known of where."""

    def __init__(
        self,
        *,
        worker: int,
        copies: range,
        summary: str,
        traceback: str,
        advice: str = ADVICE,
    ) -> None:
        last_lines = traceback.strip().splitlines()[-SHOWN_LINES:]
        super().__init__("\n".join([f"{summary} {advice}", *last_lines]))
        self.worker, self.copies = worker, copies
        self.summary, self.traceback = summary, traceback


class Worker:
    """Hosts the copies `start` to `stop - 1` of the whole batch."""

    def __init__(self, *, number: int, start: int, order: WorkerOrder) -> None:
        self.number = number
        self.start, self.stop = start, start + order.n_copies
        self.arrays: SharedArrays
        self._order = order
        self._owner = os.getpid()
        self._ended = False
        self._process = SpawnedProcess(
            run_worker,
            order,
            name=f"omg-worker-{number}",
            daemon=True,
            needs_main=b"__main__" in order.factory,
        )
        self._connection = self._process.connection
        self._ready_by = time.monotonic() + order.start_timeout

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def welcome(self) -> Any:
        """Wait for the environment, share memory with the worker; outcome: spec and exactness.

        The memory loses its name as soon as both sides have it, so that nothing is left behind
        however the processes end.
        """
        answer = self.outcome("start", self._ready_by)
        if isinstance(answer, OmgError):
            return answer
        self.arrays = SharedArrays(answer[0], self._order.n_copies)
        try:
            self.send("attach", self.arrays.name)
            attached = self.outcome("attach", self._ready_by)
        finally:
            self.arrays.unlink()
        return attached if isinstance(attached, OmgError) else answer

    def send(self, command: str, argument: Any) -> None:
        """Ask for something; if the worker is gone, `outcome` will tell."""
        with contextlib.suppress(OSError):
            self._connection.send((command, argument))

    def outcome(self, command: str, deadline: float) -> Any:
        """The answer to `command`: a value, an `OmgError` or a `WorkerFailedError`."""
        if not self._process.ready(deadline - time.monotonic()):
            stack = self._process.stack()
            self.end(grace=0.0)
            limit = self._order.start_timeout if command == "start" else self._order.timeout
            return self._failure(command, f"did not answer within {limit:g} seconds", stack)
        try:
            if self._process.is_silent():
                raise EOFError
            answer = self._connection.recv()
        except (EOFError, OSError):
            self.end(grace=1.0)
            return self._failure(command, self._process.how_it_died(), self._process.faults())
        if answer[0] == "failed":
            self.end(grace=CLOSE_SECONDS)
            return self._failure(command, f"raised {answer[1]}", answer[2])
        return OmgError(answer[1]) if answer[0] == "refused" else answer[1]

    def hang_up(self) -> None:
        """Close the pipe, which tells the worker to end."""
        if os.getpid() == self._owner:
            self._connection.close()

    def end(self, *, grace: float) -> None:
        """Give the worker `grace` seconds to close, then kill it and whatever it started."""
        if self._ended or os.getpid() != self._owner:
            return
        self._ended = True
        try:
            self._process.end(grace=grace)
        finally:
            if hasattr(self, "arrays"):
                self.arrays.close()

    def _failure(self, command: str, what: str, traceback: str) -> WorkerFailedError:
        copies = range(self._order.first_copy, self._order.first_copy + self._order.n_copies)
        doing = DOING.get(command, command)
        return WorkerFailedError(
            worker=self.number,
            copies=copies,
            summary=f"Worker {self.number} (copies {copies[0]} to {copies[-1]}) failed in {doing}: "
            f"it {what}.",
            traceback=traceback,
        )


def stop_all(workers: list[Worker]) -> None:
    """End all workers, which close their environments side by side."""
    for worker in workers:
        worker.hang_up()
    deadline = time.monotonic() + CLOSE_SECONDS
    for worker in workers:
        worker.end(grace=max(deadline - time.monotonic(), 0.0))
