"""`omg pipeline`: a whole study, killed in every stage, equals one that was never stopped."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from omg.cli.app import app
from omg.cli.train import train
from omg.studies.plan import Source, make_plan
from omg.studies.spec import find_pipeline, read_spec
from omg.studies.steps import Plan

RUNS = ("opponents/iql-s1", "priors/tuned", "agents/omg_tuned-s1", "agents/d3qn-s1")


@dataclass(frozen=True)
class Answer:
    """What a command gave back."""

    code: int
    out: str
    err: str


def shell(*words: str | Path) -> Answer:
    """The `omg` command in this process."""
    result = CliRunner().invoke(app, list(map(str, words)))
    return Answer(result.exit_code, result.stdout, result.stderr)


def wait_for(condition: Callable[[], Any], what: str, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"no {what} after {seconds:g} s"
        time.sleep(0.005)


def tiny_plan(out: Path) -> Plan:
    path, shown = find_pipeline("tiny")
    source = {"name": "tiny", "shown": shown, "spec": read_spec(path, shown), "out": out}
    return make_plan(Source(env_config="foraging", **source))


# --- the whole of it ---------------------------------------------------------------------------


class Study:
    """A pipeline in a process of its own that can be killed."""

    def __init__(self, out: Path) -> None:
        self.out, self.log = out, out.parent / "console.txt"

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        words = [sys.executable, "-m", "omg", "pipeline", "--pipeline=tiny", f"--out={self.out}"]
        with self.log.open("wb") as console:
            process = subprocess.Popen([*words, "--jobs=2"], stdout=console, stderr=console)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def children(self) -> list[int]:
        """Processes of the commands that run, from their .pid files."""
        texts = [path.read_text() for path in self.out.glob("logs/*.pid")]
        return [int(found[1]) for t in texts if (found := re.match(r"process (\d+) on", t))]

    def status(self, step: str) -> str:
        return str(json.loads((self.out / "pipeline.json").read_text())["steps"][step]["status"])

    def has_state(self, step: str) -> bool:
        return any(self.out.glob(f"{step}/resume/[0-9]*/state.pt"))

    def kill_everything(self, process: subprocess.Popen[bytes]) -> None:
        """As a machine that goes down."""
        process.kill()
        process.wait()
        for child in self.children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)

    def is_or_ended(self, process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> bool:
        assert process.poll() is None, self.log.read_text()
        return ready()


def kill_in_every_stage(study: Study) -> None:
    """Start a study, kill it, start it again …, and let it finish at last."""
    with study.running() as process:
        step = "opponents/iql-s1"
        wait_for(lambda: study.is_or_ended(process, lambda: study.has_state(step)), step)
        study.kill_everything(process)
    assert study.status(step) == "started"

    with study.running() as process:  # killed alone: its children live on
        step = "priors/tuned"
        wait_for(lambda: study.is_or_ended(process, lambda: study.has_state(step)), step)
        orphans = study.children()
        for child in orphans:
            os.kill(child, signal.SIGSTOP)
        process.kill()
    assert orphans
    assert study.status("opponents/iql-s1") == "done"
    assert study.status(step) == "started"

    with study.running() as process:
        wait_for(lambda: "still runs" in study.log.read_text(), "word of the orphans")
        for child in orphans:
            os.kill(child, signal.SIGCONT)
        step = "agents/omg_tuned-s1"
        wait_for(lambda: study.is_or_ended(process, lambda: study.has_state(step)), step)
        study.kill_everything(process)
    assert study.status("priors/tuned") == "done"
    assert study.status(step) == "started"

    with study.running() as process:
        file = study.out / "logs/crossplay.pid"
        wait_for(lambda: study.is_or_ended(process, lambda: file.exists()), "crossplay")
        wait_for(study.children, "its process")
        study.kill_everything(process)
    assert study.status("crossplay") == "started"

    with study.running() as process:
        assert process.wait(180) == 0, study.log.read_text()


def run_commands(out: Path) -> None:
    """The commands that --dry-run prints, one after the other, in this process."""
    for step in tiny_plan(out).steps:
        for command, *words in step.commands:
            if command == "train":
                train(words)
            else:
                answer = shell(command, *words)
                assert answer.code == 0, answer


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, Path]:
    """A study that was killed in every stage and the folder of one that was not, made at the same
    time to save some."""
    killed = Study(tmp_path_factory.mktemp("killed") / "out")
    whole = tmp_path_factory.mktemp("whole") / "out"
    with ThreadPoolExecutor() as pool:
        killing = pool.submit(kill_in_every_stage, killed)
        run_commands(whole)
        killing.result()
    return killed, whole


@pytest.fixture
def killed(studies: tuple[Study, Path]) -> Study:
    return studies[0]


@pytest.fixture
def uninterrupted(studies: tuple[Study, Path]) -> Path:
    return studies[1]


def files(folder: Path, pattern: str) -> dict[str, bytes]:
    """Name and content; what a killed process left under a temporary name does not count."""
    paths = [path for path in folder.rglob(pattern) if path.is_file()]
    found = {str(path.relative_to(folder)): path.read_bytes() for path in paths}
    return {name: content for name, content in found.items() if "/." not in f"/{name}"}


@pytest.mark.parametrize("run", RUNS)
def test_a_study_killed_in_every_stage_has_the_weights_of_one_never_stopped(
    killed: Study, uninterrupted: Path, run: str
) -> None:
    expected = files(uninterrupted / run / "models", "*.th")
    assert len(expected) >= 3
    assert files(killed.out / run / "models", "*.th") == expected

    def metrics(folder: Path) -> list[dict[str, Any]]:
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        return [{**json.loads(line), "wall_s": 0} for line in lines]

    assert metrics(killed.out / run) == metrics(uninterrupted / run)


def test_it_has_the_same_pool_and_results(killed: Study, uninterrupted: Path) -> None:
    pools = [files(folder / "pool", "*") for folder in (killed.out, uninterrupted)]
    pools[1].pop("looks.jsonl")  # commands alone are no study: the pool keeps their looks
    assert pools[0] == pools[1]
    assert len((killed.out / "looks.jsonl").read_text().splitlines()) == 1
    for name in ("crossplay.json", "crossplay.csv", "summary.csv"):
        one = (killed.out / name).read_text().replace(str(killed.out), "OUT")
        assert one == (uninterrupted / name).read_text().replace(str(uninterrupted), "OUT"), name
    assert files(killed.out / "replays", "*") == files(uninterrupted / "replays", "*")
    assert (killed.out / "report.html").stat().st_size > 10_000


def test_it_says_what_came_out_and_was_skipped(killed: Study) -> None:
    out = killed.log.read_text()
    assert re.search(r"skipped +agents/d3qn-s1 +done before, test own return -?[\d.]+", out)
    assert "│ OMG tuned │ " in out
    assert "seen" in out
    assert f"The report is {killed.out / 'report.html'}" in out
    assert "Everything is in " in out
    log = (killed.out / "logs/priors-tuned.log").read_text()
    assert f"$ omg train --resume={killed.out}/priors/tuned" in log
    assert "Continuing at step" in log


def test_once_more_skips_everything_and_changed_settings_are_refused(killed: Study) -> None:
    before = (killed.out / "pipeline.json").read_bytes()
    answer = shell("pipeline", "--pipeline=tiny", f"--out={killed.out}")
    assert answer.code == 0, answer
    assert answer.out.count("skipped ") == 7
    assert "started" not in answer.out
    answer = shell("pipeline", "--pipeline=tiny", f"--out={killed.out}", "--lr=0.5")
    assert answer.code == 2
    assert "opponents/iql-s1 was done with other settings: lr was 0.0005, now 0.5" in answer.err
    assert (killed.out / "pipeline.json").read_bytes() == before


# --- the command -------------------------------------------------------------------------------


def test_dry_run_prints_every_command_and_touches_nothing(tmp_path: Path) -> None:
    out = tmp_path / "none"
    answer = shell("pipeline", "--env-config=foraging", f"--out={out}", "--dry-run", "--lr=0.25")
    assert answer.code == 0, answer
    lines = answer.out.splitlines()
    stages = [line.removeprefix("# ") for line in lines if line.startswith("#")]
    assert stages == ["opponents", "pool", "priors", "agents", "crossplay", "report"]
    runs = [line for line in lines if line.startswith("omg train ")]
    spec = read_spec(*find_pipeline("foraging"))
    opponents = sum(len(entry.seeds) for entry in spec.opponents.runs)
    agents = sum(len(method.seeds or spec.agents.seeds) for method in spec.agents.methods)
    priors = sum(len(spec.agents.seeds) if prior.per_seed else 1 for prior in spec.priors.values())
    assert len(runs) == opponents + priors + agents
    assert all("--env-config=foraging" in line and "--lr=0.25" in line for line in runs)
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "Which pipeline? Give --env-config"),
        (["--env-config=nowhere"], "no pipeline called 'nowhere'"),
        (["--pipeline=nowhere.yaml"], "nowhere.yaml cannot be read"),
        (["--pipeline=tiny", "--env-config=forageing"], "did you mean 'foraging'"),
        (["--pipeline=tiny", "--gama=1"], "Unknown key 'gama'"),
        (["--pipeline=tiny", "--seed=1"], "'seed' is set by the pipeline"),
        (["--pipeline=tiny", "lr=1"], "'lr=1' stands alone"),
        (["--pipeline=tiny", "--out=taken.txt"], "cannot be written to"),
    ],
)
def test_a_wrong_command_is_one_sentence(
    words: list[str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken.txt").touch()
    answer = shell("pipeline", *words)
    assert answer.code == 2
    assert answer.err.startswith("omg: ")
    assert expected in answer.err
    assert "Traceback" not in answer.err
    assert not Path("results").exists()


# A stand-in for a run that waits until it is told to stop, and a pipeline that uses it.
STAND_IN = """
import signal, sys, time
from pathlib import Path
options = dict(word[2:].split("=", 1) for word in sys.argv[2:])
folder = Path(options["local_results_path"], options["run_name"])
def stop(*_):
    (folder / "saved").touch()
    sys.exit(130)
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, lambda *_: (folder / "interrupted").touch())
folder.mkdir(parents=True)
time.sleep(60)
"""
DRIVER = """
import sys
from omg.studies.execute import run_pipeline
from omg.studies.plan import plan_of
from omg.cli.errors import report_errors
plan = plan_of(pipeline="tiny", out=sys.argv[1])
sys.exit(report_errors(False, lambda: run_pipeline(plan, program=(sys.executable, sys.argv[2]))))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_pipeline_lets_its_runs_save_and_says_how_to_go_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    (tmp_path / "driver.py").write_text(
        # a shell in the background ignores Ctrl-C, and so would we
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n" + DRIVER
    )
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "driver.py"), str(out), str(tmp_path / "stand_in.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    run = out / "opponents/iql-s1"
    wait_for(run.exists, "run")
    os.killpg(process.pid, number)  # as a terminal does: to the whole group
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.startswith("omg: interrupted. ")
    assert "continue with the same command" in err
    assert [path.name for path in run.iterdir()] == ["saved"]  # told once, by the pipeline
    record = json.loads((out / "pipeline.json").read_text())["steps"]["opponents/iql-s1"]
    assert record["status"] == "started"
