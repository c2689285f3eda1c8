"""What a learner can do, and the refusal of what it cannot, before anything is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from omg.config.schema import Config
from omg.controllers import CONTROLLERS
from omg.types import EnvSpec, OmgError


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Actions are discrete everywhere, and every network may be recurrent or not."""

    on_policy: bool = False  # learns once from every episode, all played by the present policy
    outputs: Literal["q", "pi_logits", "any"] = "any"
    reward: Literal["team", "any"] = "any"  # any: as common_reward says
    models: bool = True  # whether the policy may have an opponent model (mac=multi_module_mac)
    mixers: Literal["none", "optional", "required"] = "none"
    critics: tuple[str, ...] = ()  # critics it can learn; empty: it has none


def one_learns(config: Config) -> bool:
    """Whether one agent learns among frozen others, who come from a team string or a pool."""
    return CONTROLLERS[config.mac].models and bool(config.multi_algs or config.opponent_pool)


def check_supported(config: Config, able: Capabilities, spec: EnvSpec | None = None) -> None:
    """Refuse a configuration that its learner cannot train; where the environment is known, also
    for what that is like."""
    learner = f"learner={config.learner}"
    if not able.models and CONTROLLERS[config.mac].models:
        raise OmgError(f"{learner} does not train mac={config.mac}. Set mac=basic_mac.")
    if able.outputs not in ("any", config.agent_output_type):
        wanted = "values" if able.outputs == "q" else "a policy's logits"
        raise OmgError(
            f"{learner} needs {wanted}, not agent_output_type={config.agent_output_type}. "
            f"Set agent_output_type={able.outputs}."
        )
    _check_parts(config, able, learner)
    _check_others(config)
    if spec is None or spec.n_agents > 1:
        _check_reward(config, able, learner)
    if able.on_policy:
        _check_on_policy(config, learner)


def _check_parts(config: Config, able: Capabilities, learner: str) -> None:
    if config.mixer is not None and (able.mixers == "none" or one_learns(config)):
        alone = " of one agent" if able.mixers != "none" else ""
        raise OmgError(f"{learner}{alone} uses no mixer, and mixer={config.mixer}. Set mixer=null.")
    if config.mixer is None and able.mixers == "required":
        raise OmgError(f"{learner} needs a mixer. Take the one of its algs/*.yaml.")
    if able.critics and config.critic is None:
        raise OmgError(f"{learner} needs a critic. Set critic={' or '.join(able.critics)}.")
    if able.critics and config.critic not in able.critics and ":" not in str(config.critic):
        raise OmgError(
            f"{learner} does not learn critic={config.critic}. "
            f"Set critic={' or '.join(able.critics)}."
        )
    if config.critic is not None and not able.critics:
        raise OmgError(f"{learner} has no critic, and critic={config.critic}. Set critic=null.")


def _check_others(config: Config) -> None:
    """A whole team has nobody to model and, unless one role learns, nobody to draw."""
    if CONTROLLERS[config.mac].models:
        return
    given = {
        "opponent_pool": bool(config.opponent_pool) and not config.learning_role,
        "am_model": config.am_model != "none_am",
        "am_present": config.am_present,
    }
    for key, is_set in given.items():
        if is_set:
            raise OmgError(
                f"mac={config.mac} trains a whole team and has no use for {key}="
                f"{getattr(config, key)}. Leave it out, or choose an algorithm that models the "
                "others (omg algorithms)."
            )


def _check_reward(config: Config, able: Capabilities, learner: str) -> None:
    if config.common_reward:
        return
    if config.mixer is not None:
        raise OmgError(
            f"mixer={config.mixer} learns one value of the team. Set common_reward=true."
        )
    if able.reward == "team":
        raise OmgError(f"{learner} learns one value of the team. Set common_reward=true.")


def _check_on_policy(config: Config, learner: str) -> None:
    if config.collect_ahead:
        raise OmgError(
            f"{learner} learns only from what its present policy played, and "
            f"collect_ahead={config.collect_ahead} plays with older weights. Set collect_ahead=0."
        )
    if config.updates_per_episode != 1:
        raise OmgError(
            f"{learner} learns once from every episode, so updates_per_episode="
            f"{config.updates_per_episode:g} has no meaning. Leave it at 1."
        )
    if config.action_selector == "epsilon_greedy":
        raise OmgError(
            f"{learner} samples its policy, and action_selector=epsilon_greedy does not. Set "
            "action_selector=multinomial (with a share of random actions) or soft_policies."
        )
