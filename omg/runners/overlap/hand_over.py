"""What the collector hands over, as plain arrays on its way and as tensors in a resume state."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from omg.components.episodes import EpisodeBatch, Scheme
from omg.runners.rollout import EpisodeStats, Finished

FILLED, EPISODES, STATS, INFO = "filled", "episodes.", "stats.", "info."


@dataclass(frozen=True, slots=True)
class HandOver:
    """The steps up to one that ended episodes, and those episodes."""

    version: int  # of the weights that chose the actions
    steps: list[int]  # environment steps of every step of all copies
    arrays: Mapping[str, NDArray[Any]]

    @classmethod
    def of(cls, finished: Finished, *, version: int, steps: list[int]) -> HandOver:
        episodes, stats = finished.episodes, finished.stats
        named = {f.name: getattr(stats, f.name) for f in fields(stats) if f.name != "info"}
        arrays: dict[str, NDArray[Any]] = {FILLED: episodes.filled.numpy()}
        names = episodes.scheme.fields
        arrays |= {f"{EPISODES}{name}": episodes.raw(name).numpy() for name in names}
        arrays |= {f"{STATS}{name}": value for name, value in named.items()}
        arrays |= {f"{INFO}{name}": value for name, value in stats.info.items()}
        return cls(version, steps, arrays)

    def finished(self, scheme: Scheme) -> Finished:
        """As a rollout would have given it."""
        part = self._part(EPISODES)
        data = {name: torch.from_numpy(value) for name, value in part.items()}
        filled = torch.from_numpy(self.arrays[FILLED])
        stats = EpisodeStats(**self._part(STATS), info=self._part(INFO))
        return Finished(EpisodeBatch.from_data(scheme, data, filled), stats)

    def _part(self, prefix: str) -> dict[str, NDArray[Any]]:
        return {
            name.removeprefix(prefix): value
            for name, value in self.arrays.items()
            if name.startswith(prefix)
        }

    def state_dict(self) -> dict[str, Any]:
        arrays = {name: torch.from_numpy(np.array(value)) for name, value in self.arrays.items()}
        return {"version": self.version, "steps": list(self.steps), "arrays": arrays}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> HandOver:
        arrays = {name: value.numpy() for name, value in state["arrays"].items()}
        return cls(int(state["version"]), [int(count) for count in state["steps"]], arrays)


def to_bytes(state: Mapping[str, Any]) -> bytes:
    """A state of tensors and plain values, as it would stand in a file."""
    file = io.BytesIO()
    torch.save(dict(state), file)
    return file.getvalue()


def from_bytes(saved: bytes) -> dict[str, Any]:
    """The opposite of `to_bytes`."""
    state: dict[str, Any] = torch.load(io.BytesIO(saved), map_location="cpu", weights_only=True)
    return state
