"""`pool.json`: who is in a pool and all that is known of them, read with care and under a lock."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict

from omg.storage.files import read_checked, write_text, writing
from omg.storage.locks import release_lock, take_lock
from omg.storage.models import OBS_FORMAT, other_meaning
from omg.types import OmgError

Split: TypeAlias = Literal["train", "heldout"]

FORMAT = 1
MANIFEST = "pool.json"
WEIGHTS = "agent.th"
SHAPES = ("n_agents", "n_actions", "obs_dim", "state_dim")


@dataclass(frozen=True, slots=True)
class ScriptSpec:
    """A scripted player and the probability of a random action in its place."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)
    name: str
    noise: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMember:
    """One opponent. Members with equal `run` are homologue. Scripts fit any sizes, so they
    have no `shapes`; `seed`, `env_steps` and `common_reward` are None for them."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)
    id: str
    kind: Literal["checkpoint", "scripted"]
    algorithm: str
    run: str
    skill: str  # early, middle, final, best, a step, or a script's noise
    split: Split
    seed: int | None
    env_steps: int | None
    common_reward: bool | None
    env: str
    env_args: Mapping[str, Any] = field(default_factory=dict, hash=False)
    roles: tuple[str, ...] = ()  # the roles it plays; empty: any
    shapes: Mapping[str, int] = field(default_factory=dict, hash=False)
    policy: Mapping[str, Any] = field(default_factory=dict, hash=False)
    script: ScriptSpec | None = None
    sha256: str | None = None  # of agent.th
    model: Mapping[str, str] = field(default_factory=dict, hash=False)  # of its opponent model's


@dataclass(frozen=True, slots=True)
class _Manifest:
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)
    format: Literal[1]
    members: tuple[PoolMember, ...]


def read_manifest(folder: Path) -> tuple[PoolMember, ...]:
    """The members a pool lists, each checked."""
    path = folder / MANIFEST
    if not path.is_file():
        raise OmgError(
            f"{folder} is not a pool (no {MANIFEST} in it). Make one: omg pool add {folder} <run>."
        )
    members = read_checked(_Manifest, path, "Restore it.").members
    for member_id, count in Counter(m.id for m in members).items():
        if count > 1:
            raise OmgError(f"{path} lists '{member_id}' {count} times. Keep one of them.")
    for position, member in enumerate(members):
        if not _is_plain(member.id):
            raise OmgError(f"{path}: '{member.id}' cannot be a member's id. Use letters and -+._.")
        if member.kind == "scripted" and member.script is None:
            raise OmgError(f"{path}: '{member.id}' is scripted but names no script. Add it.")
        weights = member_folder(folder, member.id) / WEIGHTS
        if member.kind == "checkpoint" and not weights.is_file():
            raise OmgError(
                f"{weights} is missing. Restore it, or take '{member.id}' out of {path}."
            )
        if member.kind == "checkpoint" and not set(SHAPES) <= set(member.shapes):
            raise OmgError(f"{path}: the shapes of '{member.id}' lack some of {', '.join(SHAPES)}.")
        check_same_game(member, members[:position], folder)
    return members


def write_manifest(folder: Path, members: Sequence[PoolMember]) -> None:
    """Replace the list in one go."""
    content = {"format": FORMAT, "members": [dataclasses.asdict(m) for m in members]}
    write_text(folder / MANIFEST, json.dumps(content, indent=2) + "\n")


def _is_plain(name: str) -> bool:
    """Whether a name is safe as the name of a folder."""
    return re.fullmatch(r"[\w+-][\w.+-]*", name) is not None


def member_folder(pool: Path, member_id: str) -> Path:
    """Where a member's weights lie."""
    return pool / "members" / member_id


@contextlib.contextmanager
def pool_lock(folder: Path, *, timeout: float = 30.0) -> Iterator[None]:
    """Only one process changes a pool at a time."""
    path = folder / ".pool.lock"
    if not folder.is_dir():
        raise OmgError(f"{folder} is not a folder. Check the path.")

    def refusal(owner: str) -> str:
        return (
            f"{folder} has been locked by {owner} for {timeout:g} s. Try again when it has ended."
        )

    with writing(path):
        lock = take_lock(path, refusal, timeout=timeout)
    try:
        yield
    finally:
        release_lock(path, lock)


def check_same_game(member: PoolMember, members: Sequence[PoolMember], pool: Path) -> None:
    """Everybody in a pool can sit at one table."""
    for other in members:
        if other.env != member.env:
            raise OmgError(
                f"'{member.id}' plays env={member.env}, '{other.id}' of {pool} plays "
                f"env={other.env}. Keep a pool per environment."
            )
        different = [
            f"{key}={member.shapes.get(key)} in '{member.id}', {other.shapes.get(key)} in "
            f"'{other.id}'"
            for key in SHAPES
            if member.shapes and other.shapes and member.shapes.get(key) != other.shapes.get(key)
        ]
        if different:
            raise OmgError(
                f"Members of {pool} must have equal sizes: {'; '.join(different)}. Keep a pool "
                "per environment."
            )
        theirs, ours = other.policy.get(OBS_FORMAT), member.policy.get(OBS_FORMAT)
        if theirs and ours and theirs != ours:  # not said by the oldest, nor by who sees the state
            raise OmgError(
                f"'{member.id}' cannot play beside '{other.id}' of {pool}: "
                f"{other_meaning(theirs, ours)}. Keep a pool per kind of observation."
            )
