"""The members of a pool: `pool.json`, which lists them and is read with care and under a lock, and
taking checkpoints in (which steps of a run, whether they fit, copying them)."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict
from torch import Tensor

from omg.config.loader import read_yaml
from omg.modules.opponent_models import OPPONENT_MODELS
from omg.storage.files import checked, load_tensors, new_folder, read_checked, write_text, writing
from omg.storage.locks import release_lock, take_lock
from omg.storage.models import (
    META,
    OBS_FORMAT,
    OF_PLAYERS,
    UNSAID,
    holds_models,
    other_meaning,
    read_meta,
    saved_steps,
    weight_files,
)
from omg.storage.sums import check_finite, check_sums, sha256_of, write_sums
from omg.types import OmgError

# Training draws from the first, tuning is judged by the second, results are told of the third.
Split: TypeAlias = Literal["train", "validation", "heldout"]

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


THIRDS = ("early", "middle", "final")
# Files of a saved step that playing does not need.
NOT_PLAYED = ("critic.th", "mixer.th", "opt.th")
_FROM_META = ("algorithm", "seed", "common_reward", "env", "env_args", "shapes", "policy")


def wanted_steps(steps: str | int | Sequence[str | int]) -> list[str]:
    """What `--steps` asks for, one word per checkpoint."""
    words = steps.split(",") if isinstance(steps, str) else steps
    wanted = [str(w).strip() for w in ([words] if isinstance(words, int) else words)]
    for word in wanted:
        if not (word.isdecimal() or word in (*THIRDS, "newest", "best")):
            raise OmgError(
                f"steps={word} is not possible. Name steps by early, middle, final, newest, best "
                "or a number, separated by commas."
            )
    return wanted


def candidates(
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
        weights_in(source)
        member = _member_of(source, run, word)
        assert member.env_steps is not None
        found.setdefault(member.env_steps, (member, source))
    return list(found.values())


def weights_in(source: Path) -> Path:
    """The weights of a saved step: a team's agent.th, or <alg>/agent.th of an agent that learned
    among others, if that can take any seat; its opponent model's files lie beside it."""
    if (source / WEIGHTS).is_file():
        return source / WEIGHTS
    meta = read_meta(source)
    weights = source / str(meta.get("algorithm")) / WEIGHTS
    if not weights.is_file():
        if holds_models(source):
            raise OmgError(
                f"{source} holds an opponent model (such as a subgoal prior) and no agent. Add "
                "another run."
            )
        raise OmgError(f"{source / WEIGHTS} does not exist. Choose other steps.")
    model = (meta.get("policy") or {}).get("am_model", "")
    if model in OPPONENT_MODELS and OPPONENT_MODELS[model].needs_foresight:
        raise OmgError(
            f"{source} holds an agent with am_model={model}, which looks ahead in its own games "
            "and cannot be somebody's opponent. Add another run."
        )
    if meta.get("players") != [] and not _alone_in_its_role(meta):  # none: every seat learned
        _check_took_every_seat(source)
    return weights


def _alone_in_its_role(meta: Mapping[str, Any]) -> bool:
    """Whether the agent's role has one seat, e.g. the prey's; it learned in all there are."""
    own, seats = (meta.get("policy") or {}).get("roles", []), meta.get("seat_roles", [])
    return len(own) == 1 and seats.count(own[0]) == 1


def _check_took_every_seat(source: Path) -> None:
    """An agent that learned in one seat would play at random in the others."""
    config = source.parent.parent / "config.yaml"
    saved = read_yaml(config, str(config)) if config.is_file() else {}
    if not saved.get("is_agent_shift", True):
        raise OmgError(
            f"{source} holds the learning agent of a mixed team that was trained in one seat only "
            "(is_agent_shift=false), and members of a pool sit anywhere. Add one that was trained "
            "with is_agent_shift=true."
        )


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
    meta = read_meta(source)
    steps = int(source.name) if source.name.isdecimal() else meta.get("env_steps")
    content = {
        "id": f"{run}-{steps}",
        "kind": "checkpoint",
        "run": run,
        "skill": {"newest": "final"}.get(word, str(steps) if word.isdecimal() else word),
        "split": "train",
        "env_steps": steps,
        **{key: meta[key] for key in _FROM_META if key in meta},
        "roles": (meta.get("policy") or {}).get("roles", []),
    }
    advice = "It was written by another version; use a run of this one."
    member = checked(PoolMember, json.dumps(content), source / META, advice)
    lacking = [key for key in SHAPES if key not in member.shapes]
    if lacking or steps is None:
        raise OmgError(
            f"{source / META} does not tell {', '.join(lacking) or 'env_steps'}. {advice}"
        )
    return member


def _of_the_run(member: PoolMember) -> dict[str, Any]:
    """What all checkpoints of a run say alike, also of one that went on with a newer version."""
    unsaid = {OBS_FORMAT, *OF_PLAYERS}
    return {k: v for k, v in member.policy.items() if k not in unsaid and v != UNSAID.get(k)}


def check_fits(member: PoolMember, members: Sequence[PoolMember], pool: Path) -> None:
    """A new member is new, agrees with its run, and plays the same game."""
    known = replace(member, policy=_of_the_run(member))
    for other in members:
        if other.id == member.id:
            other_one = "steps, or another name for the run if it is a different one"
            if member.kind == "scripted":
                other_one = "noise, or another script"
            raise OmgError(
                f"'{member.id}' is a member of {pool} already. Choose other {other_one}."
            )
        for key in ("algorithm", "seed", "common_reward", "policy"):
            old, new = getattr(other, key), getattr(known, key)
            old = _of_the_run(other) if key == "policy" else old
            if other.run == member.run and old != new:
                raise OmgError(
                    f"{pool} has another run called '{member.run}' ({key}={old} there, {new} "
                    "here). Give this one another name."
                )
    check_same_game(member, members, pool)


def copy_member(member: PoolMember, source: Path, pool: Path) -> PoolMember:
    """Copy the weights into the pool; the member with their hashes."""
    with new_folder(member_folder(pool, member.id)) as part:
        for path in played_files(source):
            shutil.copyfile(path, part / path.name)
        shutil.copyfile(source / META, part / META)
        write_sums(part)
        hashes = {p.name.removesuffix(".th"): sha256_of(p) for p in weight_files(part)}
        return replace(member, sha256=hashes.pop(Path(WEIGHTS).stem), model=hashes)


def played_files(source: Path) -> list[Path]:
    """The policy's weights, and those of its opponent model."""
    weights = weights_in(source)
    return [path for path in weight_files(weights.parent) if path.name not in NOT_PLAYED]


def check_source(source: Path) -> None:
    """Refuse a checkpoint whose files are not as they were saved, or hold no weights."""
    played = played_files(source)
    check_sums(source, [path.relative_to(source).as_posix() for path in played])
    for path in played:
        read_weights(path)


def read_weights(path: Path) -> dict[str, Tensor]:
    """A network's weights, and nothing else."""
    state = load_tensors(path, advice="Use another checkpoint.")
    if not isinstance(state, Mapping) or not all(isinstance(v, Tensor) for v in state.values()):
        raise OmgError(f"{path} holds no network's weights. Use another checkpoint.")
    check_finite(state, path)
    return dict(state)
