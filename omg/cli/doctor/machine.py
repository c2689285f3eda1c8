"""The machine: Python, processor, memory, disk."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path

from omg.cli.doctor.line import Line, size, version_of

OLDEST_PYTHON = (3, 10)
MIB = 2**20
# A run of default size with its models and metrics takes less.
LEAST_DISK = 500 * MIB
# What workers share is small: some observations per copy.
LEAST_SHARED = 32 * MIB


def system_lines() -> list[Line]:
    """Our own version, Python and the machine."""
    python = platform.python_version()
    old = sys.version_info < OLDEST_PYTHON
    cores = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    some = f", {usable} of them usable here" if usable != cores else ""
    name = version_of("omg-marl")
    return [
        Line(
            *("system", "omg-marl", "ok" if name else "problem"),
            name or "not installed, only its source is here",
            "" if name else "in the source folder: pip install -e .",
            needed=not name,
        ),
        Line(
            *("system", "Python", "problem" if old else "ok", f"{python} in {sys.prefix}"),
            f"use Python {'.'.join(map(str, OLDEST_PYTHON))} or newer" if old else "",
            needed=True,
        ),
        Line("system", "platform", "ok", platform.platform()),
        Line("system", "processor", "ok", f"{_processor()}, {_counted(cores, 'core')}{some}"),
        Line("system", "memory", "ok", _memory()),
    ]


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or "unknown"


def _memory() -> str:
    found: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            key, _, rest = line.partition(":")
            found[key] = int(rest.split()[0]) * 1024
    if "MemTotal" in found:
        free = found.get("MemAvailable", found.get("MemFree", 0))
        return f"{size(found['MemTotal'])}, {size(free)} available"
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return size(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return "unknown"


def storage_lines(results: Path) -> list[Line]:
    """Disk for runs, and the memory that worker processes share."""
    return [_results(results.expanduser().absolute()), _shared_memory(Path("/dev/shm"))]


def _results(folder: Path) -> Line:
    name, elsewhere = "results folder", "choose another: local_results_path=<folder>"
    there = next(path for path in (folder, *folder.parents) if path.exists())
    made = "" if there == folder else f" (made by the first run in {there})"
    if not there.is_dir():
        told = f"{folder}: {there} is a file"
        return Line("storage", name, "problem", told, elsewhere, needed=True)
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        told = f"{folder}{made} cannot be written to: {error.strerror or error}"
        return Line("storage", name, "problem", told, elsewhere, needed=True)
    free = shutil.disk_usage(there).free
    detail = f"{folder}{made}: writable, {size(free)} free"
    if free < LEAST_DISK:
        advice = f"free some space, or {elsewhere}"
        return Line("storage", name, "problem", detail, advice, needed=True)
    return Line("storage", name, "ok", detail, needed=True)


def _shared_memory(folder: Path) -> Line:
    name = "shared memory"
    if not folder.is_dir():
        if platform.system() != "Linux":
            return Line("storage", name, "ok", "the system's own; for runner=parallel")
        return Line(
            *("storage", name, "missing", f"there is no {folder}; runner=parallel needs it"),
            "mount it, or use runner=batch",
        )
    usage = shutil.disk_usage(folder)
    detail = f"{size(usage.total)} in {folder}, {size(usage.free)} free; for runner=parallel"
    if usage.free < LEAST_SHARED:
        advice = "enlarge it (docker run --shm-size=1g), or use runner=batch"
        return Line("storage", name, "problem", detail, advice)
    return Line("storage", name, "ok", detail)
