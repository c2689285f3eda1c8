"""`omg doctor`: what is installed, what is missing for which feature, and what to do."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.table import Table
from rich.text import Text

from omg.cli.console import put
from omg.cli.doctor import Line, diagnose, healthy, verdict
from omg.cli.doctor import as_json as to_json

COLOURS = {"ok": "green", "missing": "yellow", "problem": "bold red"}


def doctor(
    as_json: bool = typer.Option(False, "--json", help="the same for programs"),
    results: Path = typer.Option(Path("results"), help="the folder that runs are to be kept in"),
) -> None:
    """What works here, what is missing for which feature, and what to do about it."""
    lines = diagnose(results)
    if as_json:
        typer.echo(to_json(lines))
    else:
        put(_table(lines))
        typer.echo(verdict(lines))
    raise typer.Exit(0 if healthy(lines) else 1)


def _table(lines: list[Line]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", max_width=16)
    table.add_column(overflow="fold", ratio=1)
    group = ""
    for line in lines:
        if line.group != group:
            group = line.group
            table.add_row("", Text(group, style="bold"), "")
        detail = Text(line.detail)
        if line.advice and line.state != "ok":
            detail.append(f"\n→ {line.advice}", style=COLOURS[line.state])
        table.add_row(Text(line.state, style=COLOURS[line.state]), line.name, detail)
    return table
