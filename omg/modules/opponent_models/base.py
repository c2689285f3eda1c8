"""What every opponent model offers to the policy and to the learner."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from omg.config.schema import Config
from omg.functional.packing import Packing
from omg.types import EnvSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRows:
    """What the learning agent knows at R moments, acting or stored. The others are ordered
    relative to its own seat (next seat first), so that a model works in every seat."""

    own: Tensor  # [R, D], its observation (or the state), scaled
    last_action: Tensor  # [R], -1 before the first
    others_last: Tensor  # [R, N-1], the others' last actions, -1 before the first
    seats: Tensor  # [R]
    # [R, S], scaled. An acting model may read its own agent's columns; the others are for
    # diagnostic models and training targets.
    state: Tensor
    others_actions: Tensor | None = None  # [R, N-1], what they did at this moment; training only
    others_obs: Tensor | None = None  # [R, N-1, O], what they saw, scaled; training only
    foresight: Tensor | None = None  # [R, N-1, W], their features to come; the oracle only

    def take(self, rows: Tensor) -> ModelRows:
        """Some of the rows."""
        known = {f.name: getattr(self, f.name) for f in fields(self)}
        taken = {k: v.index_select(0, rows) for k, v in known.items() if v is not None}
        return replace(self, **taken)


@dataclass(frozen=True, slots=True)
class Inferred:
    """What a model makes of R moments while acting."""

    feature: Tensor  # [R, feature_dim], the policy's extra input
    carry: Tensor  # [R, carry_dim], what it remembers until the next step
    record: Mapping[str, Tensor] = field(default_factory=dict)  # worth storing, see record_dims


class OpponentModel(nn.Module):
    """Turns what the learning agent knows into features for its policy.

    Features carry no gradient into the model; it learns from its own loss, `episode_loss`.
    `carry_dim` is the width of what it remembers between steps; a fresh episode begins with zeros.
    """

    feature_dim: int
    carry_dim: int = 0
    # The acting controller must look ahead for it (see `ModelRows.foresight`).
    needs_foresight: bool = False

    @abstractmethod
    def __init__(self, *, spec: EnvSpec, own_dim: int, config: Config) -> None:
        super().__init__()

    @abstractmethod
    def infer(self, rows: ModelRows, carry: Tensor, generator: torch.Generator) -> Inferred:
        """Acting: the policy's extra input and the next carry."""

    @abstractmethod
    def unroll(self, rows: ModelRows, packing: Packing, generator: torch.Generator) -> Tensor:
        """Stored episodes: the features acting would have had at every packed slot, [P, F]."""

    def episode_loss(self, rows: ModelRows, packing: Packing) -> Mapping[str, Tensor]:
        """Named terms of whole episodes (rows of all P packed slots; `packing.now` are those at
        which everybody acted); `am_loss` is what is minimised. Empty where nothing is learned, or
        where a learner of its own trains the model."""
        return {}

    def exchanged(
        self, inferred: Inferred, donor: Tensor, rows: ModelRows, generator: torch.Generator
    ) -> Tensor:
        """The features of `rows` if each had inferred what row donor[r] did (permutation test)."""
        return inferred.feature[donor]

    def files(self) -> Mapping[str, nn.Module]:
        """What is saved, by the name of the file."""
        return {}

    def describe(self) -> Mapping[str, Any]:
        """Settings that weights must share beside `am_model`, `am_hidden_dim` and `am_args`, by
        the key of the configuration; a checkpoint with others is refused."""
        return {}

    def record_dims(self) -> Mapping[str, int]:
        """Widths of `Inferred.record`, by name; fields of an episode where it is stored."""
        return {}


class MemorylessModel(OpponentModel):
    """A model whose features depend on the present moment only."""

    @abstractmethod
    def feature(self, rows: ModelRows) -> Tensor:
        """The policy's extra input, [R, feature_dim]."""

    def infer(self, rows: ModelRows, carry: Tensor, generator: torch.Generator) -> Inferred:
        return Inferred(self.feature(rows), carry)

    def unroll(self, rows: ModelRows, packing: Packing, generator: torch.Generator) -> Tensor:
        with torch.no_grad():
            return self.feature(rows)

    def loss(self, rows: ModelRows) -> Mapping[str, Tensor]:
        """Named terms; `am_loss` is what is minimised. Empty where nothing is learned."""
        return {}

    def episode_loss(self, rows: ModelRows, packing: Packing) -> Mapping[str, Tensor]:
        return self.loss(rows.take(packing.now))
