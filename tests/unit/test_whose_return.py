"""Wherever a return stands, it says whose: the learning agent's own or the team's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omg.cli.train import _closing_lines
from omg.config.loader import load_command_line
from omg.evaluation.words import spoken, spoken_log
from omg.experiment.output import RunConsole, return_names
from omg.experiment.run import RunResult
from omg.report.metrics import PLAYED, TESTS

TEAM = {"test_return_mean": 0.683, "test_return_std": 0.1, "test_ep_length_mean": 20.0}
OWN = TEAM | {"test_own_return_mean": 0.37}


def closing(result: RunResult, capsys: pytest.CaptureFixture[str]) -> list[str]:
    _closing_lines(load_command_line(["--config=iql", "--env-config=foraging"]).config, result)
    return capsys.readouterr().out.splitlines()


def test_the_closing_lines_lead_with_the_return_of_the_best_test(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = closing(RunResult(tmp_path, OWN, 0.37, 10), capsys)
    assert ": own return 0.370, team return 0.683 ± 0.100" in own[0]
    assert "Best test: own return 0.370 at step 10" in own
    team = closing(RunResult(tmp_path, TEAM, 0.683, 10), capsys)
    assert ": team return 0.683 ± 0.100" in team[0]
    assert "Best test: team return 0.683 at step 10" in team


def test_a_run_that_had_ended_before_knows_whose_return_its_best_test_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"t_env": 1, **OWN}) + "\n")
    lines = closing(RunResult(tmp_path, {}, 0.37, 10), capsys)
    assert lines[1] == "Best test: own return 0.370 at step 10"


@pytest.mark.parametrize(("values", "whose", "shown"), [(OWN, "own", 0.37), (TEAM, "team", 0.683)])
def test_the_live_line_says_whose_return_it_shows(
    values: dict[str, float], whose: str, shown: float
) -> None:
    training = {name.removeprefix("test_"): value for name, value in values.items()}
    console = RunConsole(total=100, log_interval=1, quiet=True)
    note = console._note(10, {**training, **values}, 80)
    assert f"  {whose} return {shown:.3g}  test {whose} return {shown:.3g}" in note
    assert note.count("return") == 2
    assert return_names({}) == []


def test_every_return_on_the_page_and_in_the_tables_has_an_owner() -> None:
    titles = [metric.title for metric in (*TESTS, *PLAYED) if "return" in metric.name]
    spoken_titles = [spoken(n) for n in ("own_return", "return", "discounted_return")]
    spoken_titles += [spoken_log(n) for n in ("test_return_mean", "test_own_return_mean")]
    assert len(titles) > 4
    for title in (*titles, *spoken_titles):
        assert title.lower().startswith(("own ", "team ")), title
