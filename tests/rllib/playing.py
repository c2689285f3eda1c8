"""What the tests share: short configurations, runners without a cluster, a prior to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode

from omg.envs.registry import make_batched
from omg.integrations.rllib.configs import dqn_config, ppo_config
from omg.integrations.rllib.settings import Settings
from omg.modules.opponent_models.omg_am import SubgoalModel
from omg.policies.policy import build_model
from omg.storage.files import save_tensors

LEAVERS = "tests.unit.leaver_game:LeaverEnv"
HOSTS = {"ppo": ppo_config, "dqn": dqn_config}
SMALL = {"foraging": {"key": "Foraging-5x5-2p-1f-v3"}}
OMG = {
    "subgoal_dim": 8,
    "subgoal_posterior": "mean",
    "subgoal_epsilon_start": 0.0,
    "subgoal_target": "next",
    "am_hidden_dim": 32,
}


def leaver_config(host: str = "ppo", **given: Any) -> Any:
    """A host on the game whose players leave one by one."""
    alg = given.pop("alg", {"ppo": "ppo_am", "dqn": "d3qn_am"}[host])
    options = {"batch_size": 4, "batch_size_run": 4, "buffer_size": 64, "am_hidden_dim": 16}
    return HOSTS[host](alg, env=LEAVERS, **{**options, **given})


def settings_of(config: Any) -> Settings:
    """Of the first module that an algorithm's configuration names."""
    specs = config.rl_module_spec.rl_module_specs
    return Settings.read(next(iter(specs.values())).model_config)


def runner_of(config: Any) -> MultiAgentEnvRunner:
    """Plays without a cluster."""
    return MultiAgentEnvRunner(config=config.copy(copy_frozen=False))


def game_of(runner: MultiAgentEnvRunner) -> Any:
    """The runner's first environment."""
    return runner.env.envs[0].unwrapped


def actions_of(episode: MultiAgentEpisode, seats: int) -> np.ndarray[Any, Any]:
    """What was done at every step, [T, N]; 0 by who has left."""
    actions = np.zeros((len(episode), seats), np.int64)
    for agent, own in episode.agent_episodes.items():
        done = np.asarray(own.get_actions()).reshape(-1)
        actions[: len(done), int(str(agent)[5:])] = done
    return actions


def played_natively(config: Any, game: Any, actions: np.ndarray[Any, Any]) -> dict[str, Any]:
    """The same actions in our own environment from the same beginning, stored by a slow loop."""
    settings = settings_of(config)
    env = make_batched(settings.config.env, settings.config.env_args, n_copies=1)
    env.reset(0)
    view: Any = env.restore(game)
    rows: dict[str, list[Any]] = {}

    def note(**values: Any) -> None:
        for name, value in values.items():
            rows.setdefault(name, []).append(value)

    everybody = np.ones(env.spec.n_agents, np.bool_)
    for action in actions:
        alive = everybody if view.alive is None else view.alive[0]
        note(obs=view.obs[0], state=view.state[0], avail_actions=view.avail[0], alive=alive)
        step = env.step(action[None])
        reached = -1 + 0 * action if step.reached is None else step.reached[0]
        note(
            actions=action,
            reward=step.reward[0],
            terminated=bool(step.terminated[0]),
            reached=reached,
        )
        view = step if step.final is None else step.final
    alive = everybody if view.alive is None else view.alive[0]
    note(obs=view.obs[0], state=view.state[0], avail_actions=view.avail[0], alive=alive)
    return {name: np.stack(value) for name, value in rows.items()}


def make_prior(folder: Path, alg: str, env_config: str | None = None, **values: Any) -> str:
    """A folder with <alg>/vae.th of untrained weights, as `init_param_path` names it."""
    settings = Settings.of(alg, env_config, **values)
    torch.manual_seed(0)
    model = build_model(settings.config, settings.spec)
    assert isinstance(model, SubgoalModel)
    (folder / alg).mkdir(parents=True)
    save_tensors(folder / alg / "vae.th", model.vae.state_dict())
    return str(folder)
