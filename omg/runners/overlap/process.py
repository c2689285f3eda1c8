"""The collector's process as the learner sees it: start, ask, notice that it failed, end."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
from multiprocessing.connection import Connection, wait
from multiprocessing.util import Finalize
from typing import Any

from omg.config.schema import Config
from omg.envs.worker_handle import CLOSE_SECONDS, SHOWN_LINES, _worker_surroundings
from omg.runners.overlap.child import run_collector
from omg.types import OmgError, RunFailedError

ADVICE = (
    "Correct the cause and continue the run with --resume; with collect_ahead=0 everything happens "
    "in one process."
)


class CollectorFailedError(RunFailedError):
    """The collector raised, died or hung. `traceback` is all that is known of where."""

    def __init__(self, what: str, traceback: str = "") -> None:
        last_lines = traceback.strip().splitlines()[-SHOWN_LINES:]
        super().__init__("\n".join([f"The collector {what}. {ADVICE}", *last_lines]))
        self.traceback = traceback


class Link:
    """Commands to a collector, and its answers."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def send(self, command: str, argument: Any) -> None:
        """Ask for something; if the collector is gone, `receive` will tell."""
        with contextlib.suppress(OSError):
            self._connection.send_bytes(pickle.dumps((command, argument)))

    def ready(self, seconds: float) -> bool:
        """Whether `receive` has something to tell within so many seconds."""
        return self._connection.poll(seconds)

    def receive(self) -> Any:
        """The next answer; one that reports a failure is raised."""
        try:
            # What our own child process sends; never read from a file.
            answer = pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            raise self.died() from None
        if answer[0] == "done":
            return answer[1]
        self.end(grace=CLOSE_SECONDS)
        if answer[0] == "failed":
            raise CollectorFailedError(f"raised {answer[1]}", answer[2])
        raise OmgError(answer[1]) if answer[0] == "refused" else RunFailedError(answer[1])

    def died(self) -> CollectorFailedError:
        """What to say of a collector that has gone."""
        self.end(grace=1.0)
        return CollectorFailedError("ended")

    def hung(self, seconds: float) -> CollectorFailedError:
        """What to say of a collector that makes no step; it is ended."""
        self.end(grace=0.0)
        return CollectorFailedError(f"made no step for {seconds:g} seconds")

    def end(self, *, grace: float) -> None:
        """Close the pipe, which tells the collector to end."""
        self._connection.close()


class CollectorProcess(Link):
    """A spawned process. It may have worker processes of its own, so it is no daemon."""

    def __init__(self, config: Config) -> None:
        context = multiprocessing.get_context("spawn")
        connection, theirs = context.Pipe()
        super().__init__(connection)
        self._faults, their_faults = context.Pipe(duplex=False)
        values = config.as_dict()
        self._process = context.Process(
            target=run_collector, args=(theirs, their_faults, values), name="omg-collector"
        )
        with _worker_surroundings(needs_main="__main__" in repr(values)):
            self._process.start()
        theirs.close()
        their_faults.close()
        self._ended = False
        self._at_exit = Finalize(None, self.end, kwargs={"grace": 0.0}, exitpriority=10)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid or 0

    def ready(self, seconds: float) -> bool:
        wanted: list[Any] = [self._connection, self._process.sentinel]
        return bool(wait(wanted, seconds))

    def receive(self) -> Any:
        # The last words of a process that has ended stay in the pipe.
        if not self._process.is_alive() and not self._connection.poll():
            raise self.died()
        return super().receive()

    def died(self) -> CollectorFailedError:
        self.end(grace=1.0)
        code = self._process.exitcode or 0
        how = f"ended with exit code {code}"
        if code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        return CollectorFailedError(how, self._read_faults())

    def hung(self, seconds: float) -> CollectorFailedError:
        stack = ""
        if hasattr(signal, "SIGUSR1"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGUSR1)  # needs nothing of its interpreter
            stack = self._read_faults(patience=0.5)
        self.end(grace=0.0)
        return CollectorFailedError(f"made no step for {seconds:g} seconds", stack)

    def end(self, *, grace: float) -> None:
        """Give the collector `grace` seconds to close its environment, then kill it."""
        if self._ended:
            return
        self._ended = True
        self._at_exit.cancel()
        super().end(grace=grace)
        try:
            wait([self._process.sentinel], grace)
        finally:
            # The group goes first: its number is the collector's until that has been waited for.
            if hasattr(os, "killpg"):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
            self._process.kill()
            self._process.join()

    def _read_faults(self, *, patience: float = 0.0) -> str:
        """What the fault handler wrote, in the order of an ordinary traceback."""
        text = b""
        with contextlib.suppress(OSError):
            while self._faults.poll(patience) and (
                chunk := os.read(self._faults.fileno(), 1 << 16)
            ):
                text += chunk
        frames = [x for x in text.decode(errors="replace").splitlines() if x.startswith("  File")]
        return "\n".join(["Traceback (most recent call last):", *frames[::-1]] if frames else [])
