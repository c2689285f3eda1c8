"""Episodes without their padding: every filled slot once, ordered by time.

A batch of episodes of different lengths is mostly padding when agents get good. Learners work on
the P filled slots instead: slot (b, t) lies at offset[t] + rank(b), episodes ranked by length,
longest first, so that step t of all episodes that reach it is one contiguous piece.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Packing:
    """Index tensors between the padded [B, T] and the packed [P] arrangement."""

    shape: tuple[int, int]  # (B, T)
    episode: Tensor  # [P], b of every packed slot
    time: Tensor  # [P], t of every packed slot
    sizes: Tensor  # [T'], episodes that reach step t; on the CPU, never increasing
    rank: Tensor  # [P], place of the slot's episode among those that reach its step
    length: Tensor  # [P], filled slots of its episode
    now: Tensor  # [K], packed slots that are transitions
    next: Tensor  # [K], packed slots that follow them
    place: Tensor  # [P], where the slot lies when episodes are put one behind the other

    @classmethod
    def of(cls, filled_BT: Tensor, terminated_BT: Tensor) -> Packing:
        """Slots are filled from the start of an episode without gaps. The last one holds only the
        last observation, so it is a successor and never a transition; neither is a slot behind
        a termination."""
        batch, steps = filled_BT.shape
        device = filled_BT.device
        lengths = filled_BT.sum(1)
        order = torch.argsort(lengths, descending=True, stable=True)
        reached = torch.arange(steps, device=device).unsqueeze(1) < lengths[order]  # [T, B]
        time, rank = reached.nonzero(as_tuple=True)
        sizes = reached.sum(1)
        sizes = sizes[sizes > 0]
        offsets = torch.cumsum(sizes, 0) - sizes
        episode = order[rank]
        usable = time + 1 < lengths[episode]
        before = (time - 1).clamp(min=0)
        usable &= ~(terminated_BT[episode, before].bool() & (time > 0))
        now = usable.nonzero(as_tuple=True)[0]
        following = offsets[time[now] + 1] + rank[now]
        return cls(
            shape=(batch, steps),
            episode=episode,
            time=time,
            sizes=sizes.cpu(),
            rank=rank,
            length=lengths[episode],
            now=now,
            next=following,
            place=episode * steps + time,
        )

    def per_seat(self, seats: int) -> Packing:
        """The packing of rows, slot by slot and seat by seat: every seat of an episode counts as
        an episode, so row = slot * seats + seat."""
        if seats == 1:
            return self
        each = torch.arange(seats, device=self.episode.device)

        def rows(of_slots: Tensor) -> Tensor:
            return (of_slots.unsqueeze(1) * seats + each).flatten()

        batch, steps = self.shape
        episode, time = rows(self.episode), self.time.repeat_interleave(seats)
        return Packing(
            shape=(batch * seats, steps),
            episode=episode,
            time=time,
            sizes=self.sizes * seats,
            rank=rows(self.rank),
            length=self.length.repeat_interleave(seats),
            now=rows(self.now),
            next=rows(self.next),
            place=episode * steps + time,
        )

    def future(self, slots: Tensor, horizon: int) -> tuple[Tensor, Tensor]:
        """The slots 1 … horizon steps later in the same episode, [K, H], and which of them exist
        (the others repeat the last one): never past the episode's end."""
        sizes = self.sizes.to(slots.device)
        offsets = torch.cumsum(sizes, 0) - sizes
        ahead = self.time[slots].unsqueeze(1) + torch.arange(1, horizon + 1, device=slots.device)
        last = (self.length[slots] - 1).unsqueeze(1)
        exists = ahead <= last
        return offsets[ahead.minimum(last)] + self.rank[slots].unsqueeze(1), exists

    def pack(self, padded: Tensor) -> Tensor:
        """[B, T, …] -> [P, …]."""
        return padded.flatten(0, 1).index_select(0, self.place)

    def take(self, padded: Tensor, slots: Tensor) -> Tensor:
        """Some packed slots of a padded tensor, e.g. `take(reward, packing.now)`: [K, …]."""
        return padded.flatten(0, 1).index_select(0, self.place.index_select(0, slots))

    def pack_previous(self, padded: Tensor, fill: float) -> Tensor:
        """The value one step earlier, [P, …]; `fill` at an episode's first step."""
        later = self.time > 0
        earlier = padded.flatten(0, 1).index_select(0, self.place - later.long())
        return earlier.masked_fill(~later.view(-1, *[1] * (padded.dim() - 2)), fill)

    def previous(self, packed: Tensor) -> Tensor:
        """Values of the slots one step earlier, [P, …]; zeros at an episode's first step."""
        sizes = self.sizes.to(packed.device)
        first = int(sizes[0])
        later = torch.arange(first, len(packed), device=packed.device)
        shift = torch.repeat_interleave(sizes[:-1], sizes[1:])
        earlier = packed.index_select(0, later - shift)
        return torch.cat([torch.zeros_like(packed[:first]), earlier])

    def unpack(self, packed: Tensor) -> Tensor:
        """[P, …] -> [B, T, …], zeros in the padding."""
        padded = packed.new_zeros(*self.shape, *packed.shape[1:])
        return padded.index_put((self.episode, self.time), packed)
