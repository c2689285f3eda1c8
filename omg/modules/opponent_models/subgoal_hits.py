"""How often inferred subgoals are reached: the hit ratio of recorded episodes."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from omg.functional import Packing, hit_ratio
from omg.modules.opponent_models.base import ModelRows, SubgoalSource
from omg.modules.opponent_models.subgoal_nets import PriorVAE
from omg.types import IntArray


class Decodes(Protocol):
    """What is asked of a model of subgoals."""

    vae: PriorVAE
    source: SubgoalSource
    cell: float  # width of a cell of features


@torch.no_grad()
def subgoal_hits(model: Decodes, rows: ModelRows, packing: Packing, mean: Tensor) -> Tensor:
    """Per episode: decode every inferred subgoal to the nearest places of the other players (the
    whole state where the environment does not say whose features are whose), and count as in
    `functional.hit_ratio`."""
    predicted = _cells(model, model.vae.decode(mean), rows.seats)
    reached = _cells(model, model.source(rows.state, rows.seats), rows.seats)
    episode, time = packing.episode.cpu().numpy(), packing.time.cpu().numpy()
    order = np.lexsort((time, episode))
    order = order[(packing.time < packing.length).cpu().numpy()[order]]  # until one leaves
    ends = np.flatnonzero(np.diff(episode[order])) + 1
    ratios = [
        hit_ratio([tuple(p) for p in predicted[slots][:-1]], [tuple(s) for s in reached[slots]])
        for slots in np.split(order, ends)
    ]
    return torch.tensor(ratios, dtype=torch.float32)


def _cells(model: Decodes, encoded: Tensor, seats: Tensor) -> IntArray:
    """The nearest cell of every feature that counts, [P, C]."""
    if model.source.width:
        encoded = model.source.places(encoded, seats).flatten(1)
    cells: IntArray = np.rint(encoded.cpu().numpy() / model.cell).astype(np.int64)
    return cells
