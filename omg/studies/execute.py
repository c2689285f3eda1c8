"""Runs what was decided: several commands at a time, each when what it needs is done."""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from omg.config.loader import masked
from omg.registry import Registry
from omg.studies.decide import Decision, clear, decide, empty_trash, go_on
from omg.studies.display import Display
from omg.studies.named import name_study
from omg.studies.process import PROGRAM, Running, pipeline_lock, start, stop_orphans
from omg.studies.state import PipelineState
from omg.studies.steps import Plan, Step
from omg.types import OmgError, RunFailedError, cores

POLL_SECONDS = 0.05
MOST_LOSSES = 5  # a step that is lost more often has a fault of its own, e.g. too little memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """How and where commands are to run."""

    jobs: int = 0  # at a time; 0: as many as there is room for
    address: str = ""  # of a cluster
    cpus: int = 0  # of each command; 0: as many as its settings keep busy
    program: Sequence[str] = PROGRAM  # starts an `omg` command


class StepPlace:
    """Where commands run: as processes of this machine. Others derive from it."""

    told = ""  # what people are told of it

    def __init__(self, plan: Plan, where: Where) -> None:
        if where.address or where.cpus:
            raise OmgError("--address and --cpus-per-step are for --executor=ray. Add it.")
        self._where = where

    def __enter__(self) -> StepPlace:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    @property
    def jobs(self) -> int:
        """How many commands run at a time."""
        return self._where.jobs or cores()

    def jobs_within(self, step: Step) -> int:
        """How many processes of its own a step may have that spreads."""
        return self.jobs

    def room_for(self, step: Step, running: Sequence[Running]) -> bool:
        """Whether another command can start beside those that run."""
        return len(running) < self.jobs

    def start(self, step: Step, words: Sequence[str], out: Path, *, append: bool) -> Running:
        """Start a step's command."""
        return start(step, words, out, program=self._where.program, append=append)


EXECUTORS: Registry[type[StepPlace]] = Registry(
    "executor",
    {
        "local": "omg.studies.execute:StepPlace",
        "ray": "omg.integrations.ray.steps:RaySteps",
    },
    base=StepPlace,
)


def run_pipeline(
    plan: Plan,
    *,
    jobs: int = 0,
    redo: bool = False,
    executor: str = "local",
    address: str = "",
    cpus: int = 0,
    program: Sequence[str] = PROGRAM,
) -> None:
    """Do what is not done yet; `executor` says where, see `Where` for the others."""
    where = Where(jobs=jobs, address=address, cpus=cpus, program=program)
    somewhere = EXECUTORS[executor](plan, where)
    with pipeline_lock(plan.out):
        state = PipelineState(plan)
        decide(plan, state, redo=redo)  # refuse before anything is touched
        name_study(plan, begun=len(state.records))
        with (
            somewhere as place,
            Display(plan, jobs=place.jobs, where=place.told) as display,
            _Stop().listening() as stop,
        ):
            stop_orphans(plan.out / "logs", say=display.say, give_up=lambda: stop.requests > 0)
            empty_trash(plan.out)
            decisions = decide(plan, state, redo=redo)
            _Executor(plan, state, display, stop, place=place).run(decisions)


class _Stop:
    """Set by Ctrl-C, SIGTERM or a closed terminal; a second one stops at once."""

    def __init__(self) -> None:
        self.requests = 0

    @contextlib.contextmanager
    def listening(self) -> Iterator[_Stop]:
        if threading.current_thread() is not threading.main_thread():
            yield self
            return

        def handle(signum: int, frame: FrameType | None) -> None:
            self.requests += 1

        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
            numbers.append(signal.SIGHUP)
        old: dict[signal.Signals, Any] = {n: signal.signal(n, handle) for n in numbers}
        try:
            yield self
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)


