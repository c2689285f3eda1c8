"""What OMG's frozen prior makes of stored episodes, computed once per episode."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from omg.components.episodes import zeros
from omg.components.trajectories import Trajectories
from omg.config.schema import Config
from omg.modules.opponent_models import ModelRows
from omg.modules.opponent_models.omg_am import SubgoalModel
from omg.types import EnvSpec, IntArray

MOST_BYTES = 256 * 1024**2  # of memory for one run; it is taken as episodes arrive


class Encoded(NamedTuple):
    """Gaussians of R rows, as rows of a table."""

    mean: Tensor  # [V, G]
    log_var: Tensor  # [V, G]
    rows: Tensor  # [R]


class PriorMemory:
    """Encodings of the newest episodes of the replay buffer, by their numbers. An episode that
    took another's place has another number, and weights that changed are noticed, so nothing old
    is ever read. It is no part of a resume state: what is computed again is equal in every bit,
    because the kernel's rows do not depend on each other; without the kernel nothing is kept."""

    def __init__(self, *, config: Config, spec: EnvSpec, model: SubgoalModel) -> None:
        self._model, self._slots, self._width = model, spec.episode_limit + 1, config.subgoal_dim
        self._episodes = config.buffer_size
        self._known = np.full(self._episodes, -1, np.int64)  # numbers, by place
        self._tables: list[Tensor] = []
        self._weights: list[tuple[int, int]] = []

    def of(self, played: Trajectories, rows: ModelRows) -> Encoded:
        """What the prior makes of every row's state."""
        numbers, size = played.team.numbers, 8 * self._width * self._slots * played.n_seats
        places = np.zeros(0, np.int64) if numbers is None else numbers % self._episodes
        if (
            numbers is None
            or size * self._episodes > MOST_BYTES
            or len(np.unique(places)) < len(places)
            or not self._model.prior_by_kernel
        ):
            return Encoded(
                *self._model.prior(rows), torch.arange(len(rows.own)).to(rows.own.device)
            )
        self._notice_weights(played.n_seats)
        index = self._rows(played, places)
        missing = np.flatnonzero(self._known[places] != numbers)
        if len(missing):
            self._compute(played, rows, missing, index)
            self._known[places] = numbers
        mean, log_var = self._tables
        return Encoded(mean, log_var, index)

    def _notice_weights(self, seats: int) -> None:
        """Forget everything when the prior has changed."""
        now = [(w.data_ptr(), w._version) for w in self._model.prior_weights()]
        if now != self._weights:
            shape = (self._episodes * seats * self._slots, self._width)
            if not self._tables:
                self._tables = [zeros(shape, torch.float32, torch.device("cpu")) for _ in range(2)]
            self._known[:] = -1
            self._weights = now

    def _rows(self, played: Trajectories, places: IntArray) -> Tensor:
        """The table's row of every row."""
        packing, seats = played.all_rows, played.n_seats
        sequences = (torch.from_numpy(places).unsqueeze(1) * seats + torch.arange(seats)).flatten()
        return sequences.index_select(0, packing.episode) * self._slots + packing.time

    def _compute(
        self, played: Trajectories, rows: ModelRows, missing: IntArray, index: Tensor
    ) -> None:
        if len(missing) == len(played.team):
            found = self._model.prior(rows)
        else:
            new = torch.zeros(len(played.team), dtype=torch.bool)
            new[torch.from_numpy(missing)] = True
            wanted = new[played.all_rows.episode // played.n_seats].nonzero(as_tuple=True)[0]
            found, index = self._model.prior(rows.take(wanted)), index[wanted]
        for table, value in zip(self._tables, found, strict=True):
            table.index_copy_(0, index, value)
