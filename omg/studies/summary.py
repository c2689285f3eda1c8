"""The cross-play's result as a table: every method against opponents seen and unseen."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from omg.studies.steps import Plan
from omg.types import OmgError

SIDES = {"train": "seen", "heldout": "unseen"}


def print_result(plan: Plan) -> None:
    """The result table, and where everything lies."""
    if plan.spec.crossplay is not None:
        width = None if sys.stdout.isatty() else 1000
        table = summary_table(plan.out / "crossplay.json", plan.spec.crossplay.metric)
        Console(width=width, markup=False, emoji=False, highlight=False).print(table)
    if plan.spec.report:
        print(f"The report is {plan.out / 'report.html'}")
    print(f"Everything is in {plan.out}")


def summary_table(path: Path, metric: str) -> Table:
    """Mean and 95 % interval of a metric per method (rows), side and kind of line-up (columns)."""
    try:
        rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["summary"]
        rows = [row for row in rows if row["metric"] == metric]
        cells = {(r["method"], r["split"], r["lineup"]): _cell(r) for r in rows}
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        what = f"{type(error).__name__}: {str(error)[:100]}"
        raise OmgError(
            f"{path} is not a cross-play's result ({what}). Delete it and run again."
        ) from error
    splits = [split for split in SIDES if any(split == side for _, side, _ in cells)]
    columns = [(split, kind) for split in splits for kind in _kinds(cells, split)]
    table = Table("method", title=f"{metric}, mean and 95 % interval", title_justify="left")
    for split, kind in columns:
        several = len(_kinds(cells, split)) > 1
        table.add_column(SIDES[split] + (f", {kind}" if several else ""))
    for method in dict.fromkeys(method for method, _, _ in cells):
        table.add_row(method, *(cells.get((method, *column), "-") for column in columns))
    return table


def _kinds(cells: dict[tuple[str, str, str], str], split: str) -> list[str]:
    return list(dict.fromkeys(kind for _, side, kind in cells if side == split))


def _cell(row: dict[str, Any]) -> str:
    return f"{row['mean']:.3f} ({row['mean_low']:.3f} to {row['mean_high']:.3f})"
