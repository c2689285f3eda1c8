"""What one update learns from: the learning seats of a batch of episodes, as one object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from omg.components.episodes import EpisodeBatch, Field, Scheme
from omg.functional import Packing
from omg.types import EnvSpec

SEAT = "agent_idx"  # the field of an episode with the seat of its one learning agent


class SeatOrder(nn.Module):
    """The order in which everything about the others is kept, so that a model works in every seat:
    those of one's own role from the next seat on, then the other roles, each in seat order."""

    others_of: Tensor

    def __init__(self, spec: EnvSpec) -> None:
        super().__init__()
        roles = spec.roles or ("",) * spec.n_agents
        table = []
        for seat in range(spec.n_agents):
            following = [(seat + step) % spec.n_agents for step in range(1, spec.n_agents)]
            own = [other for other in following if roles[other] == roles[seat]]
            strangers = (role for role in dict.fromkeys(roles) if role != roles[seat])
            table.append([*own, *(s for role in strangers for s in spec.seats_of(role))])
        self.register_buffer("others_of", torch.tensor(table, dtype=torch.int64), persistent=False)

    def forward(self, seats_R: Tensor) -> Tensor:
        """The other seats, [R, N-1]."""
        return self.others_of.to(seats_R.device)[seats_R]

    def relative(self, per_seat_RN: Tensor, seats_R: Tensor) -> Tensor:
        """The other seats' values [R, N, …] in that order, [R, N-1, …]."""
        rows = torch.arange(len(seats_R), device=seats_R.device).unsqueeze(1)
        return per_seat_RN[rows, self(seats_R)]


def some_seats_scheme(scheme: Scheme, seats: int) -> Scheme:
    """The same fields for some of the agents; a reward per agent becomes those agents' rewards."""
    fields = dict(scheme.fields)
    reward = fields["reward"]
    width = seats if reward.vshape != (1,) else 1
    fields["reward"] = Field(vshape=(width,), dtype=reward.dtype, storage=reward.storage)
    return Scheme(fields, {**scheme.groups, "agents": seats})


def _per_agent(name: str, spec: Field, value: Tensor) -> bool:
    """Whether a field has a value for every agent; a common reward has one for all."""
    return spec.group == "agents" or (name == "reward" and value.shape[-1] > 1)


def seats_part(
    batch: EpisodeBatch, seats: Sequence[int] | None = None
) -> tuple[EpisodeBatch, Tensor]:
    """Each episode with only some seats, and those seats [B, n]: the same in all, or (None) the
    one that learned in it."""
    chosen = batch[SEAT] if seats is None else torch.tensor(seats, device=batch.device)
    chosen = chosen.unsqueeze(1) if seats is None else chosen.expand(len(batch), -1)
    rows = torch.arange(len(batch), device=batch.device).unsqueeze(1)
    steps = torch.arange(batch.max_seq_length, device=batch.device).unsqueeze(1)
    data: dict[str, Tensor] = {}
    for name, spec in batch.scheme.fields.items():
        value = batch.raw(name)
        if _per_agent(name, spec, value) and spec.episode_const:
            value = value[rows, chosen]
        elif _per_agent(name, spec, value):
            value = value[rows.unsqueeze(1), steps, chosen.unsqueeze(1)]
        data[name] = value
    scheme = some_seats_scheme(batch.scheme, chosen.shape[1])
    return EpisodeBatch.from_data(scheme, data, batch.filled), chosen


@dataclass(frozen=True, kw_only=True)
class Sequences:
    """How the inputs of a network are arranged: n seats of whole episodes, without padding.

    A slot is one of the P filled time steps of all episodes. Rows are slots x seats, slot by slot.
    """

    packing: Packing
    n_seats: int
    seats: Tensor | None = None  # [B, n], which seats they are; None: all seats in order

    @cached_property
    def rows(self) -> Packing:
        """The packing of the P·n rows: every seat of an episode as an episode."""
        return self.packing.per_seat(self.n_seats)

    @cached_property
    def seats_PN(self) -> Tensor:
        """The seat of every row, [P, n]."""
        episode = self.packing.episode
        if self.seats is None:
            return torch.arange(self.n_seats, device=episode.device).expand(len(episode), -1)
        return self.seats[episode]


@dataclass(frozen=True, kw_only=True)
class Trajectories(Sequences):
    """The learning seats of a batch of episodes. K slots are transitions, from `packing.now` to
    `packing.next`."""

    team: EpisodeBatch  # every seat, as it was played
    own: EpisodeBatch  # the learning seats only

    @classmethod
    def of(
        cls, team: EpisodeBatch, own: EpisodeBatch | None = None, seats: Tensor | None = None
    ) -> Trajectories:
        """Without `own`, every seat learns."""
        own = team if own is None else own
        return cls(
            packing=Packing.of(own.filled, own.raw("terminated")),
            n_seats=own.scheme.groups["agents"],
            seats=seats,
            team=team,
            own=own,
        )

    def pack(self, name: str) -> Tensor:
        """A field at every slot, [P, …]."""
        return self._typed(name, self.packing.pack(self.own.raw(name)))

    def now(self, name: str) -> Tensor:
        """A field at every transition, [K, …]."""
        return self._typed(name, self.packing.take(self.own.raw(name), self.packing.now))

    def next(self, name: str) -> Tensor:
        """A field one step after every transition, [K, …]."""
        return self._typed(name, self.packing.take(self.own.raw(name), self.packing.next))

    def last_actions(self, *, everybody: bool = False) -> Tensor:
        """Actions one step before every slot, [P, n] (of the whole team [P, N]); -1 at an
        episode's first."""
        batch = self.team if everybody else self.own
        return self.packing.pack_previous(batch.raw("actions").to(torch.int16), -1)

    def for_rows(self, of_slots: Tensor) -> Tensor:
        """Values of slots [P, …] for each of their rows, [P·n, …]."""
        return of_slots if self.n_seats == 1 else of_slots.repeat_interleave(self.n_seats, 0)

    def _typed(self, name: str, stored: Tensor) -> Tensor:
        return stored.to(self.own.scheme.fields[name].dtype)
