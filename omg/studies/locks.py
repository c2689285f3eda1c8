"""Locks that end with the process that holds them, however it ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from omg.types import OmgError, RunFailedError

LOCK = "pipeline.lock"
_OWNER = re.compile(r"process (\d+) on (.*)")


def try_lock(path: Path) -> int | None:
    """A descriptor that holds the file's lock, or None while another process holds it. Children
    that inherit the descriptor hold the lock, too."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return None
        raise OmgError(
            f"{path} cannot be locked: {error.strerror}. Choose an --out on another disk."
        ) from error
    return descriptor


def write_owner(descriptor: int, pid: int | None) -> None:
    """Write into a locked file whose lock it is; None: not known yet."""
    os.ftruncate(descriptor, 0)
    if pid is not None:
        os.pwrite(descriptor, f"process {pid} on {socket.gethostname()}\n".encode(), 0)


@contextlib.contextmanager
def pipeline_lock(out: Path) -> Iterator[None]:
    """Only one pipeline works in a folder; the lock of a dead one is free by itself."""
    path = out / LOCK
    try:
        out.mkdir(parents=True, exist_ok=True)
        descriptor = try_lock(path)
    except OSError as error:
        raise OmgError(
            f"--out={out} cannot be written to: {error.strerror}. Choose a folder you own."
        ) from error
    if descriptor is None:
        owner = path.read_text(encoding="utf-8").strip() or "another process"
        raise OmgError(
            f"A pipeline is at work in {out} ({owner}). Wait for it, or choose another --out."
        )
    try:
        write_owner(descriptor, os.getpid())
        yield
    finally:
        os.close(descriptor)


def stop_orphans(
    folder: Path,
    *,
    say: Callable[[str], None] = lambda text: None,
    give_up: Callable[[], bool] = lambda: False,
    timeout: float = 120.0,
) -> None:
    """End runs that outlived their pipeline, in good order: they save a resume state. Each holds
    the lock of a `.pid` file in `folder` that names its process."""
    told: set[Path] = set()
    deadline = time.monotonic() + timeout
    while True:
        living = [path for path in sorted(folder.glob("*.pid")) if not _remove_if_free(path)]
        if not living:
            return
        for path in living:
            if path in told:
                continue
            say(f"{path.stem} still runs from an earlier call; it is stopped to be continued")
            told.add(path)
            _terminate(path)
        if give_up():
            raise KeyboardInterrupt("Continue with the same command.")
        if time.monotonic() > deadline:
            raise RunFailedError(
                f"{living[0].stem} ({living[0].read_text().strip() or 'unknown process'}) of an "
                f"earlier call has not ended in {timeout:g} s. End it, then try again."
            )
        time.sleep(0.05)


def _remove_if_free(path: Path) -> bool:
    descriptor = try_lock(path)
    if descriptor is None:
        return False
    path.unlink(missing_ok=True)
    os.close(descriptor)
    return True


def _terminate(path: Path) -> None:
    """The lock is held, so the process that the file names lives. Where it names none, or one of
    another machine, it can only be waited for."""
    match = _OWNER.fullmatch(path.read_text(encoding="utf-8").strip())
    if match is not None and match[2] == socket.gethostname():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(int(match[1]), signal.SIGTERM)
