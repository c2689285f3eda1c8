"""One line of the diagnosis, and what every check needs. Imports nothing of ours."""

from __future__ import annotations

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
