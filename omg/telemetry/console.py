"""What people see while a run goes on: a live line, or plain lines without a terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping

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


def human_bytes(count: float) -> str:
    """1536 -> '1.5 KiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")


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
            line = Text.assemble("  ", (f"{name:<{width}}", "dim"), f"  {value}")
            self.console.print(line, soft_wrap=True)  # so that paths can be copied whole

    def start(self, env_steps: int) -> None:
        self._start_step = self._last_print = env_steps
        self._started = time.monotonic()
        if not self.console.is_terminal:
            return
        self._live = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
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
            note = self._note(env_steps, values)
            self._live.update(self._task, completed=min(env_steps, self.total), note=note)
        elif env_steps - self._last_print >= self._interval or (
            force and env_steps > self._last_print
        ):
            self._last_print = env_steps
            note = self._note(env_steps, values)
            self.console.print(f"step {env_steps:>9,} / {self.total:,}  {note}", soft_wrap=True)

    def _note(self, env_steps: int, values: Mapping[str, float]) -> str:
        rate = (env_steps - self._start_step) / max(1e-9, time.monotonic() - self._started)
        shown = [f"{rate:,.0f} steps/s"]
        for name, label in (
            ("return_mean", "return"),
            ("test_return_mean", "test"),
            ("epsilon", "ε"),
            ("loss", "loss"),
            ("critic_loss", "critic loss"),
            ("value_loss", "value loss"),
            ("entropy", "entropy"),
        ):
            if name in values:
                shown.append(f"{label} {values[name]:.3g}")
        return "  ".join(shown)

    def say(self, text: str, *, style: str | None = None) -> None:
        self.console.print(text, style=style, soft_wrap=True)

    def stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
