"""What an episode holds (fields, declared once per run), and batches of whole episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from omg.types import EnvSpec, IntArray, OmgError, Snapshot


class OneHot:
    """Integers to one-hot float vectors on a new last axis; negative integers to zeros."""

    def __init__(self, n: int) -> None:
        self.n = n
        self._codes: dict[torch.device, Tensor] = {}

    def __call__(self, value: Tensor) -> Tensor:
        codes = self._codes.get(value.device)
        if codes is None:
            codes = torch.arange(self.n, device=value.device, dtype=torch.int64)
            self._codes[value.device] = codes
        return (value.long().unsqueeze(-1) == codes).to(torch.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One quantity of an episode: per step, or once per episode when `episode_const`."""

    vshape: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32
    storage: torch.dtype | None = None  # how it is kept; None: as `dtype`
    group: str | None = None
    episode_const: bool = False

    @property
    def kept_as(self) -> torch.dtype:
        return self.storage or self.dtype


@dataclass(frozen=True, slots=True)
class Scheme:
    """All fields, and the sizes of the groups they name."""

    fields: Mapping[str, Field]
    groups: Mapping[str, int]

    def __post_init__(self) -> None:
        for name, spec in self.fields.items():
            if name == "filled":
                raise OmgError("'filled' is kept by every episode batch. Choose another name.")
            if spec.group is not None and spec.group not in self.groups:
                raise OmgError(f"Field '{name}' names the group '{spec.group}'. Declare its size.")

    def item_shape(self, name: str) -> tuple[int, ...]:
        """Shape of one step (or one constant) of a field."""
        spec = self.fields[name]
        return ((self.groups[spec.group],) if spec.group else ()) + spec.vshape

    def extend(self, fields: Mapping[str, Field]) -> Scheme:
        """The same scheme with more fields, e.g. what a controller records at every step."""
        return Scheme({**self.fields, **fields}, self.groups)

    def bytes_per_step(self) -> int:
        """Bytes one stored step takes, the filled flag included."""
        return 1 + sum(self._bytes(name) for name, f in self.fields.items() if not f.episode_const)

    def bytes_per_episode(self, max_seq_length: int) -> int:
        """Bytes a full-length episode takes."""
        constants = sum(self._bytes(name) for name, f in self.fields.items() if f.episode_const)
        return max_seq_length * self.bytes_per_step() + constants

    def _bytes(self, name: str) -> int:
        count = 1
        for size in self.item_shape(name):
            count *= size
        return count * self.fields[name].kept_as.itemsize


_FEATURES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "bool": torch.bool,
}


def _features(dtype_name: str, buffer_dtype: str) -> torch.dtype:
    name = dtype_name if buffer_dtype == "auto" else buffer_dtype
    if name not in _FEATURES:
        raise OmgError(
            f"Observations cannot be kept as '{name}'. Choose one of: {', '.join(_FEATURES)}."
        )
    return _FEATURES[name]


def environment_scheme(spec: EnvSpec, *, common_reward: bool, buffer_dtype: str = "auto") -> Scheme:
    """The scheme of an environment's episodes. A slot t holds what was seen before step t, the
    action taken then and what it brought; the last slot holds only the last observation. Where
    agents may leave, `alive` says who still acted; where goals are named, `reached` says who
    reached which with the step (-1: none, as in the last slot)."""
    small = torch.uint8 if spec.n_actions <= 255 else torch.int16
    optional: dict[str, Field] = {}
    if spec.leavers:
        optional[ALIVE] = Field(dtype=torch.bool, group="agents")
    if spec.goals:
        optional[REACHED] = Field(dtype=torch.int64, storage=torch.int8, group="agents")
    return Scheme(
        fields={
            "state": Field(
                vshape=(spec.state_dim,), storage=_features(spec.state_dtype, buffer_dtype)
            ),
            "obs": Field(
                vshape=(spec.obs_dim,),
                storage=_features(spec.obs_dtype, buffer_dtype),
                group="agents",
            ),
            "actions": Field(dtype=torch.int64, storage=small, group="agents"),
            "avail_actions": Field(vshape=(spec.n_actions,), dtype=torch.bool, group="agents"),
            "reward": Field(vshape=(1 if common_reward else spec.n_agents,)),
            "terminated": Field(dtype=torch.bool),
            **optional,
        },
        groups={"agents": spec.n_agents},
    )


ALIVE, REACHED = "alive", "reached"  # stored only where an environment has leavers or goals
ONE_HOT = "actions_onehot"  # PyMARL's field; made where it is read, not stored
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
    that cannot be written through; a list or tensor of indices copies. `numbers` [B] tell the
    episodes of a replay buffer apart: no two episodes of a process have the same one.
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
        self.numbers: IntArray | None = None
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
        batch.writable, batch.numbers = True, None
        batch._data = dict(data)
        batch.filled = filled
        return batch

    def raw(self, name: str) -> Tensor:
        """A field as it is stored."""
        if name not in self._data:
            known = ", ".join([*self._data, ONE_HOT])
            raise OmgError(f"An episode batch has no field '{name}'. It has: {known}.")
        return self._data[name]

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, str):
            return self._field(item)
        return self._select(item)

    def _field(self, name: str) -> Tensor:
        if name == "filled":
            return self.filled
        if name == ONE_HOT:
            return OneHot(self.raw("avail_actions").shape[-1])(self.raw("actions"))
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
        # Numbers of rows cost half as much by index_select; it takes no negative ones and no mask.
        listed = copied and rows.dtype == torch.int64 and rows.ndim == 1
        rows = torch.where(rows < 0, rows + self.batch_size, rows) if listed else rows

        def taken(value: Tensor) -> Tensor:
            return value.index_select(0, rows) if listed else value[rows]

        data = {
            name: taken(value if self.scheme.fields[name].episode_const else value[:, steps])
            for name, value in self._data.items()
        }
        filled = taken(self.filled[:, steps])
        part = EpisodeBatch.from_data(self.scheme, data, filled if listed else filled.clone())
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

    def transitions(self) -> Tensor:
        """The slots in which something was done: all filled ones but an episode's last, [B, T]."""
        done = torch.zeros_like(self.filled)
        done[:, :-1] = self.filled[:, 1:]
        return done

    def with_field(self, name: str, value: Tensor) -> EpisodeBatch:
        """The same episodes with other values of a field."""
        data = {**self._data, name: value.to(self.raw(name).dtype)}
        batch = EpisodeBatch.from_data(self.scheme, data, self.filled)
        batch.numbers, batch.writable = self.numbers, self.writable
        return batch

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

    def __len__(self) -> int:
        return self.batch_size

    def __repr__(self) -> str:
        fields = ", ".join(self._data)
        return f"EpisodeBatch({self.batch_size} episodes x {self.max_seq_length} steps: {fields})"


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
