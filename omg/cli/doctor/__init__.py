"""What of this installation works, what is missing for which feature, and what to do about it.

Imports nothing of ours beside its own files: it must run where a needed package is broken.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

from omg.cli.doctor.kernels import kernel_lines
from omg.cli.doctor.line import Line, State, reason
from omg.cli.doctor.machine import storage_lines, system_lines
from omg.cli.doctor.packages import feature_lines, needed_lines, starcraft_lines, torch_lines
from omg.cli.doctor.ray import ray_lines

__all__ = ["Line", "State", "as_json", "diagnose", "healthy", "verdict"]

REINSTALL = "install the package again: pip install omg-marl"


def diagnose(results: Path) -> list[Line]:
    """Everything that is looked at, in the order in which it is shown. Never raises."""
    checks: list[tuple[str, Callable[[], list[Line]]]] = [
        ("system", system_lines),
        ("needed", needed_lines),
        ("torch", torch_lines),
        ("speed", kernel_lines),
        ("features", feature_lines),
        ("Ray", ray_lines),
        ("StarCraft II", starcraft_lines),
        ("storage", lambda: storage_lines(results)),
    ]
    return [line for group, check in checks for line in _guarded(group, check)]


def healthy(lines: list[Line]) -> bool:
    """Whether everything that is needed is there."""
    return not any(line.needed and line.state != "ok" for line in lines)


def verdict(lines: list[Line]) -> str:
    """The last line: whether anything needed is wrong."""
    broken = [line.name for line in lines if line.needed and line.state != "ok"]
    if broken:
        return f"Needed and not in order: {', '.join(broken)}."
    absent = sum(line.state != "ok" for line in lines)
    if not absent:
        return "Everything is there."
    return f"Everything needed is there. What could be added is marked with → ({absent})."


def as_json(lines: list[Line]) -> str:
    """The same for programs."""
    content = {"ok": healthy(lines), "checks": [dataclasses.asdict(line) for line in lines]}
    return json.dumps(content, indent=2, ensure_ascii=False)


def _guarded(group: str, check: Callable[[], list[Line]]) -> list[Line]:
    try:
        return check()
    except Exception as error:  # whatever is broken, the other lines are still wanted
        told = f"could not be examined: {reason(error)}"
        return [Line(group, group, "problem", told, REINSTALL)]
