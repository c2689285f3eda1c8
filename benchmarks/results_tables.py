"""The tables of a results page, from the CSV files of a study.

    python -m benchmarks.results_tables results/foraging_strangers     (a pipeline's folder)
    python -m benchmarks.results_tables docs/results/foraging-strangers

Prints, per side: every method with its mean ± half a 95 % interval over seeds; what the study's
baseline is ahead of the others, with Welch's p and Holm's; then the headroom and the tuning, where
there are such files. `make results-check` reads the same files.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import markdown_table

Rows = list[dict[str, str]]
COLUMNS = {
    "own_return": ("own return", 3),
    "discounted_return": ("own discounted return", 3),
    "normalised_own_return": ("normalised own return", 2),
    "food_collected": ("food collected", 3),
    "ep_length": ("steps per episode", 1),
    "truncated": ("unfinished", 3),
}
SIDES = ("heldout", "validation", "train")


def read(folder: Path, name: str) -> Rows:
    """A file's rows; none where there is no such file."""
    path = folder / f"{name}.csv"
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def spread(mean: float, low: float, high: float, places: int, *, signed: bool = False) -> str:
    """`mean ± half`, with the signs that pages have."""
    sign = "+" if signed else ""
    return f"{mean:{sign}.{places}f} ± {(high - low) / 2:.{places}f}".replace("-", "−")


def chance(text: str) -> str:
    """A p-value."""
    p = float(text)
    return f"{p:.3f}" if p >= 0.0005 else f"{p:.0e}".replace("e-0", "e-")


def means(rows: Rows) -> str:
    """A side's methods, the best first."""
    metrics = [metric for metric in COLUMNS if any(row["metric"] == metric for row in rows)]
    found = {(row["method"], row["metric"]): row for row in rows}
    first = [row for row in rows if row["metric"] == metrics[0]]
    table = []
    for row in sorted(first, key=lambda row: -float(row["mean"])):
        cells = [row["method"], row["agents"]]
        for metric in metrics:
            cell = found.get((row["method"], metric))
            if cell is None:
                cells.append("-")
                continue
            numbers = (float(cell[key]) for key in ("mean", "mean_low", "mean_high"))
            cells.append(spread(*numbers, COLUMNS[metric][1]))
        table.append(cells)
    return markdown_table(["method", "seeds", *(COLUMNS[metric][0] for metric in metrics)], table)


def differences(rows: Rows) -> str:
    """How far the baseline is ahead of every other method."""
    table = []
    for row in (row for row in rows if row["against"] == "baseline"):
        ahead, low, high = (-float(row[key]) for key in ("difference", "high", "low"))
        named = f"{row['other']} − {row['method']}"
        told = spread(ahead, low, high, 3, signed=True)
        table.append([named, told, chance(row["p"]), chance(row["p_holm"])])
    return markdown_table(
        [rows[0]["metric"].replace("_", " "), "difference", "p", "p (Holm)"], table
    )


def tuning(rows: Rows) -> str:
    """Every configuration that was tried."""
    table = []
    for row in rows:
        score = f"{float(row['mean']):.3f}"
        chosen = f"**{score}**" if row["chosen"] == "True" else score
        table.append([row["method"], f"`{row['settings']}`", chosen])
    return markdown_table(["method", "configuration", "score"], table)


def headroom(rows: Rows, metric: str) -> str:
    """What there is to gain with each side's opponents."""
    table = []
    for row in (row for row in rows if row["metric"] == metric):
        numbers = (float(row[key]) for key in ("difference", "low", "high"))
        table.append([row["side"], row["gap"], spread(*numbers, 3, signed=True)])
    return markdown_table(["opponents", "gap", metric.replace("_", " ")], table)


def tables(folder: Path) -> str:
    """All of them, as text for a page."""
    summary, compared = read(folder, "summary"), read(folder, "comparisons")
    parts = []
    for side in SIDES:
        alone = [row for row in summary if (row["split"], row["lineup"]) == (side, "homologue")]
        if not alone:
            continue
        parts += [f"## {alone[0]['side']} opponents", means(alone)]
        here = [row for row in compared if (row["split"], row["lineup"]) == (side, "homologue")]
        if here:
            parts.append(differences(here))
    gaps, tuned = read(folder, "headroom_sides"), read(folder, "tuning")
    if gaps and compared:
        parts += ["## Headroom", headroom(gaps, compared[0]["metric"])]
    if tuned:
        parts += ["## Tuning", tuning(tuned)]
    return "\n\n".join(parts)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results_tables")
    parser.add_argument("study", type=Path, help="a pipeline's folder, or docs/results/<page>")
    given = parser.parse_args(words)
    if not (given.study / "summary.csv").is_file():
        parser.error(f"{given.study} has no summary.csv. Name the folder of a finished study.")
    print(tables(given.study))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
