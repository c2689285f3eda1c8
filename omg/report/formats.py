"""What the report reads: `crossplay.json`, `replays/*.json` and `pool.json`, checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from pydantic import FiniteFloat, TypeAdapter, ValidationError

from omg.evaluation.crossplay_table import Crossplay, Number, Opponent
from omg.types import OmgError

FORMAT = 1
MAX_SIDE = 100  # cells of a board that can be drawn
Place: TypeAlias = tuple[FiniteFloat, FiniteFloat]  # row, column
Thing: TypeAlias = tuple[FiniteFloat, FiniteFloat, FiniteFloat]  # row, column, level
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Frame:
    """What the board looked like at one step; food of level 0 is gone."""

    players: tuple[Thing, ...]
    foods: tuple[Thing, ...]
    score: tuple[Number, ...]


@dataclass(frozen=True, slots=True)
class Replay:
    """One episode of T steps: T+1 frames, T rows of actions and of inferred places."""

    format: Literal[1]
    env: str
    field_size: tuple[int, int]
    agent: str
    method: str
    opponent: str
    seat: int
    players: int
    frames: tuple[Frame, ...]
    actions: tuple[tuple[int, ...], ...]
    subgoals: tuple[tuple[Place, ...], ...] | None


@dataclass(frozen=True, slots=True)
class _PoolFile:
    format: Literal[1]
    members: tuple[Opponent, ...]


def read_crossplay(path: Path) -> Crossplay:
    """The cross-play table in a file."""
    found = _read(Crossplay, path, "Write it again with omg crossplay.")
    known = {agent.id for agent in found.agents}
    for cell in found.cells:
        if cell.agent not in known:
            raise OmgError(
                f"{path} has games of '{cell.agent}', which is not among its agents. "
                "Write it again with omg crossplay."
            )
    return found


def read_pool(path: Path) -> tuple[Opponent, ...]:
    """The members named in a `pool.json`; their weights are not needed for a report."""
    return _read(_PoolFile, path, "Restore it.").members


def read_replay(path: Path) -> Replay:
    """One replay; rows that do not fit together are refused."""
    replay = _read(Replay, path, "Leave it out, or record it again.")
    steps, seats = len(replay.frames) - 1, replay.players
    problem = ""
    if steps < 0:
        problem = "has no frames"
    elif not all(1 <= side <= MAX_SIDE for side in replay.field_size):
        problem = f"has a field of {' x '.join(map(str, replay.field_size))} cells"
    elif not 0 <= replay.seat < seats:
        problem = f"has the learning seat {replay.seat} among {seats} players"
    elif any(len(frame.players) != seats for frame in replay.frames):
        problem = f"does not show {seats} players in every frame"
    elif len(replay.actions) != steps:
        problem = f"has {len(replay.actions)} rows of actions for {steps} steps"
    elif replay.subgoals is not None and len(replay.subgoals) != steps:
        problem = f"has {len(replay.subgoals)} rows of subgoals for {steps} steps"
    elif replay.subgoals is not None and any(len(row) != seats - 1 for row in replay.subgoals):
        problem = f"does not have {seats - 1} subgoals in every row"
    if problem:
        raise OmgError(f"{path} {problem}. Leave it out, or record it again.")
    return replay


def _read(kind: type[T], path: Path, advice: str) -> T:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OmgError(f"{path} cannot be read: {error}. Check the file.") from error
    try:
        return TypeAdapter(kind).validate_json(text)
    except ValidationError as error:
        raise OmgError(f"{path} {_explain(error, advice)}") from error


def _explain(error: ValidationError, advice: str) -> str:
    """The first thing wrong with a file, as the end of a sentence."""
    problem = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "json_invalid":
        return f"is damaged ({problem['msg']}). {advice}"
    if where == "format" and problem["type"] != "missing":
        return (
            f"has format {problem['input']!r}, this version reads {FORMAT}. "
            "Use the version that wrote it."
        )
    if problem["type"] == "missing":
        return f"lacks the field '{where}'. {advice}"
    expected = str(problem["msg"]).removeprefix("Input should be ")
    shown = repr(problem["input"])
    shown = shown if len(shown) <= 60 else shown[:60] + " …"
    return f"has {shown} for '{where or 'the whole file'}', expected: {expected}. {advice}"
