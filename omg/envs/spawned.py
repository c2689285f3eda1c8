"""A process of our own beside this one: start, ask where it is, end it and whatever it started.

Environments' workers and the collector of `omg.runners.overlap` are such processes; what they are
asked and answer is theirs.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from types import ModuleType
from typing import Any

from omg.types import OmgError, human_bytes

# One computing thread each: the processes themselves fill the cores.
THREAD_LIMITS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
# How long a process whose parent has gone may take to close what it holds.
ORPHAN_SECONDS = 2.0
# How long it may take to end by itself before it is killed.
CLOSE_SECONDS = 5.0
SHOWN_LINES = 8

SHARED = Path("/dev/shm")  # where Linux keeps shared memory

_starting = threading.Lock()


def shared_memory(name: str | None, size: int, *, what: str, remedy: str) -> SharedMemory:
    """The memory of that name or, without one, new zeroed memory. More than there can be is
    refused: the system would kill whoever writes to it later (a full /dev/shm), or complain twice
    (a limit of file sizes)."""
    if name is None:
        for there, owner in _shareable():
            if size > there:
                raise OmgError(
                    f"Sharing {what} between processes takes {human_bytes(size)}, and {owner} "
                    f"{human_bytes(there)}. {remedy}"
                )
    return SharedMemory(name=name, create=name is None, size=max(size, 1))


def _shareable() -> Iterator[tuple[int, str]]:
    """What bounds a new piece of shared memory: bytes, and who says so."""
    with contextlib.suppress(ImportError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        if limit != resource.RLIM_INFINITY:
            yield limit, "the limit of a file's size (ulimit -f) is"
    with contextlib.suppress(OSError, AttributeError, ValueError):
        yield os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "this machine has"
    with contextlib.suppress(OSError, AttributeError):
        disk = os.statvfs(SHARED)
        yield disk.f_bavail * disk.f_frsize, f"{SHARED} has room for"


class SpawnedProcess:
    """Runs `target(connection, faults, *args)`, which begins with `prepare_child(faults)`."""

    def __init__(
        self,
        target: Callable[..., None],
        *args: Any,
        name: str,
        daemon: bool,
        needs_main: bool,
    ) -> None:
        """`needs_main`: what it is given is defined in the main script."""
        context = multiprocessing.get_context("spawn")
        self.connection: Connection
        self.connection, theirs = context.Pipe()
        self._faults, their_faults = context.Pipe(duplex=False)
        self._process = context.Process(
            target=target, args=(theirs, their_faults, *args), name=name, daemon=daemon
        )
        with _surroundings(needs_main=needs_main):
            self._process.start()
        theirs.close()
        their_faults.close()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid or 0

    def ready(self, seconds: float) -> bool:
        """Whether an answer or the end of the process has come within so many seconds."""
        wanted: list[Any] = [self.connection, self._process.sentinel]
        return bool(wait(wanted, max(seconds, 0.0)))

    def is_silent(self) -> bool:
        """Whether it has ended and left no last words in the pipe."""
        return not self._process.is_alive() and not self.connection.poll()

    def end(self, *, grace: float) -> None:
        """Close the pipe, which tells it to end; after `grace` seconds kill it and its group."""
        self.connection.close()
        try:
            wait([self._process.sentinel], grace)
        finally:
            # The group goes first: its number is the process's until that has been waited for.
            if hasattr(os, "killpg"):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)
            self._process.kill()
            self._process.join()

    def how_it_died(self) -> str:
        """Of a process that has ended: by itself or by which signal."""
        code = self._process.exitcode or 0
        if code >= 0:
            return f"ended with exit code {code}"
        return f"was killed by {signal.Signals(-code).name}"

    def stack(self) -> str:
        """Where a hanging process is, asked by a signal that needs nothing of its interpreter."""
        if not hasattr(signal, "SIGUSR1"):
            return ""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)
        return self.faults(patience=0.5)

    def faults(self, *, patience: float = 0.0) -> str:
        """What its fault handler wrote, in the order of an ordinary traceback."""
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


def prepare_child(faults: Connection) -> None:
    """Leave Ctrl-C to the parent, report stacks through `faults`, and do not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        faulthandler.enable(faults.fileno(), all_threads=False)
        faulthandler.register(signal.SIGUSR1, faults.fileno(), all_threads=False)
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()


def _end_with_parent(parent_id: int) -> None:
    """The main thread ends by itself when the pipe closes; this is for when it is busy."""
    parent = multiprocessing.parent_process()
    sentinels = [] if parent is None else [parent.sentinel]
    while not wait(sentinels, timeout=1.0) and os.getppid() == parent_id:
        pass
    time.sleep(ORPHAN_SECONDS)
    if hasattr(os, "killpg"):
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def _surroundings(*, needs_main: bool) -> Iterator[None]:
    """What a starting process inherits: one computing thread, Ctrl-C blocked, and no main script.

    A spawned process runs the main script's imports again (torch among them), which only
    something defined in that script needs.
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
