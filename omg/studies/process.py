"""One command as a child process: its log, its lock, how far it is, how it ended; and the lock of
the pipeline that starts it."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from omg.config.loader import masked
from omg.storage.locks import refuse_link, release_lock, take_lock, try_lock, write_owner
from omg.studies.steps import Step
from omg.types import OmgError, RunFailedError

# How this installation's `omg` is started.
PROGRAM = (sys.executable, "-m", "omg")
LOCK = "pipeline.lock"
_OWNER = re.compile(r"process (\d+) on (.*)")
_STEP = re.compile(r"step\s+([\d,]+) / ([\d,]+)")


def log_path(out: Path, step: Step) -> Path:
    return out / "logs" / f"{step.key.replace('/', '-')}.log"


@dataclass(slots=True)
class Running(ABC):
    """A running command, wherever it runs; its log tells how far it is."""

    step: Step
    log: Path
    log_start: int  # where this attempt begins in the log
    lost: str = ""  # why it ended without a fault of its own and is to be run again
    started: float = field(default_factory=time.monotonic)
    first: tuple[float, float] | None = None  # when progress was first seen, and how much

    @abstractmethod
    def ended(self) -> int | None:
        """The exit code, or None while it runs."""

    @abstractmethod
    def terminate(self) -> None:
        """Ask for an orderly stop. Once only: a run takes a second signal as "at once"."""

    @abstractmethod
    def kill(self) -> None:
        """End it now."""

    def seconds(self) -> float:
        return time.monotonic() - self.started

    def progress(self) -> float | None:
        """Share of the run that is done, from the newest `step a / b` of its log."""
        found = _STEP.findall(self._tail(4096))
        if not found:
            return None
        done, total = (int(number.replace(",", "")) for number in found[-1])
        share = min(1.0, done / max(1, total))
        self.first = self.first or (time.monotonic(), share)
        return share

    def seconds_left(self) -> float | None:
        """From the pace since progress was first seen."""
        share = self.progress()
        if share is None or self.first is None or share <= self.first[1]:
            return None
        pace = (share - self.first[1]) / max(1e-3, time.monotonic() - self.first[0])
        return (1.0 - share) / pace

    def last_line(self) -> str:
        """The last line of the log that says something."""
        lines = [line.strip(" │|") for line in self._tail(65536).splitlines()]
        telling = [line for line in lines if any(map(str.isalnum, line))]
        return telling[-1].removeprefix("omg: ") if telling else "it said nothing"

    def _tail(self, size: int) -> str:
        try:
            with self.log.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(self.log_start, end - size))
                return file.read().decode(errors="replace")
        except FileNotFoundError:  # it waits for a place on another machine
            return ""


@dataclass(slots=True, kw_only=True)
class Child(Running):
    """A command that runs as a process of this machine."""

    process: subprocess.Popen[bytes]

    def ended(self) -> int | None:
        code = self.process.poll()
        if code is not None:
            self.log.with_suffix(".pid").unlink(missing_ok=True)
        return code

    def terminate(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()


def start(
    step: Step, words: Sequence[str], out: Path, *, program: Sequence[str] = PROGRAM, append: bool
) -> Child:
    """Start a step's command in a session of its own, so that Ctrl-C reaches it through the
    pipeline only. It holds the lock of its `.pid` file as long as it lives, so that a later
    pipeline knows of it even if this one is killed."""
    log = log_path(out, step)
    log.parent.mkdir(parents=True, exist_ok=True)
    lock = try_lock(log.with_suffix(".pid"))
    if lock is None:
        raise RunFailedError(f"{step.key} is running already. End it, then try again.")
    try:
        write_owner(lock, None)
        refuse_link(log)
        with log.open("ab" if append else "wb") as file:
            file.write(f"$ {masked(shlex.join(['omg', *words]))}\n".encode())
            file.flush()
            log_start = file.tell()
            process = subprocess.Popen(
                [*program, *words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                pass_fds=(lock,),
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        write_owner(lock, process.pid)
    except OSError as error:
        raise RunFailedError(f"{step.key} cannot be started: {error}. Check {log}.") from error
    finally:
        os.close(lock)
    return Child(step, log, log_start, process=process)


@contextlib.contextmanager
def pipeline_lock(out: Path, what: str = "pipeline") -> Iterator[None]:
    """Only one pipeline (or sweep) works in a folder."""
    path = out / LOCK

    def refusal(owner: str) -> str:
        return f"A {what} is at work in {out} ({owner}). Wait for it, or choose another --out."

    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = take_lock(path, refusal)
    except OSError as error:
        raise OmgError(
            f"--out={out} cannot be written to: {error.strerror}. Choose a folder you own."
        ) from error
    try:
        yield
    finally:
        release_lock(path, lock)


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
