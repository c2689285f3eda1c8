"""Opponent models that were trained before, by `am_learner` or in another run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omg.config.schema import Config, marked
from omg.modules.opponent_models import OpponentModel
from omg.storage.models import check_meta, file_of, find_model_folder, load_networks
from omg.types import OmgError, user_path

# Settings that an opponent model's weights do not depend on.
POLICY_ONLY = ("input_dim", *marked(weights=True, prior=False))


def find_weights(config: Config, file: str, *, what: str) -> Path:
    """The file that init_param_path names: in a folder with <alg>/<file> or <file>, in a run made
    by am_learner, or in one of a folder of runs that is called like the algorithm."""
    name = config.train_alg or config.name
    root = user_path(config.init_param_path)
    if (root / name / file).is_file():
        folder = root
    else:
        named = str(root / name if (root / name).is_dir() else root)
        folder = find_model_folder(named, 0, key="init_param_path", holding=f"{name}/{file}")
    made = sorted(folder.glob(f"*/{file}"))
    weights = folder / name / file
    if not weights.is_file() and (folder / file).is_file():  # of a team that played (basic_mac)
        weights = folder / file
    elif not weights.is_file() and len(made) == 1:  # of another algorithm: its policy is not used
        weights = made[0]
    if not weights.is_file():
        raise OmgError(
            f"init_param_path={config.init_param_path} holds no {what} ({folder / name}/{file} "
            f"does not exist). Pre-train one with --config={config.team or name} "
            "--learner=am_learner, or give another folder."
        )
    return weights


def model_folder(weights: Path) -> tuple[Path, str]:
    """The folder whose meta.json speaks of a file, and what stands before the file's name in it."""
    if (weights.parent / "meta.json").is_file():
        return weights.parent, ""
    return weights.parent.parent, f"{weights.parent.name}/"


def load_pretrained(
    config: Config, meta: Mapping[str, Any], model: OpponentModel
) -> dict[str, str]:
    """Begin with the weights of a pre-trained model where init_param_path holds them; what to
    show. A team string's folder need not hold them: it is there for the others."""
    files = model.files()
    if not (config.init_param_path and files):
        return {}
    try:
        weights = find_weights(config, file_of(next(iter(files))), what="opponent model")
    except OmgError:
        if config.multi_algs:
            return {}
        raise
    folder, inside = model_folder(weights)
    check_meta(folder, without_mac(meta), without=POLICY_ONLY)
    load_networks(folder, {f"{inside}{name}": part for name, part in files.items()})
    return {"opponent model": str(weights.parent)}


def without_mac(meta: Mapping[str, Any]) -> dict[str, Any]:
    """What weights are compared with that a team of another kind may have gathered."""
    return {key: value for key, value in meta.items() if key != "mac"}
