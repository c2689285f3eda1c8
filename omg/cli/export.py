"""`omg export`: a trained policy as a file for other programs."""

from __future__ import annotations

from pathlib import Path

import typer

from omg.cli.console import say, show


def export(
    run: Path = typer.Argument(help="folder of a run"),
    out: str = typer.Option("", help="the file, .onnx or .pt2; empty: <run>/agent.onnx"),
    format: str = typer.Option("", help="onnx or pt2 (torch.export); empty: as the file ends"),
    which: str = typer.Option("last", help="weights: last, best or a saved step"),
) -> None:
    """Write a trained policy as ONNX or torch.export program, and check that it acts the same."""
    from omg.experiment.export import export_agent

    made = export_agent(run, out, which=which, format=format)
    rows = [
        (port.name, side, ", ".join(["games", *map(str, port.shape)]), port.about)
        for side, ports in (("in", made.inputs), ("out", made.outputs))
        for port in ports
    ]
    show("name", "", "shape", "what it is", rows=rows, title="One step of all seats")
    for note in made.notes:
        say(f"Note: {note}")
    say(
        f"The same actions as the run's own policy in {made.checked} comparisons; the largest "
        f"difference of outputs is {made.difference:.1g}."
    )
    say(f"Wrote {made.path} ({made.path.stat().st_size / 1024:,.0f} KiB)")
