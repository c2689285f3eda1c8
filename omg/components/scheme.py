"""What an episode holds: fields, groups and derived fields, declared once per run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from omg.components.transforms import OneHot, Transform
from omg.types import EnvSpec, OmgError


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
    """All fields, the sizes of the groups they name, and fields made on the fly."""

    fields: Mapping[str, Field]
    groups: Mapping[str, int]
    derived: Mapping[str, tuple[str, Transform]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, spec in self.fields.items():
            if name == "filled":
                raise OmgError("'filled' is kept by every episode batch. Choose another name.")
            if spec.group is not None and spec.group not in self.groups:
                raise OmgError(f"Field '{name}' names the group '{spec.group}'. Declare its size.")
        for name, (source, _) in self.derived.items():
            if source not in self.fields:
                raise OmgError(f"Derived field '{name}' needs '{source}'. Add it to the scheme.")

    def item_shape(self, name: str) -> tuple[int, ...]:
        """Shape of one step (or one constant) of a field."""
        spec = self.fields[name]
        return ((self.groups[spec.group],) if spec.group else ()) + spec.vshape

    def extend(self, fields: Mapping[str, Field]) -> Scheme:
        """The same scheme with more fields, e.g. what a controller records at every step."""
        return Scheme({**self.fields, **fields}, self.groups, self.derived)

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
    action taken then and what it brought; the last slot holds only the last observation."""
    small = torch.uint8 if spec.n_actions <= 255 else torch.int16
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
        },
        groups={"agents": spec.n_agents},
        derived={"actions_onehot": ("actions", OneHot(spec.n_actions))},
    )
