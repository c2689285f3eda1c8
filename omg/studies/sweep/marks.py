"""How the runs of a sweep ended, a small file each. Imports no torch: every worker reads these."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

LOST = "its worker or node died too often"


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
    path = mark_path(out, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".part-{os.getpid()}")
    content = {
        "status": status or before.get("status", ""),
        "note": note or before.get("note", ""),
        "seconds": spent,
    }
    temporary.write_text(json.dumps(content) + "\n", encoding="utf-8")
    temporary.replace(path)


def forgive_lost(out: Path) -> None:
    """Runs that were given up because workers died may be tried again."""
    for path in (out / "trials").glob("*.json"):
        mark = read_mark(out, path.stem)
        if mark.get("note") == LOST:
            content = {**mark, "status": "", "note": ""}
            path.write_text(json.dumps(content) + "\n", encoding="utf-8")
