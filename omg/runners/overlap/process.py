"""The collector's process as the learner sees it: start, ask, notice that it failed, end."""

from __future__ import annotations

import contextlib
import pickle
from multiprocessing.connection import Connection
from multiprocessing.util import Finalize
from typing import Any

from omg.config.schema import Config
from omg.envs.spawned import CLOSE_SECONDS, SHOWN_LINES, SpawnedProcess
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
        values = config.as_dict()
        self._process = SpawnedProcess(
            run_collector,
            values,
            name="omg-collector",
            daemon=False,
            needs_main="__main__" in repr(values),
        )
        super().__init__(self._process.connection)
        self._ended = False
        self._at_exit = Finalize(None, self.end, kwargs={"grace": 0.0}, exitpriority=10)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def ready(self, seconds: float) -> bool:
        return self._process.ready(seconds)

    def receive(self) -> Any:
        if self._process.is_silent():
            raise self.died()
        return super().receive()

    def died(self) -> CollectorFailedError:
        self.end(grace=1.0)
        return CollectorFailedError(self._process.how_it_died(), self._process.faults())

    def hung(self, seconds: float) -> CollectorFailedError:
        stack = self._process.stack()
        self.end(grace=0.0)
        return CollectorFailedError(f"made no step for {seconds:g} seconds", stack)

    def end(self, *, grace: float) -> None:
        """Give the collector `grace` seconds to close its environment, then kill it."""
        if self._ended:
            return
        self._ended = True
        self._at_exit.cancel()
        self._process.end(grace=grace)
