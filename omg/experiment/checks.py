"""What is refused before anything is built: what cannot be trained, is ignored, or cannot fit."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from omg.components.episodes import environment_scheme
from omg.config.arguments import SacredWords
from omg.config.schema import Config, RewardWeights
from omg.controllers import CONTROLLERS
from omg.controllers.base import Controller
from omg.experiment.provenance import source_commit
from omg.experiment.sinks import check_trackers
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
from omg.types import EnvSpec, OmgError, human_bytes


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
    if config.opponent_members and not config.opponent_pool:
        raise _no_effect(config, "opponent_members", "names members of opponent_pool")
    if config.mongo_url and not config.use_sacred:
        raise _no_effect(config, "mongo_url", "is where Sacred records to, and use_sacred=false")
    check_trackers(config)
    if CONTROLLERS[config.mac].models:
        return
    if config.multi_algs and config.team:
        raise OmgError(
            f"{config.train_alg} is the learning algorithm of the team {config.team}, and it "
            f"trains whole teams (mac={config.mac}), not one seat. Let one learn that does "
            "(--train_alg=iql_am, d3qn, ppo_am …), or give --mac=multi_module_mac and a learner of "
            "one seat (--learner=q_learner_4am or ppo_learner_4am)."
        )
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
                f"{key}={count} asks for {human_bytes(asked)} (episodes of up to "
                f"{spec.episode_limit} steps), and this process can have {human_bytes(there)}. "
                f"Lower {key}."
            )


def check_common_reward(config: Config, spec: EnvSpec, mac: Controller) -> None:
    """Refuse a team's reward that adds up what opponents earn."""
    if not (config.common_reward and spec.opposed) or LEARNERS[config.learner].gathers:
        return
    seats = range(spec.n_agents) if mac.seats is None else mac.seats
    roles = tuple(dict.fromkeys(spec.roles[seat] for seat in seats if spec.roles))
    if len(roles) < 2:
        return
    remedy = (
        "Set common_reward=false"
        if mac.learns_one_seat
        else f"Let one side learn (--learning_role={roles[0]} --opponent_pool=<folder>), or all "
        "with rewards of their own (--config=iql)"
    )
    raise OmgError(
        f"common_reward=true adds up the rewards of {' and '.join(roles)}, who are opponents in "
        f"{spec.name}. {remedy}."
    )


def check_reward_weights(config: Config, spec: EnvSpec) -> None:
    """Refuse weights that change nothing, and actions that the game does not have."""
    weights = RewardWeights.model_validate(config.reward_weights)
    if weights.others and (config.common_reward or spec.shared_reward):
        why = "a team's reward counts everybody's"
        remedy = "Set common_reward=false (iql, ippo)"
        if spec.shared_reward:
            why, remedy = f"all agents of {spec.name} get the same", "Leave it out"
        raise OmgError(f"reward_weights.others={weights.others:g} has no effect: {why}. {remedy}.")
    if weights.actions and spec.shared_reward:
        raise OmgError(
            f"reward_weights.actions needs rewards of each agent's own, and all agents of "
            f"{spec.name} get the same. Leave it out."
        )
    for action in weights.actions:
        if action >= spec.n_actions:
            raise OmgError(
                f"reward_weights.actions has {action}, and {spec.name} has the actions 0 to "
                f"{spec.n_actions - 1}. Choose among them."
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


# --- what the command line says to Sacred ---------------------------------------------------------

# Flags about the record; those of them that name databases are given to Sacred as they are.
DATABASES = ("sql", "s3", "tiny_db")
OF_RECORD = ("comment", "beat-interval", "id", "capture", "file_storage", "mongo_db", *DATABASES)
OF_RUN = ("pdb", "enforce_clean", "print-config", *OF_RECORD)
CAPTURES = ("no", "sys", "fd")


def check_sacred(words: SacredWords, config: Config) -> None:
    """Refuse flags that would have no effect, and values that Sacred would stumble over."""
    flags, command = words.flags, words.command
    if command not in ("", "my_main"):
        idle = [key for key in OF_RUN if key in flags]
        if idle:
            raise OmgError(
                f"{command} runs nothing, so {shown_flags(idle)} has no effect. Leave it out."
            )
        return
    idle = [key for key in OF_RECORD if key in flags]
    if idle and not config.use_sacred:
        raise OmgError(
            f"{shown_flags(idle)} is about Sacred's record, and use_sacred=False keeps none. Leave "
            "out one of them."
        )
    if flags.get("capture", "no") not in CAPTURES:
        raise OmgError(f"--capture={flags['capture']} is not possible. Expected: no, sys or fd.")
    if "beat-interval" in flags and not _positive(flags["beat-interval"]):
        raise OmgError(
            f"--beat-interval={flags['beat-interval']} is not possible. Expected: seconds, more "
            "than 0."
        )
    name = flags.get("id", "1")
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise OmgError(f"--id={name} cannot be the name of a folder. Use letters and digits.")
    if "enforce_clean" in flags:
        _check_clean()


def shown_flags(flags: Iterable[str]) -> str:
    """Flags of Sacred as they are written."""
    return ", ".join(f"--{key}" for key in flags)


def _positive(text: str) -> bool:
    try:
        return 0 < float(text) < float("inf")
    except ValueError:
        return False


def _check_clean() -> None:
    commit = source_commit()
    if not commit or commit.endswith("+changes"):
        state = f"differ from their commit {commit[:10]}" if commit else "are not under git"
        raise OmgError(
            f"--enforce_clean: omg's sources {state}. Commit them first, or leave the flag out."
        )
