"""Opponent pools: a folder of policies to play with, and which of them training may meet.

`pool.json` lists the members, `members/<id>/` holds `agent.th` and `meta.json` of those with
weights. Changes are made under a lock and appear in one go.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, cast, get_args

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError
from torch import Tensor

from omg.components.seeding import SeedTree
from omg.registry import nearest
from omg.storage.files import load_tensors, new_folder, read_json, write_text, writing
from omg.storage.models import META, saved_steps
from omg.types import IntArray, OmgError

Split: TypeAlias = Literal["train", "heldout"]
LineupMode: TypeAlias = Literal["homologue", "mixed"]

FORMAT = 1
MANIFEST = "pool.json"
WEIGHTS = "agent.th"
SHAPES = ("n_agents", "n_actions", "obs_dim", "state_dim")
SCRIPTED_ENV = "foraging"
THIRDS = ("early", "middle", "final")
_FROM_META = ("algorithm", "seed", "common_reward", "env", "env_args", "shapes", "policy")


@dataclass(frozen=True, slots=True)
class ScriptSpec:
    """A scripted player and the probability of a random action in its place."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)
    name: str
    noise: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMember:
    """One opponent. Members with equal `run` are homologue. Scripts fit any Foraging, so they
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
    shapes: Mapping[str, int] = field(default_factory=dict, hash=False)
    policy: Mapping[str, Any] = field(default_factory=dict, hash=False)
    script: ScriptSpec | None = None
    sha256: str | None = None  # of agent.th


@dataclass(frozen=True, slots=True)
class _Manifest:
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)
    format: Literal[1]
    members: tuple[PoolMember, ...]


class OpponentPool:
    """A pool's members as they were when it was opened or last changed through this object."""

    def __init__(self, path: Path, members: Sequence[PoolMember]) -> None:
        self.path = path
        self._members = tuple(members)

    @classmethod
    def open(cls, path: str | Path) -> OpponentPool:
        """Read and check an existing pool."""
        folder = Path(path).expanduser()
        return cls(folder, _read(folder))

    @classmethod
    def create(cls, path: str | Path, *, exist_ok: bool = False) -> OpponentPool:
        """Make an empty pool; with `exist_ok`, open the one that is there."""
        folder = Path(path).expanduser()
        if folder.exists() and not folder.is_dir():
            raise OmgError(f"{folder} is not a folder. Choose another name for the pool.")
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder):
            if (folder / MANIFEST).exists():
                if not exist_ok:
                    raise OmgError(f"{folder} is a pool already. Open it, or choose another name.")
                return cls.open(folder)
            others = [p.name for p in folder.iterdir() if not p.name.startswith(".")]
            if others:
                raise OmgError(
                    f"{folder} holds other files ({min(others)}) and is no pool. Choose a new or "
                    "an empty folder."
                )
            _write(folder, ())
        return cls(folder, ())

    # --- reading ---------------------------------------------------------------------------

    def members(self, split: Split | None = None) -> tuple[PoolMember, ...]:
        """All members, or one side, in the order in which they were added."""
        if split is not None:
            _check_split(split)
        return tuple(m for m in self._members if split is None or m.split == split)

    def member(self, member_id: str) -> PoolMember:
        """The member of that id."""
        for candidate in self._members:
            if candidate.id == member_id:
                return candidate
        hint = nearest(member_id, [m.id for m in self._members])
        raise OmgError(f"{self.path} has no member '{member_id}'{hint or '.'}")

    def folder(self, member: PoolMember) -> Path:
        """Where a member's weights lie."""
        return _folder(self.path, member.id)

    def load_state(self, member: PoolMember) -> dict[str, Tensor]:
        """A checkpoint's weights, after comparing the file to what was added."""
        if member.kind != "checkpoint":
            raise OmgError(
                f"'{member.id}' is scripted and has no weights. Make it with its script."
            )
        path = self.folder(member) / WEIGHTS
        if _sha256(path) != member.sha256:
            raise OmgError(
                f"{path} is damaged or was changed since it was added to the pool. Restore it, or "
                "remove the pool and add its members anew."
            )
        return _weights(path)

    # --- changing --------------------------------------------------------------------------

    def add_run(
        self,
        run_folder: str | Path,
        *,
        steps: str | int | Sequence[str | int] = "final",
        split: Split | None = None,
        name: str | None = None,
    ) -> tuple[PoolMember, ...]:
        """Copy checkpoints of a run: final (newest), best, early, middle, or the nearest to a
        step. Without `split` they go to the side the run is on, train if it is new."""
        return self.add_runs([run_folder], steps=steps, split=split, name=name)

    def add_runs(
        self,
        run_folders: Sequence[str | Path],
        *,
        steps: str | int | Sequence[str | int] = "final",
        split: Split | None = None,
        name: str | None = None,
    ) -> tuple[PoolMember, ...]:
        """`add_run` for several runs: all of them or, if one is refused, none."""
        if name is not None and len(run_folders) != 1:
            raise OmgError("A name can be given to one run at a time. Add the runs one by one.")
        wanted = _wanted_steps(steps)
        found = [
            candidate
            for run_folder in run_folders
            for candidate in _candidates(Path(run_folder).expanduser(), wanted, name)
        ]
        return self._add(found, split)

    def add_script(
        self, name: str, *, noise: float = 0.0, split: Split | None = None
    ) -> PoolMember:
        """Make a scripted player a member. One script's noise levels count as one run."""
        from omg.opponents.scripted_foraging import make_script

        make_script(name, noise=noise)
        member = PoolMember(
            id=f"script-{name}-{noise:g}",
            kind="scripted",
            algorithm="script",
            run=f"script-{name}",
            skill=f"noise {noise:g}",
            split="train",
            seed=None,
            env_steps=None,
            common_reward=None,
            env=SCRIPTED_ENV,
            script=ScriptSpec(name, float(noise)),
        )
        return self._add([(member, None)], split)[0]

    def split(
        self,
        heldout: float | Sequence[str],
        *,
        by: Literal["run", "member"] = "run",
        seed: int = 0,
    ) -> tuple[PoolMember, ...]:
        """Assign every member to training or held-out: a fraction drawn by `seed`, or the named
        runs and ids. By run, no run lies on both sides (an id stands for its run)."""
        if by not in ("run", "member"):
            raise OmgError(f"by={by} is not possible. Split by run or by member.")

        def assign(members: tuple[PoolMember, ...]) -> tuple[PoolMember, ...]:
            unit = {m.id: m.run if by == "run" else m.id for m in members}
            if isinstance(heldout, (int, float)):
                algorithms = {unit[m.id]: m.algorithm for m in members}
                held = draw_heldout(algorithms, float(heldout), seed=seed)
            else:
                names = [heldout] if isinstance(heldout, str) else heldout
                held = {unit[m.id] for m in _named(members, names, self.path)}
            return tuple(
                replace(m, split="heldout" if unit[m.id] in held else "train") for m in members
            )

        self._change(assign)
        return self._members

    def _add(
        self, found: Sequence[tuple[PoolMember, Path | None]], split: Split | None
    ) -> tuple[PoolMember, ...]:
        if split is not None:
            _check_split(split)
        added: list[PoolMember] = []

        def extend(members: tuple[PoolMember, ...]) -> tuple[PoolMember, ...]:
            sides = {m.run: m.split for m in members}
            new = [(replace(m, split=split or sides.get(m.run, "train")), s) for m, s in found]
            everyone = list(members)
            for member, _ in new:
                _check_fits(member, everyone, self.path)
                everyone.append(member)
            for member, source in new:
                added.append(_copy(member, source, self.path) if source else member)
            return (*members, *added)

        self._change(extend)
        return tuple(added)

    def _change(self, change: Callable[[tuple[PoolMember, ...]], tuple[PoolMember, ...]]) -> None:
        """Apply a change to what is on disk now, so that nobody else's change is lost."""
        with _lock(self.path):
            members = change(_read(self.path))
            _write(self.path, members)
        self._members = members


