"""A run's metrics as arrays over environment steps, read from its metrics.jsonl."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omg.experiment.output import read_metrics
from omg.types import OmgError

FILE = "metrics.jsonl"


@dataclass(frozen=True, slots=True)
class Curve:
    """A metric over environment steps."""

    steps: NDArray[np.float64]
    values: NDArray[np.float64]


def read_records(run: Path) -> list[dict[str, Any]]:
    """All that a run has logged; only a last line may be cut off, by a crash."""
    path = run / FILE
    if not path.is_file():
        raise OmgError(f"{run} has no {FILE}. Give the folder of a run.")
    try:
        records = read_metrics(path)
        lines = sum(1 for _ in path.read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise OmgError(f"{path} cannot be read: {error}. Check the file.") from error
    if len(records) < lines - 1:
        raise OmgError(
            f"{path} is damaged in line {len(records) + 1}. Remove that line, or leave the run out."
        )
    for number, record in enumerate(records, 1):
        if not isinstance(record, dict) or not _is_number(record.get("t_env")):
            raise OmgError(
                f"{path} has no record of metrics in line {number}. Remove that line, or leave "
                "the run out."
            )
    return records


def curves_of(records: Sequence[Mapping[str, Any]]) -> dict[str, Curve]:
    """Every metric of some records; what is no finite number is left out."""
    points: dict[str, list[tuple[float, float]]] = {}
    for record in records:
        for name, value in record.items():
            if name not in ("t_env", "wall_s") and _is_number(value):
                points.setdefault(name, []).append((record["t_env"], value))
    return {name: Curve(*np.array(pairs, float).T) for name, pairs in points.items()}


def read_curve(run: Path, metric: str) -> Curve:
    """One metric of one run."""
    curves = curves_of(read_records(run))
    if metric not in curves:
        raise OmgError(f"{run} has no metric '{metric}'. It has: {', '.join(sorted(curves))}.")
    return curves[metric]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
