"""Runners make episodes. They differ only in where the copies of the environment live."""

from collections.abc import Callable

from omg.config.schema import Config
from omg.envs.contract import BatchedEnv
from omg.registry import Registry

RUNNERS: Registry[Callable[[Config, int], BatchedEnv]] = Registry(
    "runner",
    {
        "episode": "omg.runners.builders:local",
        "batch": "omg.runners.builders:local",
        "parallel": "omg.runners.builders:workers",
    },
)

__all__ = ["RUNNERS"]
