"""`omg report`: what a user types and gets back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from omg.cli.app import app
from tests.unit.report_data import Shape, write_pipeline

SMALL = Shape(methods=("D3QN", "OMG tuned"), seeds=2, seen=2, unseen=2, tests=4)


@dataclass(frozen=True)
class Answer:
    """What a command gave back."""

    code: int
    out: str
    err: str


def report(*words: str | Path) -> Answer:
    result = CliRunner().invoke(app, ["report", *map(str, words)])
    return Answer(result.exit_code, result.stdout, result.stderr)


def refused(*words: str | Path) -> str:
    """The one line that a refused command prints."""
    answer = report(*words)
    assert answer.code == 2, answer
    (line,) = answer.err.splitlines()
    assert line.startswith("omg: ")
    return line


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline's folder called `study`, seen from the folder above."""
    monkeypatch.chdir(tmp_path)
    write_pipeline(tmp_path / "study", SMALL)
    return Path("study")


def test_a_pipeline_becomes_one_page(study: Path) -> None:
    answer = report(study)
    assert answer.code == 0, answer
    assert answer.out.startswith("Wrote report.html (")
    assert "2 methods, 4 runs, 2 replays" in answer.out
    text = Path("report.html").read_text(encoding="utf-8")
    assert "<h1>Foraging-8x8-2p-3f-v3</h1>" in text
    assert "omg report study" in text
    assert {path.name for path in Path().iterdir()} == {"study", "report.html"}


def test_runs_are_given_one_by_one(study: Path) -> None:
    answer = report(study / "agents" / "d3qn-s1", study / "agents" / "d3qn-s2")
    assert "1 methods, 2 runs, 0 replays" in answer.out


def test_out_and_title_are_used(study: Path) -> None:
    out = study / "pages" / "mine.html"
    assert report(study, f"--out={out}", "--title=Levels & <foods>").code == 0
    assert "<h1>Levels &amp; &lt;foods&gt;</h1>" in out.read_text(encoding="utf-8")


def test_the_metric_is_shown_first(study: Path) -> None:
    assert report(study, "--metric=test_ep_length_mean").code == 0
    text = Path("report.html").read_text(encoding="utf-8")
    assert text.index("curve-test-ep-length-mean-data") < text.index(
        "curve-test-own-return-mean-data"
    )


def test_an_unknown_metric_is_refused(study: Path) -> None:
    line = refused(study, "--metric=test_own_retrun_mean")
    assert "did you mean 'test_own_return_mean'?" in line
    assert "There are: " in refused(study, "--metric=zzzz")


def test_a_damaged_file_is_refused_and_the_old_page_stays(study: Path) -> None:
    Path("report.html").write_text("old")
    (study / "crossplay.json").write_text('{"format": 9}')
    assert "study/crossplay.json has format 9, this version reads 1." in refused(study)
    (study / "crossplay.json").write_text('{"format"')
    assert "study/crossplay.json is damaged" in refused(study)
    assert Path("report.html").read_text() == "old"


def test_a_wrong_folder_or_out_is_refused(study: Path) -> None:
    assert "nowhere is not a folder." in refused("nowhere")
    assert "study is a folder." in refused(study, "--out=study")


def test_what_was_left_out_is_said(study: Path) -> None:
    (study / "agents" / "d3qn-s2" / "metrics.jsonl").write_text("")
    assert "d3qn-s2 has logged nothing yet and is left out." in report(study).out


def test_a_plot_of_two_seeds_says_that_they_have_no_interval(study: Path) -> None:
    runs = [str(study / "agents" / f"d3qn-s{seed}") for seed in (1, 2)]
    result = CliRunner().invoke(app, ["plot", *runs, "--out", str(study / "curve.png")])
    assert result.exit_code == 0, result.output
    assert "Fewer than three seeds have no interval, so each seed is shown." in result.output


def test_two_studies_stand_side_by_side(study: Path) -> None:
    write_pipeline(Path("other"), SMALL)
    answer = report(study, "other", "--out=both.html")
    assert answer.code == 0, answer
    assert "2 studies, 2 methods, 8 runs, 4 replays" in answer.out
    text = Path("both.html").read_text(encoding="utf-8")
    assert "<h1>study and other</h1>" in text
    assert "omg report study other" in text
    line = refused(study, "other", "--metric=test_own_retrun_mean")
    assert line.startswith("omg: study, one of 2 studies: No run has the metric")
