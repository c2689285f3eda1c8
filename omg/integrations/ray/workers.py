"""Workers of an environment as Ray actors, on any machine of a cluster.

An actor starts the process of its games as runner=parallel does, watches it and ends it with
whatever it started. Commands and answers go past the actor, through a socket: a call through Ray
costs about as much as a step of a fast game.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from typing import Any

from omg.envs.spawned import CLOSE_SECONDS
from omg.envs.worker_arrays import WorkerArrays
from omg.envs.worker_place import WorkerHandle
from omg.envs.worker_process import Worker, WorkerFailedError, WorkerOrder, failure_of
from omg.envs.worker_socket import SHOWING, visit
from omg.integrations.ray.bench import Bench
from omg.types import OmgError

# How long an actor may take to say what has become of its games: its machine may be lost.
RELAY_SECONDS = 10.0
# How long Ray may take to start the process of an actor.
PROCESS_SECONDS = 60.0


class Warden:
    """The actor: it looks after the process of the games."""

    def __init__(
        self, *, number: int, order: WorkerOrder, folder: str, environ: Mapping[str, str]
    ) -> None:
        os.environ.update(environ)
        with contextlib.suppress(OSError):  # the user's own games lie there, if it can be seen
            os.chdir(folder)
        self._worker = Worker(number=number, start=0, order=order)

    def welcome(self, key: bytes) -> tuple[Any, ...]:
        """Spec, exactness of snapshots, process id of the games, and where they listen."""
        from ray.util import get_node_ip_address

        answer = self._worker.started()
        if not isinstance(answer, OmgError):
            address = self._worker.opened(get_node_ip_address(), key)
            failed = isinstance(address, OmgError)
            answer = address if failed else (*answer, self._worker.pid, address)
        return _packed(answer)

    def explain(self, command: str) -> tuple[Any, ...]:
        """Why the games do not answer; they are ended."""
        return _packed(self._worker.outcome(command, time.monotonic() + 1.0))

    def close(self, grace: float) -> None:
        """Wait until the games have ended, or end them."""
        self._worker.end(grace=grace)


def _packed(answer: Any) -> tuple[Any, ...]:
    if isinstance(answer, WorkerFailedError):
        return "lost", answer.summary, answer.traceback
    return ("refused", str(answer)) if isinstance(answer, OmgError) else ("done", answer)


class ActorWorker:
    """The driver's end of an actor and of its games' socket."""

    def __init__(
        self, ray: Any, actor: Any, *, number: int, start: int, order: WorkerOrder
    ) -> None:
        self.start, self.stop = start, start + order.n_copies
        self.arrays: WorkerArrays
        self.pid = 0
        self._ray, self._actor, self._number, self._order = ray, actor, number, order
        self._owner, self._ended = os.getpid(), False
        self._connection: Connection | None = None
        self._closing: Any = None
        self._key = secrets.token_bytes(32)
        self._welcome = actor.welcome.remote(self._key)
        self._ready_by = time.monotonic() + order.start_timeout + PROCESS_SECONDS

    def welcome(self) -> Any:
        patience = max(self._ready_by - time.monotonic(), 0.0)
        answer = self._from_actor("start", self._welcome, patience)
        if isinstance(answer, OmgError):
            return answer
        spec, exact, self.pid, address = answer
        self.arrays = WorkerArrays(spec, self._order.n_copies)
        try:
            self._connection = visit(address, self._key)
        except (OSError, EOFError, AuthenticationError) as error:
            self.end(grace=0.0)
            where = f"{address[0]}, port {address[1]}"
            return self._failure("start", f"cannot be reached at {where}: {error}", "")
        return spec, exact

    def send(self, command: str, argument: Any) -> None:
        if command == "step":
            argument = self.arrays["actions"].tobytes()
        with contextlib.suppress(OSError):
            if self._connection is not None:
                self._connection.send((command, argument))

    def outcome(self, command: str, deadline: float) -> Any:
        try:
            if self._connection is None:
                raise EOFError
            if not self._connection.poll(max(deadline - time.monotonic(), 0.0)):
                return self._explained(command)
            answer = self._connection.recv()
        except (EOFError, OSError):
            return self._explained(command)
        if answer[0] == "failed":
            self.end(grace=CLOSE_SECONDS)
            return self._failure(command, f"raised {answer[1]}", answer[2])
        if answer[0] == "refused":
            return OmgError(answer[1])
        if command in SHOWING:
            self.arrays.unpack(answer[2])
        return answer[1]

    def hang_up(self) -> None:
        if os.getpid() == self._owner and self._connection is not None:
            self._connection.close()
        if self._usable():
            self._closing = self._actor.close.remote(CLOSE_SECONDS)

    def end(self, *, grace: float) -> None:
        if self._ended or os.getpid() != self._owner:
            return
        self._ended = True
        try:
            if self._connection is not None:
                self._connection.close()
            if grace > 0 and self._usable():
                self._ray.wait([self._closing or self._actor.close.remote(grace)], timeout=grace)
        finally:
            if self._usable():
                self._ray.kill(self._actor)

    def _usable(self) -> bool:
        """Not in a forked child, nor after Ray has ended and its actors with it."""
        return os.getpid() == self._owner and bool(self._ray.is_initialized())

    def _explained(self, command: str) -> Any:
        """What the actor says of games that do not answer."""
        answer = self._from_actor(command, self._actor.explain.remote(command), RELAY_SECONDS)
        self.end(grace=0.0)
        return answer

    def _from_actor(self, command: str, asked: Any, patience: float) -> Any:
        exceptions = self._ray.exceptions
        try:
            answer = self._ray.get(asked, timeout=patience)
        except exceptions.GetTimeoutError:
            self.end(grace=0.0)
            return self._failure(command, "did not answer, nor did its Ray actor", "")
        except exceptions.RayError as error:
            self.end(grace=0.0)
            return self._failure(command, "was lost with its Ray actor", str(error))
        if answer[0] == "lost":
            self.end(grace=0.0)
            copies = range(self._order.first_copy, self._order.first_copy + self._order.n_copies)
            return WorkerFailedError(
                worker=self._number, copies=copies, summary=answer[1], traceback=answer[2]
            )
        return OmgError(answer[1]) if answer[0] == "refused" else answer[1]

    def _failure(self, command: str, what: str, traceback: str) -> WorkerFailedError:
        return failure_of(self._number, self._order, command, what=what, traceback=traceback)


class RayPlace:
    """Workers sit on a bench of the cluster, each as an actor."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._left = False
        bench.enter()

    def launch(self, *, number: int, start: int, order: WorkerOrder) -> WorkerHandle:
        ray = self.bench.ray
        actor = (
            ray.remote(Warden)
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
