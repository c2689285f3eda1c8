"""From a configuration to a line-up: who learns, and the frozen players of a team or a pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from omg.config.schema import Config
from omg.config.team import check_team_size, parse_team
from omg.modules.agents.stacked import can_be_stacked
from omg.opponents.lineups import EveryoneLearns, LineUp, OneLearns, PoolDraw, RoleLearns, Shift
from omg.opponents.players import PlayerGroup, Players, ScriptGroup, SingleGroup, StackedGroup
from omg.opponents.pool import OpponentPool, PoolMember
from omg.opponents.sides import members_of_tests, training_members
from omg.opponents.unseen import record_seated
from omg.policies.inputs import InputSettings
from omg.policies.policy import Policy, build_model
from omg.storage.models import (
    OBS_FORMAT,
    UNSAID,
    find_model_folder,
    load_networks,
    other_meaning,
    read_meta,
)
from omg.types import EnvSpec, OmgError, user_path

# What a description must say so that its policy can be built.
NEEDED = ("input_dim", "policy_model", "obs_is_state", "obs_last_action", "obs_agent_id")


# --- who learns ----------------------------------------------------------------------------------


def team_lineup(config: Config, spec: EnvSpec, device: torch.device) -> LineUp:
    """Every seat learns, or those of `learning_role` beside players of a pool."""
    if not config.learning_role:
        return EveryoneLearns(spec)
    if config.multi_algs or not config.opponent_pool:
        raise _needs_pool(config)
    role = learning_role(config, spec)
    return _role_lineup(config, spec, device, training_members(config, spec), role)


def agent_lineup(
    config: Config, spec: EnvSpec, device: torch.device, *, gathering: bool = False
) -> LineUp:
    """One agent learns among the others of a team string or of a pool; without either, every seat
    learns. `gathering`: nobody learns to act, frozen players take all seats."""
    if config.opponent_pool and config.multi_algs:
        raise OmgError(
            "The others come from a team string (--multi_algs) or from opponent_pool, not both. "
            "Leave out one of them."
        )
    if config.multi_algs:
        return _team_string_lineup(config, spec, device, gathering=gathering)
    if config.opponent_pool:
        return pool_lineup(
            config, spec, device, training_members(config, spec), gathering=gathering
        )
    if config.learning_role:
        raise _needs_pool(config)
    return EveryoneLearns(spec)


def lineup_of_tests(
    config: Config, spec: EnvSpec, device: torch.device, *, whole: bool
) -> LineUp | None:
    """The line-up of a run's tests, where the pool has a validation side; `whole`: all seats of the
    learning role are taken. None: tests are played with those of training."""
    found = members_of_tests(config, spec)
    if found is None:
        return None
    if whole:
        return _role_lineup(config, spec, device, found, learning_role(config, spec))
    return pool_lineup(config, spec, device, found)


def _role_lineup(
    config: Config,
    spec: EnvSpec,
    device: torch.device,
    pool: tuple[OpponentPool, Sequence[PoolMember]],
    role: str,
) -> RoleLearns:
    players, members = pool_players(config, spec, device, pool)
    draw = PoolDraw(members, spec.roles, config.lineup_mode)
    return RoleLearns(spec, role, players=players, draw=draw)


def _needs_pool(config: Config) -> OmgError:
    return OmgError(
        f"learning_role={config.learning_role} trains the seats of one role beside players of a "
        "pool. Give opponent_pool=<folder> and no team string, or leave learning_role out: then "
        "every seat learns."
    )


def learning_role(config: Config, spec: EnvSpec) -> str:
    """The role of who learns: the one named, or that of the seat `agent_shift`; empty where seats
    have none."""
    if not config.learning_role:
        return spec.roles[config.agent_shift % spec.n_agents] if spec.roles else ""
    if config.learning_role not in spec.roles:
        known = ", ".join(dict.fromkeys(spec.roles)) or "none: all seats are alike"
        raise OmgError(
            f"learning_role={config.learning_role} is no role of {spec.name}. Its roles: {known}."
        )
    return config.learning_role


def _shift(config: Config) -> Shift:
    return config.agent_shift_mode if config.is_agent_shift else "fixed"


# --- pools ---------------------------------------------------------------------------------------


def pool_lineup(
    config: Config,
    spec: EnvSpec,
    device: torch.device,
    pool: tuple[OpponentPool, Sequence[PoolMember]],
    *,
    gathering: bool = False,
) -> OneLearns:
    """One agent among members of a pool."""
    players, members = pool_players(config, spec, device, pool)
    role = learning_role(config, spec)
    own, seat = spec.seats_of(role), config.agent_shift % spec.n_agents
    return OneLearns(
        spec,
        role,
        players=players,
        others=PoolDraw(members, spec.roles, config.lineup_mode),
        seat=own.index(seat) if seat in own else seat % len(own),
        shift=_shift(config),
        gathering=gathering,
    )


def pool_players(
    config: Config,
    spec: EnvSpec,
    device: torch.device,
    pool: tuple[OpponentPool, Sequence[PoolMember]],
) -> tuple[Players, tuple[PoolMember, ...]]:
    """Members of a pool as players, trained ones first. All games with a pool have their players
    from here; held-out ones are recorded, unless the caller does (`omg.opponents.unseen`)."""
    opened, members = pool
    if not members:
        raise OmgError(f"{opened.path} has no member to draw. Add some with 'omg pool add'.")
    for member in members:
        _check_env(f"{opened.path}: member {member.id}", member.env, config)
    trained = [m for m in members if m.kind == "checkpoint"]
    scripts = [(m, m.script) for m in members if m.script is not None]
    policies = []
    for member in trained:
        policy = frozen_policy(
            member.policy,
            config=config,
            spec=spec,
            device=device,
            who=f"{opened.path}: member {member.id}",
        )
        opened.load_weights(member, policy.networks())
        policies.append(policy)
    groups = group_policies(policies, epsilon=config.opponent_epsilon, device=device)
    if scripts:
        numbers = range(len(trained), len(trained) + len(scripts))
        group = ScriptGroup([script for _, script in scripts], config.env, config.env_args)
        groups.append((group, numbers))
    everyone = (*trained, *(member for member, _ in scripts))
    record_seated(opened, everyone, options={"config": config.name, "seed": config.seed})
    return Players([m.id for m in everyone], groups, spec.n_agents), everyone


# --- team strings --------------------------------------------------------------------------------


def _team_string_lineup(
    config: Config, spec: EnvSpec, device: torch.device, *, gathering: bool
) -> OneLearns:
    seats = parse_team(config.team, [config.train_alg, *config.team_algs])
    check_team_size(config.team, seats, spec.n_agents)
    names = tuple(config.team_algs)
    policies = [_team_policy(config, name, spec, device) for name in names]
    groups = group_policies(policies, epsilon=config.opponent_epsilon, device=device)
    seat = seats.index(config.train_alg)
    role = spec.roles[seat] if spec.roles else ""
    if config.learning_role not in ("", role):
        raise OmgError(
            f"learning_role={config.learning_role}, but {config.train_alg} of the team "
            f"{config.team} sits in seat {seat}, which is a {role or 'seat without a role'}. "
            "Order the team by the seats, or leave learning_role out."
        )
    return OneLearns(
        spec,
        role,
        players=Players(names, groups, spec.n_agents),
        others=np.array([names.index(s) if s in names else -1 for s in seats], np.int64),
        seat=spec.seats_of(role).index(seat),
        shift=_shift(config),
        gathering=gathering,
    )


def _team_policy(config: Config, name: str, spec: EnvSpec, device: torch.device) -> Policy:
    """A frozen algorithm of a team with its weights."""
    own = _own_config(config, config.team_algs[name], name)
    folder = team_folder(config, name)
    inside = f"{name}/" if (folder / name / "agent.th").is_file() else ""
    unsaid = ""
    if meta := read_meta(folder):
        _check_env(str(folder), str(meta.get("env", config.env)), config)
        described = meta.get("policy", {})
        policy = frozen_policy(described, config=own, spec=spec, device=device, who=str(folder))
    else:
        policy = Policy(config=own, spec=spec, device=device, model=build_model(own, spec))
        _check_model(policy, str(folder))
        unsaid = (
            f" There is no meta.json, so the settings of {name} come from {name}.yaml and this "
            f"configuration: team_algs.{name}.<key>=<value> changes them for {name} alone."
        )
    networks = {f"{inside}{file}": part for file, part in policy.networks().items()}
    try:
        load_networks(folder, networks)
    except OmgError as error:
        raise OmgError(f"{error}{unsaid}") from error
    return policy


def team_folder(config: Config, name: str) -> Path:
    """Where the weights of a team's frozen algorithm lie."""
    if not config.init_param_path:
        raise OmgError(
            f"The team {config.team} needs the weights of {', '.join(config.team_algs)}. Give "
            "init_param_path=<folder> that holds <alg>/agent.th for each."
        )
    root = user_path(config.init_param_path)
    if not (root / name).is_dir():
        raise OmgError(
            f"init_param_path={config.init_param_path} has no folder '{name}', and the team "
            f"{config.team} needs the weights of {name}. Put its run, or its agent.th, there."
        )
    return find_model_folder(str(root / name), 0, key="init_param_path")


