"""One `omg` command in a process of its own: forked from this one, in which everything slow is
imported already, or started again. Crashes, hangs and exits of any kind are noticed."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MARK = "OMG_FUZZ"  # in the environment of whatever we start
UNHANDLED = 70  # exit code: an exception left the command
MEMORY = 5 * 2**30  # address space of a command, so that the machine survives it
BETWEEN, GRACE = 4.0, 30.0  # seconds between two interruptions, and until it is killed
NOBODY = 65534


@dataclass(frozen=True)
class Task:
    """What is run, and where."""

    words: tuple[str, ...]
    folder: Path  # the current one of the command
    environ: Mapping[str, str] = field(default_factory=dict)
    patience: float = 20.0  # seconds until it is interrupted as by Ctrl-C
    watched: Path | None = None  # a file of which we want to know whether it was opened
    limits: Mapping[int, int] = field(default_factory=dict)
    as_nobody: bool = False
    anew: bool = False  # a new interpreter instead of a fork
    action: Callable[[], Any] | None = None  # instead of the command


@dataclass(frozen=True)
class Outcome:
    """How it ended. `code` is negative where a signal ended it."""

    code: int
    out: str
    err: str
    seconds: float
    interrupted: bool = False
    hung: bool = False
    opened: bool = False


def _busy() -> float:
    """By how much this machine is slower than an idle one: others may use it, too."""
    return min(3.0, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


def warm_up() -> None:
    """Import everything slow before anything is forked; no thread and no kernel is started."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["MPLBACKEND"] = "agg"
    sys.dont_write_bytecode = True
    import importlib

    import torch

    torch.set_num_threads(1)
    for name in (
        *("torch._dynamo", "matplotlib.pyplot", "sacred", "tensorboard", "omg.cli.app"),
        *("omg.experiment.session", "omg.evaluation.evaluate", "omg.evaluation.curves"),
        *("omg.report", "omg.studies.execute", "omg.studies.summary", "omg.catalogue.play"),
        *("omg.envs.check", "omg.opponents.pool"),
    ):
        importlib.import_module(name)


class Child:
    """A running task; its output goes to files beside its folder."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.started = time.monotonic()
        self._patience = task.patience * _busy() + (20.0 if task.anew else 0.0)
        self._base = task.folder.parent / f".{task.folder.name}"
        self._signals, self._hung = 0, False
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._be_child()

    def _path(self, kind: str) -> Path:
        return Path(f"{self._base}.{kind}")

    def _be_child(self) -> None:
        code = UNHANDLED
        try:
            os.setsid()
            self._surroundings()
            if self.task.action is None and self.task.anew:
                os.execv(sys.executable, [sys.executable, "-m", "omg", *self.task.words])
            code = self._call()
        except BaseException:
            with contextlib.suppress(BaseException):
                traceback.print_exc()
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)

    def _surroundings(self) -> None:
        task = self.task
        for number, name in ((0, os.devnull), (1, self._path("out")), (2, self._path("err"))):
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(name, flags, 0o644), number)
        encoding = {"encoding": "utf-8", "errors": "replace", "buffering": 1}
        sys.stdout = os.fdopen(os.dup(1), "w", **encoding)
        sys.stderr = os.fdopen(os.dup(2), "w", **encoding)
        os.chdir(task.folder)
        os.environ.update({MARK: str(os.getppid()), "COLUMNS": "100", **task.environ})
        os.environ.pop("OMG_TRUST", None)
        if task.watched is not None:
            _note_opening(task.watched, self._path("opened"))
        for kind, most in {resource.RLIMIT_AS: MEMORY, **task.limits}.items():
            resource.setrlimit(kind, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if task.as_nobody:
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def _call(self) -> int:
        from omg.cli.app import main

        sys.argv = ["omg", *self.task.words]
        sys.path[:] = [entry for entry in sys.path if entry]  # none that means "here"
        try:
            (self.task.action or main)()
        except SystemExit as stop:
            if isinstance(stop.code, str):
                print(stop.code, file=sys.stderr)
            return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except KeyboardInterrupt:
            print("omg: interrupted outside a command", file=sys.stderr)
            return 130
        return 0

    def poll(self) -> Outcome | None:
        """Its outcome once it has ended; a slow one is interrupted, later killed."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        passed = time.monotonic() - self.started
        if pid == 0:
            self._hurry(passed)
            return None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)  # whatever it left behind
        return Outcome(
            os.waitstatus_to_exitcode(status),
            *(self._read("out"), self._read("err"), passed),
            interrupted=self._signals > 0,
            hung=self._hung,
            opened=self._path("opened").exists(),
        )

    def _hurry(self, passed: float) -> None:
        due = self._patience + BETWEEN * self._signals
        if passed > self._patience + GRACE:
            self._hung = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        elif passed > due and self._signals < 3:
            self._signals += 1
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGINT)

    def kill(self) -> None:
        """At once, with everything in its session."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _read(self, kind: str) -> str:
        with contextlib.suppress(OSError):
            return self._path(kind).read_bytes()[:200_000].decode(errors="replace")
        return ""


def run(task: Task) -> Outcome:
    """Run one task to its end."""
    child = Child(task)
    while (outcome := child.poll()) is None:
        time.sleep(0.005)
    return outcome


def _note_opening(watched: Path, note: Path) -> None:
    """Leave a note when a file is opened, by whichever path."""
    wanted = os.path.realpath(watched)
    note.unlink(missing_ok=True)
    ready = os.open(note.parent, os.O_RDONLY)
    done: list[bool] = []

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event != "open" or done or not isinstance(args[0], str | bytes | os.PathLike):
            return
        with contextlib.suppress(ValueError, OSError, TypeError):
            if os.path.realpath(os.fsdecode(args[0])) == wanted:
                done.append(True)
                os.close(os.open(note.name, os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=ready))

    sys.addaudithook(hook)


def sweep() -> int:
    """End processes that commands of ours left behind; how many there were."""
    wanted, found = f"{MARK}={os.getpid()}".encode(), 0
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in path.read_bytes().split(b"\0"):
                os.kill(int(path.parent.name), signal.SIGKILL)
                found += 1
    return found
