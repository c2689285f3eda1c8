"""Workers of an environment as Ray actors: what `WorkerVectorEnv` asks goes through actor calls.

An actor keeps its games in a process of its own, as runner=parallel does. So a game that raises,
dies or hangs is noticed, described and ended in the same way, with whatever it started.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from omg.envs.worker_arrays import WorkerArrays
from omg.envs.worker_place import WorkerHandle
from omg.envs.worker_process import Worker, WorkerFailedError, WorkerOrder, failure_of
from omg.integrations.ray.bench import Bench
from omg.types import OmgError

# How much longer than its games an actor may be silent: its machine may be lost.
RELAY_SECONDS = 10.0
# How long Ray may take to start the process of an actor.
PROCESS_SECONDS = 60.0
# What changes the arrays; `step` shows rewards and ends besides.
SHOWING = frozenset({"reset", "reset_at", "restart", "restore", "step"})


class Relay:
    """The actor: one worker process, its commands and its answers."""

    def __init__(
        self, *, number: int, order: WorkerOrder, folder: str, environ: Mapping[str, str]
    ) -> None:
        os.environ.update(environ)
        with contextlib.suppress(OSError):  # the user's own games lie there, if it can be seen
            os.chdir(folder)
        self._timeout = order.timeout
        self._worker = Worker(number=number, start=0, order=order)

    def welcome(self) -> tuple[Any, ...]:
        """Spec, exactness of snapshots, and the process id of the games."""
        answer = self._worker.welcome()
        if not isinstance(answer, OmgError):
            answer = (*answer, self._worker.pid)
        return self._packed("start", answer)

    def carry_out(self, command: str, argument: Any, actions: bytes | None) -> tuple[Any, ...]:
        """The answer to a command, and the arrays if it changes them."""
        worker = self._worker
        if actions is not None:
            wanted = worker.arrays["actions"]
            wanted[...] = np.frombuffer(actions, wanted.dtype).reshape(wanted.shape)
        worker.send(command, argument)
        return self._packed(command, worker.outcome(command, time.monotonic() + self._timeout))

    def close(self) -> None:
        """End the games in good order."""
        self._worker.end(grace=self._timeout)

    def _packed(self, command: str, answer: Any) -> tuple[Any, ...]:
        if isinstance(answer, WorkerFailedError):
            return "failed", answer.summary, answer.traceback
        if isinstance(answer, OmgError):
            return "refused", str(answer)
        if command not in SHOWING:
            return "done", answer, None
        ended = command == "step" and answer[0] > 0
        return "done", answer, self._worker.arrays.packed(with_ends=ended)


class ActorWorker:
    """The driver's end of an actor."""

    def __init__(self, ray: Any, actor: Any, *, number: int, start: int, order: WorkerOrder):
        self.start, self.stop = start, start + order.n_copies
        self.arrays: WorkerArrays
        self.pid = 0
        self._ray, self._actor, self._number, self._order = ray, actor, number, order
        self._owner, self._ended = os.getpid(), False
        self._asked = actor.welcome.remote()
        self._closing: Any = None
        self._ready_by = time.monotonic() + order.start_timeout + PROCESS_SECONDS

    def welcome(self) -> Any:
        answer = self.outcome("start", self._ready_by)
        if isinstance(answer, OmgError):
            return answer
        spec, exact, self.pid = answer
        self.arrays = WorkerArrays(spec, self._order.n_copies)
        return spec, exact

    def send(self, command: str, argument: Any) -> None:
        actions = self.arrays["actions"].tobytes() if command == "step" else None
        self._asked = self._actor.carry_out.remote(command, argument, actions)

    def outcome(self, command: str, deadline: float) -> Any:
        exceptions = self._ray.exceptions
        patience = max(deadline + RELAY_SECONDS - time.monotonic(), 0.0)
        try:
            answer = self._ray.get(self._asked, timeout=patience)
        except exceptions.GetTimeoutError:
            self.end(grace=0.0)
            return self._failure(command, f"did not answer in {patience:.0f} more seconds", "")
        except exceptions.RayError as error:
            self.end(grace=0.0)
            return self._failure(command, "was lost with its Ray actor", str(error))
        if answer[0] == "failed":
            return self._told(answer[1], answer[2])
        if answer[0] == "refused":
            return OmgError(answer[1])
        if answer[2] is not None:
            self.arrays.unpack(answer[2])
        return _own(answer[1])

    def hang_up(self) -> None:
        if self._usable():
            self._closing = self._actor.close.remote()

    def end(self, *, grace: float) -> None:
        if self._ended or not self._usable():
            return
        self._ended = True
        try:
            if grace > 0 and self._closing is not None:
                self._ray.wait([self._closing], timeout=grace)
        finally:
            self._ray.kill(self._actor)

    def _usable(self) -> bool:
        """Not in a forked child, nor after Ray has ended and its actors with it."""
        return os.getpid() == self._owner and bool(self._ray.is_initialized())

    def _failure(self, command: str, what: str, traceback: str) -> WorkerFailedError:
        return failure_of(self._number, self._order, command, what=what, traceback=traceback)

    def _told(self, summary: str, traceback: str) -> WorkerFailedError:
        copies = range(self._order.first_copy, self._order.first_copy + self._order.n_copies)
        return WorkerFailedError(
            worker=self._number, copies=copies, summary=summary, traceback=traceback
        )


def _own(value: Any) -> Any:
    """Ray hands out arrays that cannot be written to."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {key: _own(inner) for key, inner in value.items()}
    return value


class RayPlace:
    """Workers sit on a bench of the cluster, each as an actor."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._left = False
        bench.enter()

    def launch(self, *, number: int, start: int, order: WorkerOrder) -> WorkerHandle:
        ray = self.bench.ray
        actor = (
            ray.remote(Relay)
            .options(
                num_cpus=0,  # the seat has them
                max_restarts=0,
                max_task_retries=0,
                scheduling_strategy=self.bench.seat(number),
            )
            .remote(number=number, order=order, folder=os.getcwd(), environ=_told())
        )
        return ActorWorker(ray, actor, number=number, start=start, order=order)

    def release(self) -> None:
        if not self._left:
            self._left = True
            self.bench.leave()


def _told() -> dict[str, str]:
    """Our own variables, which workers beside this process inherit."""
    return {name: value for name, value in os.environ.items() if name.startswith("OMG_")}
