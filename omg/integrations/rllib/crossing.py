"""Policies cross over: what a run of ours trained plays in RLlib, and what RLlib trained becomes a
run of ours, which can be loaded, tested, and join a pool.

What is written is our own format: weights with checksums that are read with `weights_only`, YAML
and JSON. RLlib's checkpoints are pickles; load only your own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from omg.config.loader import dump
from omg.config.schema import Config
from omg.controllers.team import TeamMAC
from omg.experiment.trained import model_meta, read_run
from omg.integrations.rllib.modules import OmgModule
from omg.integrations.rllib.settings import Settings, game_spec, window_of
from omg.opponents.lineups import EveryoneLearns
from omg.runners.assembly import make_controller
from omg.storage.files import write_text, writing
from omg.storage.models import check_meta, save_models
from omg.types import EnvSpec, OmgError, user_path

CPU = torch.device("cpu")
# Two games in which a policy sees and does the same.
SAME = ("n_agents", "n_actions", "obs_dim", "state_dim", "obs_format", "roles", "leavers")


def run_settings(
    run: str | os.PathLike[str], which: str = "last", *, window: int | None = None
) -> Settings:
    """The policy of one of our runs, for a module: `which` is last, best or a saved step."""
    found = read_run(run, which)
    config = _alone(found.config)
    spec = game_spec(config)
    roles = (found.meta.get("policy") or {}).get("roles") or spec.roles
    mac = _controller(config, spec, tuple(roles))
    if mac.model is not None and mac.model.needs_foresight:
        raise OmgError(
            f"{run} has am_model={config.am_model}, which looks ahead in its own games and cannot "
            "play in RLlib. Take another run."
        )
    check_meta(found.model, model_meta(config, spec, mac))
    seats = tuple(s for s in range(spec.n_agents) if not spec.roles or spec.roles[s] in roles)
    return Settings(
        config=config,
        spec=spec,
        seats=seats,
        window=window_of(config, spec, window),
        weights=str(found.model),
    )


def check_same_game(player: Settings, here: Settings) -> None:
    """Refuse a policy that would see or do something else in this game."""
    for key in SAME:
        there, wanted = getattr(player.spec, key), getattr(here.spec, key)
        if there != wanted:
            raise OmgError(
                f"{player.weights or 'The policy'} was trained with {key}={there}, this game has "
                f"{wanted}. Use the environment and env_args it was trained with."
            )


def check_start(start: Settings, here: Settings) -> None:
    """Refuse weights of another kind of policy."""
    roles = here.spec.roles
    wanted = model_meta(here.config, here.spec, _controller(here.config, here.spec, roles))
    check_meta(Path(start.weights), wanted)


def _alone(config: Config) -> Config:
    """A configuration without the others that a run met; they are RLlib's policies now."""
    others = {"opponent_pool": "", "multi_algs": False, "learning_role": ""}
    return Config.model_validate({**config.as_dict(), **others})


def _controller(config: Config, spec: EnvSpec, roles: tuple[str, ...]) -> TeamMAC:
    mac = make_controller(config, spec, CPU, lineup=EveryoneLearns(spec, roles or None))
    if not isinstance(mac, TeamMAC):
        raise OmgError(f"mac={config.mac} is none of ours. Use basic_mac or multi_module_mac.")
    return mac


def export_module(module: OmgModule, folder: str | os.PathLike[str], *, env_steps: int) -> Path:
    """Write what a module has learned as a run of ours: `config.yaml` and `models/<env_steps>`.
    Add it to a pool with `omg pool add <pool> <folder>`; the folder."""
    settings = module.settings
    config, spec = settings.config, settings.spec
    _check_seats(settings)
    path = user_path(folder)
    if (path / "config.yaml").exists() and (path / "config.yaml").read_text() != dump(config):
        raise OmgError(f"{path} holds another run. Choose another folder.")
    roles = tuple(spec.roles[seat] for seat in settings.seats) if spec.roles else ()
    mac = _controller(config, spec, roles)
    trained = module.policy.networks()
    for name, network in mac.policy.networks().items():
        network.load_state_dict(trained[name].state_dict())
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
    meta = {**model_meta(config, spec, mac), "env_steps": env_steps, "trained_by": "rllib"}
    for name in (str(env_steps), "last"):
        save_models(path / "models" / name, networks=mac.networks(), optimiser=None, meta=meta)
    write_text(path / "config.yaml", dump(config))
    return path


def _check_seats(settings: Settings) -> None:
    """Members of a pool sit in any seat of their roles."""
    spec, own = settings.spec, set(settings.seats)
    wanted = {s for seat in own for s in spec.seats_of(spec.roles[seat] if spec.roles else "")}
    if own != wanted and settings.config.obs_agent_id:
        raise OmgError(
            f"The policy learned in seat {', '.join(map(str, sorted(own)))} only and is told its "
            "seat (obs_agent_id), so it would play at random in the others. Train with "
            "obs_agent_id=false, or with policies='role'."
        )


def export_policy(algorithm: Any, policy: str, folder: str | os.PathLike[str]) -> Path:
    """As `export_module`, of a policy that an RLlib algorithm is training."""
    known = policy in algorithm.config.policies
    module = algorithm.get_module(policy) if known else None
    if not isinstance(module, OmgModule):
        raise OmgError(f"The algorithm has no policy '{policy}' of ours. Name one of its own.")
    steps = int(algorithm.metrics.peek(("env_runners", "num_env_steps_sampled_lifetime"), 0))
    return export_module(module, folder, env_steps=steps)


def load_module(checkpoint: str | os.PathLike[str], policy: str) -> OmgModule:
    """The module of one policy from a checkpoint of an algorithm. It is a pickle: your own only."""
    path = user_path(checkpoint) / "learner_group" / "learner" / "rl_module" / policy
    if not path.is_dir():
        raise OmgError(f"{checkpoint} has no policy '{policy}'. Give the folder of a checkpoint.")
    module = OmgModule.from_checkpoint(path)
    assert isinstance(module, OmgModule)
    return module
