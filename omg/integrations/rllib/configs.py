"""RLlib configurations from ours: an algorithm of RLlib, our networks, models and environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any, TypeAlias

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from omg.integrations.rllib.callbacks import GameStatistics
from omg.integrations.rllib.crossing import check_same_game, check_start
from omg.integrations.rllib.env import agent_id, register_game, seat_of
from omg.integrations.rllib.layout import Layout
from omg.integrations.rllib.learners import OmgDQNLearner, OmgPPOLearner
from omg.integrations.rllib.modules import FrozenModule, OmgDQNModule, OmgModule, OmgPPOModule
from omg.integrations.rllib.replay import OmgDQN, OmgEpisodeReplayBuffer
from omg.integrations.rllib.settings import Settings, check_host
from omg.learners.prior_training import find_prior
from omg.modules.opponent_models import model_kind
from omg.modules.opponent_models.omg_am import SubgoalModel
from omg.types import EnvSpec, OmgError

# One policy for all seats, one per role, or one per seat.
SHARED = "shared"
Seats: TypeAlias = dict[str, tuple[int, ...]]
# Steps of all seats that DQN's buffer keeps, unless told otherwise.
CAPACITY = 20_000
# DQN's updates: one on batch_size x STEPS steps for every FRAGMENT steps that a runner plays.
FRAGMENT = 8
STEPS = 4
# Rows of a mini-batch of PPO, of all seats that share a policy.
MINIBATCH = 512


def seats_by_policy(spec: EnvSpec, policies: str) -> Seats:
    """Which seats each policy plays."""
    everybody = tuple(range(spec.n_agents))
    if policies == "seat":
        return {agent_id(seat): (seat,) for seat in everybody}
    if policies == "role" and spec.roles:
        return {role: spec.seats_of(role) for role in dict.fromkeys(spec.roles)}
    if policies not in (SHARED, "role"):
        raise OmgError(f"policies={policies} is not possible. Choose shared, role or seat.")
    return {SHARED: everybody}


class PolicyOfSeat:
    """RLlib's policy_mapping_fn."""

    def __init__(self, seats: Mapping[str, tuple[int, ...]]) -> None:
        self._policy = {seat: name for name, own in seats.items() for seat in own}

    def __call__(self, agent: str, episode: Any = None, **kwargs: Any) -> str:
        return self._policy[seat_of(agent)]


def module_spec(settings: Settings, module_class: type[OmgModule]) -> RLModuleSpec:
    """How RLlib makes one of our modules."""
    return RLModuleSpec(
        module_class=module_class,
        observation_space=Layout(settings.spec, settings.window).space(),
        model_config=settings.model_config(),
    )


def ppo_config(
    config: str = "ppo",
    env_config: str | None = None,
    *,
    policies: str = "role",
    frozen: Mapping[int, Settings] | None = None,
    start: Settings | None = None,
    window: int | None = None,
    **values: Any,
) -> PPOConfig:
    """RLlib's PPO with our configuration `config` (ppo, ppo_am, ppo_omg_tuned …) on the
    environment of `env_config`, as `omg.train` takes them; `values` are keys of ours.
    `policies`: one per role (or for all), shared, or one per seat. `frozen`: seats that are
    played by runs of ours (`run_settings`). `start`: a run whose weights the policies begin
    with. What it returns is RLlib's own and may be changed further."""
    settings = _settings(config, env_config, window, values, frozen=frozen or {}, start=start)
    keys = settings.config
    steps = keys.batch_size * settings.spec.episode_limit
    ours = _common(PPOConfig(), settings, "ppo", policies, frozen or {})
    ours.learners(learner_class=OmgPPOLearner)
    ours.env_runners(batch_mode="complete_episodes")
    ours.training(
        lr=keys.lr,
        gamma=keys.gamma,
        lambda_=keys.gae_lambda,
        clip_param=keys.eps_clip,
        entropy_coeff=keys.entropy_coef,
        num_epochs=keys.ppo_epochs,
        grad_clip=keys.grad_norm_clip,
        train_batch_size_per_learner=steps,
        minibatch_size=min(MINIBATCH, steps),
        use_kl_loss=False,
    )
    return ours


