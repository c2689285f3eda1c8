"""The line that shows where a run stands fits the window."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from omg.experiment.output import RunConsole

VALUES = {
    "own_return_mean": -12.345,
    "test_own_return_mean": -12.345,
    "epsilon": 0.123,
    "loss": 0.000123,
    "critic_loss": 1.23,
    "value_loss": 1.23,
    "entropy": 1.23,
}


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("width", [80, 200])
def test_the_line_is_never_wider_than_the_window(terminal: bool, width: int) -> None:
    out = io.StringIO()
    shown = RunConsole(total=2_050_000, log_interval=1, quiet=False)
    shown.console = Console(file=out, width=width, force_terminal=terminal, highlight=False)
    shown.start(0)
    shown._started -= 100  # seconds
    shown.progress(1_234_567, VALUES)
    shown.stop()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()).replace("\r", "\n")
    (line,) = {line.rstrip() for line in text.splitlines() if "own return" in line}
    assert len(line) <= width
    assert "own return -12.3" in line
    assert "…" not in line
    assert ("entropy" in line) == (width == 200)
