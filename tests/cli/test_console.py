"""Tables in windows of every width, what starts at once, and names of other frameworks."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from omg.cli.app import app
from omg.cli.console import show
from omg.config.abroad import OURS
from omg.config.loader import load_command_line
from omg.config.schema import Config
from omg.types import OmgError

NAME, TEXT = "iql-s1-20000", "abcdefghijklmnopqrstuvwxyz" * 3
WORDS = "a text of several words that can be folded between them"
OMG = [sys.executable, "-c", "from omg.cli.app import main; main()"]


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return re.sub(r"\x1b\[[\d;]+m", "", capsys.readouterr().out).splitlines()


@pytest.mark.parametrize("terminal", [True, False])
def test_a_narrow_window_folds_texts_and_keeps_names_in_one_piece(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    monkeypatch.setenv("COLUMNS", "44")
    rows = [(NAME, WORDS, "[red]x")]
    show("id", "text", "tag", rows=rows, title="A pool")
    lines = shown(capsys)
    assert max(map(len, lines)) <= 44
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]
    assert [" ".join(column).strip() for column in zip(*cells, strict=True)] == list(rows[0])
    assert cells[0][0] == NAME


def test_a_table_that_would_cut_words_becomes_paragraphs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS")
    names = [f"script-nearest_food_of_the_{n}-0.05" for n in ("first", "second")]
    columns = [f"column_{number}" for number in range(9)]
    show("id", *columns, rows=[(name, *columns) for name in names], title="A pool")
    lines = shown(capsys)
    assert lines[0] == "A pool"
    assert [line for line in lines if line in names] == names
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).split()).count("column_8 column_8") == 2


@pytest.mark.parametrize("columns", range(60, 121, 4))
def test_a_table_has_its_right_border_in_every_window(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    heads = (
        "opponent",
        "algorithm",
        "skill",
        "side",
        "own return",
        "team return",
        "food collected",
    )
    row = ("script-farthest_food-0", "script", "noise 0", "unseen", "0.267", "0.525", "0.812")
    left = show(*heads, rows=[row, ("iql-s1-20000", *row[1:])], least=5)
    lines = shown(capsys)
    if left == 0 or columns >= 80:
        assert {line[-1] for line in lines} <= set("┓┃┩│┘")
    assert max(map(len, lines)) <= columns


def test_lines_of_a_table_in_a_pipe_do_not_end_in_spaces(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show("id", "text", rows=[(NAME, TEXT), ("a", "b")], title="A pool")
    lines = capsys.readouterr().out.splitlines()
    assert f"│ {NAME} │ {TEXT} │" in lines
    assert lines == [line.rstrip() for line in lines]


@pytest.mark.parametrize(
    "words",
    [
        *(["algorithms"], ["envs", "list"], ["config", "list"], ["doctor"]),
        *(["envs", "info", "foraging"], ["config", "show", "--config=qmix"]),
        *(["--help"], ["sweep", "--help"], ["train", "--help"], ["pool", "--help"]),
    ],
)
def test_what_commands_print_fits_80_columns_also_in_a_pipe(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS")
    lines = CliRunner().invoke(app, words).output.splitlines()
    assert len(lines) > 1
    whole = [line for line in lines if len(line.split()) > 1]  # a name alone is never cut
    assert [line for line in whole if len(line) > 80] == []
    assert [line for line in lines if line != line.rstrip()] == []


@pytest.mark.long
@pytest.mark.parametrize("words", ["--version", "--help", "config list"])
def test_small_commands_start_without_torch_and_numpy(words: str) -> None:
    code = (
        "import sys\n"
        "from omg.cli.app import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    heavy = {'torch', 'numpy', 'sacred', 'matplotlib'} & set(sys.modules)\n"
        "    print('imported', sorted(heavy))\n"
    )
    command = [sys.executable, "-c", code, *words.split()]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "imported []", done.stdout + done.stderr


@pytest.mark.long
def test_shell_completion_is_written_for_the_shell_that_is_asked_for() -> None:
    command = [*OMG, "--show-completion", "bash"]
    named = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=named)
    assert done.returncode == 0, done.stderr
    assert "complete -o default" in done.stdout


def test_names_of_other_frameworks_are_answered_with_ours() -> None:
    known = {*Config.model_fields, "--config", "--env-config"}
    assert set(OURS.values()) <= known
    assert not set(OURS) & set(Config.model_fields)
    for wrong, right in (
        *(("learning_rate", "lr"), ("total_timesteps", "t_max"), ("gamma_", "gamma")),
        *(("Discount", "gamma"), ("num_envs", "batch_size_run"), ("algo", "--config")),
    ):
        with pytest.raises(OmgError, match=rf"'{wrong}'.*did you mean '{right}'"):
            load_command_line(["--config=qmix", f"--{wrong}=1"])


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("n_agents", "The environment says how many agents there are"),
        ("time_limit", r"env_args\.max_episode_steps"),
        ("map_name", r"env_args\.map_name="),
        ("target_update_interval_or_tau", r"target_update_interval .*target_update_tau"),
        ("lr_decay", "lr_finish"),
    ],
)
def test_what_no_key_sets_is_answered_with_what_to_do(wrong: str, told: str) -> None:
    assert wrong not in {*Config.model_fields, *OURS}
    with pytest.raises(OmgError, match=f"'{wrong}' .*is no key here.*{told}"):
        load_command_line(["--config=qmix", "--env-config=foraging", f"--{wrong}=1"])
