"""How a rollout follows from a configuration; one place for the run and for its collector."""

from __future__ import annotations

import torch

from omg.components.scheme import Scheme, environment_scheme
from omg.components.seeding import SeedTree
from omg.config.schema import Config
from omg.controllers.base import Controller
from omg.envs.contract import BatchedEnv
from omg.runners.rollout import Rollout
from omg.types import EnvSpec


def episode_scheme(config: Config, spec: EnvSpec, mac: Controller) -> Scheme:
    """What the episodes of a run hold that are played by `mac`."""
    fields = environment_scheme(
        spec, common_reward=config.common_reward, buffer_dtype=config.buffer_dtype
    )
    return fields.extend(mac.record_fields())


def make_rollout(
    config: Config,
    *,
    env: BatchedEnv,
    mac: Controller,
    stream: str,
    device: torch.device,
    greedy: bool = False,
) -> Rollout:
    """A rollout that draws from the random streams named `stream`."""
    return Rollout(
        env=env,
        mac=mac,
        scheme=episode_scheme(config, env.spec, mac),
        seeds=SeedTree(config.seed),
        stream=stream,
        device=device,
        common_reward=config.common_reward,
        reward_scalarisation=config.reward_scalarisation,
        gamma=config.gamma,
        greedy=greedy,
    )
