"""The tables of a results page, from the CSV files of a study.

    python -m benchmarks.results_tables results/foraging_strangers     (a pipeline's folder)
    python -m benchmarks.results_tables docs/results/foraging-strangers

Prints, per side: every method with its mean ± half a 95 % interval over seeds; what the study's
baseline is ahead of the others, with Welch's p and Holm's; then the headroom and the tuning, where
there are such files. Of a benchmark of teams: a table per task. `make results-check` reads the
same files.

    python -m benchmarks.results_tables <study> --pair "OMG event" LIAM [--seeds 1:10]
        [--opponents patrols,leads] [--out docs/results/<page>/pairs.csv --what "first ten seeds"]

One difference of two methods with the unseen opponents, or with some of them, uncorrected; `--out`
adds it to a file.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.report import markdown_table
from omg.evaluation.statistics import Welch

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


def named(metric: str) -> tuple[str, int]:
    """What a metric is called on pages, and its decimal places."""
    return COLUMNS.get(metric, (metric.replace("_", " "), 3))


def means(rows: Rows) -> str:
    """A side's methods, the best first."""
    there = list(dict.fromkeys(row["metric"] for row in rows))
    metrics = [metric for metric in COLUMNS if metric in there] or there
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
            cells.append(spread(*numbers, named(metric)[1]))
        table.append(cells)
    return markdown_table(["method", "seeds", *(named(metric)[0] for metric in metrics)], table)


def differences(rows: Rows) -> str:
    """How far the baseline is ahead of every other method."""
    table = []
    for row in (row for row in rows if row["against"] == "baseline"):
        ahead, low, high = (-float(row[key]) for key in ("difference", "high", "low"))
        pair = f"{row['other']} − {row['method']}"
        told = spread(ahead, low, high, 3, signed=True)
        table.append([pair, told, chance(row["p"]), chance(row["p_holm"])])
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


def reach(row: dict[str, str], what: str) -> str:
    """`mean (low to high)`: an interval that may be cut at what can be earned."""
    value, low, high = (row[f"{what}_{key}"] for key in ("return", "low", "high"))
    places = 1 if abs(float(value)) >= 10 else 2
    told = f"{float(value):.{places}f}"
    if low and high:
        told += f" ({float(low):.{places}f} to {float(high):.{places}f})"
    return told.replace("-", "−")


def benchmark(rows: Rows, published: Rows) -> str:
    """What each team earned on each task, the best maximum first, and what the paper has for it."""
    parts = []
    known = {(row["task"], row["method"]): row for row in published}
    for task in dict.fromkeys(row["task"] for row in rows):
        here = sorted(
            (row for row in rows if row["task"] == task), key=lambda row: -float(row["max_return"])
        )
        table = []
        for row in here:
            theirs = known.get((task, row["method"].removesuffix(" 20M")), {})
            table.append(
                [
                    *(row["method"], row["tested"], row["seeds"] if row["seeds"] != "0" else "-"),
                    *(f"{int(row[k]):,}" if int(row[k]) else "-" for k in ("steps", "max_at")),
                    *(reach(row, "max"), reach(row, "average")),
                    *(quoted(theirs, "maximum"), quoted(theirs, "average")),
                ]
            )
        head = ["method", "tested", "seeds", "steps", "maximum at", "maximum", "average"]
        head += ["the paper: maximum", "the paper: average"]
        parts += [f"## {task}", markdown_table(head, table)]
    return "\n\n".join(parts)


def quoted(row: dict[str, str], what: str) -> str:
    """A figure of the paper with half of its interval, at the places of ours."""
    if not row:
        return "-"
    value, half = float(row[what]), float(row[f"{what}_half"])
    return spread(value, value - half, value + half, 1 if abs(value) >= 10 else 2)


def tables(folder: Path) -> str:
    """All of them, as text for a page."""
    if teams := read(folder, "benchmark"):
        return benchmark(teams, read(folder, "paper"))
    summary, compared = read(folder, "summary"), read(folder, "comparisons")
    parts = []
    for side in SIDES:
        alone = [row for row in summary if (row["split"], row["lineup"]) == (side, "homologue")]
        if not alone:
            continue
        parts += [f"## {alone[0].get('side', side)} opponents", means(alone)]
        here = [row for row in compared if (row["split"], row["lineup"]) == (side, "homologue")]
        if here:
            parts.append(differences(here))
    gaps, tuned = read(folder, "headroom_sides"), read(folder, "tuning")
    if gaps and compared:
        parts += ["## Headroom", headroom(gaps, compared[0]["metric"])]
    if tuned:
        parts += ["## Tuning", tuning(tuned)]
    return "\n\n".join(parts)


def pair(
    folder: Path, methods: Sequence[str], *, seeds: Sequence[int], opponents: Sequence[str]
) -> dict[str, str]:
    """The difference of two methods in own return, each seed by its mean over the opponents."""
    samples = []
    for method in methods:
        values: dict[int, list[float]] = {}
        for row in read(folder, "crossplay"):
            place = (row["method"], row["split"], row["lineup"])
            wanted = any(name in row["opponent"] for name in opponents) or not opponents
            wanted &= not seeds or int(row["seed"]) in seeds
            if wanted and place == (method, "heldout", "homologue"):
                values.setdefault(int(row["seed"]), []).append(float(row["own_return"]))
        samples.append([float(np.mean(each)) for each in values.values()])
    if not all(samples):
        raise SystemExit(f"{folder}/crossplay.csv has no such games of {' and '.join(methods)}.")
    welch = Welch.of(*samples)
    found, p = welch.interval(), welch.p_value()
    numbers = {"difference": found.value, "low": found.low, "high": found.high, "p": p}
    counts = {"seeds": len(samples[0]), "other_seeds": len(samples[1])}
    told = {name: "" if value is None else repr(value) for name, value in numbers.items()}
    return {
        "method": methods[0],
        "other": methods[1],
        **told,
        **{k: str(v) for k, v in counts.items()},
    }


def add(row: dict[str, str], out: Path) -> None:
    """Put a row into a CSV file."""
    new = not out.is_file()
    with out.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results_tables")
    parser.add_argument("study", type=Path, help="a pipeline's folder, or docs/results/<page>")
    parser.add_argument("--pair", nargs=2, metavar="METHOD", help="one difference instead")
    parser.add_argument("--seeds", default="", help="of these seeds only: first:last")
    parser.add_argument("--opponents", default="", help="with these only, by parts of their names")
    parser.add_argument("--out", type=Path, help="add the difference to this CSV file")
    parser.add_argument("--what", default="", help="what it is, for that file")
    given = parser.parse_args(words)
    needed = ["crossplay.csv"] if given.pair else ["summary.csv", "benchmark.csv"]
    if not any((given.study / name).is_file() for name in needed):
        told = " and no ".join(needed)
        parser.error(f"{given.study} has no {told}. Name the folder of a finished study.")
    if not given.pair:
        print(tables(given.study))
        return 0
    first, _, last = given.seeds.partition(":")
    seeds = range(int(first), int(last or first) + 1) if first else ()
    opponents = [name for name in given.opponents.split(",") if name]
    row = pair(given.study, given.pair, seeds=seeds, opponents=opponents)
    numbers = [float(row[key]) for key in ("difference", "low", "high")]
    told = spread(*numbers, 3, signed=True)
    print(f"{row['method']} − {row['other']}: {told}, p {chance(row['p'])}")
    if given.out:
        add({"what": given.what, **row}, given.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
