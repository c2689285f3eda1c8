"""The runs a report is about: found in folders, read once."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from omg.config.loader import read_yaml
from omg.experiment.series import FILE, Curve, curves_of, read_records
from omg.storage.files import RUN, read_json

Role: TypeAlias = Literal["agent", "prior", "opponent"]

# Folders of a pipeline, and what the runs in them are.
PIPELINE: Mapping[str, Role] = {"agents": "agent", "priors": "prior", "opponents": "opponent"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What one run was asked and what it logged."""

    path: Path
    role: Role
    method: str  # what its line is called; runs that share it are seeds of one method
    seed: int | None
    task: str
    config: Mapping[str, Any]
    curves: Mapping[str, Curve]
    env_steps: int
    seconds: float
    written: float  # when its metrics were last written, seconds since 1970
    sessions: tuple[Mapping[str, Any], ...] = ()  # of run.json: start and continuations


def final_accuracy(prior: RunRecord, metric: str = "prior_accuracy") -> float:
    """What a finished prior decodes, as it was saved with it; of one without that, the last
    record, which is a mean over a stretch of training."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        saved = (prior.path / "models" / "last" / "meta.json").read_text(encoding="utf-8")
        return float(json.loads(saved)[metric])
    return float(prior.curves[metric].values[-1])


def is_run(folder: Path) -> bool:
    return (folder / "config.yaml").is_file()


def find_runs(source: Path) -> list[tuple[Path, Role | None]]:
    """The runs of a pipeline's folder, of a folder of runs, or the run itself."""
    if is_run(source):
        return [(source, None)]
    found: list[tuple[Path, Role | None]] = []
    for name, role in PIPELINE.items():
        found += [(run, role) for run in _children(source / name) if is_run(run)]
    found += [(run, None) for run in _children(source) if is_run(run)]
    return found


def _children(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] != ".")


def read_run(path: Path, role: Role | None) -> RunRecord | None:
    """A run's record; None for one that has logged nothing yet."""
    config = read_yaml(path / "config.yaml", str(path / "config.yaml"))
    metrics = path / FILE
    if not metrics.is_file():
        return None
    records = read_records(path)
    if not records:
        return None
    env_args = config.get("env_args") or {}
    task = (env_args.get("key") if isinstance(env_args, dict) else None) or config.get("env") or ""
    seed = config.get("seed")
    return RunRecord(
        path=path,
        role=role or ("prior" if config.get("learner") == "am_learner" else "agent"),
        method=str(config.get("label") or config.get("name") or path.name),
        seed=seed if isinstance(seed, int) else None,
        task=str(task),
        config=config,
        curves=curves_of(records),
        env_steps=int(max(record["t_env"] for record in records)),
        seconds=float(records[-1].get("wall_s") or 0.0),
        written=metrics.stat().st_mtime,
        sessions=_sessions(path / RUN),
    )


def _sessions(path: Path) -> tuple[Mapping[str, Any], ...]:
    """What a run, and each of its continuations, was made with; nothing for older runs."""
    found = read_json(path).get("sessions") if path.is_file() else None
    return tuple(s for s in found if isinstance(s, dict)) if isinstance(found, list) else ()
