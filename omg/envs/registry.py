"""Environment names, and how any environment becomes a batch of copies."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omg.envs.contract import BatchedEnv, MultiAgentEnv
from omg.envs.vector import SerialVectorEnv
from omg.registry import Registry
from omg.types import OmgError


class EnvRegistry(Registry[Any]):
    """Classes that are a BatchedEnv (native) or have PyMARL's methods. Adding one: one line."""

    def _checked(self, name: str, found: Any) -> Any:
        if not all(callable(getattr(found, method, None)) for method in ("reset", "step")):
            raise OmgError(
                f"'{name}' is no environment: it has no reset and step. Give a class with "
                "PyMARL's methods, or derive it from omg.envs.contract.BatchedEnv."
            )
        return found


ENVS = EnvRegistry(
    "environment",
    {
        "battle": "omg.envs.battle.env:BattleEnv",
        "foraging": "omg.envs.foraging.env:ForagingEnv",
        "gymnasium": "omg.envs.adapters.gymnasium:GymnasiumEnv",
        "matrix_game": "omg.envs.toys:MatrixGameEnv",
        "predator_prey": "omg.envs.predator_prey:PredatorPreyEnv",
        "sc2": "omg.envs.sc2.adapter:SmacEnv",
        "smacv2": "omg.envs.sc2.adapter:Smacv2Env",
        "pettingzoo": "omg.envs.adapters.pettingzoo:PettingZooEnv",
        "pymarl": "omg.envs.adapters.options:PymarlEnv",
        "snowdrift": "omg.envs.goal_grid.snowdrift:SnowdriftEnv",
        "smax": "omg.envs.adapters.smax:SmaxEnv",
        "spread": "omg.envs.spread:SpreadEnv",
        "stag_hunt": "omg.envs.goal_grid.stag_hunt:StagHuntEnv",
        "two_step": "omg.envs.toys:TwoStepEnv",
    },
)


def environment_class(name: str) -> Any:
    """A registered class, or one given by import path as `package.module:Class`."""
    return ENVS[name]


def environment_versions(name: str, args: Mapping[str, Any]) -> dict[str, str]:
    """Versions of what a class runs on (a game, its packages), where it has a `versions(args)`."""
    told = getattr(environment_class(name), "versions", None)
    return dict(told(args)) if callable(told) else {}


@dataclass(frozen=True, slots=True)
class GameFactory:
    """Makes one PyMARL-style game; a class of its own so that worker processes can unpickle it."""

    name: str
    args: Mapping[str, Any]

    def __call__(self, copy: int) -> MultiAgentEnv:
        return self._make(self.args)

    def seeded(self, copy: int, seed: int) -> MultiAgentEnv | None:
        """The game of a copy with a seed of its own, if its class takes one and env_args leave it
        open (as StarCraft II does); None otherwise."""
        parameters = inspect.signature(environment_class(self.name)).parameters
        if "seed" not in parameters or self.args.get("seed") is not None:
            return None
        return self._make({**self.args, "seed": seed})

    def _make(self, args: Mapping[str, Any]) -> MultiAgentEnv:
        try:
            game: MultiAgentEnv = environment_class(self.name)(**args)
        except TypeError as error:
            parameters = inspect.signature(environment_class(self.name)).parameters
            takes = f"It takes: {', '.join(parameters)}." if parameters else "It takes none."
            raise OmgError(
                f"env={self.name} does not take these env_args: {error}. {takes}"
            ) from error
        return game


@dataclass(frozen=True, slots=True)
class BatchFactory:
    """Makes n_copies copies of an environment from first_copy on, here or in a worker."""

    name: str
    args: dict[str, Any]

    def __call__(self, first_copy: int, n_copies: int) -> BatchedEnv:
        kind = environment_class(self.name)
        if isinstance(kind, type) and issubclass(kind, BatchedEnv):
            native: BatchedEnv = kind(  # type: ignore[call-arg]
                args=self.args, n_copies=n_copies, first_copy=first_copy
            )
            return native
        return SerialVectorEnv(
            factory=GameFactory(self.name, self.args), n_copies=n_copies, first_copy=first_copy
        )


def make_batched(
    name: str, args: Mapping[str, Any], *, n_copies: int, first_copy: int = 0
) -> BatchedEnv:
    """Copies of an environment in this process."""
    return BatchFactory(name, dict(args))(first_copy, n_copies)
