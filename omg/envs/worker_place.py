"""Where the workers of an environment are, and what `WorkerVectorEnv` asks of each of them."""

from __future__ import annotations

import time
from typing import Any, Protocol

from omg.envs.spawned import CLOSE_SECONDS
from omg.envs.worker_arrays import WorkerArrays
from omg.envs.worker_process import Worker, WorkerOrder


class WorkerHandle(Protocol):
    """A worker as `WorkerVectorEnv` sees it: it hosts the copies `start` to `stop - 1`."""

    start: int
    stop: int

    @property
    def arrays(self) -> WorkerArrays:
        """What is shown, from `welcome` on."""

    @property
    def pid(self) -> int:
        """Process id of the games, on the machine they are on."""

    def welcome(self) -> Any:
        """Wait for the environment; outcome: spec and exactness, or an error as of `outcome`."""

    def send(self, command: str, argument: Any) -> None:
        """Ask for something; if the worker is gone, `outcome` will tell."""

    def outcome(self, command: str, deadline: float) -> Any:
        """The answer to `command`: a value, an `OmgError` or a `WorkerFailedError`."""

    def hang_up(self) -> None:
        """Tell the worker to end."""

    def end(self, *, grace: float) -> None:
        """Give the worker `grace` seconds to close, then kill it and whatever it started."""


class WorkerPlace(Protocol):
    """Where the workers of an environment are."""

    def launch(self, *, number: int, start: int, order: WorkerOrder) -> WorkerHandle:
        """Start a worker; `welcome` waits for it."""

    def release(self) -> None:
        """All its workers have ended."""


class ThisMachine:
    """Workers are processes beside this one."""

    def launch(self, *, number: int, start: int, order: WorkerOrder) -> WorkerHandle:
        return Worker(number=number, start=start, order=order)

    def release(self) -> None:
        pass


def stop_all(workers: list[WorkerHandle], place: WorkerPlace) -> None:
    """End all workers, which close their environments side by side."""
    try:
        for worker in workers:
            worker.hang_up()
        deadline = time.monotonic() + CLOSE_SECONDS
        for worker in workers:
            worker.end(grace=max(deadline - time.monotonic(), 0.0))
    finally:
        place.release()
