"""Learning curves from `metrics.jsonl`, one line per group of runs with a band over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from omg.config.loader import read_yaml
from omg.experiment.series import Curve, read_curve
from omg.types import OmgError

# Colour-blind-safe, in a fixed order.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


def band(curves: Sequence[Curve]) -> tuple[NDArray[np.float64], ...]:
    """Common steps, mean, and the half-width of a 95 % interval of the mean over seeds."""
    end = min(curve.steps[-1] for curve in curves)
    steps = curves[0].steps[curves[0].steps <= end]
    rows = np.stack([np.interp(steps, curve.steps, curve.values) for curve in curves])
    spread = np.zeros(len(steps))
    if len(rows) > 1:
        spread = _t975(len(rows) - 1) * rows.std(0, ddof=1) / np.sqrt(len(rows))
    return steps, rows.mean(0), spread


def _t975(freedom: int) -> float:
    """97.5 % quantile of Student's t."""
    table = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
    return table[freedom - 1] if freedom <= len(table) else 1.96 + 2.4 / freedom


def label_of(run: Path) -> str:
    """Algorithm and task of a run; runs that differ only in the seed share it."""
    config = read_yaml(run / "config.yaml", str(run / "config.yaml"))
    task = (config.get("env_args") or {}).get("key") or config.get("env")
    return " ".join(str(part) for part in (config.get("name"), task, config.get("label")) if part)


def group_runs(runs: Sequence[Path]) -> dict[str, list[Path]]:
    """Runs by their label, in the order given."""
    groups: dict[str, list[Path]] = {}
    for run in runs:
        groups.setdefault(label_of(run), []).append(run)
    return groups


def draw_curves(
    groups: Mapping[str, Sequence[Path]], out: Path, *, metric: str = "test_return_mean"
) -> Path:
    """Write a PNG (or whatever the suffix says) of a metric for groups of runs."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.0), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for colour, (label, runs) in zip(_cycle(len(groups)), groups.items(), strict=True):
        steps, mean, spread = band([read_curve(run, metric) for run in runs])
        seeds = f" ({len(runs)} seeds)" if len(runs) > 1 else ""
        axes.plot(steps, mean, color=colour, linewidth=2, label=label + seeds)
        if len(runs) > 1:
            axes.fill_between(steps, mean - spread, mean + spread, color=colour, alpha=0.18)
    axes.set_xlabel("environment steps")
    axes.set_ylabel(metric.replace("_", " "))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="best")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out)
    except (OSError, ValueError) as error:
        raise OmgError(f"{out} cannot be written: {error}. Use .png, .svg or .pdf.") from error
    return out


def _cycle(count: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(count)]
