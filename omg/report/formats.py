"""What the report reads: `crossplay.json`, `replays/*.json` and `pool.json`, checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import FiniteFloat

from omg.evaluation.crossplay_table import Crossplay, Number, Opponent
from omg.storage.files import read_checked
from omg.types import OmgError

# Games whose replays are pictures of a grid, or of a plane.
DRAWN = ("foraging", "stag_hunt", "snowdrift", "spread", "predator_prey")
MAX_SIDE = 100  # cells of a board that can be drawn
Place: TypeAlias = tuple[FiniteFloat, FiniteFloat]  # row, column
Chances: TypeAlias = tuple[FiniteFloat, ...]
Thing: TypeAlias = tuple[FiniteFloat, FiniteFloat, FiniteFloat]  # row, column, level


@dataclass(frozen=True, slots=True)
class Frame:
    """What the board looked like at one step; food of level 0 is gone."""

    players: tuple[Thing, ...]
    foods: tuple[Thing, ...]
    score: tuple[Number, ...]


@dataclass(frozen=True, slots=True)
class Plane:
    """A board without cells: sizes and distances in widths of a cell."""

    players: tuple[FiniteFloat, ...]  # radii
    thing: FiniteFloat  # the radius of landmarks and obstacles
    things: str  # what they are called
    near: FiniteFloat  # who comes this near to a place has reached it


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
    # What each of the others is believed to want and expected to do, [T, N-1, goals or actions].
    goals: tuple[str, ...] = ()
    beliefs: tuple[tuple[Chances, ...], ...] | None = None
    predictions: tuple[tuple[Chances, ...], ...] | None = None
    roles: tuple[str, ...] = ()
    plane: Plane | None = None  # None: a grid


@dataclass(frozen=True, slots=True)
class _PoolFile:
    format: Literal[1]
    members: tuple[Opponent, ...]


def read_crossplay(path: Path) -> Crossplay:
    """The cross-play table in a file."""
    found = read_checked(Crossplay, path, "Write it again with omg crossplay.")
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
    return read_checked(_PoolFile, path, "Restore it.").members


def read_replay(path: Path) -> Replay:
    """One replay; rows that do not fit together are refused."""
    replay = read_checked(Replay, path, "Leave it out, or record it again.")
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
    elif replay.plane is not None and len(replay.plane.players) != seats:
        problem = f"has sizes of {len(replay.plane.players)} players among {seats}"
    problem = problem or _inferences(replay, steps)
    if problem:
        raise OmgError(f"{path} {problem}. Leave it out, or record it again.")
    return replay


def _inferences(replay: Replay, steps: int) -> str:
    """What is wrong with beliefs and predictions; empty: nothing."""
    for name, rows in (("beliefs", replay.beliefs), ("predictions", replay.predictions)):
        if rows is None:
            continue
        if len(rows) != steps:
            return f"has {len(rows)} rows of {name} for {steps} steps"
        if any(len(row) != replay.players - 1 for row in rows):
            return f"does not have {name} of {replay.players - 1} players in every row"
    if any(len(b) != len(replay.goals) for row in replay.beliefs or () for b in row):
        return f"has beliefs of other goals than its {len(replay.goals)}"
    return ""
