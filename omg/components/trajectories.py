"""What is learned from: a ring of whole episodes, and the learning seats of a batch of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from omg.components.episodes import ALIVE, EpisodeBatch, Field, Scheme
from omg.functional import Packing
from omg.types import EnvSpec, IntArray, OmgError

_NUMBERS = itertools.count()  # of all episodes in this process, see `EpisodeBatch.numbers`
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

    @cached_property
    def rows(self) -> Packing:
        """As of all sequences; where seats may leave, each until it has left."""
        rows = self.all_rows
        return rows if self.alive is None else rows.living(self.alive.flatten())

    @cached_property
    def all_rows(self) -> Packing:
        """The packing of the P·n rows, whether their seats are alive or not."""
        return self.packing.per_seat(self.n_seats)

    @cached_property
    def alive(self) -> Tensor | None:
        """Which learning seats still act at every slot, [P, n]; None: all of them."""
        return self.pack(ALIVE) if ALIVE in self.own.scheme.fields else None

    @cached_property
    def team_alive(self) -> Tensor | None:
        """Which seats of the whole team still act at every slot, [P, N]; None: all of them."""
        if ALIVE not in self.team.scheme.fields:
            return None
        return self.packing.pack(self.team.raw(ALIVE))

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


class ReplayBuffer:
    """Keeps the newest `capacity` episodes in their compact storage dtypes; sampling is uniform.

    Memory is reserved at once but taken only as episodes arrive. Padding is always zero, also
    where a longer episode lay before.
    """

    def __init__(
        self,
        scheme: Scheme,
        *,
        capacity: int,
        max_seq_length: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.capacity = capacity
        self.episodes_in_buffer = 0
        self._next = 0
        self._lengths = np.zeros(capacity, np.int64)
        self._numbers = np.full(capacity, -1, np.int64)
        self._store = EpisodeBatch(
            scheme, batch_size=capacity, max_seq_length=max_seq_length, device=device
        )

    @property
    def scheme(self) -> Scheme:
        return self._store.scheme

    @property
    def max_seq_length(self) -> int:
        return self._store.max_seq_length

    def insert_episode_batch(self, episodes: EpisodeBatch) -> None:
        """Add episodes, replacing the oldest ones when the ring is full."""
        if episodes.max_seq_length > self.max_seq_length:
            raise OmgError(
                f"Episodes of {episodes.max_seq_length} slots do not fit into a buffer made for "
                f"{self.max_seq_length}. Make it with the environment's episode limit + 1."
            )
        self._check_fields(episodes.scheme)
        if len(episodes) > self.capacity:
            episodes = episodes[len(episodes) - self.capacity :]
        room = self.capacity - self._next
        self._write(episodes[:room])
        if len(episodes) > room:
            self._write(episodes[room:])

    def _check_fields(self, given: Scheme) -> None:
        for name, spec in self.scheme.fields.items():
            if given.fields.get(name) != spec or given.item_shape(name) != self.scheme.item_shape(
                name
            ):
                raise OmgError(
                    f"The episodes' field '{name}' is not the buffer's. Give both one scheme."
                )

    def _write(self, episodes: EpisodeBatch) -> None:
        count, steps = len(episodes), episodes.max_seq_length
        rows = slice(self._next, self._next + count)
        stale = int(self._lengths[rows].max()) if count else 0
        store = self._store
        for name, spec in self.scheme.fields.items():
            target = store.raw(name)
            if spec.episode_const:
                target[rows] = episodes.raw(name).to(store.device)
                continue
            target[rows, :steps] = episodes.raw(name).to(store.device)
            if stale > steps:
                target[rows, steps:stale] = 0
        store.filled[rows, :steps] = episodes.filled.to(store.device)
        if stale > steps:
            store.filled[rows, steps:stale] = False
        self._lengths[rows] = episodes.lengths.cpu().numpy()
        self._number(np.arange(rows.start, rows.stop))
        self._next = (self._next + count) % self.capacity
        self.episodes_in_buffer = min(self.capacity, self.episodes_in_buffer + count)

    def _number(self, places: IntArray) -> None:
        """Give the episodes in these places new numbers, in this order."""
        self._numbers[places] = list(itertools.islice(_NUMBERS, len(places)))

    def can_sample(self, batch_size: int) -> bool:
        return self.episodes_in_buffer >= batch_size

    def sample(self, batch_size: int, rng: np.random.Generator) -> EpisodeBatch:
        """Different episodes, uniformly, cut to the longest of them."""
        if not self.can_sample(batch_size):
            raise OmgError(
                f"{batch_size} episodes are wanted but the buffer holds {self.episodes_in_buffer}."
            )
        chosen = rng.choice(self.episodes_in_buffer, batch_size, replace=False)
        steps = int(self._lengths[chosen].max())
        sampled: EpisodeBatch = self._store[torch.from_numpy(chosen), :steps]
        sampled.numbers = self._numbers[chosen]
        return sampled

    def take_all(self) -> EpisodeBatch:
        """All episodes, oldest first, cut to the longest; the buffer is empty afterwards."""
        count = self.episodes_in_buffer
        first = self._next if count == self.capacity else 0
        order = (first + np.arange(count)) % self.capacity
        steps = int(self._lengths[order].max()) if count else 0
        taken: EpisodeBatch = self._store[torch.from_numpy(order), :steps]
        self.episodes_in_buffer = self._next = 0
        return taken

    def byte_estimate(self) -> int:
        """Bytes of the full buffer."""
        return self.capacity * self.scheme.bytes_per_episode(self.max_seq_length)

    def state_dict(self) -> dict[str, Any]:
        """The episodes present, for an exact continuation."""
        used = slice(0, self.episodes_in_buffer)
        return {
            "next": self._next,
            "lengths": torch.from_numpy(self._lengths[used].copy()),
            "filled": self._store.filled[used].clone(),
            "data": {name: self._store.raw(name)[used].clone() for name in self.scheme.fields},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        count = len(state["lengths"])
        if count > self.capacity:
            raise OmgError(f"A buffer of {count} episodes does not fit into {self.capacity}.")
        steps = state["filled"].shape[1]
        if steps != self.max_seq_length:
            raise OmgError(
                f"A buffer of episodes of {steps} slots does not fit into one made for "
                f"{self.max_seq_length}. Use the environment it was filled in."
            )
        # Into a larger ring the episodes go oldest first, so that it goes on behind the newest.
        oldest = 0 if count == self.capacity else int(state["next"]) % max(count, 1)

        def put(place: Tensor, saved: Tensor) -> None:
            saved = saved.to(place.device)
            place[: count - oldest] = saved[oldest:]
            place[count - oldest : count] = saved[:oldest]

        for name, value in state["data"].items():
            put(self._store.raw(name), value)
        put(self._store.filled, state["filled"])
        put(torch.from_numpy(self._lengths), state["lengths"])
        self._next = (int(state["next"]) if count == self.capacity else count) % self.capacity
        first = self._next if count == self.capacity else 0
        self._number((first + np.arange(count)) % self.capacity)
        self.episodes_in_buffer = count