# --- drawing ---------------------------------------------------------------------------------


def draw_lineups(
    members: Sequence[PoolMember],
    n_episodes: int,
    n_seats: int,
    rng: np.random.Generator,
    *,
    mode: LineupMode = "homologue",
) -> IntArray:
    """Who sits where, [n_episodes, n_seats] of indices into `members`.

    Homologue: a run is drawn, one of its skills, and for every seat a member of that run and
    skill. Mixed: every seat is drawn from all members independently.
    """
    if not members:
        raise OmgError("There are no opponents to draw from. Add members to this side of the pool.")
    if mode == "mixed":
        return rng.integers(len(members), size=(n_episodes, n_seats), dtype=np.int64)
    if mode != "homologue":
        raise OmgError(f"There is no line-up mode '{mode}'. Choose homologue or mixed.")
    runs: dict[str, dict[str, list[int]]] = {}
    for index, member in enumerate(members):
        runs.setdefault(member.run, {}).setdefault(member.skill, []).append(index)
    # All members, sorted by run and skill, and where each (run, skill) begins in that list.
    groups = [group for skills in runs.values() for group in skills.values()]
    order = np.concatenate([np.array(group, np.int64) for group in groups])
    group_sizes = np.array([len(group) for group in groups])
    group_starts = np.cumsum(group_sizes) - group_sizes
    skill_counts = np.array([len(skills) for skills in runs.values()])
    first_groups = np.cumsum(skill_counts) - skill_counts

    run_E = rng.integers(len(runs), size=n_episodes)
    group_E = first_groups[run_E] + rng.integers(skill_counts[run_E])
    sizes_E1 = group_sizes[group_E][:, None]
    picks = rng.integers(np.broadcast_to(sizes_E1, (n_episodes, n_seats)))
    return cast(IntArray, order[group_starts[group_E][:, None] + picks])