# --- frozen policies -----------------------------------------------------------------------------


def _check_env(who: str, env: str, config: Config) -> None:
    if env != config.env:
        raise OmgError(
            f"{who} plays env={env}, this run uses env={config.env}. Use opponents of "
            "the same environment."
        )


def frozen_policy(
    described: Mapping[str, Any], *, config: Config, spec: EnvSpec, device: torch.device, who: str
) -> Policy:
    """A policy as `Policy.describe` told it, with fresh weights, if it fits this environment.
    `who` is how messages call it."""
    missing = [key for key in NEEDED if key not in described]
    if missing:
        raise OmgError(f"{who} does not say its {', '.join(missing)}. Save it again.")
    seats = described.get("n_agents", spec.n_agents)
    if seats != spec.n_agents:
        raise OmgError(
            f"{who} has weights for {seats} seats, this environment has {spec.n_agents}. "
            "Use the environment it was trained on."
        )
    meaning = described.get(OBS_FORMAT, spec.obs_format)
    if meaning != spec.obs_format and not described["obs_is_state"]:
        raise OmgError(
            f"{who} does not fit this environment: {other_meaning(meaning, spec.obs_format)}. "
            "Use the env_args it was trained with, or other opponents."
        )
    policy = _as_described(described, config=config, spec=spec, device=device, who=who)
    if policy.inputs.dim != described["input_dim"]:
        raise OmgError(
            f"{who} was trained with inputs of width {described['input_dim']} "
            f"(obs_is_state={described['obs_is_state']}), this environment gives "
            f"{policy.inputs.dim}. Use the environment it was trained on."
        )
    _check_model(policy, who)
    return policy


