"""What a module, its learner and its environment must agree on, as plain values that travel to
RLlib's workers and into its checkpoints."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from omg.config.arguments import Arguments, Update
from omg.config.loader import load
from omg.config.schema import Config
from omg.controllers import CONTROLLERS
from omg.envs.registry import make_batched
from omg.modules.agents import AGENTS
from omg.modules.opponent_models import model_kind
from omg.modules.opponent_models.omg_am import SubgoalModel
from omg.modules.opponent_models.types_am import TypesModel
from omg.policies.policy import build_model
from omg.registry import TRUSTED, import_path_of, trust
from omg.types import EnvSpec, OmgError

KEY = "omg"  # in a module's model_config
# What the policy is fed is inferred again whenever it learns, so it must not depend on chance, on
# the future or on another subgoal.
NEEDED = {
    "subgoal_posterior": "mean",
    "subgoal_epsilon_start": 0.0,
    "subgoal_target": "next",
    "subgoal_value": "mean",
}
OUTPUTS = {"ppo": "pi_logits", "dqn": "q"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Our configuration, the game's sizes, and which seats a module plays."""

    config: Config
    spec: EnvSpec
    seats: tuple[int, ...]
    window: int
    weights: str = ""  # the model folder that a module begins with

    @classmethod
    def of(
        cls,
        config: str | None,
        env_config: str | None,
        *,
        window: int | None = None,
        **values: Any,
    ) -> Settings:
        """As `omg.train(config, env_config, **values)` would read them, for all seats."""
        updates = tuple(Update(k, import_path_of(v), f"{k}={v!r}") for k, v in values.items())
        loaded = load(Arguments(alg=config, env=env_config, updates=updates)).config
        spec = game_spec(loaded)
        return cls(
            config=loaded,
            spec=spec,
            seats=tuple(range(spec.n_agents)),
            window=window_of(loaded, spec, window),
        )

    @classmethod
    def read(cls, model_config: Mapping[str, Any]) -> Settings:
        """From a module's model_config."""
        if KEY not in model_config:
            raise OmgError(
                "The module's model_config has no 'omg'. Make its spec with "
                "omg.integrations.rllib (ppo_config, dqn_config, module_spec)."
            )
        told = model_config[KEY]
        trust(*told["trusted"])
        return cls(
            config=Config.model_validate(told["config"]),
            spec=read_spec(told["spec"]),
            seats=tuple(told["seats"]),
            window=int(told["window"]),
            weights=str(told["weights"]),
        )

    def model_config(self) -> dict[str, Any]:
        """What `read` understands."""
        return {
            KEY: {
                "config": self.config.as_dict(),
                "spec": asdict(self.spec),
                "seats": list(self.seats),
                "window": self.window,
                "weights": self.weights,
                "trusted": trusted_here(),
            }
        }

    def env_config(self) -> dict[str, Any]:
        """What `OmgEnv` is made with."""
        reward = self.config.reward_scalarisation if self.config.common_reward else "own"
        return {"env_args": dict(self.config.env_args), "window": self.window, "reward": reward}

    def for_seats(self, seats: Sequence[int]) -> Settings:
        """The same for a module that plays some seats."""
        return replace(self, seats=tuple(seats))


def trusted_here() -> list[str]:
    """Modules outside omg that this program has named; its workers may import them, too."""
    return [name for name in os.environ.get(TRUSTED, "").split(",") if name]


def game_spec(config: Config) -> EnvSpec:
    """The sizes of the game that a configuration names."""
    made = make_batched(config.env, config.env_args, n_copies=1)
    made.close()
    return made.spec


def read_spec(told: Mapping[str, Any]) -> EnvSpec:
    """A spec from plain values."""
    known = {f.name for f in fields(EnvSpec)}
    return EnvSpec(**{k: _frozen(v) for k, v in told.items() if k in known})


def _frozen(value: Any) -> Any:
    """Lists as tuples, as a spec has them."""
    return tuple(_frozen(v) for v in value) if isinstance(value, list | tuple) else value


def window_of(config: Config, spec: EnvSpec, asked: int | None) -> int:
    """How many moments a module is shown: one where nothing remembers, else the whole episode or
    as many as asked for."""
    remembers = AGENTS[config.policy_model].recurrent
    if CONTROLLERS[config.mac].models:
        remembers = remembers or build_model(config, spec).carry_dim > 0
    if asked is None:
        return spec.episode_limit + 1 if remembers else 1
    if asked < 1:
        raise OmgError(f"window={asked} shows nothing. Give 1 or more, or leave it out.")
    return min(asked, spec.episode_limit + 1)


def check_host(settings: Settings, host: str) -> None:
    """Refuse what would be ignored or would not work in RLlib."""
    config, spec = settings.config, settings.spec
    if config.agent_output_type != OUTPUTS[host]:
        raise OmgError(
            f"{config.name} has agent_output_type={config.agent_output_type}, and RLlib's "
            f"{host.upper()} learns {OUTPUTS[host]}. Choose one of our ppo* configurations for PPO "
            "and of our d3qn* or iql* ones for DQN."
        )
    if config.mixer is not None or config.opponent_pool or config.multi_algs:
        raise OmgError(
            "In RLlib every seat is one of its policies: mixer, opponent_pool and team strings "
            "have no meaning. Leave them out; frozen players are modules (frozen_spec)."
        )
    if config.q_lambda:
        raise OmgError(
            f"q_lambda={config.q_lambda} is a setting of our Q-learning. RLlib's DQN has n_step: "
            "set q_lambda=0."
        )
    if config.lr_finish != 1.0:
        raise OmgError(
            f"lr_finish={config.lr_finish:g} is for runs of a known length. RLlib takes a schedule "
            "instead, e.g. .training(lr=[[0, 0.001], [1000000, 0.0]]): set lr_finish=1."
        )
    if config.standardise_rewards:
        raise OmgError(
            "standardise_rewards changes what our own learners learn from; RLlib's learn from "
            "rewards as they are. Set standardise_rewards=false."
        )
    if config.limit_terminates:
        raise OmgError(
            "limit_terminates changes what our own learners learn from; RLlib's look beyond a "
            "limit. Set limit_terminates=false."
        )
    if config.reward_weights:
        raise OmgError(
            "reward_weights change what our own learners learn from; RLlib has its own rewards. "
            "Leave them out, and train such players with omg train."
        )
    if config.common_reward and spec.leavers:
        raise OmgError(
            f"Players leave {spec.name} one by one, and RLlib ends their returns with that. Set "
            "common_reward=false."
        )
    if config.common_reward and spec.opposed:
        raise OmgError(
            f"common_reward=true adds up the rewards of opponents in {spec.name}. Set "
            "common_reward=false."
        )
    model = model_kind(config)
    if model.needs_foresight:
        raise OmgError(
            f"am_model={config.am_model} looks ahead in games that it can copy, which RLlib's "
            "cannot be. Use another am_model."
        )
    if issubclass(model, TypesModel):
        raise OmgError(
            f"am_model={config.am_model} tells the training opponents apart by their names, which "
            "RLlib's policies do not have here. Use another am_model."
        )
    if issubclass(model, SubgoalModel):
        _check_subgoals(config)


def _check_subgoals(config: Config) -> None:
    for key, value in NEEDED.items():
        if getattr(config, key) != value:
            raise OmgError(
                f"In RLlib the policy learns with the subgoals that are inferred when it learns, "
                f"so {key}={getattr(config, key)} has no meaning. Set {key}={value}."
            )