def draw_heldout(algorithms: Mapping[str, str], fraction: float, *, seed: int) -> set[str]:
    """The units (runs or members, with their algorithm) to hold out: about `fraction` of all,
    and of each algorithm with two or more units at least one on either side."""
    if not 0 <= fraction <= 1:
        raise OmgError(f"heldout={fraction:g} is not a fraction between 0 and 1.")
    if fraction in (0, 1):
        return set(algorithms) if fraction else set()
    units: dict[str, list[str]] = {}
    for unit in sorted(algorithms):
        units.setdefault(algorithms[unit], []).append(unit)
    rng = SeedTree(seed).numpy("pool.split")
    names = [str(name) for name in rng.permutation(sorted(units))]
    least = {name: int(len(units[name]) >= 2) for name in names}
    most = {name: max(1, len(units[name]) - 1) for name in names}
    quota = {name: fraction * len(units[name]) for name in names}
    count = {name: min(max(int(quota[name]), least[name]), most[name]) for name in names}
    total = min(max(round(fraction * len(algorithms)), 1), len(algorithms) - 1)
    while sum(count.values()) < total:
        room = [name for name in names if count[name] < most[name]]
        if not room:
            break
        count[max(room, key=lambda name: quota[name] - count[name])] += 1
    return {
        str(unit) for name in sorted(units) for unit in rng.permutation(units[name])[: count[name]]
    }


# --- the manifest ------------------------------------------------------------------------------


