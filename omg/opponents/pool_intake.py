"""Taking checkpoints into a pool: which steps of a run, whether they fit, copying them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from omg.config.loader import read_yaml
from omg.modules.opponent_models import OPPONENT_MODELS
from omg.opponents.pool_manifest import (
    SHAPES,
    WEIGHTS,
    PoolMember,
    check_same_game,
    member_folder,
)
from omg.storage.files import checked, load_tensors, new_folder
from omg.storage.models import META, OBS_FORMAT, OF_PLAYERS, UNSAID, read_meta, saved_steps
from omg.storage.sums import check_finite, check_sums, sha256_of, write_sums
from omg.types import OmgError

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
        if list(source.glob("*/vae.th")):
            raise OmgError(f"{source} holds a subgoal prior and no agent. Add another run.")
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
            raise OmgError(
                f"'{member.id}' is a member of {pool} already. Choose other steps, or another "
                "name for the run if it is a different one."
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
        hashes = {path.stem: sha256_of(path) for path in sorted(part.glob("*.th"))}
        return replace(member, sha256=hashes.pop(Path(WEIGHTS).stem), model=hashes)


def played_files(source: Path) -> list[Path]:
    """The policy's weights, and those of its opponent model."""
    weights = weights_in(source)
    return [path for path in sorted(weights.parent.glob("*.th")) if path.name not in NOT_PLAYED]


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
