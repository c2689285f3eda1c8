"""What people see of a sweep: a line for whatever happens, and a live table on a terminal."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ray.tune import Callback
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from omg.studies.display import duration
from omg.studies.sweep.marks import LOST, read_mark, write_mark
from omg.studies.sweep.plan import SweepPlan

ROWS = 24  # of the live table
STATUS = {"PENDING": "waiting", "RUNNING": "running", "PAUSED": "waiting", "ERROR": "failed"}
# The display of a sweep's folder: Tune stores callbacks and reads them back, displays cannot be.
_SHOWN: dict[str, SweepDisplay] = {}


class SweepDisplay:
    """The table of all trials. Values of the swept keys, steps, and the metric."""

    def __init__(self, plan: SweepPlan, *, quiet: bool, console: Console | None = None) -> None:
        self.plan = plan
        self._console = console or Console(quiet=quiet, highlight=False, markup=False, emoji=False)
        self._live: Live | None = None
        self._started = time.monotonic()

    def __enter__(self) -> SweepDisplay:
        _SHOWN[str(self.plan.out)] = self
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=2, transient=True)
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        _SHOWN.pop(str(self.plan.out), None)
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)

    def happened(self, word: str, trial: Any, text: str = "") -> None:
        shown = ", ".join(f"{k}={_short(v)}" for k, v in trial.config["settings"].items())
        self.say(f"{word:<9} {trial.config['name']}  {shown}{'  ' + text if text else ''}")

    def tick(self, trials: Sequence[Any]) -> None:
        if self._live is not None:
            self._live.update(self.table(trials))

    def table(self, trials: Sequence[Any]) -> Table:
        """Running trials first, then what ended last; 80 columns suffice."""
        keys = [d.key for d in self.plan.dimensions]
        counts = Counter(_status(trial) for trial in trials)
        waiting = self.plan.runs - len(trials) + counts.pop("waiting", 0)
        words = [f"{count} {status}" for status, count in sorted(counts.items())]
        words += [f"{waiting} waiting"] * (waiting > 0)
        spent = duration(time.monotonic() - self._started)
        title = f"{self.plan.runs} runs: {', '.join(words)}; {spent}"
        metric = self.plan.spec.metric.removeprefix("test_")
        table = Table(title=title, title_justify="left", title_style="", box=box.SIMPLE)
        table.add_column("run", no_wrap=True)
        for key in keys:  # in a narrow window these are shortened, the others are not
            table.add_column(key.rpartition(".")[2], overflow="ellipsis", max_width=16)
        table.add_column("done", justify="right", no_wrap=True)
        table.add_column("steps", justify="right", no_wrap=True)
        table.add_column(metric, justify="right", overflow="ellipsis", min_width=7)
        table.add_column("", no_wrap=True)
        rank = {"running": 0, "failed": 1, "stopped": 2, "finished": 2, "waiting": 3}
        newest = [trials[i] for i in range(len(trials) - 1, -1, -1)]
        order = sorted(newest, key=lambda trial: rank.get(_status(trial), 2))
        for trial in order[:ROWS]:
            result = trial.last_result or {}
            table.add_row(
                trial.config["name"],
                *(_short(trial.config["settings"].get(key)) for key in keys),
                f"{result.get('share', 0.0):.0%}",
                f"{result.get('t_env', 0):,}",
                _value(result.get(self.plan.spec.metric)),
                _status(trial),
            )
        return table


class SweepProgress(Callback):
    """Tells the display, and notes which runs a scheduler stopped."""

    def __init__(self, out: str, metric: str) -> None:
        self._out, self._metric = out, metric
        self._begun: dict[str, Any] = {}
        self._stopped: list[str] = []  # by a scheduler; Ctrl-C ends trials as well

    def _display(self) -> SweepDisplay | None:
        return _SHOWN.get(self._out)

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if display := self._display():  # a restored trial has the number it was made with
            for trial in trials:
                trial.max_failures = display.plan.spec.max_failures

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if display := self._display():
            display.tick(trials)

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        name, settings = trial.config["name"], trial.config["settings"]
        before, self._begun[name] = self._begun.get(name), settings
        if (display := self._display()) and before != settings:
            again = (Path(self._out) / "runs" / name).exists()
            word = "changed" if before else "continued" if again else "started"
            display.happened(word, trial)

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._begun.pop(trial.config["name"], None)
        if display := self._display():
            display.happened("lost", trial, "its worker or node is gone; it will be continued")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._note(trial, "failed", LOST)
        if display := self._display():
            display.happened("failed", trial, f"{LOST}; --resume tries again")

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        """A run that was stopped may have noted its time over our note of it."""
        for name in self._stopped:
            if not read_mark(Path(self._out), name).get("status"):
                write_mark(Path(self._out), name, status="stopped")

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        result: Mapping[str, Any] = trial.last_result or {}
        status = str(result.get("status", ""))
        if status not in ("finished", "failed"):
            status = "stopped"
            self._stopped.append(trial.config["name"])
            self._note(trial, status)
        if display := self._display():
            told = f"{self._metric} {_value(result.get(self._metric))} at step "
            told += f"{result.get('t_env', 0):,}"
            display.happened(status, trial, result.get("note") or told)

    def _note(self, trial: Any, status: str, note: str = "") -> None:
        write_mark(Path(self._out), trial.config["name"], status=status, note=note)


def _status(trial: Any) -> str:
    known = (trial.last_result or {}).get("status", "")
    if trial.status == "TERMINATED":
        return str(known) if known in ("finished", "failed") else "stopped"
    return STATUS.get(trial.status, str(trial.status).lower())


def _short(value: Any) -> str:
    shown = f"{value:.4g}" if isinstance(value, float) else str(value)
    return shown if len(shown) <= 24 else f"{shown[:23]}…"


def _value(value: Any) -> str:
    return "–" if not isinstance(value, int | float) or math.isnan(value) else f"{value:.3f}"
