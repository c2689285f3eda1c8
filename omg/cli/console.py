"""What commands print: tables that lose nothing and fit the window, and JSON."""

from __future__ import annotations

import io
import json
import os
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

NARROW = 80  # columns, where nothing tells the width of a window
LONG = 30  # characters; a longer word may be folded


def width() -> int | None:
    """As wide as the terminal; without one as COLUMNS says, else 80."""
    if sys.stdout.isatty():
        return None
    told = os.environ.get("COLUMNS", "")
    return int(told) if told.isdecimal() and int(told) > 0 else NARROW


def console() -> Console:
    """For tables and the like."""
    return Console(width=width(), markup=False, emoji=False, highlight=False)


def put(content: Any) -> None:
    """Print something of rich; lines do not end in spaces where they go to a file or a pipe."""
    if sys.stdout.isatty():
        console().print(content)
        return
    text = io.StringIO()
    Console(file=text, width=width(), markup=False, emoji=False, highlight=False).print(content)
    print("\n".join(line.rstrip() for line in text.getvalue().splitlines()))


def in_lines(text: str, *, indent: str = "") -> str:
    """A text in lines that fit; no word is cut, so paths and commands can be copied."""
    return textwrap.fill(
        text,
        console().width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


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
    """Print a table. In a narrow window cells fold; the first column stays in one piece where it
    holds names to copy. Where words would be cut, every row becomes a paragraph."""
    cells = [[str(cell) for cell in column.cells] for column in table.columns]
    if table.show_header and _needed(table, cells, whole_names) > console().width:
        print(_paragraphs(table, cells))
        return
    for column in table.columns:
        column.overflow = "fold"
    table.columns[0].no_wrap = whole_names
    put(table)


def _needed(table: Table, cells: Sequence[Sequence[str]], whole_names: bool) -> int:
    """How wide a table must be, so that it cuts no word but long ones."""
    columns = zip(table.columns, cells, strict=True)
    wide = [
        max((len(word) for c in (str(k.header), *v) for word in c.split()), default=0)
        for k, v in columns
    ]
    wide = [min(LONG, width) for width in wide]
    if whole_names and cells[0]:
        wide[0] = max(map(len, cells[0]))
    return sum(wide) + 3 * len(wide) + 1


def _paragraphs(table: Table, cells: Sequence[Sequence[str]]) -> str:
    """Rows one below the other: the name, then every other column with its header."""
    heads = [str(column.header) for column in table.columns[1:]]
    lines = [str(table.title)] if table.title else []
    for name, *values in zip(*cells, strict=True):
        told = [f"{head} {value}".strip() for head, value in zip(heads, values, strict=True)]
        text = " · ".join(part.replace("\n", " ") for part in told)
        indented = in_lines(f"    {text}", indent="    ")
        lines += [name, indented]
    return "\n".join(lines)


def show_json(content: Any) -> None:
    """The same for programs."""
    print(json.dumps(content, indent=2, ensure_ascii=False, default=str))
