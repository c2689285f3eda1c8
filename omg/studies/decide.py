"""What is to be done with each step: skip, start, resume; or refuse before anything runs."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from omg.config.loader import read_yaml
from omg.studies.state import PipelineState, Record, difference
from omg.studies.steps import Plan, Step
from omg.types import OmgError

TRASH = ".removed"


@dataclass(frozen=True, slots=True)
class Decision:
    """What happens to a step, and why where it is not plain."""

    step: Step
    action: Literal["skip", "start", "resume"]
    reason: str = ""


def decide(plan: Plan, state: PipelineState, *, redo: bool = False) -> list[Decision]:
    """A decision per step, in order. Refuses changed settings and foreign files."""
    decisions: list[Decision] = []
    for step in plan.steps:
        record = state.records.get(step.key)
        if record is None:
            if step.output.exists() and not step.by_hand:
                raise OmgError(
                    f"{step.output} exists, but this pipeline did not make it. Move it away, or "
                    "choose another --out."
                )
            decisions.append(Decision(step, "start"))
        elif state.is_current(step):
            decisions.append(go_on(step, record))
        elif redo or record.status == "failed" or not step.output.exists():
            decisions.append(Decision(step, "start", "settings changed"))
        else:
            raise _changed(plan, step, record, state)
    return decisions


def go_on(step: Step, record: Record) -> Decision:
    """What happens to a step that was begun with the present settings."""
    if record.status == "done":
        if step.output.exists():
            return Decision(step, "skip")
        return Decision(step, "start", f"{step.output.name} is gone")
    if not step.output.exists():
        return Decision(step, "start")
    # Bad input (exit code 2) is found again only by a new start, e.g. by the check of a prior.
    if step.kind == "train" and record.exit_code != 2 and _can_resume(step):
        return Decision(step, "resume")
    return Decision(step, "start", "it was not finished")


def _can_resume(step: Step) -> bool:
    """Whether there is a resume state, made with the pool and prior at their present places."""
    config = step.output / "config.yaml"
    if not config.is_file() or not any(step.output.glob("resume/[0-9]*/state.pt")):
        return False
    saved = read_yaml(config, str(config))
    return all(saved.get(key) == place for key, place in step.places.items())


def _changed(plan: Plan, step: Step, record: Record, state: PipelineState) -> OmgError:
    others = [
        other.key
        for other in plan.steps
        if other.key in state.records and other.key != step.key and not state.is_current(other)
    ]
    also = f" ({len(others)} more steps changed with it)" if others else ""
    done = "done" if record.status == "done" else "begun"
    return OmgError(
        f"{step.key} was {done} with other settings: {difference(step, record, state)}{also}. "
        "Choose another --out, or give --redo to remove what was done and do it again."
    )


def clear(step: Step, out: Path) -> None:
    """Remove what a step left behind; moved away first, so that nothing half removed remains."""
    for path in [step.output, *(p for pattern in step.leaves for p in sorted(out.glob(pattern)))]:
        trash = out / TRASH
        empty_trash(out)
        if path.exists():
            path.rename(trash)
    empty_trash(out)


def empty_trash(out: Path) -> None:
    trash = out / TRASH
    if trash.is_dir():
        shutil.rmtree(trash)
    else:
        trash.unlink(missing_ok=True)
