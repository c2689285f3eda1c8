"""`omg report` and `omg plot`: what came of runs, as a page and as curves."""

from __future__ import annotations

from pathlib import Path

import typer

from omg.cli.console import say


def report(
    sources: list[Path] = typer.Argument(
        help="a pipeline's folder, or runs; several pipelines stand side by side"
    ),
    out: Path = typer.Option(Path("report.html"), help="the page; replaced if it exists"),
    title: str = typer.Option("", help="the page's title; empty: the environment"),
    metric: str = typer.Option(
        "", help="shown first; empty: test_own_return_mean, else test_return_mean"
    ),
) -> None:
    """Write report.html: results, learning curves, cross-play, replays; no network needed."""
    from omg.report import SideBySide, write_report

    data = write_report(sources, out, title=title, metric=metric)
    for words in data.notes:
        say(words)
    studies = f"{len(data.studies)} studies, " if isinstance(data, SideBySide) else ""
    say(
        f"Wrote {out} ({out.stat().st_size / 1024:,.0f} KiB): {studies}"
        f"{len(data.methods)} methods, {len(data.agents)} runs, "
        f"{len(data.replays) + len(data.films)} replays"
    )


def plot(
    runs: list[Path] = typer.Argument(
        help="folders of runs; those that differ only in the seed share a line"
    ),
    metric: str = typer.Option("", help="empty: test_own_return_mean, else test_return_mean"),
    out: Path = typer.Option(Path("curve.png"), help=".png, .svg or .pdf"),
) -> None:
    """Learning curves of runs, with 95 % bands from three seeds on."""
    from omg.evaluation.curves import draw_curves, group_runs
    from omg.evaluation.words import seed_notes

    groups = group_runs(runs)
    for words in (*groups.notes, *seed_notes([len(runs) for runs in groups.runs.values()])):
        say(words)
    say(f"Wrote {draw_curves(groups.runs, out, metric=metric or groups.metric())}")


def benchmark(
    study: Path = typer.Argument(help="a benchmark's folder, with teams/<task>/<run>"),
    random_episodes: int = typer.Option(1000, min=1, help="episodes of random play per task"),
) -> None:
    """Best and average test return of every team on every task, beside random play."""
    from omg.evaluation.benchmark import print_rows, write_benchmark

    print_rows(write_benchmark(study, random_episodes=random_episodes))
    say(f"Wrote {study / 'benchmark.csv'} and a plot per task")
