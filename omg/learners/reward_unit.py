"""`standardise_rewards`: the unit in which rewards are learned from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from omg.components.episodes import ALIVE, EpisodeBatch
from omg.components.trajectories import SEAT
from omg.modules.critics import RunningStats


class RewardUnit(RunningStats):
    """(r - mean) / deviation of what the learning seats earned in all updates so far. Padding and
    seats that have left count for nothing; what is still paid to a seat after it has left is
    divided, and not shifted: it takes no more steps."""

    def __init__(self, seats: Sequence[int] | None) -> None:
        """`seats` that learn; None: all, or in each episode the one that it names."""
        super().__init__()
        self._seats = seats

    @torch.no_grad()
    def standardised(self, batch: EpisodeBatch) -> EpisodeBatch:
        """Take in the rewards of some episodes; the episodes with rewards in this unit."""
        reward = batch.raw("reward")
        present = batch.transitions().unsqueeze(-1).expand_as(reward)
        if reward.shape[-1] > 1 and ALIVE in batch.scheme.fields:
            present = present & batch.raw(ALIVE)
        self.update(reward[present & self._learning(batch)])
        later = reward / self.deviation
        return batch.with_field("reward", torch.where(present, self.normalised(reward), later))

    def _learning(self, batch: EpisodeBatch) -> Tensor:
        """Whose rewards are taken in, [B or 1, 1, N or 1]."""
        agents = batch.raw("reward").shape[-1]
        every = torch.arange(agents, device=batch.device)
        if agents == 1:  # the team's
            return every.eq(0).view(1, 1, 1)
        if SEAT in batch.scheme.fields:
            return every.eq(batch[SEAT].view(-1, 1, 1))
        chosen = every if self._seats is None else torch.tensor(self._seats, device=batch.device)
        return torch.isin(every, chosen).view(1, 1, -1)
