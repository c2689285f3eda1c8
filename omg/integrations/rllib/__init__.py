"""Our environments, networks and opponent models inside RLlib (`pip install 'omg-marl[rllib]'`).

    from omg.integrations.rllib import ppo_config

    algorithm = ppo_config("ppo_am", "foraging").build_algo()
    algorithm.train()

Importing this is cheap; Ray is imported when a name is used. See docs/integrations/rllib.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omg.registry import load_attribute

if TYPE_CHECKING:
    from omg.integrations.rllib.configs import dqn_config as dqn_config
    from omg.integrations.rllib.configs import ppo_config as ppo_config
    from omg.integrations.rllib.crossing import export_module as export_module
    from omg.integrations.rllib.crossing import export_policy as export_policy
    from omg.integrations.rllib.crossing import load_module as load_module
    from omg.integrations.rllib.crossing import run_settings as run_settings
    from omg.integrations.rllib.env import OmgEnv as OmgEnv
    from omg.integrations.rllib.env import register as register
    from omg.integrations.rllib.episodes import EpisodeAssembler as EpisodeAssembler
    from omg.integrations.rllib.episodes import episode_batch as episode_batch
    from omg.integrations.rllib.episodes import whole_episode as whole_episode

_WHERE = {
    "EpisodeAssembler": "episodes",
    "OmgEnv": "env",
    "dqn_config": "configs",
    "episode_batch": "episodes",
    "export_module": "crossing",
    "export_policy": "crossing",
    "load_module": "crossing",
    "ppo_config": "configs",
    "register": "env",
    "run_settings": "crossing",
    "whole_episode": "episodes",
}

__all__ = [
    "EpisodeAssembler",
    "OmgEnv",
    "dqn_config",
    "episode_batch",
    "export_module",
    "export_policy",
    "load_module",
    "ppo_config",
    "register",
    "run_settings",
    "whole_episode",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return load_attribute(f"{__name__}.{_WHERE[name]}:{name}")
