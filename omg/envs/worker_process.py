"""The inside of a worker process of `omg.envs.workers`, and its parent's end of the pipe.

Every message of the parent is `(command, argument)`, every answer one of `("done", value)`,
`("refused", text)` for a request the user has to correct, `("failed", summary, traceback)`.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import signal
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omg.envs.contract import BatchedEnv
from omg.envs.spawned import CLOSE_SECONDS, SHOWN_LINES, SpawnedProcess, prepare_child
from omg.envs.worker_arrays import SharedArrays, WorkerArrays
from omg.envs.worker_socket import Door, Visitor
from omg.types import (
    BoolArray,
    EnvSpec,
    FinalObservation,
    Observation,
    OmgError,
    RunFailedError,
    Snapshot,
    TimeStep,
)


@dataclass(frozen=True, kw_only=True)
class WorkerOrder:
    """What a new worker is told."""

    factory: bytes
    first_copy: int
    n_copies: int
    timeout: float
    start_timeout: float


class Host:
    """Carries out the commands: one method each, named like the command."""

    def __init__(self, order: WorkerOrder) -> None:
        self._order = order
        self._env: BatchedEnv
        self._arrays: WorkerArrays
        self._door: Door

    def start(self, _: None) -> tuple[EnvSpec, bool]:
        """Make the environment."""
        # What our own parent process handed over when it started us; never read from a file.
        factory = pickle.loads(self._order.factory)
        order = self._order
        self._env = factory(n_copies=order.n_copies, first_copy=order.first_copy)
        return self._env.spec, self._env.exact_snapshots

    def attach(self, name: str) -> None:
        """Open the shared memory."""
        self._arrays = SharedArrays(self._env.spec, self._order.n_copies, name=name)

    def listen(self, place: tuple[str, bytes]) -> tuple[str, int]:
        """Open a door at an address of this machine; further commands come from there."""
        self._arrays = WorkerArrays(self._env.spec, self._order.n_copies)
        self._door = Door(*place)
        return self._door.address

    def visitor(self) -> Visitor:
        """Who has come to the door."""
        return self._door.open(self._arrays)

    def reset(self, seed: int) -> None:
        self._show(self._env.reset(seed))

    def reset_at(self, start: tuple[int, int, Sequence[int]]) -> None:
        """Begin at given episodes of `seed`; an environment that cannot count ahead begins at
        episode 0 of `other_seed` instead, so that no episode is played twice."""
        seed, other_seed, episodes = start
        reset_at = getattr(self._env, "reset_at", None)
        self._show(self._env.reset(other_seed) if reset_at is None else reset_at(seed, episodes))

    def restart(self, _: None) -> None:
        self._show(self._env.restart())

    def restore(self, snapshot: Snapshot) -> None:
        self._show(self._env.restore(snapshot))

    def snapshot(self, _: None) -> Snapshot:
        return self._env.snapshot()

    def render(self, copy: int) -> NDArray[np.uint8]:
        try:
            return self._env.render(copy)
        except Exception as error:
            raise OmgError(f"No picture could be drawn: {error}") from error

    def step(self, _: None) -> tuple[int, list[int]]:
        """Act; the answer is the number of ended copies and the list of dropped ones."""
        arrays = self._arrays
        step = self._env.step(arrays["actions"].copy())
        self._show(step)
        arrays["reward"][...] = step.reward
        arrays["terminated"][...] = step.terminated
        arrays["truncated"][...] = step.truncated
        for column, name in enumerate(self._env.spec.statistics):
            arrays["info"][:, column] = step.info.get(name, np.nan)
        ended = 0 if step.final is None else len(step.final.copies)
        if step.final is not None:
            arrays["final_copies"][:ended] = step.final.copies
            arrays["final_obs"][:ended] = step.final.obs
            arrays["final_state"][:ended] = step.final.state
            arrays["final_avail"][:ended] = step.final.avail
            if self._env.spec.leavers:
                arrays["final_alive"][:ended] = _present(step.final)
        if self._env.spec.goals:
            arrays["reached"][...] = -1 if step.reached is None else step.reached
        return ended, step.dropped.tolist()

    def close(self) -> None:
        """Free the game, then the memory."""
        try:
            if hasattr(self, "_env"):
                self._env.close()
        finally:
            if hasattr(self, "_arrays"):
                self._arrays.close()

    def _show(self, view: Observation | TimeStep) -> None:
        self._arrays["obs"][...] = view.obs
        self._arrays["state"][...] = view.state
        self._arrays["avail"][...] = view.avail
        if self._env.spec.leavers:
            self._arrays["alive"][...] = _present(view)


def _present(view: Observation | TimeStep | FinalObservation) -> BoolArray | bool:
    return True if view.alive is None else view.alive


def run_worker(connection: Connection | Visitor, faults: Connection, order: WorkerOrder) -> None:
    """Serve commands until the pipe closes or a command fails."""
    prepare_child(faults)
    host = Host(order)
    command, argument = "start", None
    try:
        while True:
            answer = _carry_out(host, command, argument)
            connection.send(answer)
            if answer[0] == "failed":
                return
            if command == "listen":
                connection = host.visitor()
            command, argument = connection.recv()
    except (EOFError, OSError):
        return
    finally:
        with contextlib.suppress(KeyboardInterrupt):  # the game's: ours are the parent's
            host.close()


def _carry_out(host: Host, command: str, argument: Any) -> tuple[Any, ...]:
    """One command. The kernel's alarm clock ends a worker that hangs after its parent died."""
    if hasattr(signal, "alarm"):
        seconds = host._order.start_timeout if command == "start" else host._order.timeout
        signal.alarm(math.ceil(seconds) + 5)
    try:
        return "done", getattr(host, command)(argument)
    except BaseException as error:  # Ctrl-C is the parent's: whatever comes here is the game's
        text = traceback.format_exc()
        if isinstance(error, OmgError) and not isinstance(error, RunFailedError):
            return "refused", str(error)
        return "failed", "".join(traceback.format_exception_only(error)).strip(), text
    finally:
        if hasattr(signal, "alarm"):
            signal.alarm(0)


ADVICE = (
    "Correct the environment, or set on_worker_failure=restart to drop such episodes and go on."
)
DOING = {"reset_at": "reset", "attach": "start", "listen": "start"}


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
    """A process of this machine that hosts the copies `start` to `stop - 1` of the whole batch."""

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
        answer = self.started()
        if isinstance(answer, OmgError):
            return answer
        self.arrays = SharedArrays(answer[0], self._order.n_copies)
        try:
            self.send("attach", self.arrays.name)
            attached = self.outcome("attach", self._ready_by)
        finally:
            self.arrays.unlink()
        return attached if isinstance(attached, OmgError) else answer

    def started(self) -> Any:
        """Wait for the environment only; outcome: spec and exactness."""
        return self.outcome("start", self._ready_by)

    def opened(self, host: str, key: bytes) -> Any:
        """Have it take its further commands from a socket; outcome: the address."""
        self.send("listen", (host, key))
        return self.outcome("listen", self._ready_by)

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
        return failure_of(self.number, self._order, command, what=what, traceback=traceback)


def failure_of(
    number: int, order: WorkerOrder, command: str, *, what: str, traceback: str
) -> WorkerFailedError:
    """Worker `number` did not do what `command` asks for: "it <what>"."""
    copies = range(order.first_copy, order.first_copy + order.n_copies)
    return WorkerFailedError(
        worker=number,
        copies=copies,
        summary=f"Worker {number} (copies {copies[0]} to {copies[-1]}) failed in "
        f"{DOING.get(command, command)}: it {what}.",
        traceback=traceback,
    )
