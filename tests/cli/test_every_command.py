"""What holds for every command of `omg`, those to come included."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from omg.cli.app import app
from omg.cli.errors import report_errors
from omg.types import OmgError


def commands(group: Any, *path: str) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, *path, name)
        else:
            yield (*path, name)


COMMANDS = list(commands(get_command(app)))


@pytest.fixture
def fail(capsys: pytest.CaptureFixture[str]) -> Any:
    """Lets a command refuse what it is called with; its exit code and what it prints."""

    def refuse(**_: Any) -> None:
        raise OmgError("It cannot be. Do something else.")

    def call(path: tuple[str, ...], *, before: str = "", after: str = "") -> tuple[int, str]:
        root: Any = get_command(app)
        command = root
        for name in path:
            command = command.commands[name]
        command.callback = refuse
        needed = [p for p in command.params if p.required]
        values = [f"{p.opts[0]}=x" if p.param_type_name == "option" else "x" for p in needed]
        with pytest.raises(SystemExit) as stop:
            root.main([*before.split(), *path, *values, *after.split()])
        assert isinstance(stop.value.code, int)
        return stop.value.code, capsys.readouterr().err

    return call


def test_the_commands_are_found() -> None:
    expected = {("train",), ("evaluate",), ("doctor",), ("config", "show"), ("pool", "add")}
    assert expected <= set(COMMANDS)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_a_refusal_is_one_sentence_and_debug_adds_where_it_arose(
    path: tuple[str, ...], fail: Any
) -> None:
    assert fail(path) == (2, "omg: It cannot be. Do something else.\n")
    for where in ({"after": "--debug"}, {"before": "--debug"}):
        code, shown = fail(path, **where)
        assert code == 2, shown
        assert shown.startswith("Traceback")
        assert "in refuse" in shown
        assert shown.endswith("\nomg: It cannot be. Do something else.\n")


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_the_help_names_debug(path: tuple[str, ...]) -> None:
    answer = CliRunner().invoke(app, [*path, "--help"])
    assert answer.exit_code == 0
    assert "--debug" in answer.stdout


def test_debug_before_the_commands_name_is_the_key_where_there_are_keys() -> None:
    for words in (["--debug", "config", "show"], ["config", "--debug", "show"]):
        answer = CliRunner().invoke(app, words)
        assert answer.exit_code == 0
        (row,) = [line.split() for line in answer.stdout.splitlines() if "│ debug " in line]
        assert row == ["│", "debug", "│", "True", "│", "--debug", "│"]


def test_after_two_dashes_debug_is_a_name_as_any_other() -> None:
    answer = CliRunner().invoke(app, ["plot", "--", "--debug"])
    assert answer.stderr.startswith("omg: --debug/config.yaml cannot be read")


def test_a_package_that_cannot_be_imported_sends_to_the_doctor(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def action() -> None:
        import no_such_package  # type: ignore[import-not-found]  # noqa: F401

    assert report_errors(False, action) == 1
    assert capsys.readouterr().err == (
        "omg: a needed package cannot be imported: No module named 'no_such_package'. 'omg doctor' "
        "says what is missing and what to do.\n"
    )


def test_the_command_line_starts_without_heavy_imports() -> None:
    heavy = ["torch", "numpy", "sacred", "pydantic", "omg.report", "omg.experiment"]
    words = f"import sys, omg.cli.app; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
