"""The whole protocol in small: three sides, a prior per seed, equal tuning, headroom, comparisons
and looks, killed on the way and resumed."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from omg.cli.app import app
from omg.evaluation.gap import read_headroom
from omg.evaluation.named import read_named
from omg.opponents.unseen import read_looks
from omg.report.formats import read_crossplay

pytestmark = pytest.mark.long


def words(out: Path) -> list[str]:
    return ["pipeline", "--pipeline=tiny_protocol", f"--out={out}", "--jobs=2"]


@contextlib.contextmanager
def running(out: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (out.parent / "console.txt").open("ab") as console:
        process = subprocess.Popen(
            [sys.executable, "-m", "omg", *words(out)], stdout=console, stderr=console
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def kill_when(out: Path, ready: Callable[[], bool]) -> None:
    """Start the study, and end it with all its children as a power cut would."""
    with running(out) as process:
        deadline = time.monotonic() + 300
        while not ready():
            assert process.poll() is None, (out.parent / "console.txt").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.kill()
        process.wait()
        for file in out.glob("logs/*.pid"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if found := re.match(r"process (\d+) on", file.read_text()):
                    os.kill(int(found[1]), signal.SIGKILL)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("protocol") / "study"
    kill_when(out, lambda: any(out.glob("tuning/d3qn-c*-s1001/resume/[0-9]*/state.pt")))
    kill_when(out, lambda: any(out.glob("headroom/*/resume/[0-9]*/state.pt")))
    with running(out) as process:
        assert process.wait(420) == 0, (out.parent / "console.txt").read_text()
    return out


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_every_stage_leaves_its_file_and_the_report_shows_it(study: Path) -> None:
    steps = json.loads((study / "pipeline.json").read_text())["steps"]
    assert {step["status"] for step in steps.values()} == {"done"}
    for name in ("tuning", "headroom", "headroom_sides", "comparisons", "steps", "summary"):
        assert rows(study / f"{name}.csv"), name
    page = (study / "report.html").read_text()
    for words_ in (
        "Headroom by opponent",
        "Tuning",
        "Comparisons",
        "The unseen side was looked at",
        "before any look: own_return",
    ):
        assert words_ in page


def test_the_chosen_settings_are_those_of_the_agents(study: Path) -> None:
    trials = rows(study / "tuning.csv")
    assert [t["method"] for t in trials] == ["D3QN"] * 2 + ["OMG tuned"] * 2
    for method, key, folder in (("D3QN", "lr", "d3qn"), ("OMG tuned", "am_kl_weight", "omg_tuned")):
        (chosen,) = [t for t in trials if t["method"] == method and t["chosen"] == "True"]
        best = max(t["mean"] for t in trials if t["method"] == method)
        assert chosen["mean"] == best
        for seed in (1, 2):
            config = yaml.safe_load((study / f"agents/{folder}-s{seed}/config.yaml").read_text())
            assert f"{key}={config[key]}" == chosen["settings"]


def test_every_seed_has_its_own_prior_whose_steps_count(study: Path) -> None:
    for row in rows(study / "steps.csv"):
        if row["method"] == "OMG tuned":
            config = yaml.safe_load((study / f"agents/{row['agent']}/config.yaml").read_text())
            assert config["init_param_path"] == str(study / f"priors/tuned-s{row['seed']}")
            assert int(row["total_steps"]) == int(row["env_steps"]) + int(row["prior_steps"])
            assert int(row["prior_steps"]) >= 300
        else:
            assert row["prior_steps"] == "0"


def test_all_sides_were_played_and_best_responses_met_their_opponent_only(study: Path) -> None:
    assert {cell.split for cell in read_crossplay(study / "crossplay.json").cells} == {
        *("train", "validation", "heldout")
    }
    found = read_headroom(study / "headroom.json")
    for opponent, agents in (found.agents.responses or {}).items():
        assert {c.opponent for c in found.cells if c.agent in agents} == {opponent}
    scores = read_crossplay(study / "tuning/scores-d3qn/crossplay.json")
    assert {cell.split for cell in scores.cells} == {"validation"}


def test_kills_and_repetitions_add_no_looks(study: Path) -> None:
    kinds = [look.kind for look in read_looks(study / "looks.jsonl")]
    assert sorted(kinds) == ["comparison", "evaluation", "headroom", "training"]
    again = CliRunner().invoke(app, words(study))
    assert again.exit_code == 0
    assert "started" not in again.stdout
    assert len(read_looks(study / "looks.jsonl")) == 4
    (named,) = read_named(study)
    assert (named.looks, named.steps) == (0, 0)
