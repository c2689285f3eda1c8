"""How runners, controllers, learners and rollouts follow from a configuration."""

from __future__ import annotations

import math
import os
from typing import Any, ClassVar

import torch

from omg.components.episodes import Scheme, environment_scheme
from omg.components.seeding import SeedTree
from omg.config.schema import Config
from omg.controllers import CONTROLLERS, Controller
from omg.envs.contract import BatchedEnv
from omg.envs.registry import BatchFactory, make_batched
from omg.envs.workers import WorkerVectorEnv
from omg.learners import LEARNERS, Learner
from omg.learners.reward_unit import RewardUnit
from omg.opponents.lineups import LineUp
from omg.registry import Registry
from omg.runners.rewards import reweighting_of
from omg.runners.rollout import Rollout
from omg.types import EnvSpec, OmgError


class Runner:
    """Makes the copies that `Rollout` steps together. Built with a configuration."""

    in_process: ClassVar[bool] = True  # False: the copies live in other processes

    def __init__(self, config: Config) -> None:
        self.config = config

    @property
    def n_training(self) -> int:
        """How many copies a training steps together."""
        return self.config.batch_size_run

    @property
    def n_tests(self) -> int:
        """How many copies a test steps together; never more than it has episodes."""
        wanted = self.config.test_batch_size_run or self.n_training
        return min(wanted, self.config.test_nepisode)

    def copies(self, n_copies: int) -> BatchedEnv:
        """So many copies; native arrays, or one after the other."""
        return make_batched(self.config.env, self.config.env_args, n_copies=n_copies)


class EpisodeRunner(Runner):
    """One copy, as in PyMARL's `episode` runner."""

    @property
    def n_training(self) -> int:
        return 1


# How long a worker may take to import what it needs, before it makes its environment.
IMPORT_SECONDS = 20.0


class ParallelRunner(Runner):
    """Copies spread over worker processes."""

    in_process = False

    def copies(self, n_copies: int) -> BatchedEnv:
        config = self.config
        return WorkerVectorEnv(
            factory=BatchFactory(config.env, dict(config.env_args)),
            n_copies=n_copies,
            n_workers=worker_count(config, n_copies, cores=os.cpu_count() or 1),
            timeout=config.worker_timeout,
            start_timeout=config.worker_timeout + IMPORT_SECONDS,
            on_failure=config.on_worker_failure,
            max_restarts=config.max_worker_restarts,
        )


def worker_count(config: Config, n_copies: int, *, cores: int) -> int:
    """How many workers hold so many copies; `cores`: how many there are at most by default."""
    each, most = config.copies_per_worker, config.n_workers
    if not each:
        return min(n_copies, most or cores)
    needed = math.ceil(n_copies / each)
    if most and needed > most:
        raise OmgError(
            f"n_workers={most} with copies_per_worker={each} hold {most * each} copies, not "
            f"{n_copies}. Leave one of the two at 0, or lower batch_size_run."
        )
    return needed


RUNNERS: Registry[type[Runner]] = Registry(
    "runner",
    {
        "episode": "omg.runners.assembly:EpisodeRunner",
        "batch": "omg.runners.assembly:Runner",
        "parallel": "omg.runners.assembly:ParallelRunner",
        "ray": "omg.integrations.ray.runner:RayRunner",
    },
    base=Runner,
)


def runner_of(config: Config) -> Runner:
    """The configured runner."""
    return RUNNERS[config.runner](config)


def build_learner(
    config: Config, *, spec: EnvSpec, mac: Controller, device: torch.device
) -> Learner:
    """The configured learner of a controller's networks."""
    learner = LEARNERS.build(
        config.learner, config.learner_args, config=config, spec=spec, mac=mac, device=device
    )
    if config.standardise_rewards and not learner.gathers:
        learner.reward_unit = RewardUnit(mac.seats).to(device)
    return learner


def make_controller(
    config: Config, spec: EnvSpec, device: torch.device, *, lineup: LineUp | None = None
) -> Controller:
    """Who acts in a run; with a `lineup` in place of the configured one."""
    gathering = LEARNERS[config.learner].gathers
    return CONTROLLERS.build(
        config.mac, {}, config=config, spec=spec, device=device, gathering=gathering, lineup=lineup
    )


def episode_scheme(
    config: Config, spec: EnvSpec, mac: Controller, *, common_reward: bool | None = None
) -> Scheme:
    """What the episodes hold that `mac` plays; rewards as configured unless said otherwise."""
    common = config.common_reward if common_reward is None else common_reward
    fields = environment_scheme(spec, common_reward=common, buffer_dtype=config.buffer_dtype)
    return fields.extend(mac.record_fields())


def make_rollout(
    config: Config,
    *,
    env: BatchedEnv,
    mac: Controller,
    stream: str,
    device: torch.device,
    greedy: bool = False,
    seed: int | None = None,
    common_reward: bool | None = None,
    learns: bool = False,
    kind: type[Rollout] = Rollout,
    **more: Any,
) -> Rollout:
    """A rollout that draws from the random streams named `stream`. `seed` and `common_reward` are
    the configuration's unless given; `learns`: its episodes are learned from, so `reward_weights`
    count; `more` goes to a `kind` of one's own."""
    common = config.common_reward if common_reward is None else common_reward
    return kind(
        env=env,
        mac=mac,
        scheme=episode_scheme(config, env.spec, mac, common_reward=common),
        seeds=SeedTree(config.seed if seed is None else seed),
        stream=stream,
        device=device,
        common_reward=common,
        reward_scalarisation=config.reward_scalarisation,
        limit_terminates=config.limit_terminates,
        reweighting=reweighting_of(config.reward_weights, env.spec) if learns else None,
        gamma=config.gamma,
        greedy=greedy,
        **more,
    )
