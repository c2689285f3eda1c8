"""One worker process as its parent sees it: start, ask, notice that it failed, end."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import wait
from types import ModuleType
from typing import Any

from omg.envs.worker_process import SharedArrays, WorkerOrder, run_worker
from omg.types import OmgError, RunFailedError

# One thread per worker: the workers themselves fill the cores.
THREAD_LIMITS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
# How long workers may take to close their environments before they are killed.
CLOSE_SECONDS = 5.0
SHOWN_LINES = 8
ADVICE = (
    "Correct the environment, or set on_worker_failure=restart to drop such episodes and go on."
)
DOING = {"reset_at": "reset", "attach": "start"}

_starting = threading.Lock()


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
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._faults, their_faults = context.Pipe(duplex=False)
        self._process = context.Process(
            target=run_worker,
            args=(theirs, their_faults, order),
            name=f"omg-worker-{number}",
            daemon=True,
        )
        with _worker_surroundings(needs_main=b"__main__" in order.factory):
            self._process.start()
        theirs.close()
        their_faults.close()
        self._ready_by = time.monotonic() + order.start_timeout

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid or 0

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
        wanted: list[Any] = [self._connection, self._process.sentinel]
        ready = wait(wanted, max(deadline - time.monotonic(), 0.0))
        if not ready:
            stack = self._stack()
            self.end(grace=0.0)
            limit = self._order.start_timeout if command == "start" else self._order.timeout
            return self._failure(command, f"did not answer within {limit:g} seconds", stack)
        try:
            if self._connection not in ready and not self._connection.poll():
                raise EOFError
            answer = self._connection.recv()
        except (EOFError, OSError):
            self.end(grace=1.0)
            return self._failure(command, self._how_it_died(), self._read_faults())
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
        self.hang_up()
        try:
            wait([self._process.sentinel], grace)
        finally:
            # The group goes first: its number is the worker's until that has been waited for.
            if hasattr(os, "killpg"):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
            self._process.kill()
            self._process.join()
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

    def _how_it_died(self) -> str:
        code = self._process.exitcode or 0
        if code >= 0:
            return f"ended with exit code {code}"
        return f"was killed by {signal.Signals(-code).name}"

    def _stack(self) -> str:
        """Where a hanging worker is, asked by a signal that needs nothing of its interpreter."""
        if not hasattr(signal, "SIGUSR1"):
            return ""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)
        return self._read_faults(patience=0.5)

    def _read_faults(self, *, patience: float = 0.0) -> str:
        """What the fault handler wrote, in the order of an ordinary traceback."""
        text = b""
        with contextlib.suppress(OSError):
            while self._faults.poll(patience) and (
                chunk := os.read(self._faults.fileno(), 1 << 16)
            ):
                text += chunk
        lines = text.decode(errors="replace").splitlines()
        frames = [line for line in lines if line.startswith("  File")]
        causes = [line for line in lines if line.startswith("Fatal")]
        return "\n".join(
            [*causes, "Traceback (most recent call last):", *frames[::-1]] if lines else []
        )


def stop_all(workers: list[Worker]) -> None:
    """End all workers, which close their environments side by side."""
    for worker in workers:
        worker.hang_up()
    deadline = time.monotonic() + CLOSE_SECONDS
    for worker in workers:
        worker.end(grace=max(deadline - time.monotonic(), 0.0))


@contextlib.contextmanager
def _worker_surroundings(*, needs_main: bool) -> Iterator[None]:
    """What a starting worker inherits: one computing thread, Ctrl-C blocked, and no main script.

    A spawned process runs the main script's imports again (torch among them), which only a
    factory defined in that script needs.
    """
    with _starting:
        before = {name: os.environ.get(name) for name in THREAD_LIMITS}
        main = sys.modules["__main__"]
        mask = None
        if hasattr(signal, "pthread_sigmask"):
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            os.environ.update(dict.fromkeys(THREAD_LIMITS, "1"))
            if not needs_main:
                sys.modules["__main__"] = ModuleType("__main__")
            yield
        finally:
            sys.modules["__main__"] = main
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            if mask is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