def dqn_config(
    config: str = "d3qn",
    env_config: str | None = None,
    *,
    policies: str = "role",
    frozen: Mapping[int, Settings] | None = None,
    start: Settings | None = None,
    window: int | None = None,
    **values: Any,
) -> DQNConfig:
    """The same with RLlib's DQN and one of our d3qn* or iql* configurations."""
    settings = _settings(config, env_config, window, values, frozen=frozen or {}, start=start)
    keys = settings.config
    ours = _common(DQNConfig(algo_class=OmgDQN), settings, "dqn", policies, frozen or {})
    ours.learners(learner_class=OmgDQNLearner)
    ours.env_runners(rollout_fragment_length=FRAGMENT)
    anneal = max(keys.epsilon_anneal_time, 1)
    ours.training(
        lr=keys.lr,
        gamma=keys.gamma,
        double_q=keys.double_q,
        dueling=keys.dueling,
        num_atoms=1,
        noisy=False,
        grad_clip=keys.grad_norm_clip,
        epsilon=[[0, keys.epsilon_start], [anneal, keys.epsilon_finish]],
        target_network_update_freq=keys.target_update_interval * settings.spec.episode_limit,
        train_batch_size_per_learner=keys.batch_size * STEPS,
        store_buffer_in_checkpoints=True,
        replay_buffer_config={
            "type": f"{OmgEpisodeReplayBuffer.__module__}.{OmgEpisodeReplayBuffer.__name__}",
            "capacity": min(keys.buffer_size * settings.spec.episode_limit, CAPACITY),
            "omg_spec": asdict(settings.spec),
            "omg_window": settings.window,
        },
    )
    return ours


def _settings(
    config: str,
    env_config: str | None,
    window: int | None,
    values: Mapping[str, Any],
    *,
    frozen: Mapping[int, Settings],
    start: Settings | None,
) -> Settings:
    """With a window that is long enough for everybody, and the weights to begin with."""
    settings = Settings.of(config, env_config, window=window, **values)
    for player in frozen.values():
        check_same_game(player, settings)
    shown = max([settings.window, *(player.window for player in frozen.values())])
    weights = ""
    if start is not None:
        check_same_game(start, settings)
        check_start(start, settings)
        weights = start.weights
    return replace(settings, window=shown, weights=weights)


MODULES = {"ppo": OmgPPOModule, "dqn": OmgDQNModule}


def _common(
    ours: AlgorithmConfig,
    settings: Settings,
    host: str,
    policies: str,
    frozen: Mapping[int, Settings],
) -> AlgorithmConfig:
    """Environment, modules and seeds."""
    check_host(settings, host)
    config, spec = settings.config, settings.spec
    if issubclass(model_kind(config), SubgoalModel) and not settings.weights:
        find_prior(config)
    learning = {
        name: tuple(seat for seat in own if seat not in frozen)
        for name, own in seats_by_policy(spec, policies).items()
    }
    learning = {name: own for name, own in learning.items() if own}
    if not learning:
        raise OmgError("Every seat has a frozen module, so nothing learns. Leave one seat free.")
    modules = {
        name: module_spec(settings.for_seats(own), MODULES[host]) for name, own in learning.items()
    }
    seats = dict(learning)
    for seat, player in frozen.items():
        name = f"frozen_{seat}"
        player = replace(player, window=settings.window)
        modules[name], seats[name] = module_spec(player, FrozenModule), (seat,)
    ours.environment(register_game(config.env), env_config=settings.env_config())
    ours.framework("torch")
    ours.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=modules))
    ours.multi_agent(
        policies=set(seats),
        policy_mapping_fn=PolicyOfSeat(seats),
        policies_to_train=list(learning),
    )
    ours.callbacks(GameStatistics)
    ours.debugging(seed=config.seed, log_level="ERROR")
    return ours


HostConfig: TypeAlias = Callable[..., AlgorithmConfig]
HOSTS: dict[str, HostConfig] = {"ppo": ppo_config, "dqn": dqn_config}
