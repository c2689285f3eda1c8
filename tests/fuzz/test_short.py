"""A short part of `make fuzz` with a fixed seed, and that its cases are the same every time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .children import UNHANDLED, Outcome
from .commands import CommandCase
from .environments import combinations as faults
from .files import FileCase
from .judging import judge
from .limits import combinations as limits

ROOT = Path(__file__).parents[2]
SHORT = (
    *("--seed=14", "--quick", "--only=commands", "--only=files", "--only=environments"),
    *("--commands=20", "--files=14", "--environments=5", "--jobs=1"),
)


@pytest.mark.long
def test_nothing_is_wrong_in_a_short_trial() -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.fuzz", *SHORT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert "seed 14" in done.stdout


def test_a_case_follows_from_its_seed_and_its_number() -> None:
    for number in range(200):
        assert CommandCase("commands", 3, number).words() == (
            CommandCase("commands", 3, number).words()
        )
    some = [CommandCase("commands", seed, 1).words() for seed in range(5)]
    assert len({tuple(words) for words in some}) > 1
    assert FileCase("files", 3, 1).what() == FileCase("files", 3, 1).what()
    assert faults(1) != faults(2)
    assert limits(1) != limits(2)


def test_every_command_and_every_kind_of_file_is_tried() -> None:
    first = {CommandCase("commands", 1, number).words()[0] for number in range(500)}
    named = ("train", "config", "evaluate", "crossplay", "report", "plot", "pool", "envs")
    assert {*named, "pipeline"} <= first
    targets = {Path(FileCase("files", 1, number).what()[0]).name for number in range(500)}
    assert {"config.yaml", "meta.json", "agent.th", "opt.th", "state.pt", "pool.json"} <= targets
    assert {"metrics.jsonl", "crossplay.json", "pipeline.json", "*.so"} <= targets


WRONG = {
    "a traceback": Outcome(1, "", "Traceback (most recent call last):\nomg: x.\n", 1.0),
    "'This is a bug'": Outcome(1, "", "omg: KeyError. This is a bug.\n", 1.0),
    "ended by SIGBUS": Outcome(-7, "", "", 1.0),
    "an exception left": Outcome(UNHANDLED, "", "", 1.0),
    "hung": Outcome(-9, "", "", 1.0, hung=True),
    "nothing was said": Outcome(2, "", "", 1.0),
    "2 sentences": Outcome(2, "", "omg: one.\nomg: two.\n", 1.0),
    "control characters": Outcome(0, "\x1b[31m", "", 1.0),
    "characters of error": Outcome(2, "", "omg: " + "x" * 10_000, 1.0),
    "exit code 130": Outcome(130, "", "omg: interrupted.\n", 1.0),
}


@pytest.mark.parametrize("fault", list(WRONG))
def test_what_is_wrong_is_found_wrong(fault: str) -> None:
    found = judge(WRONG[fault], {}, {})
    assert found.verdict == "wrong"
    assert fault in "; ".join(found.faults)


def test_a_refusal_that_changes_files_is_wrong() -> None:
    refused = Outcome(2, "", "omg: no.\n", 1.0)
    assert judge(refused, {"a": (1, 1)}, {"a": (1, 1)}).verdict == "refused"
    for after in ({}, {"a": (2, 2)}, {"a": (1, 1), "b": (1, 1)}):
        assert judge(refused, {"a": (1, 1)}, after).verdict == "wrong"
    assert judge(Outcome(0, "", "", 1.0), {}, {"a": (1, 1)}).verdict == "ok"
    late = Outcome(130, "", "omg: interrupted.\n", 1.0, interrupted=True)
    assert judge(late, {}, {}).verdict == "ok"
