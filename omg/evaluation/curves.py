"""Learning curves from `metrics.jsonl`, one line per method with a band over its seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omg.config.loader import read_yaml
from omg.evaluation.grouping import check_seeds, distinguish
from omg.evaluation.metric_bounds import clipped
from omg.evaluation.statistics import MIN_SEEDS, half_width
from omg.evaluation.words import spoken_log
from omg.experiment.series import Curve, curves_of, read_curve, read_records
from omg.storage.files import new_file, writing
from omg.types import OmgError

# Colour-blind-safe, in a fixed order.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


def band(curves: Sequence[Curve]) -> tuple[NDArray[np.float64], ...]:
    """Common steps, mean, and half the 95 % t interval of the mean over seeds; not a number with
    fewer than three seeds, which have none."""
    steps, rows = on_common_steps(curves)
    spread = np.full(len(steps), np.nan)
    if len(rows) >= MIN_SEEDS:
        spread = half_width(rows.std(0, ddof=1), len(rows))
    return steps, rows.mean(0), spread


def on_common_steps(curves: Sequence[Curve]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The steps that all curves reach, and each curve's values there [seeds, steps]."""
    end = min(curve.steps[-1] for curve in curves)
    steps = curves[0].steps[curves[0].steps <= end]
    return steps, np.stack([np.interp(steps, curve.steps, curve.values) for curve in curves])


@dataclass(frozen=True, slots=True)
class Groups:
    """Runs by method, and what was left out and why."""

    runs: Mapping[str, Sequence[Path]]
    notes: tuple[str, ...] = ()

    def metric(self) -> str:
        """What is drawn unless asked otherwise: the learning agent's own return, or the team's
        where a run did not log it."""
        found = [curves_of(read_records(run)) for runs in self.runs.values() for run in runs]
        own = "test_own_return_mean"
        return own if all(own in curves for curves in found) else "test_return_mean"


def group_runs(runs: Sequence[Path]) -> Groups:
    """Runs by method, in the order given: seeds of one differ in nothing else that may change a
    result. Evaluations of runs are left out and, among several folders, those that are no run."""
    runs, others = _only_runs(runs)
    configs = [read_yaml(run / "config.yaml", str(run / "config.yaml")) for run in runs]
    trained = [(run, c) for run, c in zip(runs, configs, strict=True) if not c.get("evaluate")]
    notes = [f"{other} is no run (no config.yaml in it) and is left out." for other in others]
    notes += [evaluation_note(r) for r, c in zip(runs, configs, strict=True) if c.get("evaluate")]
    if not trained:
        raise OmgError(f"{' '.join(notes)} Give the folder of a run that trained.")
    names = distinguish([_label(config) for _, config in trained], [c for _, c in trained])
    groups: dict[str, list[tuple[Path, Any]]] = {}
    for name, (run, config) in zip(names, trained, strict=True):
        groups.setdefault(name, []).append((run, config.get("seed")))
    for name, found in groups.items():
        check_seeds(name, found)
    return Groups({name: [run for run, _ in found] for name, found in groups.items()}, tuple(notes))


def _only_runs(folders: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Runs, and what is none: `results/*` names all that lies there. A single folder is meant."""
    found = [path for path in folders if (path / "config.yaml").is_file()]
    if len(folders) == 1:
        return list(folders), []
    return found, [path for path in folders if path not in found]


def evaluation_note(run: Path) -> str:
    """Why an evaluation's folder is left out."""
    return f"{run.name} is an evaluation of another run and is left out."


def _label(config: Mapping[str, Any]) -> str:
    task = (config.get("env_args") or {}).get("key") or config.get("env")
    return " ".join(str(part) for part in (config.get("name"), task, config.get("label")) if part)


def draw_curves(
    groups: Mapping[str, Sequence[Path]], out: Path, *, metric: str = "test_return_mean"
) -> Path:
    """Write a PNG (or whatever the suffix says) of a metric for groups of runs."""
    read = {name: [read_curve(run, metric) for run in runs] for name, runs in groups.items()}
    return draw(read, out, metric=metric)


def draw(
    groups: Mapping[str, Sequence[Curve]],
    out: Path,
    *,
    metric: str = "test_return_mean",
    limits: tuple[float, float] = (-np.inf, np.inf),
) -> Path:
    """The same of curves that were read already. Bands stay within `limits`, and within what the
    metric can be."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.0), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for colour, (label, curves) in zip(_cycle(len(groups)), groups.items(), strict=True):
        steps, mean, spread = band(curves)
        seeds = f" ({len(curves)} seeds)" if len(curves) > 1 else ""
        axes.plot(steps, mean, color=colour, linewidth=2, label=label + seeds)
        if len(curves) >= MIN_SEEDS:
            ends = (np.clip(mean + side * spread, *limits) for side in (-1, 1))
            low, high = (clipped(metric, end) for end in ends)
            axes.fill_between(steps, low, high, color=colour, alpha=0.18)
        elif len(curves) > 1:  # no interval: each seed
            for row in on_common_steps(curves)[1]:
                axes.plot(steps, row, color=colour, linewidth=0.8, alpha=0.6)
    low, high = axes.get_ylim()
    axes.set_ylim(*clipped(metric, [low, high]))
    axes.set_xlabel("environment steps")
    axes.set_ylabel(spoken_log(metric))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    # Above the curves: names that say what differs are long.
    figure.legend(frameon=False, loc="outside upper left")
    try:
        with writing(out):
            out.parent.mkdir(parents=True, exist_ok=True)
        with new_file(out) as temporary:
            figure.savefig(temporary)
    except ValueError as error:
        raise OmgError(f"{out} cannot be written: {error}. Use .png, .svg or .pdf.") from error
    return out


def _cycle(count: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(count)]
