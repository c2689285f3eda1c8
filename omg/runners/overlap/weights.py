"""Weights in memory that the learner and the collector share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from multiprocessing.shared_memory import SharedMemory
from typing import TypeAlias

import torch
from torch import Tensor, nn

from omg.controllers.base import Controller
from omg.controllers.team import TeamMAC

# (name, shape, dtype) of every tensor of the networks that act.
Layout: TypeAlias = tuple[tuple[str, tuple[int, ...], str], ...]

ALIGNMENT = 64


def acting_networks(mac: Controller) -> dict[str, nn.Module]:
    """All that acts and learns: what is saved, and of an opponent model also what is not."""
    model = mac.model if isinstance(mac, TeamMAC) else None
    return {**mac.networks(), **({} if model is None else {"opponent model": model})}


def _tensors(networks: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """Every tensor once, also where networks share some."""
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for file, network in networks.items():
        for key, value in network.state_dict().items():
            if value.data_ptr() not in seen or not value.numel():
                found[f"{file}/{key}"] = value
                seen.add(value.data_ptr())
    return found


def layout_of(networks: Mapping[str, nn.Module]) -> Layout:
    """What has to be equal on both sides."""
    return tuple(
        (name, tuple(value.shape), str(value.dtype).removeprefix("torch."))
        for name, value in _tensors(networks).items()
    )


class SharedWeights:
    """Slots, each with the weights of one version, and a counter that shows the collector is
    alive. Who writes and who reads a slot when is agreed upon elsewhere."""

    def __init__(self, layout: Layout, *, slots: int, name: str | None = None) -> None:
        """Without a name, new zeroed memory; with one, the memory of that name."""
        sizes = [math.prod(shape) * getattr(torch, kind).itemsize for _, shape, kind in layout]
        starts = [ALIGNMENT]
        for size in sizes:
            starts.append(starts[-1] + -(-size // ALIGNMENT) * ALIGNMENT)
        width = starts.pop()
        self._memory = SharedMemory(name=name, create=name is None, size=(1 + slots) * width)
        self.name = self._memory.name
        self._beats = self._view(0, (), torch.int64)
        self._versions = [self._view(width * (1 + s), (), torch.int64) for s in range(slots)]
        self._slots = [
            {
                key: self._view(width * (1 + slot) + start, shape, getattr(torch, kind))
                for (key, shape, kind), start in zip(layout, starts, strict=True)
            }
            for slot in range(slots)
        ]

    def _view(self, start: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        count = math.prod(shape)
        if not count:
            return torch.zeros(shape, dtype=dtype)
        flat = torch.frombuffer(self._memory.buf, dtype=dtype, count=count, offset=start)
        return flat.view(shape)

    @torch.no_grad()
    def write(self, slot: int, version: int, networks: Mapping[str, nn.Module]) -> None:
        """Put the present weights into a slot."""
        place = self._slots[slot]
        for name, value in _tensors(networks).items():
            place[name].copy_(value)
        self._versions[slot].fill_(version)

    @torch.no_grad()
    def read(self, slot: int, networks: Mapping[str, nn.Module]) -> int:
        """Take the weights of a slot; their version."""
        place = self._slots[slot]
        for name, value in _tensors(networks).items():
            value.copy_(place[name])
        return int(self._versions[slot])

    def beat(self) -> None:
        """The collector made a step."""
        self._beats += 1

    @property
    def beats(self) -> int:
        """How many steps it made."""
        return int(self._beats)

    def unlink(self) -> None:
        """Take the name away; the memory lives on until both sides have closed it."""
        self._memory.unlink()

    def close(self) -> None:
        """Let go of the memory."""
        self._slots, self._versions = [], []
        self._beats = torch.zeros(())
        self._memory.close()
