"""Tables of numbers, and the file that keeps them."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from omg.storage.files import write_text

RESULTS = Path(__file__).with_name("results.json")


def plain_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of text; the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if n == 0 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (header, *rows)
    ]
    return "\n".join(lines)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same for a document."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, rule, *rows))


def merge_results(path: Path, section: str, content: Any) -> None:
    """Put a section into a file of results; its other sections stay."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    machine = {"machine": platform.machine(), "torch": torch.__version__}
    write_text(path, json.dumps({**known, **machine, section: content}, indent=2) + "\n")
