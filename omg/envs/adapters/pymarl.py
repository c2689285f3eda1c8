"""Environments with PyMARL's methods, named by `env_args.key` instead of `env`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omg.envs.adapters.options import key_of
from omg.envs.contract import BatchedEnv
from omg.envs.registry import GameFactory, environment_class
from omg.envs.vector import SerialVectorEnv
from omg.types import OmgError


class PymarlEnv(SerialVectorEnv):
    """An environment with PyMARL's methods, named by env_args.key=package.module:Class.

    The other env_args are the arguments of its class.
    """

    def __init__(self, *, args: Mapping[str, Any], n_copies: int, first_copy: int = 0) -> None:
        rest = dict(args)
        key = key_of(rest, example="my_package.my_env:MyEnv")
        kind = environment_class(key)
        if isinstance(kind, type) and issubclass(kind, BatchedEnv):
            raise OmgError(f"{key} is a batch of copies by itself. Name it with --env={key}.")
        super().__init__(factory=GameFactory(key, rest), n_copies=n_copies, first_copy=first_copy)
