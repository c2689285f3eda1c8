"""Every look at the held-out side of a pool is recorded, in the study's folder or the pool's: what
is chosen after a look is chosen by it.

The line is written before anything is played. Who knows the runs and the episodes records the look
and seats the players inside `recorded()`. Where nobody does, `record_seated` records it when the
players are made (`omg.opponents.building.pool_players`), so that there is no way round it.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import TypeAdapter

from omg.config.loader import masked
from omg.opponents.pool import OpponentPool
from omg.opponents.pool_members import PoolMember
from omg.storage.lines import append_line, read_lines

FILE = "looks.jsonl"
STUDY = "pipeline.json"  # in the folder of a study
LONGEST = 2000  # characters of a command that are kept
ADVICE = (
    "Looks at held-out opponents are recorded there: make it writable, or give --split=validation "
    "or train."
)
Kind: TypeAlias = Literal["evaluation", "headroom", "training", "comparison"]
SAID: Mapping[Kind, str] = {
    "evaluation": "to evaluate agents",
    "headroom": "to measure headroom",
    "training": "to train best responses, which are references",
    "comparison": "to compare members of the pool",
}
_RECORDED: ContextVar[bool] = ContextVar("recorded", default=False)


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
    """Note that runs (by folder, with a hash of their weights) are about to meet held-out members.
    Nothing is written where none are held out, nor for the very same look again; whether it was.
    Where it cannot be written, this raises: call it before anything is played."""
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
    append_line(path, json.dumps(asdict(look), ensure_ascii=False), ADVICE)
    return True


@contextlib.contextmanager
def recorded() -> Iterator[None]:
    """Players that are made inside are part of a look that the caller records."""
    token = _RECORDED.set(True)
    try:
        yield
    finally:
        _RECORDED.reset(token)


def record_seated(
    pool: OpponentPool,
    members: Iterable[PoolMember],
    *,
    runs: Callable[[], Mapping[str, str]] = dict,
    episodes: int = 0,
    options: Mapping[str, Any] | None = None,
) -> None:
    """Record an evaluation, unless the caller records a look that this is part of."""
    if not _RECORDED.get():
        record_look(
            pool, members, kind="evaluation", runs=runs(), episodes=episodes, options=options
        )


def _command() -> str:
    name = Path(sys.argv[0]).name if sys.argv else ""
    words = ["omg" if name in ("__main__.py", "omg") else name or "python", *sys.argv[1:]]
    return masked(shlex.join(words))[:LONGEST]


def read_looks(path: Path) -> list[Look]:
    """All recorded looks, each once; none where there is no file. A line cut off by a crash is left
    out: nothing was played after it."""
    found: dict[str, Look] = {}
    for look in read_lines(path, _LOOK):
        found.setdefault(look.key, look)
    return list(found.values())


def looks_in(study: Path) -> list[Look]:
    """The looks of a study: those in its folder, and those of its pool from before it was one."""
    found = [look for place in (study, study / "pool") for look in read_looks(place / FILE)]
    return list({look.key: look for look in found}.values())


_LOOK = TypeAdapter(Look)


def looks_words(looks: Sequence[Look]) -> str:
    """How often the unseen side was looked at, as a sentence; empty if never."""
    if not looks:
        return ""
    counts = Counter(look.kind for look in looks)
    parts = [f"{counts[kind]} {words}" for kind, words in SAID.items() if counts[kind]]
    times = "once" if len(looks) == 1 else f"{len(looks)} times"
    return f"The unseen side was looked at {times}: {', '.join(parts)}."
