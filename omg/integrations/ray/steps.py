"""`omg pipeline --executor=ray`: the steps of a study as Ray tasks, here or on a cluster."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from omg.integrations.ray.child import program
from omg.integrations.ray.cluster import MISSING, Connection, check_address, connected, hush
from omg.integrations.ray.nodes import check_nodes
from omg.storage.locks import try_lock
from omg.studies.execute import StepPlace, Where
from omg.studies.process import PROGRAM, Child, Running, log_path, start
from omg.studies.steps import Plan, Step
from omg.types import OmgError, RunFailedError

POLL_SECONDS = 0.1
# How long what a machine has written may take until another one sees it.
SEEN_SECONDS = 90.0
# How long a command may take to save its state and end after its task was lost.
ORPHAN_SECONDS = 120.0
# How old the number of CPUs may be that is counted with.
COUNT_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOrder:
    """What a task is told."""

    step: Step
    words: Sequence[str]
    out: Path
    append: bool
    folder: str  # the one that the pipeline was started in: paths are relative to it
    program: Sequence[str] | None  # None: this machine's own
    environ: Mapping[str, str]


class RaySteps(StepPlace):
    """Commands run as tasks; Ray finds the machines."""

    def __init__(self, plan: Plan, where: Where) -> None:
        if find_spec("ray") is None:
            raise OmgError(MISSING)
        check_address(where.address)
        self._plan, self._where = plan, where
        self._open = contextlib.ExitStack()
        self._connection: Connection
        self._counted: tuple[float, float] = (-COUNT_SECONDS, 0.0)

    def __enter__(self) -> RaySteps:
        try:
            self._connection = self._open.enter_context(connected(address=self._where.address))
            hush()
            check_nodes(self._connection, self._plan.out)
            self._check_cpus()
        except BaseException:
            self._open.close()
            raise
        ray = self._connection.ray
        self._task = ray.remote(max_retries=0, scheduling_strategy="SPREAD")(run_step)
        cpus, machines = self._cpus(), len(self._connection.nodes())
        of = f" of {machines} machines" if machines > 1 else ""
        self.told = f" on Ray's {cpus:g} CPUs{of}"
        return self

    def __exit__(self, *exc: object) -> None:
        self._open.close()

    @property
    def jobs(self) -> int:
        most = max(1, int(self._cpus() // (self._where.cpus or 1)))
        return min(most, self._where.jobs or most)

    def jobs_within(self, step: Step) -> int:
        return self._cpus_of(step)

    def room_for(self, step: Step, running: Sequence[Running]) -> bool:
        if self._where.jobs and len(running) >= self._where.jobs:
            return False
        taken = sum(self._cpus_of(other.step) for other in running)
        return not running or taken + self._cpus_of(step) <= self._cpus()

    def start(self, step: Step, words: Sequence[str], out: Path, *, append: bool) -> Running:
        log = log_path(out, step)
        order = StepOrder(
            step=step,
            words=words,
            out=out,
            append=append,
            folder=os.getcwd(),
            program=None if self._where.program is PROGRAM else self._where.program,
            environ={name: text for name, text in os.environ.items() if name.startswith("OMG_")},
        )
        task = self._task.options(num_cpus=self._cpus_of(step), name=step.key).remote(order)
        begins = log.stat().st_size if append and log.is_file() else 0
        return TaskStep(step, log, begins, ray=self._connection.ray, task=task)

    def _cpus_of(self, step: Step) -> int:
        return self._where.cpus or step.cpus

    def _cpus(self) -> float:
        """Of all machines; they may come and go."""
        when, cpus = self._counted
        if time.monotonic() - when > COUNT_SECONDS:
            cpus = self._connection.cpus()
            self._counted = (time.monotonic(), cpus)
        return cpus

    def _check_cpus(self) -> None:
        most = max((node.cpus for node in self._connection.nodes()), default=0.0)
        for step in self._plan.steps:
            if self._cpus_of(step) > most:
                raise OmgError(
                    f"{step.key} takes {self._cpus_of(step)} CPUs, and no machine of the cluster "
                    f"has more than {most:g}. Give --cpus-per-step, or lower torch_threads and "
                    "n_workers."
                )


@dataclass(slots=True, kw_only=True)
class TaskStep(Running):
    """A command that runs as a task, as the pipeline sees it."""

    ray: Any
    task: Any
    stopping: bool = False
    answered: float | None = None
    problem: str = ""  # why the task itself failed

    def ended(self) -> int | None:
        if not self.ray.wait([self.task], timeout=0)[0]:
            return None
        exceptions = self.ray.exceptions
        try:
            code, made = self.ray.get(self.task)
        except exceptions.TaskCancelledError:
            return 130
        except exceptions.RayTaskError as error:
            self.problem = f"{error.cause or error}"
            return 1
        except exceptions.RayError as error:
            node = isinstance(error, exceptions.NodeDiedError)
            self.lost = f"the loss of its {'machine' if node else 'Ray worker'}"
            return -9
        if code < 0 and not self.stopping:
            self.lost = f"signal {-code}"
        if code == 0 and made and not self.step.output.exists():  # a network disk may be late
            self.answered = self.answered or time.monotonic()
            if time.monotonic() < self.answered + SEEN_SECONDS:
                return None
        return int(code)

    def last_line(self) -> str:
        return self.problem or Running.last_line(self)  # slots leave no super()

    def terminate(self) -> None:
        """One that waits for a machine is taken back."""
        self.stopping = True
        self.ray.cancel(self.task)

    def kill(self) -> None:
        """Cancelled once more, a task kills its command."""
        self.terminate()


def run_step(order: StepOrder) -> tuple[int, bool]:
    """The task: run a command on this machine; its exit code, and whether it left its output. Ray
    cancels it with a KeyboardInterrupt: the command is told to stop, and killed at the second."""
    os.environ.update(order.environ)
    _enter(order)
    _wait_for_lock(log_path(order.out, order.step).with_suffix(".pid"))
    # Our own ends with its task: it would write beside the one that follows.
    command = order.program or program()
    child = start(order.step, order.words, order.out, program=command, append=order.append)
    code = _wait(child)
    return code, order.step.output.exists()


def _wait(child: Child) -> int:
    stops = 0
    while True:
        try:
            while (code := child.ended()) is None:
                time.sleep(POLL_SECONDS)
            return code
        except KeyboardInterrupt:
            stops += 1
            if stops == 1:
                child.terminate()
            else:
                child.kill()


def _enter(order: StepOrder) -> None:
    try:
        os.chdir(order.folder)
    except OSError as error:
        if not order.out.is_absolute():
            raise RunFailedError(
                f"{order.folder}, where the pipeline was started, is not on this machine. Give "
                "--out as a whole path that every machine sees"
            ) from error


def _wait_for_lock(path: Path) -> None:
    """A command whose task was lost may still be saving its state."""
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + ORPHAN_SECONDS
    while (lock := try_lock(path)) is None:
        if time.monotonic() > deadline:
            raise RunFailedError(f"the one before has not ended in {ORPHAN_SECONDS:g} s")
        time.sleep(POLL_SECONDS)
    os.close(lock)
