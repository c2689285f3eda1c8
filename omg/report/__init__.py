"""`report.html`: one self-contained page with results, curves, cross-play and replays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omg.report.data import ReportData, SideBySide, collect, collect_all
from omg.report.page import render
from omg.storage.files import write_text
from omg.types import OmgError, RunFailedError

__all__ = ["ReportData", "SideBySide", "collect", "collect_all", "render", "write_report"]


def write_report(
    sources: Sequence[Path], out: Path, *, title: str = "", metric: str = ""
) -> ReportData | SideBySide:
    """Read folders, and write the page in one go; what it shows is returned."""
    data = collect_all(sources, title=title, metric=metric)
    text = render(data)
    if out.is_dir():
        raise OmgError(f"{out} is a folder. Give --out the name of a file, e.g. report.html.")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_text(out, text)
    except (OSError, RunFailedError) as error:
        cause = error.__cause__ if isinstance(error, RunFailedError) else error
        reason = getattr(cause, "strerror", None) or cause
        raise RunFailedError(
            f"{out} could not be written: {reason}. Free space, or give another --out."
        ) from error
    return data
