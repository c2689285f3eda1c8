"""Wide tables: tests read their rows. Narrow ones are the business of test_console."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _wide_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
