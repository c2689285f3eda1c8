"""What a study named before it ran: the lines of named.jsonl, which `omg pipeline` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from omg.storage.lines import read_lines

FILE = "named.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What a pipeline's file said when it was first run, or first run after a change."""

    when: str
    sha256: str  # of the file's text
    omg: str  # the version
    commit: str  # of omg's sources; empty where it is not known
    metric: str  # the primary metric; empty without a cross-play
    baseline: str
    methods: Mapping[str, int]  # with their number of seeds
    looks: int  # at the held-out side, until then
    steps: int  # of the pipeline that had been begun by then
    parts: Mapping[str, str]  # of the file, each with a hash of what it means
    changed: tuple[str, ...] = ()  # the parts that differ from the line before


_NAMED = TypeAdapter(Named)


def read_named(study: Path) -> list[Named]:
    """All that a study named, in order; none where it is older than this record."""
    return list(read_lines(study / FILE, _NAMED))


def named_words(lines: Sequence[Named]) -> str:
    """When what was named, and what was changed afterwards; empty where there is no record."""
    return " ".join(_sentence(line) for line in lines)


def _sentence(line: Named) -> str:
    looks = f"after {line.looks} look{'s'[: line.looks != 1]}" if line.looks else "before any look"
    day = line.when[:10]
    if line.changed:
        return f"Changed on {day} {looks}: {', '.join(line.changed)}."
    begun = f", when {line.steps} steps had been begun" if line.steps else ""
    told = [line.metric, f"baseline {line.baseline}"] if line.metric else []
    count = len(line.methods)
    told.append(f"{count} method{'s'[: count != 1]}")
    return f"Named on {day} {looks}{begun}: {', '.join(told)}."
