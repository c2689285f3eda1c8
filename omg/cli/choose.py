"""`omg choose`: the best of the configurations that were tried for a method."""

from __future__ import annotations

from pathlib import Path

import typer

from omg.cli.console import show


def choose(
    scores: Path = typer.Argument(help="folder of their cross-play with validation opponents"),
    method: str = typer.Option(help="the method; its configurations are '<method> c0', …"),
    keys: str = typer.Option(help="the keys that were searched, separated by commas"),
    out: Path = typer.Option(Path(), help="the study's folder"),
) -> None:
    """Choose a tuned configuration by its games with validation opponents (a pipeline's tuning)."""
    from omg.evaluation.words import spoken
    from omg.studies.tuning import choose as decide

    trials = decide(scores, method=method, keys=[k for k in keys.split(",") if k], out=out)
    rows = [
        (str(t.configuration), t.settings, f"{t.mean:.3f}", "chosen" if t.chosen else "")
        for t in trials
    ]
    title = f"{method}: {spoken(trials[0].metric)} with validation opponents"
    show("configuration", "settings", "mean", "", rows=rows, title=title, whole_names=False)
    typer.echo(f"Wrote {out / 'tuning.csv'}")
