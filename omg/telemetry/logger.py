"""Metrics to `metrics.jsonl`, TensorBoard and any further sink."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from omg.types import RunFailedError

# Called with name, value and environment step; Sacred and others plug in here.
ScalarSink: TypeAlias = Callable[[str, float, int], None]


class _Writer(Protocol):
    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...
    def close(self) -> None: ...


def _tensorboard(folder: Path, purge_step: int | None) -> _Writer:
    from torch.utils.tensorboard import SummaryWriter

    writer: _Writer = SummaryWriter(str(folder), purge_step=purge_step)
    return writer


class MetricLogger:
    """One JSON line per call: the step, the wall time, and the values.

    The length of the file is part of a resume state: a resumed run first cuts off what was
    written after it, so the file equals that of a run that was never interrupted.
    """

    def __init__(
        self,
        path: Path,
        *,
        tensorboard: Path | None = None,
        sinks: tuple[ScalarSink, ...] = (),
        resume_at: int | None = None,
        env_steps: int = 0,
        seconds: float = 0.0,
    ) -> None:
        self._path = path
        if resume_at is not None and path.exists():
            os.truncate(path, min(resume_at, path.stat().st_size))
        self._file = path.open("a", encoding="utf-8")
        self._sinks = list(sinks)
        self._writer = (
            _tensorboard(tensorboard, env_steps + 1 if resume_at is not None else None)
            if tensorboard
            else None
        )
        self._started = time.monotonic() - seconds
        self.latest: dict[str, float] = {}

    def log(self, values: Mapping[str, float], env_steps: int) -> None:
        """Record values at a step."""
        numbers = {name: float(value) for name, value in values.items()}
        if not numbers:
            return
        self.latest.update(numbers)
        record: dict[str, Any] = {
            "t_env": env_steps,
            "wall_s": round(time.monotonic() - self._started, 3),
        }
        record |= {k: v if math.isfinite(v) else None for k, v in numbers.items()}
        try:
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()
        except OSError as error:
            raise RunFailedError(
                f"{self._path} could not be written: {error.strerror}. Free space; the last "
                "resume state is intact: continue with --resume."
            ) from error
        for name, value in numbers.items():
            if self._writer:
                self._writer.add_scalar(name, value, env_steps)
            for sink in self._sinks:
                sink(name, value, env_steps)

    def position(self) -> int:
        """Bytes written so far; goes into the resume state."""
        self._file.flush()
        return self._file.tell()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # a full disk was reported by `log`
            self._file.close()
        if self._writer:
            self._writer.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of a metrics.jsonl; a last line cut off by a crash is left out."""
    records: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:
            break
    return records
