"""A trial of Ray Tune: one run of ours as a process, continued from its own folder."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ray import tune

from omg.experiment.output import read_metrics
from omg.integrations.ray.child import program
from omg.storage.locks import try_lock
from omg.studies.process import Child, log_path, start
from omg.studies.steps import Step, to_words
from omg.studies.sweep.marks import STATES, clear_status, mark_path, read_mark, write_mark
from omg.types import RunFailedError

LOOK = 0.1  # seconds between two looks at a run's metrics
BEAT = 2.0  # seconds after which Tune hears of a run without news
GRACE = 60.0  # seconds a run has to save its state and end
POINTER = "state.json"


class RunTrial(tune.Trainable):
    """Starts `omg train` and hands its tests on. Everything that a continuation needs lies in the
    run's own folder, so a trial that lost its worker simply begins again."""

    def setup(self, config: dict[str, Any]) -> None:
        self._child: Child | None = None
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._end()
        self._begin(new_config)
        return True

    def _begin(self, config: Mapping[str, Any]) -> None:
        self._out, self._name = Path(config["out"]), str(config["name"])
        self._settings = dict(config["settings"])
        self._folder = self._out / "runs" / self._name
        self._words = [*config["words"], *to_words(self._settings), *config["place"]]
        self._metric = str(config["metric"])
        self._seen = 0
        self._last: dict[str, Any] = {}
        self._known: list[dict[str, Any]] = []
        self._read: tuple[int, int, int] | None = None
        os.environ.update(config["environ"])
        for name in config["unset"]:
            os.environ.pop(name, None)
        if os.path.isdir(config["cwd"]):
            os.chdir(config["cwd"])

    # --- running -----------------------------------------------------------------------------

    def step(self) -> dict[str, Any]:
        """The next test of the run, or after a while its last one again; the end of the run."""
        mark = read_mark(self._out, self._name)
        if self._child is None and mark.get("status") not in ("finished", "failed"):
            self._start()
        deadline = time.monotonic() + BEAT
        while True:
            child = self._child
            code = None if child is None else child.ended()
            tests = self._tests()
            if len(tests) > self._seen:
                self._last = tests[self._seen]
                self._seen += 1
                return self._result(done=False)
            if child is None or code is not None:
                return self._ended(code)
            if self._last and time.monotonic() > deadline:
                return self._result(done=False)
            time.sleep(LOOK)

    def _start(self) -> None:
        self._wait_for_predecessor()
        words = ["train", *self._words]
        fresh = not self._states()
        if fresh and self._folder.exists():
            shutil.rmtree(self._folder)
        elif not fresh:
            words = ["train", f"--resume={self._folder}"]
        step = Step(
            key=self._name,
            stage="runs",
            kind="train",
            commands=(tuple(words),),
            settings={},
            output=self._folder,
        )
        self._child = start(step, words, self._out, program=program(), append=True)

    def _wait_for_predecessor(self) -> None:
        """A process of this run whose worker died saves its state before it ends."""
        step = Step(
            key=self._name, stage="", kind="train", commands=(), settings={}, output=self._out
        )
        path = log_path(self._out, step).with_suffix(".pid")
        deadline = time.monotonic() + GRACE + 30.0
        while path.exists():
            lock = try_lock(path)
            if lock is not None:
                path.unlink(missing_ok=True)
                os.close(lock)
                return
            if time.monotonic() > deadline:
                raise RunFailedError(f"{self._name} is still run by another process.")
            time.sleep(LOOK)

    def _tests(self) -> list[dict[str, Any]]:
        """Records of whole tests in the run's metrics; read again only where the file changed."""
        path = self._folder / "metrics.jsonl"
        try:
            found = path.stat()
            if self._read != (found.st_mtime_ns, found.st_size, found.st_ino):
                records = read_metrics(path)
                self._known = [record for record in records if self._metric in record]
                self._read = (found.st_mtime_ns, found.st_size, found.st_ino)
        except (OSError, UnicodeDecodeError):
            return []
        return self._known

    def _ended(self, code: int | None) -> dict[str, Any]:
        """What the end of the process means. One that a signal ended is started again by Tune."""
        child, self._child = self._child, None
        if child is not None:
            if code is not None and (code < 0 or code in (130, 137, 143)):
                raise RunFailedError(f"{self._name} was ended by a signal ({code}).")
            said = "" if code == 0 else child.last_line()
            status = "failed" if code else "finished"
            self._mark(status, note=said, seconds=child.seconds())
        return self._result(done=True)

    def _result(self, *, done: bool) -> dict[str, Any]:
        mark = read_mark(self._out, self._name) if done else {}
        value = self._last.get(self._metric)
        share = None if self._child is None else self._child.progress()
        return {
            "t_env": int(self._last.get("t_env", 0)),
            self._metric: float("nan") if value is None else float(value),
            "share": 1.0 if done else share or 0.0,
            "status": mark.get("status", "running"),
            "note": mark.get("note", ""),
            "done": done,
        }

    def _states(self) -> list[str]:
        """Steps with a complete resume state."""
        with contextlib.suppress(OSError):
            return [name for name in os.listdir(self._folder / "resume") if name.isdecimal()]
        return []

    def _mark(self, status: str, *, note: str = "", seconds: float = 0.0) -> None:
        write_mark(self._out, self._name, status=status, note=note, seconds=seconds)

    # --- stopping ----------------------------------------------------------------------------

    def cleanup(self) -> None:
        self._end()

    def _end(self) -> None:
        """Stop the run in good order; it saves its state."""
        child, self._child = self._child, None
        if child is None:
            return
        child.terminate()
        deadline = time.monotonic() + GRACE
        while child.ended() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        child.kill()
        code = child.process.wait()
        child.ended()
        if code == 0:
            self._mark("finished", seconds=child.seconds())
        else:
            self._mark("", seconds=child.seconds())

    # --- handing on (PBT) --------------------------------------------------------------------

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """A copy of the run's newest state beside the runs; Tune keeps the way to it."""
        from omg.experiment.fork import copy_state  # needs torch, which other sweeps do without

        root = self._out / STATES
        root.mkdir(exist_ok=True)
        number = len(list(root.glob(f"{self._name}-*")))
        target = root / f"{self._name}-{number:04d}"
        pointer: dict[str, Any] = {"name": self._name, "seen": self._seen}
        if self._states():
            pointer |= {"state": str(target), "step": copy_state(self._folder, target)}
        for old in sorted(root.glob(f"{self._name}-*"))[:-3]:
            shutil.rmtree(old, ignore_errors=True)
            old.mkdir()  # its number stays taken
        Path(checkpoint_dir, POINTER).write_text(json.dumps(pointer), encoding="utf-8")

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Go on from the state of another run with this one's settings; one's own state lies in
        the run's folder."""
        from omg.experiment.fork import fork_run

        pointer = json.loads(Path(checkpoint, POINTER).read_text(encoding="utf-8"))
        if pointer["name"] == self._name or "state" not in pointer:
            return
        taken = mark_path(self._out, self._name).with_suffix(".taken")
        if taken.exists() and taken.read_text(encoding="utf-8") == pointer["state"]:
            return  # a restart: what was taken over has been trained on
        self._end()
        self._wait_for_predecessor()
        self._keep_past()
        fork_run(Path(pointer["state"]), self._folder, self._settings)
        clear_status(self._out, self._name)  # what it was may have ended at this moment
        taken.parent.mkdir(parents=True, exist_ok=True)
        taken.write_text(pointer["state"], encoding="utf-8")
        self._seen = len(self._tests())

    def _keep_past(self) -> None:
        """The run as it was before it took over another's state."""
        if not self._folder.exists():
            return
        past = self._out / "past"
        past.mkdir(exist_ok=True)
        number = len(list(past.glob(f"{self._name}-*")))
        with contextlib.suppress(OSError):
            shutil.rmtree(self._folder / "resume", ignore_errors=True)
            self._folder.rename(past / f"{self._name}-{number}")
