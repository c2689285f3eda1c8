"""`omg report`: one self-contained page about a pipeline or about runs."""

from __future__ import annotations

from pathlib import Path

import typer


def report(
    sources: list[Path] = typer.Argument(help="a pipeline's folder, or folders of runs"),
    out: Path = typer.Option(Path("report.html"), help="the page; replaced if it exists"),
    title: str = typer.Option("", help="the page's title; empty: the environment"),
    metric: str = typer.Option(
        "", help="shown first; empty: test_own_return_mean, else test_return_mean"
    ),
) -> None:
    """Write report.html: results, learning curves, cross-play, replays; no network needed."""

    def action() -> None:
        from omg.evaluation.report import write_report

        data = write_report(sources, out, title=title, metric=metric)
        for words in data.notes:
            typer.echo(words)
        size = out.stat().st_size / 1024
        typer.echo(
            f"Wrote {out} ({size:,.0f} KiB): {len(data.methods)} methods, {len(data.agents)} runs, "
            f"{len(data.replays)} replays"
        )

    from omg.main import report_errors

    raise typer.Exit(report_errors(False, action))
