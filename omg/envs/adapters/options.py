"""The `env_args` of adapted environments: our own, and the rest that goes to the game. Those with
PyMARL's methods need no more than a key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from omg.envs.contract import BatchedEnv
from omg.envs.registry import GameFactory, environment_class
from omg.envs.vector import SerialVectorEnv
from omg.types import OmgError

StateSource = Literal["auto", "env", "observations"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What an adapter is told. None stands for "auto" in `shared_reward`."""

    key: str
    time_limit: int | None
    state: StateSource
    shared_reward: bool | None
    limit_is_truncation: bool
    new_games: bool
    game_args: dict[str, Any]

    @classmethod
    def parse(cls, args: Mapping[str, Any], *, example: str) -> Options:
        """Take our own arguments out of `env_args`; what is left goes to the game."""
        rest = {name: _word(value) for name, value in args.items()}
        shared = rest.pop("shared_reward", "auto")
        return cls(
            key=key_of(rest, example=example),
            time_limit=_steps(rest.pop("time_limit", None)),
            state=cast(
                StateSource, _choice("state", rest.pop("state", "auto"), get_args(StateSource))
            ),
            shared_reward=None if shared == "auto" else _flag("shared_reward", shared, "auto, "),
            limit_is_truncation=_flag(
                "limit_is_truncation", rest.pop("limit_is_truncation", False)
            ),
            new_games=_flag("new_games", rest.pop("new_games", False)),
            game_args=rest,
        )


def key_of(args: dict[str, Any], *, example: str) -> str:
    """Take the name of the environment out of its arguments."""
    key = args.pop("key", None)
    if not isinstance(key, str) or not key.strip():
        raise OmgError(
            f"env_args.key={key} names no environment. Give e.g. env_args.key={example}."
        )
    return key.strip()


def _word(value: Any) -> Any:
    """`true`, `false` and `null` on a command line mean what they do in YAML."""
    words = {"true": True, "false": False, "null": None}
    return words.get(value.lower(), value) if isinstance(value, str) else value


def _steps(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise OmgError(f"env_args.time_limit={value} is no number of steps. Give 1 or more.")
    return value


def _choice(name: str, value: Any, known: tuple[str, ...]) -> str:
    if value not in known:
        raise OmgError(f"env_args.{name}={value} is not known. Choose one of: {', '.join(known)}.")
    return str(value)


def _flag(name: str, value: Any, more: str = "") -> bool:
    if not isinstance(value, bool):
        raise OmgError(f"env_args.{name}={value} is not known. Choose {more}true or false.")
    return value


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
