"""What is refused before anything is built: what cannot be trained, is ignored, or cannot fit."""

from __future__ import annotations

import os

from omg.components.episodes import environment_scheme
from omg.config.schema import Config
from omg.controllers import CONTROLLERS
from omg.learners import LEARNERS
from omg.modules.agents import AGENTS
from omg.modules.critics import CRITICS
from omg.modules.mixers import MIXERS
from omg.modules.opponent_models import OPPONENT_MODELS, model_kind, model_name
from omg.opponents.building import team_folder
from omg.opponents.pool import OpponentPool
from omg.policies.policy import check_options
from omg.runners import RUNNERS
from omg.runners.assembly import Runner
from omg.storage.models import find_model_folder
from omg.types import EnvSpec, OmgError


def sanity_check(config: Config) -> None:
    """Refuse before anything is built what can be refused by then."""
    if config.evaluate and not config.checkpoint_path:
        raise OmgError("evaluate needs a model. Give checkpoint_path=<run or models folder>.")
    if config.resume and (config.evaluate or config.checkpoint_path):
        raise OmgError("resume continues a run as it was. Leave out evaluate and checkpoint_path.")
    LEARNERS[config.learner].check(config)
    _check_settings(config)
    if not config.resume:
        _check_effect(config)
    if config.checkpoint_path:
        find_model_folder(config.checkpoint_path, config.load_step)
    if config.opponent_pool:
        OpponentPool.open(config.opponent_pool)
    for name in config.team_algs:
        team_folder(config, name)


def _check_settings(config: Config) -> None:
    """Settings of parts, which the parts themselves know."""
    check_options(config)
    LEARNERS.check(config.learner, config.learner_args)
    CONTROLLERS.check(config.mac, {})
    AGENTS.check(config.policy_model, config.agent_args)
    OPPONENT_MODELS.check(model_name(config), config.am_args)
    if config.mixer is not None:
        MIXERS.check(config.mixer, config.mixer_args)
    if config.critic is not None:
        CRITICS.check(config.critic, config.critic_args)
    runner, model = RUNNERS[config.runner], model_kind(config)
    if model.needs_foresight and config.oracle_kind == "future" and not runner.in_process:
        raise OmgError(
            f"oracle_kind=future copies running games, which runner={config.runner} keeps in other "
            "processes. Use runner=batch or episode."
        )


def _check_effect(config: Config) -> None:
    """Options that the rest of the configuration leaves without effect."""
    if config.load_step and not config.checkpoint_path:
        raise _no_effect(config, "load_step", "says which step of checkpoint_path is loaded")
    if config.mongo_url and not config.use_sacred:
        raise _no_effect(config, "mongo_url", "is where Sacred records to, and use_sacred=false")
    if CONTROLLERS[config.mac].models:
        return
    for key in ("is_agent_shift", "agent_shift", "init_param_path", "multi_algs", "team"):
        if getattr(config, key) and not (key == "init_param_path" and config.multi_algs):
            raise _no_effect(config, key, f"is for one agent among others, not mac={config.mac}")


def _no_effect(config: Config, key: str, why: str) -> OmgError:
    shown = "<url>" if key == "mongo_url" else getattr(config, key)
    return OmgError(f"{key}={shown} has no effect: it {why}. Leave it out.")


def check_memory(config: Config, runner: Runner, spec: EnvSpec) -> None:
    """Refuse copies and buffers that this machine can never hold."""
    episodes = {
        "buffer_size": config.buffer_size,
        "batch_size_run": runner.n_training,
        "test_batch_size_run": runner.n_tests,
    }
    scheme = environment_scheme(
        spec, common_reward=config.common_reward, buffer_dtype=config.buffer_dtype
    )
    there = machine_memory()
    for key, count in episodes.items():
        asked = count * (spec.episode_limit + 1) * scheme.bytes_per_step()
        if asked > there:
            raise OmgError(
                f"{key}={count} asks for {asked / 2**30:,.1f} GiB (episodes of up to "
                f"{spec.episode_limit} steps), and this process can have {there / 2**30:,.1f} GiB. "
                f"Lower {key}."
            )


def machine_memory() -> int:
    """Bytes that a process can have here: the machine's memory, or its limit (ulimit -v)."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ImportError, ValueError, OSError):  # not on every system
        return 2**62
    return total if limit in (-1, resource.RLIM_INFINITY) else min(total, limit)