def _read(folder: Path) -> tuple[PoolMember, ...]:
    path = folder / MANIFEST
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise OmgError(
            f"{folder} is not a pool (no {MANIFEST} in it). Make one: omg pool add {folder} <run>."
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise OmgError(f"{path} cannot be read: {error}. Check the file.") from error
    try:
        members = TypeAdapter(_Manifest).validate_json(text).members
    except ValidationError as error:
        raise OmgError(f"{path} {_explain(error, text)}") from error
    for member_id, count in Counter(m.id for m in members).items():
        if count > 1:
            raise OmgError(f"{path} lists '{member_id}' {count} times. Keep one of them.")
    for position, member in enumerate(members):
        if not _is_plain(member.id):
            raise OmgError(f"{path}: '{member.id}' cannot be a member's id. Use letters and -+._.")
        if member.kind == "scripted" and member.script is None:
            raise OmgError(f"{path}: '{member.id}' is scripted but names no script. Add it.")
        if member.kind == "checkpoint" and not (_folder(folder, member.id) / WEIGHTS).is_file():
            raise OmgError(
                f"{_folder(folder, member.id) / WEIGHTS} is missing. Restore it, or take "
                f"'{member.id}' out of {path}."
            )
        if member.kind == "checkpoint" and not set(SHAPES) <= set(member.shapes):
            raise OmgError(f"{path}: the shapes of '{member.id}' lack some of {', '.join(SHAPES)}.")
        _check_same_game(member, members[:position], folder)
    return members


def _write(folder: Path, members: Sequence[PoolMember]) -> None:
    content = {"format": FORMAT, "members": [dataclasses.asdict(m) for m in members]}
    write_text(folder / MANIFEST, json.dumps(content, indent=2) + "\n")


def _explain(error: ValidationError, text: str) -> str:
    """The first thing wrong with a manifest, as the end of a sentence."""
    problem = error.errors(include_url=False)[0]
    where = [str(part) for part in problem["loc"]]
    if problem["type"] == "json_invalid":
        return f"is damaged ({problem['msg']}). Restore it."
    if where == ["format"]:
        found = json.loads(text).get("format")
        return f"has format {found}, this version reads {FORMAT}. Use the version that wrote it."
    key = where[-1] if where else "the whole file"
    place = f" of member {int(where[1]) + 1}" if len(where) > 1 and where[0] == "members" else ""
    if problem["type"] == "unexpected_keyword_argument":
        known = [f.name for kind in (_Manifest, PoolMember) for f in dataclasses.fields(kind)]
        return f"has an unknown field '{key}'{place}{nearest(key, known) or '. Remove it.'}"
    if problem["type"] == "missing":
        return f"lacks the field '{key}'{place}. Add it."
    expected = str(problem["msg"]).removeprefix("Input should be ")
    return f"has {problem['input']!r} for '{key}'{place}. Expected: {expected}."


def _is_plain(name: str) -> bool:
    """Whether a name is safe as the name of a folder."""
    return re.fullmatch(r"[\w+-][\w.+-]*", name) is not None


def _folder(pool: Path, member_id: str) -> Path:
    return pool / "members" / member_id


@contextlib.contextmanager
def _lock(folder: Path, *, timeout: float = 30.0) -> Iterator[None]:
    """Only one process changes a pool at a time; a lock left by a dead one is explained."""
    path = folder / ".pool.lock"
    if not folder.is_dir():
        raise OmgError(f"{folder} is not a folder. Check the path.")
    me = f"process {os.getpid()} on {socket.gethostname()}"
    deadline = time.monotonic() + timeout
    abandoned = ""
    while True:
        try:
            with writing(path):
                descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except OmgError as error:
            if not isinstance(error.__cause__, FileExistsError):
                raise
        else:
            break
        owner = ""
        with contextlib.suppress(OSError):
            owner = path.read_text(encoding="utf-8")
        # Seen twice: an owner that ends properly removes its lock first.
        if owner and owner == abandoned:
            raise OmgError(
                f"{folder} is locked by {owner}, which no longer runs. Delete {path} and try again."
            )
        abandoned = owner if _is_gone(owner) else ""
        if time.monotonic() > deadline:
            raise OmgError(
                f"{folder} has been locked by {owner or 'another process'} for {timeout:g} s. Try "
                f"again, or delete {path} if that process is gone."
            )
        time.sleep(0.02)
    try:
        with writing(path), os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(me)
        yield
    finally:
        path.unlink(missing_ok=True)


def _is_gone(owner: str) -> bool:
    """Whether a lock's owner was a process of this machine that has ended."""
    match = re.fullmatch(r"process (\d+) on (.*)", owner)
    if match is None or match[2] != socket.gethostname():
        return False
    try:
        os.kill(int(match[1]), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


# --- taking members in -------------------------------------------------------------------------


def _wanted_steps(steps: str | int | Sequence[str | int]) -> list[str]:
    words = steps.split(",") if isinstance(steps, str) else steps
    wanted = [str(w).strip() for w in ([words] if isinstance(words, int) else words)]
    for word in wanted:
        if not (word.isdecimal() or word in (*THIRDS, "newest", "best")):
            raise OmgError(
                f"steps={word} is not possible. Name steps by early, middle, final, newest, best "
                "or a number, separated by commas."
            )
    return wanted


def _candidates(
    run_folder: Path, wanted: Sequence[str], name: str | None
) -> list[tuple[PoolMember, Path]]:
    """The wanted checkpoints of a run with the folders they lie in; the first name of a step
    that is named twice wins."""
    if not run_folder.is_dir():
        raise OmgError(f"{run_folder} is not a folder. Give the folder of a run.")
    folder = run_folder.resolve()
    models = folder / "models" if (folder / "models").is_dir() else folder
    steps = saved_steps(models)
    if not steps:
        raise OmgError(
            f"{run_folder} holds no saved steps (models/<step>). Give the folder of a run trained "
            "with save_model."
        )
    run = name or (models.parent if models.name == "models" else models).name
    run = re.sub(r"[^\w.+-]+", "_", run).lstrip(".") or "run"
    found: dict[int, tuple[PoolMember, Path]] = {}
    for word in wanted:
        source = models / _step_folder(word, steps, run_folder)
        if not (source / WEIGHTS).is_file():
            raise OmgError(f"{source / WEIGHTS} does not exist. Choose other steps.")
        member = _member_of(source, run, word)
        assert member.env_steps is not None
        found.setdefault(member.env_steps, (member, source))
    return list(found.values())


def _step_folder(word: str, steps: Sequence[int], run_folder: Path) -> str:
    if word == "best":
        return word
    if word.isdecimal():
        return str(min(steps, key=lambda step: abs(step - int(word))))
    if word in ("early", "middle") and len(steps) < len(THIRDS):
        raise OmgError(
            f"{run_folder} has {len(steps)} saved step{'s'[: len(steps) != 1]}; early, middle and "
            "final need 3. Train with a smaller save_model_interval and keep_models=0."
        )
    return str({"early": steps[0], "middle": steps[len(steps) // 2]}.get(word, steps[-1]))


def _member_of(source: Path, run: str, word: str) -> PoolMember:
    if not (source / META).is_file():
        raise OmgError(f"{source} has no {META}, so nothing is known of it. Use a run of omg.")
    meta = read_json(source / META)
    steps = int(source.name) if source.name.isdecimal() else meta.get("env_steps")
    content = {
        "id": f"{run}-{steps}",
        "kind": "checkpoint",
        "run": run,
        "skill": {"newest": "final"}.get(word, str(steps) if word.isdecimal() else word),
        "split": "train",
        "env_steps": steps,
        **{key: meta[key] for key in _FROM_META if key in meta},
    }
    try:
        member = TypeAdapter(PoolMember).validate_json(json.dumps(content))
    except ValidationError as error:
        raise OmgError(f"{source / META} {_explain(error, '')}") from error
    lacking = [key for key in SHAPES if key not in member.shapes]
    if lacking or steps is None:
        raise OmgError(
            f"{source / META} does not tell {', '.join(lacking) or 'env_steps'}. It was written "
            "by another version; use a run of this one."
        )
    return member


def _check_fits(member: PoolMember, members: Sequence[PoolMember], pool: Path) -> None:
    for other in members:
        if other.id == member.id:
            raise OmgError(
                f"'{member.id}' is a member of {pool} already. Choose other steps, or another "
                "name for the run if it is a different one."
            )
        for key in ("algorithm", "seed", "common_reward", "policy"):
            old, new = getattr(other, key), getattr(member, key)
            if other.run == member.run and old != new:
                raise OmgError(
                    f"{pool} has another run called '{member.run}' ({key}={old} there, {new} "
                    "here). Give this one another name."
                )
    _check_same_game(member, members, pool)


def _check_same_game(member: PoolMember, members: Sequence[PoolMember], pool: Path) -> None:
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


def _copy(member: PoolMember, source: Path, pool: Path) -> PoolMember:
    _weights(source / WEIGHTS)
    with new_folder(_folder(pool, member.id)) as part:
        for name in (WEIGHTS, META):
            shutil.copyfile(source / name, part / name)
        return replace(member, sha256=_sha256(part / WEIGHTS))


def _weights(path: Path) -> dict[str, Tensor]:
    state = load_tensors(path, advice="Use another checkpoint.")
    if not isinstance(state, Mapping) or not all(isinstance(v, Tensor) for v in state.values()):
        raise OmgError(f"{path} holds no network's weights. Use another checkpoint.")
    return dict(state)


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise OmgError(f"{path} cannot be read: {error.strerror}. Restore it.") from error


def _named(members: Sequence[PoolMember], names: Sequence[str], pool: Path) -> list[PoolMember]:
    known = {m.id for m in members} | {m.run for m in members}
    for name in names:
        if name not in known:
            raise OmgError(
                f"{pool} has no run or member '{name}'{nearest(name, known) or '.'} "
                f"'omg pool list {pool}' shows all."
            )
    return [m for m in members if m.id in names or m.run in names]


def _check_split(split: str) -> None:
    if split not in get_args(Split):
        raise OmgError(f"split={split} is not possible. Choose train or heldout.")
