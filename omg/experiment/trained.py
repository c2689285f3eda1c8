"""What a run has trained: its folder, and its players with their weights."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from omg.config.arguments import Arguments
from omg.config.loader import load_saved
from omg.config.schema import Config
from omg.controllers.base import Controller
from omg.learners import LEARNERS, Learner
from omg.opponents.lineups import LineUp
from omg.opponents.sides import training_members
from omg.opponents.unseen import record_seated, recorded
from omg.runners.assembly import make_controller
from omg.storage.files import load_tensors, read_json
from omg.storage.models import (
    META,
    holds_models,
    load_checked,
    read_meta,
    saved_steps,
    weights_hash,
)
from omg.storage.sums import check_finite, check_sums
from omg.types import EnvSpec, OmgError, user_path


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """A run as it left its folder."""

    folder: Path
    config: Config
    model: Path  # the folder of the weights
    meta: dict[str, Any]  # what is written beside them

    @property
    def env_steps(self) -> int:
        """How long it had trained when they were saved."""
        return int(self.meta.get("env_steps", 0))


def read_run(folder: str | os.PathLike[str], which: str = "last") -> TrainedRun:
    """Read a run's configuration and find its weights: `last`, `best`, `newest` (of the saved
    steps) or a saved step."""
    folder = user_path(folder)
    if not (folder / "config.yaml").is_file():
        raise OmgError(f"{folder} is not a run (no config.yaml in it). Give the folder of a run.")
    config = load_saved(folder / "config.yaml", Arguments()).config
    if LEARNERS[config.learner].gathers:
        raise OmgError(
            f"{folder} trained an opponent model (am_model={config.am_model}), not an agent. Give "
            "a run that used it (init_param_path)."
        )
    model = _model_folder(folder, which)
    return TrainedRun(folder, config, model, read_meta(model))


def _model_folder(run: Path, which: str) -> Path:
    models = run / "models"
    steps = [step for step in saved_steps(models) if holds_models(models / str(step))]
    named = [name for name in ("last", "best") if holds_models(models / name)]
    if not (steps or named):
        raise OmgError(f"{run} has no saved model. Train it with save_model=true, or give another.")
    if which in (*named, *map(str, steps)):
        return models / which
    if which in ("last", "newest") and steps:  # `last` is missing where a run was killed early
        return models / str(steps[-1])
    if which == "newest":
        return models / named[0]
    raise OmgError(
        f"{run} has no model '{which}'. It has: {', '.join([*named, *map(str, steps)])}."
    )


def load_players(
    run: TrainedRun,
    spec: EnvSpec,
    device: torch.device,
    *,
    config: Config | None = None,
    lineup: LineUp | None = None,
    episodes: int = 0,
    options: Mapping[str, Any] | None = None,
) -> Controller:
    """The players of a run with their weights, if those fit the environment; `config` in place of
    the run's, `lineup` in place of the others it was trained with. Where some of those are held
    out, the look is recorded: so many `episodes`, played with these `options`."""
    config = config or run.config
    with recorded():
        mac = make_controller(config, spec, device, lineup=lineup)
    load_checked(run.model, mac.networks(), model_meta(config, spec, mac))
    if lineup is None and config.opponent_pool and config.opponent_members:
        pool, met = training_members(config, spec)
        record_seated(
            pool,
            met,
            runs=lambda: {str(run.folder): weights_hash(run.model)},
            episodes=episodes,
            options=options,
        )
    return mac


def load_optimiser(folder: Path, learner: Learner, config: Config) -> None:
    """The moments that lie beside weights, if there are any; they must be this learner's."""
    path = folder / "opt.th"
    if not path.is_file():
        return
    if (folder / META).is_file():
        check_sums(folder, [path.name])
    moments = load_tensors(path)
    check_finite(moments, path)
    try:
        learner.load_optimiser_state(moments)
    except (ValueError, KeyError, TypeError) as error:
        meta = read_json(folder / META) if (folder / META).is_file() else {}
        raise OmgError(
            f"{path} was written by {meta.get('algorithm', 'another program')} and does not fit "
            f"optimizer={config.optimizer} of {config.name}: {error}. Use the algorithm and "
            "optimiser it was saved with, or delete the file to start the optimiser again."
        ) from error


def model_meta(config: Config, spec: EnvSpec, mac: Controller) -> dict[str, Any]:
    """What is written beside weights and compared when they are loaded."""
    meta: dict[str, Any] = {
        "format": 1,
        "version": package_version(),
        "algorithm": config.name,
        "learner": config.learner,
        "mac": config.mac,
        "mixer": config.mixer,
        "seed": config.seed,
        "common_reward": config.common_reward,
        "env": config.env,
        "env_args": dict(config.env_args),
        "shapes": {
            "n_agents": spec.n_agents,
            "n_actions": spec.n_actions,
            "obs_dim": spec.obs_dim,
            "state_dim": spec.state_dim,
        },
        "policy": mac.describe(),
        "players": mac.players(),
    }
    if config.reward_weights:
        meta["reward_weights"] = config.as_dict()["reward_weights"]
    if spec.roles:
        meta["seat_roles"] = list(spec.roles)
    if config.critic:  # what its weights depend on; compared when training goes on with them
        meta["critic"] = {
            "critic": config.critic,
            "critic_args": dict(config.critic_args),
            "critic_hidden_dims": list(config.critic_hidden_dims),
            "standardise_values": config.standardise_values,
        }
    return meta


def package_version() -> str:
    """Ours."""
    try:
        return version("omg-marl")
    except PackageNotFoundError:
        return "unknown"
