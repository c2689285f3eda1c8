"""The studies whose numbers the documentation quotes, read back from their cells."""

from __future__ import annotations

import csv
from pathlib import Path

from omg.evaluation.crossplay_table import Agent, Cell, Crossplay

PLACES = ("agent", "method", "seed", "split", "side", "lineup", "opponent", "episodes")


def read_study(folder: Path) -> Crossplay:
    """A cross-play from its crossplay.csv."""
    with (folder / "crossplay.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    agents = {row["agent"]: Agent(row["agent"], row["method"], int(row["seed"])) for row in rows}
    cells = []
    for row in rows:
        values = {
            name: float(text)
            for name, text in row.items()
            if name not in PLACES and not name.startswith("opponent_") and text
        }
        place = (row["agent"], row["opponent"], row["lineup"], row["split"], int(row["episodes"]))
        cells.append(Cell(*place, values))
    return Crossplay(
        format=1, env="", agents=tuple(agents.values()), opponents=(), cells=tuple(cells)
    )
