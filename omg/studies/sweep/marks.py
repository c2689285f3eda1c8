"""How the runs of a sweep ended, a small file each. Imports no torch: every worker reads these."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

LOST = "its worker or node died too often"
STATES = "states"  # what members of a population hand on; of no use after the end


def mark_path(out: Path, name: str) -> Path:
    """Where it is noted how a run ended."""
    return out / "trials" / f"{name}.json"


def read_mark(out: Path, name: str) -> dict[str, Any]:
    """How a run ended: `status` is finished, failed or stopped; empty while it goes on. `seconds`
    is the time of all its sessions."""
    try:
        found = json.loads(mark_path(out, name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_mark(out: Path, name: str, *, status: str, note: str = "", seconds: float = 0.0) -> None:
    """Note an end; without a status only the time that was spent."""
    before = read_mark(out, name)
    spent = round(seconds + float(before.get("seconds", 0.0)), 1)
    content = {
        "status": status or before.get("status", ""),
        "note": note or before.get("note", ""),
        "seconds": spent,
    }
    _write(mark_path(out, name), content)


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".part-{os.getpid()}")
    temporary.write_text(json.dumps(content) + "\n", encoding="utf-8")
    temporary.replace(path)


def clear_status(out: Path, name: str) -> None:
    """A run goes on; the time that it took stays noted."""
    if mark := read_mark(out, name):
        _write(mark_path(out, name), {**mark, "status": "", "note": ""})


def forgive_lost(out: Path) -> None:
    """Runs that were given up because workers died may be tried again."""
    for path in (out / "trials").glob("*.json"):
        if read_mark(out, path.stem).get("note") == LOST:
            clear_status(out, path.stem)
