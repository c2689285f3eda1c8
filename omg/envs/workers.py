"""Copies of an environment spread over worker processes."""

from __future__ import annotations

import logging
import pickle
import time
import weakref
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from omg.envs.contract import BatchedEnv
from omg.envs.serial import episode_seed
from omg.envs.vector import BatchedEnvFactory
from omg.envs.worker_place import ThisMachine, WorkerHandle, WorkerPlace, stop_all
from omg.envs.worker_process import WorkerFailedError, WorkerOrder
from omg.types import (
    EnvSpec,
    FinalObservation,
    IntArray,
    Observation,
    OmgError,
    RunFailedError,
    Snapshot,
    TimeStep,
)

log = logging.getLogger(__name__)


class WorkerVectorEnv(BatchedEnv):
    """Steps its workers in parallel; the numbers are those of one process with all copies.

    A worker that raises, dies or does not answer for `timeout` seconds ends the run
    (`on_failure="stop"`), or is replaced and the running episodes of its copies are dropped
    (`"restart"`), at most `max_restarts` times. A worker lost while a snapshot is taken or
    restored always ends the run, and so does any interruption such as Ctrl-C.
    """

    def __init__(
        self,
        *,
        factory: BatchedEnvFactory,
        n_copies: int,
        n_workers: int,
        first_copy: int = 0,
        timeout: float = 60.0,
        start_timeout: float = 120.0,
        on_failure: Literal["stop", "restart"] = "stop",
        max_restarts: int = 10,
        place: WorkerPlace | None = None,
    ) -> None:
        """`factory` must be picklable. There are never more workers than copies. Without a `place`
        they are processes of this machine."""
        if n_copies < 1 or n_workers < 1:
            raise OmgError(f"{n_copies} copies in {n_workers} workers. Ask for at least one each.")
        if on_failure not in ("stop", "restart"):
            raise OmgError(f"on_failure is '{on_failure}'. Choose 'stop' or 'restart'.")
        self.n_copies = n_copies
        self.n_workers = min(n_workers, n_copies)
        self.restarts = 0
        self._first_copy = first_copy
        self._timeout, self._start_timeout = timeout, start_timeout
        self._on_failure, self._max_restarts = on_failure, max_restarts
        self._factory = _pickled(factory)
        self._bounds = [w * n_copies // self.n_workers for w in range(self.n_workers + 1)]
        self._seed: int | None = None
        self._episodes = np.zeros(n_copies, np.int64)
        self._place = place or ThisMachine()
        self._workers: list[WorkerHandle] = []
        self._finalizer = weakref.finalize(self, stop_all, self._workers, self._place)
        try:
            for number in range(self.n_workers):
                self._workers.append(self._launch(number))
            for number in range(self.n_workers):
                self._welcome(number)
        except BaseException:
            self.close()
            raise

    @property
    def worker_pids(self) -> list[int]:
        """Process ids, by worker."""
        return [worker.pid for worker in self._workers]

    def reset(self, seed: int) -> Observation:
        self._seed = int(seed)
        self._episodes[:] = 0
        self._call("reset", [self._seed] * self.n_workers)
        return self._observation()

    def restart(self) -> Observation:
        self._episodes += 1
        self._call("restart", [None] * self.n_workers)
        return self._observation()

    def step(self, actions: IntArray) -> TimeStep:
        expected = (self.n_copies, self.spec.n_agents)
        if actions.shape != expected:
            raise OmgError(
                f"Actions of {self.spec.name} have shape {actions.shape}. Give {expected}."
            )
        self._require_open()
        for worker in self._workers:
            worker.arrays["actions"][...] = actions[worker.start : worker.stop]
        answers = self._call("step", [None] * self.n_workers)
        counts, dropped = [], []
        for worker, answer in zip(self._workers, answers, strict=True):
            ended, lost = answer or (0, range(worker.stop - worker.start))
            counts.append(ended)
            dropped += [worker.start + b for b in lost]
            # A lost worker's episodes have been counted when it was replaced.
            self._episodes[[worker.start + b for b in lost if answer]] += 1
        terminated, truncated = self._join("terminated"), self._join("truncated")
        self._episodes += terminated | truncated
        info = self._join("info")
        view = self._observation()
        return TimeStep(
            obs=view.obs,
            state=view.state,
            avail=view.avail,
            reward=self._join("reward"),
            terminated=terminated,
            truncated=truncated,
            final=self._final(counts),
            info={name: info[:, k].copy() for k, name in enumerate(self.spec.statistics)},
            dropped=np.array(dropped, np.int64),
            alive=view.alive,
            reached=self._join("reached") if self.spec.goals else None,
        )

    def snapshot(self) -> Snapshot:
        parts = self._call("snapshot", [None] * self.n_workers, replaceable=False)
        snapshot: Snapshot = {
            f"worker{number}/{key}": array
            for number, part in enumerate(parts)
            for key, array in part.items()
        }
        snapshot["bounds"] = np.array(self._bounds, np.int64)
        snapshot["seed"] = np.array(-1 if self._seed is None else self._seed)
        snapshot["episodes"] = self._episodes.copy()
        snapshot["restarts"] = np.array(self.restarts)
        return snapshot

    def restore(self, snapshot: Snapshot) -> Observation:
        if snapshot["bounds"].tolist() != self._bounds:
            copies, workers = int(snapshot["bounds"][-1]), len(snapshot["bounds"]) - 1
            raise OmgError(
                f"The snapshot was taken with {copies} copies in {workers} workers, here are "
                f"{self.n_copies} in {self.n_workers}. Restore it with the same numbers."
            )
        parts: list[Snapshot] = [{} for _ in range(self.n_workers)]
        for key, array in snapshot.items():
            worker, slash, name = key.partition("/")
            if slash:
                parts[int(worker.removeprefix("worker"))][name] = array
        self._call("restore", parts, replaceable=False)
        self._seed = int(snapshot["seed"])
        self._episodes[:] = snapshot["episodes"]
        self.restarts = int(snapshot["restarts"])
        return self._observation()

    def render(self, copy: int = 0) -> NDArray[np.uint8]:
        self._require_open()
        worker = next(worker for worker in self._workers if copy < worker.stop)
        worker.send("render", copy - worker.start)
        picture: NDArray[np.uint8] = self._checked([worker.outcome("render", self._deadline())])[0]
        return picture

    def close(self) -> None:
        self._finalizer()

    def _call(self, command: str, arguments: Sequence[Any], *, replaceable: bool = True) -> Any:
        """Every worker's answer; None for one that was replaced, whose copies begin again."""
        self._require_open()
        try:
            for worker, argument in zip(self._workers, arguments, strict=True):
                worker.send(command, argument)
            deadline = self._deadline()
            answers = [worker.outcome(command, deadline) for worker in self._workers]
            if replaceable and self._on_failure == "restart":
                for number, answer in enumerate(answers):
                    if isinstance(answer, WorkerFailedError):
                        self._replace(number, answer)
                        answers[number] = None
        except BaseException:
            self.close()
            raise
        return self._checked(answers)

    def _checked(self, answers: list[Any]) -> list[Any]:
        for answer in answers:
            if isinstance(answer, WorkerFailedError):
                self.close()
            if isinstance(answer, OmgError):
                raise answer
        return answers

    def _launch(self, number: int) -> WorkerHandle:
        start, stop = self._bounds[number : number + 2]
        order = WorkerOrder(
            factory=self._factory,
            first_copy=self._first_copy + start,
            n_copies=stop - start,
            timeout=self._timeout,
            start_timeout=self._start_timeout,
        )
        return self._place.launch(number=number, start=start, order=order)

    def _welcome(self, number: int) -> None:
        """Wait until a launched worker is ready, or deal with its failure."""
        answer = self._workers[number].welcome()
        if isinstance(answer, WorkerFailedError) and self._on_failure == "restart":
            self._replace(number, answer)
        else:
            self._accept(answer)

    def _accept(self, answer: Any) -> None:
        spec, exact = self._checked([answer])[0]
        known: EnvSpec = getattr(self, "spec", spec)
        if spec != known:
            raise OmgError("The workers made different environments. Check the factory.")
        self.spec, self.exact_snapshots = spec, exact

    def _replace(self, number: int, failure: WorkerFailedError) -> None:
        """Start a new worker; its copies go on with their next episode."""
        copies = slice(*self._bounds[number : number + 2])
        answer: Any = failure
        while isinstance(answer, WorkerFailedError):
            self._count(answer)
            self._episodes[copies] += 1
            self._workers[number].end(grace=0.0)
            worker = self._workers[number] = self._launch(number)
            answer = worker.welcome()
            if isinstance(answer, WorkerFailedError):
                continue
            self._accept(answer)
            if self._seed is not None:
                other_seed = episode_seed(self._seed, number, self.restarts)
                worker.send("reset_at", (self._seed, other_seed, self._episodes[copies].tolist()))
                answer = worker.outcome("reset_at", self._deadline())
        self._checked([answer])

    def _count(self, failure: WorkerFailedError) -> None:
        self.restarts += 1
        if self.restarts > self._max_restarts:
            raise WorkerFailedError(
                worker=failure.worker,
                copies=failure.copies,
                summary=failure.summary,
                traceback=failure.traceback,
                advice="It was not replaced again, as max_worker_restarts is "
                f"{self._max_restarts}. Correct the environment, or allow more restarts.",
            )
        log.warning(
            "%s It is replaced (%d of at most %d) and its running episodes are dropped.\n%s",
            failure.summary,
            self.restarts,
            self._max_restarts,
            failure.traceback,
        )

    def _observation(self) -> Observation:
        alive = self._join("alive") if self.spec.leavers else None
        return Observation(self._join("obs"), self._join("state"), self._join("avail"), alive)

    def _final(self, counts: list[int]) -> FinalObservation | None:
        if not any(counts):
            return None
        keys = ["final_obs", "final_state", "final_avail"]
        keys += ["final_alive"] if self.spec.leavers else []
        parts = [(worker, n) for worker, n in zip(self._workers, counts, strict=True) if n]
        return FinalObservation(
            np.concatenate([w.arrays["final_copies"][:n] + w.start for w, n in parts]),
            *(np.concatenate([w.arrays[key][:n] for w, n in parts]) for key in keys),
        )

    def _join(self, key: str) -> NDArray[Any]:
        """A copy, out of shared memory, of all workers' rows."""
        return np.concatenate([worker.arrays[key] for worker in self._workers])

    def _deadline(self) -> float:
        return time.monotonic() + self._timeout

    def _require_open(self) -> None:
        if not self._finalizer.alive:
            raise RunFailedError(
                "The worker processes have been shut down. Make a new environment."
            )


def _pickled(factory: BatchedEnvFactory) -> bytes:
    try:
        return pickle.dumps(factory)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise OmgError(
            f"The environment factory cannot be sent to worker processes ({error}). "
            "Use a function or class at the top of a module, or functools.partial of one."
        ) from error
