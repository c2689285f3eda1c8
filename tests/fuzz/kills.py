"""SIGKILL at random moments: what was killed is started again until it is done, and then equals
what was never killed, to the last bit."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from .cases import Case, Started
from .children import Outcome, Task, run
from .judging import Judgement
from .world import STUDY, World

KILLS = 5  # of one story
LONGEST = 300.0  # seconds of one attempt
STORY = "OMG_FUZZ_STORY"
PARALLEL = (
    *("train", "--config=iql", "--env-config=foraging", "--runner=parallel", "--n_workers=2"),
    *("--t_max=5000", "--batch_size=4", "--buffer_size=64", "--test_nepisode=4", "--quiet"),
    *("--batch_size_run=4", "--resume_interval=200", "--save_model_interval=1000"),
    *("--test_interval=1000", "--use_tensorboard=False", "--use_sacred=False"),
    *("--local_results_path=study/agents", "--run_name=parallel"),
    *("with", "env_args.key=Foraging-5x5-2p-1f-v3"),
)
RESUME = ("train", "--resume=study/agents/parallel", "--quiet")
# What is run, how it is continued, and between which seconds it is killed.
PIPELINE = "pipeline"
MOMENTS = {PIPELINE: (1.0, 14.0), "parallel": (2.0, 9.0)}


def weights(study: Path) -> dict[str, Any]:
    """Every last weight of a study, and everything that was logged but the time it took."""
    import torch

    found: dict[str, Any] = {}
    for path in sorted(study.glob("*/*/models/last/**/*.th")):
        content = torch.load(path, weights_only=True)
        found[str(path.relative_to(study))] = content
    for path in sorted(study.glob("*/*/metrics.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        kept = [{k: v for k, v in line.items() if k != "wall_s"} for line in lines]
        found[str(path.relative_to(study))] = kept
    return found


def equal(one: Any, other: Any) -> bool:
    """Bit by bit."""
    import torch

    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


def _marked(story: str) -> list[int]:
    """Processes of a story, this one left out."""
    wanted, found = f"{STORY}={story}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


@dataclass(frozen=True)
class Story:
    """Runs in a process of its own."""

    id: str
    kind: str
    rng: Random
    kills: int
    reference: Path

    def tell(self) -> None:
        """Kill and continue until all kills are spent and what was begun is done."""
        os.environ[STORY] = self.id
        spent = 0
        try:
            while spent < self.kills:
                shutil.rmtree("study", ignore_errors=True)
                spent += self._one_life(self.kills - spent)
        finally:
            print(f"kills={spent}")

    def _one_life(self, kills: int) -> int:
        """From nothing to the end; how often it was killed on the way."""
        first, last = MOMENTS[self.kind]
        for number in range(kills + 1):
            seconds = self.rng.uniform(first, last) if number < kills else LONGEST
            whole = self.rng.random() < 0.5
            if self._attempt(seconds, whole=whole):
                self._compare()
                return number
            if number == kills:
                raise SystemExit(f"was not done after {LONGEST:g} seconds")
        return kills

    def _words(self) -> tuple[str, ...]:
        if self.kind == PIPELINE:
            return STUDY
        run = Path("study/agents/parallel")
        if any(run.glob("resume/[0-9]*")):
            return RESUME
        shutil.rmtree(run, ignore_errors=True)
        return PARALLEL

    def _attempt(self, seconds: float, *, whole: bool) -> bool:
        """Whether it came to its end. `whole`: all its processes are killed, not only the first."""
        with open("said", "ab") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "omg", *self._words()], stdout=said, stderr=said
            )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            others = [pid for pid in _marked(self.id) if whole]
            for pid in (process.pid, *others):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()
            if not whole:
                self._wait_for_workers()
            return False
        if code != 0:
            raise SystemExit(f"ended with {code}: {Path('said').read_text()[-600:]}")
        return True

    def _wait_for_workers(self) -> None:
        """Of a run; a pipeline itself ends the runs that outlived it."""
        deadline = time.monotonic() + 20
        while self.kind != PIPELINE and _marked(self.id) and time.monotonic() < deadline:
            time.sleep(0.05)
        if self.kind != PIPELINE and _marked(self.id):
            raise SystemExit("workers outlived their run by 20 seconds")

    def _compare(self) -> None:
        mine, theirs = weights(Path("study")), weights(self.reference)
        different = [name for name in theirs if not equal(mine.get(name), theirs[name])]
        if different or mine.keys() != theirs.keys():
            extra = sorted(mine.keys() ^ theirs.keys())
            raise SystemExit(f"differs from the undisturbed one: {[*different, *extra][:3]}")
        halves = [str(p) for p in Path("study").rglob(".*.part-*")]
        if halves:
            raise SystemExit(f"left half-written {halves[0]}")


@dataclass(frozen=True)
class KillCase(Case):
    """A story of several kills."""

    kills: int = KILLS

    def start(self, world: World, place: Path) -> Started:
        kind = "parallel" if self.number % 3 == 2 else PIPELINE
        reference = world.folder / "study"
        if kind == "parallel":
            reference = _reference(world)
        folder = place / "here"
        folder.mkdir()
        story = Story(self.id, kind, self.random(), self.kills, reference)
        most = (self.kills + 2) * 40 + LONGEST
        environ = world.environ(folder)
        task = Task((kind, f"killed {self.kills} times"), folder, environ, most, action=story.tell)

        def verdict(outcome: Outcome) -> Judgement:
            for pid in _marked(self.id):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if outcome.code == 0:
                return Judgement("ok")
            return Judgement("wrong", (f"{kind}: {outcome.err.strip()[-700:]}",))

        return Started(task, verdict)


def _reference(world: World) -> Path:
    """The parallel run that nobody killed, made once."""
    folder = world.root / "parallel" / "here"
    if not folder.exists():
        folder.mkdir(parents=True)
        done = run(Task(PARALLEL, folder, world.environ(folder), patience=300, anew=True))
        if done.code != 0:
            raise SystemExit(f"The parallel run failed: {done.err}")
    return folder / "study"
