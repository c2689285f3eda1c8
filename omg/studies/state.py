"""`pipeline.json`: what was begun and what is done, with which settings."""

from __future__ import annotations

import datetime
import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from omg.config.loader import shipped_defaults
from omg.studies.spec import POOL_DEFAULTS, CrossplaySpec, HeadroomSpec
from omg.studies.steps import Plan, Step
from omg.types import OmgError, RunFailedError

FILE = "pipeline.json"


class Record(BaseModel):
    """A step that was begun. `failed`: its command ended by itself with `exit_code`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    status: Literal["started", "failed", "done"]
    fingerprint: str
    settings: dict[str, Any]
    needs: dict[str, str]
    started: str
    ended: str | None = None
    seconds: float = 0.0  # summed over all attempts
    exit_code: int | None = None
    result: dict[str, float] = {}


class _Content(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    format: Literal[1]
    pipeline: str
    env_config: str
    steps: dict[str, Record]


class PipelineState:
    """The records of a pipeline's folder; every change is on disk before it is acted upon."""

    def __init__(self, plan: Plan) -> None:
        self.path = plan.out / FILE
        self._pipeline, self._env_config = plan.name, plan.env_config
        self.fingerprints = plan.fingerprints()
        self._steps = {step.key: step for step in plan.steps}
        self.records: dict[str, Record] = self._read()

    def _read(self) -> dict[str, Record]:
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as error:
            raise OmgError(f"{self.path} cannot be read: {error}. Check the file.") from error
        try:
            return _Content.model_validate_json(text).steps
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            where = ".".join(map(str, problem["loc"])) or "the whole file"
            raise OmgError(
                f"{self.path} is damaged or of another version ({where}: {problem['msg']}). "
                "Restore it, or choose another --out."
            ) from error

    def fingerprint(self, step: Step) -> str:
        return self.fingerprints[step.key]

    def is_current(self, step: Step) -> bool:
        """Whether the step's record is of the present settings."""
        record = self.records.get(step.key)
        if record is None:
            return False
        return record.fingerprint == self.fingerprint(step) or self._only_older(step, record)

    def _only_older(self, step: Step, record: Record) -> bool:
        """Whether the record differs by nothing but keys that a later version brought, at their
        defaults, in this step and in those it needs."""
        now = _plain(step.settings)
        new = {key: value for key, value in now.items() if key not in record.settings}
        if {**new, **record.settings} != now or set(record.needs) != set(step.needs):
            return False
        before = _defaults(step.key)
        if any(key not in before or value != before[key] for key, value in new.items()):
            return False
        return all(
            (need := self.records.get(key)) is not None
            and need.fingerprint == made
            and self.is_current(self._steps[key])
            for key, made in record.needs.items()
        )

    def begin(self, step: Step, *, anew: bool) -> None:
        """Record that a step is about to be started, or continued."""
        old = None if anew else self.records.get(step.key)
        self._put(
            step,
            Record(
                status="started",
                fingerprint=self.fingerprint(step),
                settings=_plain(step.settings),
                needs={key: self.fingerprints[key] for key in step.needs},
                started=old.started if old else _now(),
                seconds=old.seconds if old else 0.0,
            ),
        )

    def end(
        self,
        step: Step,
        status: Literal["started", "failed", "done"],
        *,
        seconds: float,
        exit_code: int = 0,
        result: Mapping[str, float] | None = None,
    ) -> None:
        """Record how a step ended; `started`: it was interrupted and can be continued."""
        old = self.records[step.key]
        changes = {
            "status": status,
            "ended": _now(),
            "seconds": round(old.seconds + seconds, 1),
            "exit_code": exit_code,
            "result": dict(result or {}),
        }
        self._put(step, old.model_copy(update=changes))

    def _put(self, step: Step, record: Record) -> None:
        self.records[step.key] = record
        content = _Content(
            format=1, pipeline=self._pipeline, env_config=self._env_config, steps=self.records
        )
        replace_text(self.path, content.model_dump_json(indent=1) + "\n")


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON gives it back, so that settings can be compared with recorded ones."""
    plain: dict[str, Any] = json.loads(json.dumps(settings))
    return plain


@functools.cache
def _defaults(step: str) -> dict[str, Any]:
    """What a step's settings were before they were recorded, by key: the defaults that mean what
    was done then."""
    if step == "crossplay":  # agents acted greedily unless they were told to sample
        return _plain({**CrossplaySpec().model_dump(), "greedy": True})
    if step == "headroom":
        return _plain({**HeadroomSpec().model_dump(), "greedy": True})
    return dict(POOL_DEFAULTS) if step == "pool" else _plain(shipped_defaults())


def _now() -> str:
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def replace_text(path: Path, text: str) -> None:
    """Replace a file in one go, and be sure that it is on disk (without importing torch, as
    `omg.storage.files` does)."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        temporary.unlink(missing_ok=True)
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise RunFailedError(
            f"{path} could not be written: {error.strerror or error}. Free space or choose "
            "another --out; what was done before is recorded."
        ) from error


def difference(step: Step, record: Record, state: PipelineState) -> str:
    """What differs between a record and the present plan, as a part of a sentence."""
    now, told = _plain(step.settings), []
    older = _defaults(step.key)
    for key in sorted({*now, *record.settings}):
        if now.get(key) != record.settings.get(key, older.get(key)):
            old, new = record.settings.get(key, "nothing"), now.get(key, "nothing")
            told.append(f"{key} was {_short(old)}, now {_short(new)}")
    needs = {key: state.fingerprints[key] for key in step.needs}
    told += [f"{key} is new" for key in needs if key not in record.needs]
    told += [f"{key} is no longer there" for key in record.needs if key not in needs]
    if not told:
        changed = [k for k, v in needs.items() if record.needs.get(k) != v]
        told = [f"it depends on {', '.join(changed[:3])}, which changed"]
    more = f" and {len(told) - 3} more" if len(told) > 3 else ""
    return "; ".join(told[:3]) + more


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
