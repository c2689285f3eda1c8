"""Where running episodes are kept until they end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from omg.components.episodes import EpisodeBatch, Scheme, numpy_dtype
from omg.types import IntArray, Snapshot


class EpisodeStaging:
    """A ring over time shared by all copies: a step is one contiguous write per field, an ended
    episode is one gather. Each copy remembers when its episode began."""

    def __init__(self, scheme: Scheme, *, n_copies: int, episode_limit: int) -> None:
        self.scheme = scheme
        self._slots = episode_limit + 1
        self._now = 0
        self._start = np.zeros(n_copies, np.int64)
        self._steps: dict[str, NDArray[Any]] = {}
        self._constants: dict[str, NDArray[Any]] = {}
        for name, spec in scheme.fields.items():
            shape = (n_copies, *scheme.item_shape(name))
            dtype = numpy_dtype(spec.kept_as)
            if spec.episode_const:
                self._constants[name] = np.zeros(shape, dtype)
            else:
                self._steps[name] = np.zeros((self._slots, *shape), dtype)

    def begin(self, copies: IntArray, constants: Mapping[str, NDArray[Any]]) -> None:
        """The next step written is the first of a new episode of these copies."""
        self._start[copies] = self._now
        for name, value in constants.items():
            self._constants[name][copies] = value

    def write(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Store one step of all copies."""
        slot = self._now % self._slots
        for name, value in values.items():
            self._steps[name][slot] = value
        self._now += 1

    def lengths(self, copies: IntArray) -> IntArray:
        """Steps made in the running episodes of these copies."""
        return self._now - self._start[copies]

    def finish(self, copies: IntArray, last: Mapping[str, NDArray[Any]]) -> EpisodeBatch:
        """Take out ended episodes; `last` holds what they saw after their last step."""
        lengths = self.lengths(copies)
        steps = int(lengths.max()) + 1
        time = np.arange(steps)
        slots = (self._start[copies, None] + time) % self._slots
        beyond = time >= lengths[:, None]
        rows = np.arange(len(copies))
        data: dict[str, torch.Tensor] = {}
        for name, ring in self._steps.items():
            values = ring[slots, copies[:, None]]
            values[beyond] = 0
            if name in last:
                values[rows, lengths] = last[name]
            data[name] = torch.from_numpy(values)
        for name, constant in self._constants.items():
            data[name] = torch.from_numpy(constant[copies])
        filled = torch.from_numpy(time <= lengths[:, None])
        return EpisodeBatch.from_data(self.scheme, data, filled)

    def snapshot(self) -> Snapshot:
        arrays = {f"step.{name}": value.copy() for name, value in self._steps.items()}
        arrays |= {f"const.{name}": value.copy() for name, value in self._constants.items()}
        return {**arrays, "now": np.array(self._now), "start": self._start.copy()}

    def restore(self, snapshot: Snapshot) -> None:
        for name in self._steps:
            self._steps[name][:] = snapshot[f"step.{name}"]
        for name in self._constants:
            self._constants[name][:] = snapshot[f"const.{name}"]
        self._now = int(snapshot["now"])
        self._start[:] = snapshot["start"]
