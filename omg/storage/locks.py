"""Locks of files that end with the process that holds them, however it ends."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

from omg.types import OmgError


def refuse_link(path: Path) -> None:
    """A file that is written in place must not be a link, e.g. of a received run to a file of the
    user's own."""
    if path.is_symlink():
        raise OmgError(f"{path} is a link, and what it leads to would be changed. Remove it.")


def try_lock(path: Path) -> int | None:
    """A descriptor that holds the file's lock, or None while another process holds it. Children
    that inherit the descriptor hold the lock, too."""
    refuse_link(path)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
    except FileNotFoundError:
        pass
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return None
        raise OmgError(
            f"{path} cannot be locked: {error.strerror}. Choose a folder on another disk."
        ) from error
    os.close(descriptor)  # its last holder has removed the file: begin with a new one
    return try_lock(path)


def write_owner(descriptor: int, pid: int | None) -> None:
    """Write into a locked file whose lock it is; None: not known yet."""
    os.ftruncate(descriptor, 0)
    if pid is not None:
        os.pwrite(descriptor, f"process {pid} on {socket.gethostname()}\n".encode(), 0)


def take_lock(path: Path, refusal: Callable[[str], str], *, timeout: float = 0.0) -> int:
    """A descriptor that holds the file's lock, after `timeout` seconds at most; while somebody
    else holds it, `refusal` says so, given who. Files of processes that died are taken over."""
    deadline = time.monotonic() + timeout
    while (descriptor := try_lock(path)) is None:
        if time.monotonic() >= deadline:
            owner = path.read_text(encoding="utf-8").strip() if path.exists() else ""
            raise OmgError(refusal(owner or "another process"))
        time.sleep(0.02)
    write_owner(descriptor, os.getpid())
    return descriptor


def release_lock(path: Path, descriptor: int) -> None:
    """Let others have it."""
    path.unlink(missing_ok=True)
    os.close(descriptor)
