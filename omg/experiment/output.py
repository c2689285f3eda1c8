"""What a run tells: metrics to a file and to sinks, and lines to the terminal."""

from __future__ import annotations

import contextlib
import json
import math
import os
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from omg.experiment.sinks import ScalarSink
from omg.storage.locks import refuse_link
from omg.types import RunFailedError


class MetricLogger:
    """One JSON line per call: the step, the wall time, and the values.

    The length of the file is part of a resume state: a resumed run first cuts off what was
    written after it, so the file equals that of a run that was never interrupted.
    """

    def __init__(
        self,
        path: Path,
        *,
        sinks: tuple[ScalarSink, ...] = (),
        resume_at: int | None = None,
        seconds: float = 0.0,
    ) -> None:
        self._path = path
        refuse_link(path)
        if resume_at is not None and path.exists():
            os.truncate(path, min(resume_at, path.stat().st_size))
        self._file = path.open("a", encoding="utf-8")
        self._sinks = list(sinks)
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
            for sink in self._sinks:
                sink(name, value, env_steps)

    def add(self, sink: ScalarSink) -> None:
        """Tell it everything from now on."""
        self._sinks.append(sink)

    def position(self) -> int:
        """Bytes written so far; goes into the resume state."""
        self._file.flush()
        return self._file.tell()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # a full disk was reported by `log`
            self._file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of a metrics.jsonl; a last line cut off by a crash is left out."""
    records: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except (ValueError, RecursionError):
            break
    return records


def readable_metrics(path: Path) -> list[dict[str, Any]]:
    """All records of a metrics.jsonl, whatever stands between them."""
    records = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            records.append(json.loads(line))
    return [record for record in records if isinstance(record, dict)]


def return_names(values: Mapping[str, float], prefix: str = "") -> list[tuple[str, str]]:
    """The return that is shown of some metrics, with whose it is: the learning agent's own where
    one learns, else the team's."""
    test = prefix.replace("_", " ")
    for whose, name in (("own", "own_return_mean"), ("team", "return_mean")):
        if prefix + name in values:
            return [(prefix + name, f"{test}{whose} return")]
    return []


BAR = 10  # columns of the live line's bar
TIME = 8  # and of the time that is left, -:--:--


def wrapped(text: str, width: int) -> list[str]:
    """Lines that fit; words stay whole, so that paths and commands can be copied."""
    lines = textwrap.wrap(text, max(20, width), break_long_words=False, break_on_hyphens=False)
    return lines or [""]


class RunConsole:
    """Header, progress and closing lines of a run."""

    def __init__(self, *, total: int, log_interval: int, quiet: bool) -> None:
        self.console = Console(quiet=quiet, highlight=False, markup=False, emoji=False)
        self.total, self._interval = total, log_interval
        self._live: Progress | None = None
        self._task: TaskID | None = None
        self._last_print = 0
        self._started = time.monotonic()
        self._start_step = 0

    def header(self, title: str, rows: Mapping[str, str]) -> None:
        self.console.print(title, style="bold")
        width = max(map(len, rows))
        for name, value in rows.items():
            first, *more = wrapped(value, self.console.width - width - 4)
            line = Text.assemble("  ", (f"{name:<{width}}", "dim"), f"  {first}")
            self.console.print(line, soft_wrap=True)
            for rest in more:
                self.console.print(" " * (width + 4) + rest, soft_wrap=True)

    def start(self, env_steps: int) -> None:
        self._start_step = self._last_print = env_steps
        self._started = time.monotonic()
        if not self.console.is_terminal:
            return
        self._live = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=BAR),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(compact=True),
            console=self.console,
        )
        self._task = self._live.add_task("steps", total=self.total, completed=env_steps, note="")
        self._live.start()

    def progress(self, env_steps: int, values: Mapping[str, float], *, force: bool = False) -> None:
        """Show where the run stands; cheap to call often."""
        if self._live is not None and self._task is not None:
            counted = len("steps ") + BAR + 2 * len(str(self.total)) + len(" / ") + TIME + 4
            note = self._note(env_steps, values, self.console.width - counted)
            self._live.update(self._task, completed=min(env_steps, self.total), note=note)
        elif env_steps - self._last_print >= self._interval or (
            force and env_steps > self._last_print
        ):
            self._last_print = env_steps
            start = f"step {env_steps:>9,} / {self.total:,}  "
            note = self._note(env_steps, values, self.console.width - len(start))
            self.console.print(start + note, soft_wrap=True)

    def _note(self, env_steps: int, values: Mapping[str, float], room: int) -> str:
        """Pace, returns and losses, as many as there is room for; the first matter most."""
        rate = (env_steps - self._start_step) / max(1e-9, time.monotonic() - self._started)
        shown = [f"{rate:,.0f} steps/s"]
        for name, label in (
            *return_names(values),
            *return_names(values, "test_"),
            ("epsilon", "ε"),
            ("loss", "loss"),
            ("critic_loss", "critic loss"),
            ("value_loss", "value loss"),
            ("entropy", "entropy"),
        ):
            if name in values:
                shown.append(f"{label} {values[name]:.3g}")
        while len(shown) > 1 and len("  ".join(shown)) > room:
            shown.pop()
        return "  ".join(shown)

    def say(self, text: str, *, style: str | None = None) -> None:
        for line in wrapped(text, self.console.width):
            self.console.print(line, style=style, soft_wrap=True)

    def stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
