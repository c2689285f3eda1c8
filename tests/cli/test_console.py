"""Tables in windows of every width."""

from __future__ import annotations

import re
import sys

import pytest

from omg.cli.console import show

NAME, TEXT = "iql-s1-20000", "abcdefghijklmnopqrstuvwxyz" * 3


@pytest.mark.parametrize("whole", [True, False])
def test_a_narrow_window_cuts_nothing_off_and_keeps_names_in_one_piece(
    whole: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "26")
    rows = [(NAME, TEXT, "[red]x")]
    show("id", "text", "tag", rows=rows, title="A pool", whole_names=whole)
    lines = re.sub(r"\x1b\[\d+m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 26
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]
    assert ["".join(column) for column in zip(*cells, strict=True)] == list(rows[0])
    assert (cells[0][0] == NAME) == whole


def test_without_a_terminal_every_row_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    show("id", "text", rows=[(NAME, TEXT)])
    assert f"│ {NAME} │ {TEXT} │" in capsys.readouterr().out
