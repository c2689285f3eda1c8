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


def in_lines(text: str, *, indent: str = "", columns: int = 0) -> str:
    """A text in lines that fit; no word is cut, so paths and commands can be copied."""
    return textwrap.fill(
        text,
        columns or console().width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def printable(text: str) -> str:
    """A text of somebody else's without what would steer the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def say(text: str) -> None:
    """Print a sentence in lines that fit."""
    print("\n".join(in_lines(line, indent="  ") for line in text.splitlines()))


def show(
    *columns: str,
    rows: Iterable[Sequence[str]],
    title: str = "",
    whole_names: bool = True,
    least: int = 0,
) -> int:
    """Print a table; `whole_names` as in `show_table`. In a narrow window columns are left out
    from the right, down to `least` of them (0: none); how many were."""
    content, heads = [[*map(printable, row)] for row in rows], list(columns)
    while True:
        table = Table(*heads, title=title or None, title_justify="left")
        for row in content:
            table.add_row(*row[: len(heads)])
        if not least or len(heads) <= least or _fits(table, whole_names):
            break
        heads.pop()
    show_table(table, whole_names=whole_names)
    return len(columns) - len(heads)


def show_pairs(rows: Iterable[tuple[str, str]]) -> None:
    """Print names and what is to be said of them, without lines."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*map(printable, row))
    show_table(table)


def show_table(table: Table, *, whole_names: bool = True) -> None:
    """Print a table. In a narrow window cells fold; the first column stays in one piece where it
    holds names to copy. Where words would be cut, every row becomes a paragraph."""
    if table.show_header and not _fits(table, whole_names):
        print(_paragraphs(table))
        return
    for column, wide in zip(table.columns, _widths(table, whole_names), strict=True):
        column.overflow = "fold"
        if table.show_header:
            column.width = wide
    table.columns[0].no_wrap = whole_names
    put(table)


def _cells(table: Table) -> list[list[str]]:
    return [[str(cell) for cell in column.cells] for column in table.columns]


def _words(table: Table) -> list[int]:
    """How wide each column must be, so that it cuts no word but long ones."""
    return [
        min(LONG, max((len(word) for c in (str(k.header), *v) for word in c.split()), default=0))
        for k, v in zip(table.columns, _cells(table), strict=True)
    ]


def _least(table: Table, whole_names: bool) -> list[int]:
    """`_words`, with names in one piece."""
    wide, names = _words(table), _cells(table)[0]
    if whole_names:
        wide[0] = max([wide[0], *map(len, names)])
    return wide


def _spare(wide: Sequence[int]) -> int:
    """Columns of the window that a table with lines leaves over."""
    return console().width - sum(wide) - 3 * len(wide) - 1


def _widths(table: Table, whole_names: bool) -> list[int]:
    """As wide as the content where there is room, the first columns first."""
    wide = _least(table, whole_names)
    spare = max(0, _spare(wide))
    for i, (column, cells) in enumerate(zip(table.columns, _cells(table), strict=True)):
        lines = [line for cell in (str(column.header), *cells) for line in cell.split("\n")]
        more = min(spare, max(0, max(map(len, lines)) - wide[i]))
        wide[i] += more
        spare -= more
    return wide


def _fits(table: Table, whole_names: bool) -> bool:
    """Whether a table cuts no word but long ones in this window."""
    return _spare(_least(table, whole_names)) >= 0


def _paragraphs(table: Table) -> str:
    """Rows one below the other: the name, then every other column with its header."""
    heads = [str(column.header) for column in table.columns[1:]]
    lines = [in_lines(str(table.title), indent="  ")] if table.title else []
    for name, *values in zip(*_cells(table), strict=True):
        told = [f"{head} {value}".strip() for head, value in zip(heads, values, strict=True)]
        text = " · ".join(part.replace("\n", " ") for part in told)
        indented = in_lines(f"    {text}", indent="    ")
        lines += [name, indented]
    return "\n".join(lines)


def show_json(content: Any) -> None:
    """The same for programs."""
    print(json.dumps(content, indent=2, ensure_ascii=False, default=str))
