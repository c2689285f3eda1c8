"""What a seat is shown, as one flat vector: RLlib handles a vector many times faster than a
dictionary of arrays, because it touches every array of every sampled step in Python."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, TypeVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from omg.types import EnvSpec

# The first five are windows: the last K moments of all seats, oldest first, so that opponent models
# know what our own controllers tell them. What a policy itself may look at is its configuration's
# business.
OBS, STATE, AVAIL, LAST, ALIVE = "obs", "state", "avail", "last_actions", "alive"
SEAT, SLOTS, TIME = "seat", "slots", "time"
Rows = TypeVar("Rows", NDArray[Any], Tensor)


@dataclass(frozen=True)
class Layout:
    """Where everything lies in the vector of a game that shows `window` moments."""

    spec: EnvSpec
    window: int

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of every part, in order."""
        spec, window = self.spec, self.window
        agents = spec.n_agents
        return {
            OBS: (window, agents, spec.obs_dim),
            STATE: (window, spec.state_dim),
            AVAIL: (window, agents, spec.n_actions),
            LAST: (window, agents),
            ALIVE: (window, agents),
            SEAT: (1,),
            SLOTS: (1,),  # how many moments of the window are filled
            TIME: (1,),  # steps since the episode began
        }

    @cached_property
    def size(self) -> int:
        """Of the vector."""
        return sum(prod(shape) for shape in self.shapes.values())

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The narrowest that holds everything."""
        return np.result_type(self.spec.obs_dtype, self.spec.state_dtype, np.int16)

    def space(self) -> spaces.Box:
        """RLlib's name for it."""
        whole = self.dtype.kind != "f"
        low, high = (-(2**15), 2**15 - 1) if whole else (-np.inf, np.inf)
        return spaces.Box(low, high, (self.size,), self.dtype.type)

    def parts(self, rows: Rows) -> dict[str, Rows]:
        """Views of vectors [..., size] by name."""
        found: dict[str, Rows] = {}
        start = 0
        for name, shape in self.shapes.items():
            end = start + prod(shape)
            found[name] = rows[..., start:end].reshape(*rows.shape[:-1], *shape)
            start = end
        return found


class History:
    """The last K moments of an episode; vectors that were handed out are not written to again."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._flat = np.zeros(layout.size, layout.dtype)
        self._slots = 0

    def add(self, time: int, **moment: NDArray[Any]) -> None:
        """One moment: values of the five windows."""
        full = self._slots == self._layout.window
        self._slots += not full
        self._flat = self._flat.copy()
        parts = self._layout.parts(self._flat)
        for name, value in moment.items():
            if full:
                parts[name][:-1] = parts[name][1:].copy()
            parts[name][self._slots - 1] = value
        parts[SLOTS][0], parts[TIME][0] = self._slots, time

    def of_seat(self, seat: int) -> NDArray[Any]:
        """What one seat is shown."""
        flat: NDArray[Any] = self._flat.copy()
        self._layout.parts(flat)[SEAT][0] = seat
        return flat
