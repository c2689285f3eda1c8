"""The subgoal hit ratio of recorded episodes."""

from __future__ import annotations

import numpy as np
import torch

from omg.components.episode_batch import EpisodeBatch
from omg.components.learning_agent import SEAT
from omg.functional.packing import Packing
from omg.functional.subgoals import hit_ratio
from omg.modules.opponent_models.omg_am import SubgoalModel
from omg.types import EnvSpec, FloatArray, IntArray

# Features that are not whole numbers are compared in cells of this width (after scaling).
CELL = 0.1


@torch.no_grad()
def subgoal_hits(
    episodes: EpisodeBatch, model: SubgoalModel, state_scale: float, spec: EnvSpec
) -> FloatArray:
    """Per episode: decode every inferred subgoal to the nearest places of the other players (the
    whole state where the environment does not say whose features are whose), and count as in
    `functional.subgoals.hit_ratio`."""
    packing = Packing.of(episodes.filled, episodes.raw("terminated"))
    seats = episodes[SEAT][packing.episode]
    decoded = model.vae.decode(packing.pack(episodes["am_mean"]).to(_device(model))).cpu()
    states = packing.pack(episodes.raw("state")).to(torch.float32) * state_scale
    actual = model.source(states.to(_device(model)), seats.to(_device(model))).cpu()
    cell = state_scale if "int" in spec.state_dtype else CELL
    predicted = _cells(model, decoded, seats, cell)
    reached = _cells(model, actual, seats, cell)
    episode, time = packing.episode.numpy(), packing.time.numpy()
    order = np.lexsort((time, episode))
    ends = np.flatnonzero(np.diff(episode[order])) + 1
    ratios = [
        hit_ratio([tuple(p) for p in predicted[rows][:-1]], [tuple(s) for s in reached[rows]])
        for rows in np.split(order, ends)
    ]
    return np.array(ratios, np.float32)


def _device(model: SubgoalModel) -> torch.device:
    return next(model.parameters()).device


def _cells(
    model: SubgoalModel, encoded: torch.Tensor, seats: torch.Tensor, cell: float
) -> IntArray:
    """The nearest cell of every feature that counts, [P, C]."""
    source = model.source
    if source.width:
        device = _device(model)
        encoded = source.places(encoded.to(device), seats.to(device)).cpu().flatten(1)
    cells: IntArray = np.rint(encoded.numpy() / cell).astype(np.int64)
    return cells
