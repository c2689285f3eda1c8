"""What one agent of a foreign environment sees and may do, as numbers of fixed width."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omg.envs.adapters.packages import import_foreign
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
