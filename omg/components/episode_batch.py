"""A batch of whole episodes, padded to one length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from omg.components.scheme import Scheme
from omg.types import OmgError

_NUMPY: dict[torch.dtype, type[np.generic]] = {
    torch.float32: np.float32,
    torch.float16: np.float16,
    torch.int64: np.int64,
    torch.int16: np.int16,
    torch.int8: np.int8,
    torch.uint8: np.uint8,
    torch.bool: np.bool_,
}


def numpy_dtype(dtype: torch.dtype) -> type[np.generic]:
    """NumPy's name of a storage dtype."""
    return _NUMPY[dtype]


def zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros that take physical memory only where they are written to (on the CPU; in pieces of
    2 MiB where the system gives numpy huge pages)."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros(shape, _NUMPY[dtype]))


class EpisodeBatch:
    """Episodes as tensors [B, T, …] (constants [B, …]) with a `filled` mask [B, T].

    Reading `batch["obs"]` gives the field's working dtype. Slices (`batch[2:5, :10]`) are views
    that cannot be written through; a list or tensor of indices copies.
    """

    def __init__(
        self,
        scheme: Scheme,
        *,
        batch_size: int,
        max_seq_length: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.scheme = scheme
        self.batch_size = batch_size
        self.max_seq_length = max_seq_length
        self.device = torch.device(device)
        self.writable = True
        self._data: dict[str, Tensor] = {}
        for name, spec in scheme.fields.items():
            lead = (batch_size,) if spec.episode_const else (batch_size, max_seq_length)
            self._data[name] = zeros(lead + scheme.item_shape(name), spec.kept_as, self.device)
        self.filled = zeros((batch_size, max_seq_length), torch.bool, self.device)

    @classmethod
    def from_data(cls, scheme: Scheme, data: Mapping[str, Tensor], filled: Tensor) -> EpisodeBatch:
        """Wrap tensors that already have the scheme's storage dtypes and shapes."""
        batch = cls.__new__(cls)
        batch.scheme = scheme
        batch.batch_size, batch.max_seq_length = int(filled.shape[0]), int(filled.shape[1])
        batch.device = filled.device
        batch.writable = True
        batch._data = dict(data)
        batch.filled = filled
        return batch

    def raw(self, name: str) -> Tensor:
        """A field as it is stored."""
        if name not in self._data:
            known = ", ".join([*self._data, *self.scheme.derived])
            raise OmgError(f"An episode batch has no field '{name}'. It has: {known}.")
        return self._data[name]

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, str):
            return self._field(item)
        return self._select(item)

    def _field(self, name: str) -> Tensor:
        if name == "filled":
            return self.filled
        if name in self.scheme.derived:
            source, transform = self.scheme.derived[name]
            return transform(self.raw(source))
        stored = self.raw(name)
        value = stored.to(self.scheme.fields[name].dtype)
        return value.clone() if value is stored and not self.writable else value

    def _select(self, item: Any) -> EpisodeBatch:
        rows, steps = item if isinstance(item, tuple) else (item, slice(None))
        if not isinstance(steps, slice):
            raise OmgError(f"Time is cut by a slice, not by {steps!r}. Write batch[rows, a:b].")
        if isinstance(rows, int | np.integer):
            row = range(self.batch_size)[rows]  # an IndexError beyond the batch
            rows = slice(row, row + 1)
        copied = not isinstance(rows, slice)
        if copied:
            rows = torch.as_tensor(rows, device=self.device)
        data = {
            name: value[rows] if self.scheme.fields[name].episode_const else value[:, steps][rows]
            for name, value in self._data.items()
        }
        part = EpisodeBatch.from_data(self.scheme, data, self.filled[:, steps][rows].clone())
        part.writable = copied
        return part

    def update(
        self,
        values: Mapping[str, Any],
        *,
        rows: slice = slice(None),
        steps: slice = slice(None),
        mark_filled: bool = True,
    ) -> None:
        """Write fields for some rows and steps; constants ignore `steps`."""
        if not self.writable:
            raise OmgError("This episode batch is a view of another. Write to a copy() of it.")
        for name, value in values.items():
            target = self.raw(name)
            constant = self.scheme.fields[name].episode_const
            place = target[rows] if constant else target[rows, steps]
            given = torch.as_tensor(value, device=self.device)
            try:
                place.copy_(given.expand(place.shape))
            except RuntimeError as error:
                raise OmgError(
                    f"Field '{name}' takes {tuple(place.shape)} here, not {tuple(given.shape)}."
                ) from error
            if mark_filled and not constant:
                self.filled[rows, steps] = True

    def copy(self) -> EpisodeBatch:
        """An independent, writable batch."""
        data = {name: value.clone() for name, value in self._data.items()}
        return EpisodeBatch.from_data(self.scheme, data, self.filled.clone())

    def to(self, device: torch.device | str) -> EpisodeBatch:
        """The batch on a device; itself if it is there already."""
        if torch.device(device) == self.device:
            return self
        data = {name: value.to(device) for name, value in self._data.items()}
        return EpisodeBatch.from_data(self.scheme, data, self.filled.to(device))

    @property
    def lengths(self) -> Tensor:
        """Filled slots of every episode, [B]."""
        return self.filled.sum(1)

    def max_t_filled(self) -> int:
        """Filled slots of the longest episode."""
        return int(self.lengths.max()) if self.batch_size else 0

    def __len__(self) -> int:
        return self.batch_size

    def __repr__(self) -> str:
        fields = ", ".join(self._data)
        return f"EpisodeBatch({self.batch_size} episodes x {self.max_seq_length} steps: {fields})"
