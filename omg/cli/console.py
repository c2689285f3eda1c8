"""What commands print: tables that lose nothing, and JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


def console() -> Console:
    """As wide as the terminal; as wide as needed where there is none."""
    width = None if sys.stdout.isatty() else 1000
    return Console(width=width, markup=False, emoji=False, highlight=False)


def printable(text: str) -> str:
    """A text of somebody else's without what would steer the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def show(
    *columns: str, rows: Iterable[Sequence[str]], title: str = "", whole_names: bool = True
) -> None:
    """Print a table; `whole_names` as in `show_table`."""
    table = Table(*columns, title=title or None, title_justify="left")
    for row in rows:
        table.add_row(*map(printable, row))
    show_table(table, whole_names=whole_names)


def show_pairs(rows: Iterable[tuple[str, str]]) -> None:
    """Print names and what is to be said of them, without lines."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*map(printable, row))
    show_table(table)


def show_table(table: Table, *, whole_names: bool = True) -> None:
    """Print a table. In a narrow window cells fold instead of being cut; the first column stays
    in one piece where it holds names to copy."""
    for column in table.columns:
        column.overflow = "fold"
    table.columns[0].no_wrap = whole_names
    console().print(table)


def show_json(content: Any) -> None:
    """The same for programs."""
    print(json.dumps(content, indent=2, ensure_ascii=False, default=str))
