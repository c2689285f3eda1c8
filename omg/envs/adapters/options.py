"""What adapters go by: what one agent of a foreign environment sees and may do, as numbers of fixed
width, and `env_args`: our own, and the rest that goes to the game."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from omg.envs.adapters.packages import import_foreign
from omg.envs.contract import BatchedEnv
from omg.envs.registry import GameFactory, environment_class
from omg.envs.vector import SerialVectorEnv
from omg.types import OmgError

# Bounds up to this one are taken as the scale of observations (a grid, a picture).
_WIDEST_SCALE = 255.0
_SMALL = ("int8", "uint8", "int16", "bool")


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """An observation as `width` numbers: `read` makes them, or raises ValueError. It is `flat` if
    it comes as just them."""

    width: int
    flat: bool
    read: Callable[[Any], NDArray[Any]]
    dtype: str
    bound: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """One agent. `masked` says that its observation is {"observation", "action_mask"}."""

    name: str
    features: Features
    masked: bool
    n_actions: int
    first_action: int

    def read(self, observation: Any) -> NDArray[Any]:
        """The numbers of an observation, [width]."""
        return self.features.read(observation["observation"] if self.masked else observation)


def seat_of(env: str, agent: str, *, observed: Any, acted: Any) -> Seat:
    """The seat of an agent with these spaces; unusable ones are refused with what to do."""
    spaces = import_foreign("gymnasium.spaces")
    if not isinstance(acted, spaces.Discrete):
        raise OmgError(
            f"The actions of agent {agent} of {env} are {_short(acted)}, and only Discrete ones "
            f"can be learned here. {_action_advice(spaces, acted)}"
        )
    masked = isinstance(observed, spaces.Dict) and "observation" in observed.spaces
    features = _features(spaces, observed["observation"] if masked else observed)
    if features is None:
        raise OmgError(
            f"The observations of agent {agent} of {env} are {_short(observed)}, which have no "
            "fixed order as plain numbers. Wrap the environment so that they are a Box (e.g. with "
            "gymnasium.spaces.flatten), with a mask as {'observation', 'action_mask'}."
        )
    return Seat(
        name=agent,
        features=features,
        masked=masked,
        n_actions=int(acted.n),
        first_action=int(acted.start),
    )


def _features(spaces: Any, space: Any) -> Features | None:
    """Boxes are flattened, categories become one-hot."""
    if isinstance(space, (spaces.Box, spaces.MultiBinary)):
        width, dtype = math.prod(space.shape), str(space.dtype)
        return Features(
            width=width,
            flat=len(space.shape) == 1,
            read=_reader(width),
            dtype=dtype,
            bound=_bound(space),
        )
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        width, read = int(spaces.flatdim(space)), _one_hot(spaces.flatten, space)
        return Features(width=width, flat=False, read=read, dtype="int8", bound=1.0)
    return None


def scale_of(seats: Sequence[Seat]) -> float:
    """What brings all observations to about [-1, 1], where their spaces have small bounds."""
    bound = max(seat.features.bound for seat in seats)
    return 1.0 / bound if 1.0 < bound <= _WIDEST_SCALE else 1.0


def dtype_of(seats: Sequence[Seat]) -> str:
    """The narrowest dtype that keeps every observation; float32 unless all are small integers."""
    kinds = {seat.features.dtype for seat in seats}
    return kinds.pop() if len(kinds) == 1 and kinds <= set(_SMALL) else "float32"


def _reader(width: int) -> Callable[[Any], NDArray[Any]]:
    flat = (width,)

    def read(value: Any) -> NDArray[Any]:
        array = np.asarray(value)
        if array.shape == flat:
            return array
        if array.size != width:
            raise ValueError(f"{array.size} numbers")
        return array.reshape(-1)

    return read


def _one_hot(flatten: Callable[[Any, Any], Any], space: Any) -> Callable[[Any], NDArray[Any]]:
    def read(value: Any) -> NDArray[Any]:
        if not space.contains(value):
            raise ValueError(str(value))
        return np.asarray(flatten(space, value))

    return read


def _bound(space: Any) -> float:
    ends = [np.abs(np.asarray(getattr(space, end, 1), np.float64)) for end in ("low", "high")]
    return float(max(end.max(initial=0.0) for end in ends))


def _short(space: Any) -> str:
    text = " ".join(str(space).split())
    return text if len(text) < 80 else f"{type(space).__name__}(…)"


def _action_advice(spaces: Any, acted: Any) -> str:
    if isinstance(acted, spaces.Box):
        return "Look for an argument that makes them discrete, or wrap it with a list of actions."
    return "Wrap the environment so that every combination has a number of its own."


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
