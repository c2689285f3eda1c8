"""Every look at the held-out side of a pool is recorded, in the study's folder or the pool's: what
is chosen after a look is chosen by it."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import TypeAdapter, ValidationError

from omg.config.loader import masked
from omg.opponents.pool import OpponentPool
from omg.opponents.pool_members import PoolMember
from omg.types import OmgError

FILE = "looks.jsonl"
STUDY = "pipeline.json"  # in the folder of a study
LONGEST = 2000  # characters of a command that are kept
Kind: TypeAlias = Literal["evaluation", "headroom", "training"]
SAID: Mapping[Kind, str] = {
    "evaluation": "to evaluate agents",
    "headroom": "to measure headroom",
    "training": "to train best responses, which are references",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was looked at. Two looks with equal `key` are one: their numbers are the same."""

    key: str
    when: str
    kind: Kind
    command: str
    runs: tuple[str, ...]
    members: tuple[str, ...]
    episodes: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


def looks_of(pool: OpponentPool) -> Path:
    """Where looks at a pool are recorded: in the folder of its study, else in its own."""
    above = pool.path.resolve().parent
    return (above if (above / STUDY).is_file() else pool.path) / FILE


def record_look(
    pool: OpponentPool,
    members: Iterable[PoolMember],
    *,
    kind: Kind,
    runs: Mapping[str, str],
    episodes: int = 0,
    options: Mapping[str, Any] | None = None,
) -> bool:
    """Note that runs (by folder, with a hash of their weights) met held-out members. Nothing is
    written where none are held out, nor for the very same look again; whether it was."""
    held = sorted({member.id for member in members if member.split == "heldout"})
    if not held:
        return False
    path = looks_of(pool)
    told: dict[str, Any] = {
        "kind": kind,
        "runs": tuple(runs),
        "members": tuple(held),
        "episodes": episodes,
        "options": dict(options or {}),
    }
    content = json.dumps({**told, "weights": list(runs.values())}, sort_keys=True)
    key = hashlib.sha256(content.encode()).hexdigest()[:16]
    if any(look.key == key for look in read_looks(path)):
        return False
    when = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    look = Look(key=key, when=when, command=_command(), **told)
    _append(path, json.dumps(asdict(look), ensure_ascii=False) + "\n")
    return True


def check_recordable(pool: OpponentPool, members: Iterable[PoolMember]) -> None:
    """Refuse before anything is played what could not be recorded afterwards."""
    if any(member.split == "heldout" for member in members):
        path = looks_of(pool)
        existed = path.exists()
        _append(path, "")
        if not existed:
            path.unlink(missing_ok=True)


def _command() -> str:
    name = Path(sys.argv[0]).name if sys.argv else ""
    words = ["omg" if name in ("__main__.py", "omg") else name or "python", *sys.argv[1:]]
    return masked(shlex.join(words))[:LONGEST]


def _append(path: Path, line: str) -> None:
    """In one write, so that several processes may look at once."""
    try:
        with path.open("ab", buffering=0) as file:
            file.write(line.encode())
            os.fsync(file.fileno())
    except OSError as error:
        raise OmgError(
            f"{path} cannot be written: {error.strerror or error}. Looks at held-out opponents are "
            "recorded there: make it writable, or give --split=validation or train."
        ) from error


def read_looks(path: Path) -> list[Look]:
    """All recorded looks; none where there is no file. A line cut off by a crash is left out."""
    if not path.is_file():
        return []
    found: list[Look] = []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            found.append(_LOOK.validate_json(line))
        except ValidationError as error:
            if number == len(lines):
                break
            raise OmgError(f"{path}, line {number}, is damaged. Restore it.") from error
    return found


_LOOK = TypeAdapter(Look)


def looks_words(looks: Sequence[Look]) -> str:
    """How often the unseen side was looked at, as a sentence; empty if never."""
    if not looks:
        return ""
    counts = Counter(look.kind for look in looks)
    parts = [f"{counts[kind]} {words}" for kind, words in SAID.items() if counts[kind]]
    times = "once" if len(looks) == 1 else f"{len(looks)} times"
    return f"The unseen side was looked at {times}: {', '.join(parts)}."
