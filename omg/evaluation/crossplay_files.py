"""Writes a cross-play: crossplay.json, the tables beside it, and crossplay.png."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omg.evaluation.comparisons import as_rows
from omg.evaluation.crossplay_table import Crossplay
from omg.evaluation.words import SIDES, spoken
from omg.storage.files import new_file, write_text
from omg.types import OmgError


def prepare_folder(out: Path) -> Path:
    """Make the folder, and refuse one that cannot be written to before anything is played."""
    out = out.expanduser()
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise OmgError(
            f"out={out} cannot be written to: {error.strerror or error}. Choose a folder you own."
        ) from error
    return out


def check_metric(table: Crossplay, metric: str) -> None:
    """The metric must have been measured."""
    if metric not in table.metrics():
        raise OmgError(f"There is no metric '{metric}'. Choose from: {', '.join(table.metrics())}.")


def write_tables(table: Crossplay, out: Path) -> list[Path]:
    """crossplay.json, crossplay.csv (one row per cell), summary.csv, steps.csv (one row per agent),
    profiles.csv, rliable.json (scores as rliable reads them) and, where there are several methods,
    paired.csv (the difference of every method to every other one) and comparisons.csv (the tests
    of the primary metric)."""
    tests = as_rows(table)
    content = {**table.as_dict(), "comparisons": tests}
    paired = [row for method in table.methods() for row in table.paired(method)]
    texts = {
        "crossplay.json": json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        "crossplay.csv": _csv(table.rows()),
        "summary.csv": _csv(content["summary"]),
        "profiles.csv": _csv(table.profiles()),
        "steps.csv": _csv(table.steps()),
        "rliable.json": json.dumps(table.scores(), ensure_ascii=False, allow_nan=False) + "\n",
        **({"paired.csv": _csv(paired)} if paired else {}),
        **({"comparisons.csv": _csv(tests)} if tests else {}),
    }
    for name, text in texts.items():
        write_text(out / name, text)
    return [out / name for name in texts]


def csv_text(rows: Sequence[Any]) -> str:
    """Rows that are dataclasses, as the text of a CSV file; empty without any."""
    return _csv([asdict(row) for row in rows]) if rows else ""


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    told = [_with_side(row) for row in rows]
    writer = csv.DictWriter(text, list(told[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _in_a_cell(value) for name, value in row.items()} for row in told)
    return text.getvalue()


def _with_side(row: Mapping[str, Any]) -> dict[str, Any]:
    """The word for a split (seen, unseen) in a column beside it."""
    told: dict[str, Any] = {}
    for name, value in row.items():
        told[name] = value
        if name == "split":
            told["side"] = SIDES.get(value, value)
    return told


def _in_a_cell(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, tuple) else value


def heat_map_values(
    table: Crossplay, metric: str
) -> tuple[list[str], list[tuple[str, list[str], NDArray[np.float64]]]]:
    """Names of the rows, and per side its columns and values. Rows are methods (means over their
    seeds), or the agents of the only method."""
    methods = table.methods()
    groups = dict(methods)
    if len(methods) == 1:
        groups = {agent: [agent] for agent in next(iter(methods.values()))}
    sides = []
    for split in dict.fromkeys(split for split, _ in table.blocks()):
        lineups = [lineup for side, lineup in table.blocks() if side == split]
        columns = [name for lineup in lineups for name in table.columns(split, lineup)]
        values = [
            np.concatenate([table.matrix(agents, split, x, metric).mean(0) for x in lineups])
            for agents in groups.values()
        ]
        sides.append((f"{SIDES[split]} opponents", columns, np.stack(values)))
    return list(groups), sides


def draw_heat_map(table: Crossplay, path: Path, *, metric: str) -> Path:
    """Methods x opponents, the sides of the pool apart."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows, sides = heat_map_values(table, metric)
    widths = [len(columns) for _, columns, _ in sides]
    size = (2.6 + 0.62 * sum(widths) + 0.5 * len(sides), 2.4 + 0.42 * len(rows))
    figure = Figure(figsize=(max(6.0, size[0]), size[1]), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    all_axes = figure.subplots(1, len(sides), squeeze=False, width_ratios=widths)[0]
    known = np.concatenate([values.ravel() for _, _, values in sides])
    low, high = float(np.nanmin(known)), float(np.nanmax(known))
    for number, (axes, (title, columns, values)) in enumerate(zip(all_axes, sides, strict=True)):
        image = axes.imshow(values, vmin=low, vmax=high, cmap="viridis", aspect="auto")
        axes.set_title(title, fontsize=9)
        axes.set_xticks(range(len(columns)), columns, rotation=45, ha="right", fontsize=7)
        axes.set_yticks(range(len(rows)), rows if number == 0 else [""] * len(rows), fontsize=8)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        for (row, column), value in np.ndenumerate(values):
            dark = value < low + 0.6 * (high - low)
            axes.text(
                *(column, row, f"{value:.2f}" if np.isfinite(value) else "-"),
                ha="center",
                va="center",
                fontsize=7,
                color="white" if dark else "black",
            )
    figure.colorbar(image, ax=list(all_axes), label=spoken(metric), fraction=0.05)
    with new_file(path) as temporary:
        figure.savefig(temporary)
    return path
