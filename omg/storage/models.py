"""`models/<step>/`: one .th file per network, opt.th, and meta.json that says what they fit."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from omg.config.loader import shipped_defaults
from omg.config.schema import mark_of, marked
from omg.storage.files import load_tensors, new_folder, read_json, save_tensors
from omg.storage.sums import check_finite, check_sums, read_sums, sha256_of, write_sums
from omg.types import OmgError, user_path

META = "meta.json"
OBS_FORMAT = "obs_format"


def save_models(
    folder: Path,
    *,
    networks: Mapping[str, nn.Module],
    optimiser: Mapping[str, Any] | None,
    meta: Mapping[str, Any],
) -> None:
    """Write a model folder in one go; without `optimiser` there is no opt.th."""
    with new_folder(folder) as part:
        for name, network in networks.items():
            file = part / file_of(name)  # a mixed team has <alg>/agent.th
            file.parent.mkdir(exist_ok=True)
            save_tensors(file, network.state_dict())
        if optimiser is not None:
            save_tensors(part / "opt.th", dict(optimiser))
        (part / META).write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
        write_sums(part)


def file_of(network: str) -> str:
    """The file of a network: <name>.th, or the name itself where it ends with .pth."""
    return network if network.endswith(".pth") else f"{network}.th"


def weight_files(folder: Path) -> list[Path]:
    """The files of networks in a folder, by name."""
    return sorted([*folder.glob("*.th"), *folder.glob("*.pth")], key=lambda path: path.name)


def weights_hash(model: Path) -> str:
    """Tells the weights in a model's folder from any others. Damaged ones are refused: no look is
    recorded of a game that cannot be played."""
    files = sorted(path for path in model.rglob("*.th") if path.name != "opt.th")
    noted = read_sums(model, "Use another checkpoint.").get("files", {})
    names = (path.relative_to(model).as_posix() for path in files)
    check_sums(model, [name for name in names if name in noted])
    sums = "".join(sha256_of(path) for path in files)
    return hashlib.sha256(sums.encode()).hexdigest()[:16]


def read_meta(folder: Path) -> dict[str, Any]:
    """What stands beside weights, as it was saved; empty where there is nothing (PyMARL's)."""
    if not (folder / META).is_file():
        return {}
    check_sums(folder, [META])
    return read_json(folder / META)


def saved_steps(models: Path) -> list[int]:
    """Steps that have a folder, ascending."""
    if not models.is_dir():
        return []
    return sorted(int(path.name) for path in models.iterdir() if path.name.isdecimal())


def prune_models(models: Path, keep: int) -> None:
    """Delete all but the newest `keep` step folders; 0 keeps everything."""
    for step in saved_steps(models)[:-keep] if keep else []:
        shutil.rmtree(models / str(step), ignore_errors=True)


def holds_models(folder: Path) -> bool:
    """Whether a folder has a network's file, such as agent.th, or <alg>/agent.th of a mixed team,
    or <alg>/vae.th of a pre-trained opponent model."""
    steps = ("last", "best")
    inside = [p for p in folder.glob("*/") if not p.name.isdigit() and p.name not in steps]
    files = [file for place in (folder, *inside) for file in weight_files(place)]
    return any(file.name != "opt.th" for file in files)


def find_model_folder(
    named: str, load_step: int, *, key: str = "checkpoint_path", holding: str = "agent.th"
) -> Path:
    """The folder a user means by a run, its models folder, or a folder with an agent.th; `key`
    and `holding` are what errors call the setting and the file."""
    path = user_path(named)
    if not path.is_dir():
        raise OmgError(f"{key}={named} is not a folder. Check the path.")
    if holds_models(path):
        return path
    models = path / "models" if (path / "models").is_dir() else path
    steps = saved_steps(models)
    if not steps:
        for name in ("last", "best"):
            if holds_models(models / name):
                return models / name
        raise OmgError(
            f"{key}={named} holds no saved model. Give a run's folder, its models folder, or a "
            f"folder with {holding}."
        )
    step = max(steps) if load_step == 0 else min(steps, key=lambda s: abs(s - load_step))
    return models / str(step)


def other_meaning(there: str, here: str) -> str:
    """What two formats of observations (`EnvSpec.obs_format`) differ in, as part of a sentence."""
    theirs, ours = (text.split(", ") for text in (there, here))
    old = ", ".join(part for part in theirs if part not in ours)
    new = ", ".join(part for part in ours if part not in theirs)
    return f"observations mean something else ({old or there} there, {new or here} here)"


def _without_consequences(
    differences: list[tuple[str, str, Any, Any]],
) -> list[tuple[str, str, Any, Any]]:
    """Leave out what differs only because something else does: the input's width, and the scale
    where the one is fed the state and the other observations. A scale on one side only is the
    setting scale_inputs."""
    keys = {key for _, key, _, _ in differences}
    follow = {"input_dim"} if len(keys) > 1 else set()
    follow |= {"scale"} if "obs_is_state" in keys else set()
    return [
        (group, "scale_inputs", old != 1.0, new != 1.0)
        if key == "scale" and 1.0 in (old, new)
        else (group, key, old, new)
        for group, key, old, new in differences
        if key not in follow
    ]


def _told(key: str, there: Any, here: Any) -> str:
    if key == OBS_FORMAT:
        return other_meaning(str(there), str(here))
    return f"{key}={there} there, {here} here"


# What only frozen players need to know of a policy.
OF_PLAYERS = marked(players=True)
# What settings were before meta.json had them: keys that came later mean what was done before.
UNSAID = {
    key: value
    for key, value in shipped_defaults().items()
    if mark_of(key).weights or key in OF_PLAYERS
}


def _fits(key: str, there: Any, here: Any) -> bool:
    """Who learned to play some roles can play any of them; everything else must be equal."""
    if key == "roles" and isinstance(there, list):
        return set(here) <= set(there)
    return bool(there == here)


# Environments with one interface: weights of one play the other where sizes and settings agree.
ALIKE = (frozenset({"battle", "sc2"}),)


def _same_interface(env: str | None, other: str) -> bool:
    return env == other or any({env, other} <= alike for alike in ALIKE)


def check_meta(
    folder: Path,
    wanted: Mapping[str, Any],
    *,
    without: Sequence[str] = (),
    groups: Sequence[str] = ("shapes", "policy"),
) -> dict[str, Any]:
    """Compare what the weights were trained with to what this run would feed them, apart from the
    settings in `without`; what meta.json says, or nothing where there is none (PyMARL's)."""
    found = read_meta(folder)
    if not found:
        return {}
    if not _same_interface(found.get("env"), wanted["env"]):
        raise OmgError(
            f"{folder} was trained on env={found.get('env')}, this run uses env={wanted['env']}. "
            "Load a checkpoint of the same environment, or change --env-config."
        )
    if "mac" in wanted and found.get("mac", wanted["mac"]) != wanted["mac"]:
        raise OmgError(
            f"{folder} was trained as {found.get('algorithm')} with mac={found['mac']}, this run "
            f"uses mac={wanted['mac']}. Use --config={found.get('algorithm')}, or load another."
        )
    differences = [
        (group, key, found[group].get(key, UNSAID.get(key)), value)
        for group in groups
        for key, value in wanted.get(group, {}).items()
        if key not in (*without, *OF_PLAYERS)
        if isinstance(found.get(group), dict)
        and not _fits(key, found[group].get(key, UNSAID.get(key, value)), value)
    ]
    differences = _without_consequences(differences)
    if differences:
        told = "; ".join(_told(key, old, new) for _, key, old, new in differences)
        # These follow from the environment's arguments, like the shapes.
        own = [d for d in differences if d[0] != "shapes" and d[1] not in ("scale", OBS_FORMAT)]
        settings = ", ".join(f"{key}={old}" for _, key, old, _ in own if key != "input_dim")
        advice = (
            f"Run with the settings it was trained with ({settings or 'see its config.yaml'})"
            if len(own) == len(differences)
            else f"It was trained with env_args={found.get('env_args')}; use the same"
        )
        raise OmgError(f"{folder} does not fit this run: {told}. {advice}, or load another.")
    return found


def load_checked(
    folder: Path,
    networks: Mapping[str, nn.Module],
    wanted: Mapping[str, Any],
    *,
    groups: Sequence[str] = ("shapes", "policy"),
) -> dict[str, Any]:
    """`check_meta`, then `load_networks`: how trained weights are read everywhere."""
    found = check_meta(folder, wanted, groups=groups)
    load_networks(folder, networks)
    return found


def load_networks(folder: Path, networks: Mapping[str, nn.Module]) -> None:
    """Load every network's file; all of them are read before any weight is changed."""
    for name in networks:
        if not (folder / file_of(name)).is_file():
            raise OmgError(f"{folder / file_of(name)} does not exist. {_what_is_there(folder)}")
    if (folder / META).is_file():
        check_sums(folder, [file_of(name) for name in networks])
    states: dict[str, Any] = {}
    for name, network in networks.items():
        path = folder / file_of(name)
        state = load_tensors(path)
        check_finite(state, path)
        current = network.state_dict()
        if not isinstance(state, Mapping) or state.keys() != current.keys():
            keys = list(state) if isinstance(state, Mapping) else [f"one {type(state).__name__}"]
            raise OmgError(
                f"{path} holds {', '.join(map(str, keys))}; expected "
                f"{', '.join(current)}. It belongs to another kind of network (policy_model)."
            )
        for key, value in current.items():
            shape = tuple(state[key].shape) if isinstance(state[key], Tensor) else "none"
            if shape != value.shape and key not in getattr(network, "resizable", ()):
                raise OmgError(
                    f"{path}: {key} has shape {shape}, this run "
                    f"needs {tuple(value.shape)}. Use the environment and the input settings "
                    "(obs_is_state, obs_last_action, obs_agent_id) it was trained with."
                )
        states[name] = state
    for name, network in networks.items():
        network.load_state_dict(states[name])


def _what_is_there(folder: Path) -> str:
    """The networks a folder holds and who wrote them, and what to do if others are needed."""
    files = [*weight_files(folder), *(f for sub in folder.glob("*/") for f in weight_files(sub))]
    names = sorted(str(path.relative_to(folder)) for path in files if path.name != "opt.th")
    there = ", ".join(names) or "no networks"
    meta = read_json(folder / META) if (folder / META).is_file() else {}
    writer = ""
    if "algorithm" in meta:
        writer = f" of {meta['algorithm']} (learner={meta.get('learner')})"
    return (
        f"The folder holds {there}{writer}: use the algorithm it was written by, or load another."
    )
