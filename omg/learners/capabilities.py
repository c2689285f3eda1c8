"""What a learner can do, and the refusal of what it cannot, before anything is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from omg.config.schema import Config
from omg.types import EnvSpec, OmgError


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Actions are discrete everywhere, and every network may be recurrent or not."""

    on_policy: bool = False  # learns once from every episode, all played by the present policy
    outputs: Literal["q", "pi_logits", "any"] = "any"
    reward: Literal["team", "any"] = "any"  # any: as common_reward says
    macs: tuple[str, ...] = ()  # controllers it trains; empty: any
    mixers: Literal["none", "optional", "required"] = "none"
    critics: tuple[str, ...] = ()  # critics it can learn; empty: it has none

    def words(self) -> dict[str, str]:
        """For tables: column to text."""
        return {
            "learning": "on-policy" if self.on_policy else "off-policy",
            "actions": "discrete",
            "learns": "one agent among others" if self.macs == ("multi_module_mac",) else "a team",
        }


def check_supported(config: Config, spec: EnvSpec, able: Capabilities) -> None:
    """Refuse a configuration that its learner cannot train."""
    learner = f"learner={config.learner}"
    if (
        able.macs
        and config.mac in ("basic_mac", "multi_module_mac")
        and config.mac not in able.macs
    ):
        raise OmgError(
            f"{learner} does not train mac={config.mac}. Set mac={' or '.join(able.macs)}."
        )
    if able.outputs not in ("any", config.agent_output_type):
        wanted = "values" if able.outputs == "q" else "a policy's logits"
        raise OmgError(
            f"{learner} needs {wanted}, not agent_output_type={config.agent_output_type}. "
            f"Set agent_output_type={able.outputs}."
        )
    _check_parts(config, able, learner)
    _check_others(config)
    _check_reward(config, spec, able, learner)
    if able.on_policy:
        _check_on_policy(config, learner)


def _check_parts(config: Config, able: Capabilities, learner: str) -> None:
    if config.mixer is not None and able.mixers == "none":
        raise OmgError(f"{learner} uses no mixer, and mixer={config.mixer}. Set mixer=null.")
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
    """A whole team has no others to model or to draw."""
    if config.mac != "basic_mac":
        return
    given = {
        "opponent_pool": bool(config.opponent_pool) and not config.learning_role,
        "am_model": config.am_model != "none_am",
        "am_present": config.am_present,
    }
    for key, is_set in given.items():
        if is_set:
            raise OmgError(
                f"mac=basic_mac trains a whole team and has no use for {key}="
                f"{getattr(config, key)}. Leave it out, or choose an algorithm that trains one "
                "agent among others (omg algorithms)."
            )


def _check_reward(config: Config, spec: EnvSpec, able: Capabilities, learner: str) -> None:
    if config.common_reward or spec.n_agents == 1:
        return
    if config.mixer is not None:
        raise OmgError(
            f"mixer={config.mixer} learns one value of the team. Set common_reward=true."
        )
    if able.reward == "team":
        raise OmgError(f"{learner} learns one value of the team. Set common_reward=true.")


def _check_on_policy(config: Config, learner: str) -> None:
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