def _check_model(policy: Policy, who: str) -> None:
    if policy.model is not None and policy.model.needs_foresight:
        raise OmgError(
            f"{who} has am_model={policy.config.am_model}, which looks ahead in the learning "
            "agent's game only. Use other opponents."
        )


def _own_config(config: Config, settings: Mapping[str, Any], who: str) -> Config:
    """A frozen policy's settings; it plays and samples no batches."""
    try:
        return Config.model_validate({**config.as_dict(), **settings, "batch_size": 1})
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = ".".join(map(str, problem["loc"]))
        raise OmgError(
            f"{who} has {key}={str(problem['input'])[:60]}, which is not possible. Use another."
        ) from error


def _as_described(
    described: Mapping[str, Any], *, config: Config, spec: EnvSpec, device: torch.device, who: str
) -> Policy:
    scale = float(described.get("scale", 1.0))
    settings = {key: described[key] for key in Config.model_fields.keys() & described.keys()}
    settings.setdefault("scale_inputs", scale != 1.0)
    own = _own_config(config, {**UNSAID, **settings}, who)
    return Policy(
        config=own,
        spec=spec,
        device=device,
        model=build_model(own, spec) if "am_model" in described else None,
        settings=InputSettings(
            obs_is_state=own.obs_is_state,
            obs_last_action=own.obs_last_action,
            obs_agent_id=own.obs_agent_id,
            scale=scale,
        ),
    )


def group_policies(
    policies: Sequence[Policy], *, epsilon: float, device: torch.device
) -> list[tuple[PlayerGroup, Sequence[int]]]:
    """Policies of equal architecture and inputs share a group; each with its members' numbers."""
    kinds: dict[object, list[int]] = {}
    for number, policy in enumerate(policies):
        stackable = not policy.feature_dim and can_be_stacked(policy.network)
        shapes = [(key, value.shape) for key, value in policy.network.state_dict().items()]
        present = policy.config.am_present and policy.rows.state_scale
        kind = (type(policy.network), policy.inputs.settings, present, str(shapes))
        kinds.setdefault(kind if stackable else number, []).append(number)
    return [
        (
            (SingleGroup if isinstance(kind, int) else StackedGroup)(
                [policies[number] for number in members], epsilon=epsilon, device=device
            ),
            members,
        )
        for kind, members in kinds.items()
    ]
