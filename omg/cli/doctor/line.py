"""One line of the diagnosis, and what every check needs. Imports nothing of ours."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Literal

State = Literal["ok", "missing", "problem"]


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that was looked at. Without a `needed` thing nothing runs; anything else may be
    missing. `advice` says what to do unless it is ok."""

    group: str
    name: str
    state: State
    detail: str
    advice: str = ""
    needed: bool = False


def reason(error: BaseException) -> str:
    """An exception in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__


def is_there(module: str) -> bool:
    """Whether a package is installed; it is not imported."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # stands half-made in sys.modules
        return False


# Imports the modules that it is given, and tells of each what came of it.
CHILD = """
import importlib, json, os, sys, warnings
sys.path[:] = json.loads(sys.argv[1])
told = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
warnings.simplefilter("ignore")
for module in sys.argv[2:]:
    fault = ""
    try:
        importlib.import_module(module)
    except BaseException as error:
        lines = str(error).strip().splitlines()
        fault = ": ".join([type(error).__name__, *lines[:1]])
    print(json.dumps([module, fault]), file=told, flush=True)
"""
PATIENCE = 120.0  # seconds for all imports together


def import_faults(modules: Sequence[str]) -> dict[str, str]:
    """Why packages cannot be imported; those that can are not in it. A process of its own imports
    them, because a broken one may end it, print, or change this one."""
    there = [module for module in modules if is_there(module.partition(".")[0])]
    return dict(_faults(tuple(there), json.dumps(sys.path)))


@functools.cache
def _faults(waiting: tuple[str, ...], path: str) -> tuple[tuple[str, str], ...]:
    if not waiting:
        return ()
    asked = [sys.executable, "-c", CHILD, path, *waiting]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired as error:
        said = error.stdout or b""
        told_of = len((said.encode() if isinstance(said, str) else said).splitlines())
        late = waiting[min(told_of, len(waiting) - 1)]
        return ((late, f"importing it took more than {PATIENCE:.0f} seconds"),)
    except OSError as error:
        return ((waiting[0], reason(error)),)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    found = tuple((module, fault) for module, fault in told if fault)
    if len(told) == len(waiting):
        return found
    first, *others = waiting[len(told) :]  # the process ended while it imported the first
    ended = f"importing it ends Python (exit code {done.returncode})"
    return (*found, (first, ended), *_faults(tuple(others), path))


def version_of(distribution: str) -> str:
    """Of an installed distribution; empty where there is none."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def size(count: float) -> str:
    """Bytes in a readable unit."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return ""
