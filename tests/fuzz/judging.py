"""What is right and what is wrong in how a command ended."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from .children import UNHANDLED, Outcome

Verdict: TypeAlias = Literal["ok", "refused", "wrong", "skipped"]
Files: TypeAlias = Mapping[str, tuple[int, int]]
LONGEST = 6000  # characters of a message that anybody reads
ESCAPES = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@dataclass(frozen=True)
class Judgement:
    """A verdict and, where something is wrong, what."""

    verdict: Verdict
    faults: tuple[str, ...] = ()


def files_of(folder: Path) -> Files:
    """Every file below a folder, with its size and time of change. Links are not followed."""
    found = {}
    for root, folders, names in os.walk(folder):
        folders[:] = [f for f in folders if f != "matplotlib"]  # its own cache of fonts
        for name in (*names, *(f for f in folders if os.path.islink(os.path.join(root, f)))):
            path = os.path.join(root, name)
            stat = os.lstat(path)
            found[os.path.relpath(path, folder)] = (stat.st_size, stat.st_mtime_ns)
    return found


def judge(outcome: Outcome, before: Files, after: Files) -> Judgement:
    """Refusals say one sentence and change nothing; nothing ends in any other way."""
    faults = [*_ending(outcome), *_words(outcome)]
    refused = outcome.code in (1, 2)
    if refused:
        faults += _sentence(outcome)
    if outcome.code == 2:
        faults += _changes(before, after)
    if outcome.code != 0 and not outcome.hung:
        parts = [name for name in after if ".part-" in name and name not in before]
        faults += [f"left half-written {parts[0]}"] if parts else []
    if faults:
        return Judgement("wrong", tuple(faults))
    return Judgement("refused" if refused else "ok")


def _ending(outcome: Outcome) -> list[str]:
    if outcome.hung:
        return ["hung: it did not end when it was interrupted"]
    if outcome.code < 0:
        return [f"ended by {signal.Signals(-outcome.code).name}"]
    if outcome.code == UNHANDLED:
        return ["an exception left the command"]
    if outcome.code == 130 and outcome.interrupted:
        return []
    return [] if outcome.code in (0, 1, 2) else [f"ended with exit code {outcome.code}"]


def _words(outcome: Outcome) -> list[str]:
    faults, said = [], outcome.out + outcome.err
    if "Traceback (most recent call last)" in said:
        faults.append("a traceback")
    if "This is a bug" in said:
        faults.append("'This is a bug'")
    if ESCAPES.search(said):
        faults.append("control characters on the terminal")
    if len(outcome.err) > LONGEST:
        faults.append(f"{len(outcome.err):,} characters of error messages")
    return faults


def _sentence(outcome: Outcome) -> list[str]:
    lines = outcome.err.splitlines()
    told = [line for line in lines if line.startswith("omg: ")]
    usage = outcome.code == 2 and any("Usage:" in line or "─ Error ─" in line for line in lines)
    if len(told) == 1 or (usage and not told):
        return []
    return ["nothing was said" if not told else f"{len(told)} sentences of 'omg:'"]


def _changes(before: Files, after: Files) -> list[str]:
    lost = sorted(name for name in before if name not in after)
    changed = sorted(name for name in before if name in after and after[name] != before[name])
    new = sorted(name for name in after if name not in before)
    return [
        f"refused, but {what}: {', '.join(names[:3])}"
        for what, names in (("lost", lost), ("changed", changed), ("left behind", new))
        if names
    ]


def told(outcome: Outcome) -> str:
    """The sentence, or the last line that says something."""
    lines = [line for line in outcome.err.splitlines() if line.strip()]
    sentence = next((line for line in lines if line.startswith("omg: ")), "")
    return (sentence or (lines[-1] if lines else ""))[:400]