class _Executor:
    def __init__(
        self,
        plan: Plan,
        state: PipelineState,
        display: Display,
        stop: _Stop,
        *,
        place: StepPlace,
    ) -> None:
        self._plan, self._state, self._display, self._stop = plan, state, display, stop
        self._place = place
        self._done: set[str] = set()
        self._waiting: list[Decision] = []
        self._running: list[Running] = []
        self._losses: Counter[str] = Counter()

    def run(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            if decision.action == "skip":
                record = self._state.records[decision.step.key]
                self._done.add(decision.step.key)
                self._display.skipped(decision.step, record.seconds, record.result)
        self._waiting = [decision for decision in decisions if decision.action != "skip"]
        try:
            while self._waiting or self._running:
                if self._stop.requests:
                    raise KeyboardInterrupt(
                        "Runs were told to save their state; continue with the same command."
                    )
                self._start_ready()
                self._collect()
                self._display.tick(self._running)
                time.sleep(POLL_SECONDS)
        finally:
            self._stop_all()

    # --- starting ----------------------------------------------------------------------------

    def _start_ready(self) -> None:
        for decision in list(self._waiting):
            if self._stop.requests or not self._place.room_for(decision.step, self._running):
                return
            if self._done.issuperset(decision.step.needs):
                self._waiting.remove(decision)
                self._start(decision)

    def _start(self, decision: Decision) -> None:
        step, resume = decision.step, decision.action == "resume"
        if not resume and step.key in self._state.records:
            clear(step, self._plan.out)
        self._state.begin(step, anew=not resume)
        if step.kind == "pool":
            self._make_pool(step)
            return
        words = step.commands[0]
        if resume:
            words = ("train", f"--resume={step.output}", *step.free_words)
        if step.spreads:
            words = (*words, f"--jobs={self._place.jobs_within(step)}")
        shown = masked(shlex.join(["omg", *words]))
        verb = "resumed" if resume else "started"
        self._display.started(step, shown, verb=verb, reason=decision.reason)
        self._running.append(self._place.start(step, words, self._plan.out, append=resume))

    def _make_pool(self, step: Step) -> None:
        began = time.monotonic()
        for shown in step.shown():
            self._display.started(step, shown)
        note = build_pool(step, self._plan.out)
        self._finish(step, time.monotonic() - began, {}, note)

    # --- ending ------------------------------------------------------------------------------

    def _collect(self) -> None:
        for child in list(self._running):
            code = child.ended()
            if code is None:
                continue
            self._running.remove(child)
            if code == 0:
                self._succeeded(child)
            elif child.lost and self._losses[child.step.key] < MOST_LOSSES:
                self._do_again(child, code)
            else:
                raise self._failure(child, code)

    def _do_again(self, child: Running, code: int) -> None:
        """Put a lost command first in the queue: it continues from its last state."""
        step = child.step
        self._losses[step.key] += 1
        self._state.end(step, "started", seconds=child.seconds(), exit_code=code)
        self._display.lost(step, child.lost)
        self._waiting.insert(0, go_on(step, self._state.records[step.key]))

    def _succeeded(self, child: Running) -> None:
        step = child.step
        if not step.output.exists():
            self._state.end(step, "failed", seconds=child.seconds(), exit_code=1)
            raise RunFailedError(
                f"{step.key} ended without {step.output}. See its log {child.log}."
            )
        self._finish(step, child.seconds(), result_of(step))

    def _finish(self, step: Step, seconds: float, result: dict[str, float], note: str = "") -> None:
        self._state.end(step, "done", seconds=seconds, result=result)
        self._done.add(step.key)
        total = self._state.records[step.key].seconds
        self._display.finished(step, total, result, self._running, note)

    def _failure(self, child: Running, code: int) -> OmgError:
        """Record it; what to tell. A run stopped from outside can be resumed."""
        step, seconds = child.step, child.seconds()
        if code < 0 or code == 130:
            how = f"signal {-code}" if code < 0 else "an interrupt"
            how = child.lost or how
            self._state.end(step, "started", seconds=seconds, exit_code=code)
            return RunFailedError(
                f"{step.key} was ended by {how}. Continue with the same command; its log is "
                f"{child.log}."
            )
        self._state.end(step, "failed", seconds=seconds, exit_code=code)
        kind = OmgError if code == 2 else RunFailedError
        last = child.last_line()
        end = "" if last.endswith((".", "?", "!")) else "."
        return kind(f"{step.key} failed: {last}{end} Its log is {child.log}.")

    def _stop_all(self) -> None:
        """Ask all running commands to stop and wait for them; a further signal ends them now."""
        if not self._running:
            return
        self._display.say(f"Stopping {', '.join(child.step.key for child in self._running)} …")
        requests = self._stop.requests
        for child in self._running:
            child.terminate()
        while self._running:
            if self._stop.requests > requests:
                for child in self._running:
                    child.kill()
            for child in list(self._running):
                code = child.ended()
                if code is not None:
                    self._running.remove(child)
                    self._record_stopped(child, code)
            self._display.tick(self._running)
            time.sleep(POLL_SECONDS)

    def _record_stopped(self, child: Running, code: int) -> None:
        if code == 0 and child.step.output.exists():
            self._succeeded(child)
        else:
            self._state.end(child.step, "started", seconds=child.seconds(), exit_code=code)


def result_of(step: Step) -> dict[str, float]:
    """The numbers worth telling of a finished run: its last test, and how well a prior decodes."""
    if step.kind != "train":
        return {}
    from omg.experiment.output import read_metrics

    latest: dict[str, Any] = {}
    with contextlib.suppress(OSError):
        for record in read_metrics(step.output / "metrics.jsonl"):
            latest.update(record)
    if step.stage == "priors":
        # Metrics hold means over a stretch of training; what the finished prior decodes was saved.
        with contextlib.suppress(OSError, ValueError):
            saved = (step.output / "models" / "last" / "meta.json").read_text(encoding="utf-8")
            latest.update(json.loads(saved))
        names = {"decoding_accuracy": "prior_accuracy", "explained_variance": "prior_explained"}
    else:
        own, team = "test_own_return_mean", "test_return_mean"
        names = {"test_own_return": own} if own in latest else {"test_team_return": team}
    return {
        shown: float(latest[name]) for shown, name in names.items() if latest.get(name) is not None
    }


def build_pool(step: Step, out: Path) -> str:
    """Make the pool aside and give it its name when it is complete; how many are in it."""
    from omg.opponents.pool import OpponentPool

    part = out / ".pool.part"
    shutil.rmtree(part, ignore_errors=True)
    pool = OpponentPool.create(part)
    for entry in step.settings["members"]:
        if "script" in entry:
            how = {key: entry[key] for key in ("noise", "split")}
            pool.add_script(entry["script"], **how, env=step.settings["env"])
        else:
            runs = [out / run for run in entry["runs"]]
            pool.add_runs(runs, steps=entry["steps"], split=entry["split"])
    part.rename(step.output)
    return pool.counted()
