"""Line-ups: which seats of an episode learn, which frozen players take the others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from omg.components.episodes import EpisodeBatch, Field
from omg.components.seeding import SeedTree
from omg.components.trajectories import SEAT, Trajectories, seats_part
from omg.opponents.players import LINEUP, Players
from omg.opponents.pool_members import PoolMember
from omg.policies.inputs import Carry
from omg.types import BoolArray, EnvSpec, IntArray, OmgError

LineupMode: TypeAlias = Literal["homologue", "mixed"]


def draw_lineups(
    members: Sequence[PoolMember],
    n_episodes: int,
    n_seats: int,
    rng: np.random.Generator,
    *,
    mode: LineupMode = "homologue",
) -> IntArray:
    """Who sits where, [n_episodes, n_seats] of indices into `members`.

    Homologue: a run is drawn, one of its skills, and for every seat a member of that run and
    skill. Mixed: every seat is drawn from all members independently.
    """
    if not members:
        raise OmgError("There are no opponents to draw from. Add members to this side of the pool.")
    if mode == "mixed":
        return rng.integers(len(members), size=(n_episodes, n_seats), dtype=np.int64)
    if mode != "homologue":
        raise OmgError(f"There is no line-up mode '{mode}'. Choose homologue or mixed.")
    runs: dict[str, dict[str, list[int]]] = {}
    for index, member in enumerate(members):
        runs.setdefault(member.run, {}).setdefault(member.skill, []).append(index)
    # All members, sorted by run and skill, and where each (run, skill) begins in that list.
    groups = [group for skills in runs.values() for group in skills.values()]
    order = np.concatenate([np.array(group, np.int64) for group in groups])
    group_sizes = np.array([len(group) for group in groups])
    group_starts = np.cumsum(group_sizes) - group_sizes
    skill_counts = np.array([len(skills) for skills in runs.values()])
    first_groups = np.cumsum(skill_counts) - skill_counts

    run_E = rng.integers(len(runs), size=n_episodes)
    group_E = first_groups[run_E] + rng.integers(skill_counts[run_E])
    sizes_E1 = group_sizes[group_E][:, None]
    picks = rng.integers(np.broadcast_to(sizes_E1, (n_episodes, n_seats)))
    return cast(IntArray, order[group_starts[group_E][:, None] + picks])


def part_of(fraction: float, everyone: int, left: int, side: str) -> float:
    """A fraction of all units as one of those that are left."""
    if not 0 <= fraction <= 1:
        raise OmgError(f"{side}={fraction:g} is not a fraction between 0 and 1.")
    if fraction * everyone > left:
        raise OmgError(
            f"{side}={fraction:g} asks for more than the {left} of {everyone} that are not held "
            "out. Lower one of the two fractions."
        )
    return fraction * everyone / left if left else 0.0


def draw_heldout(
    algorithms: Mapping[str, str], fraction: float, *, seed: int, side: str = "heldout"
) -> set[str]:
    """The units (runs or members, with their algorithm) to hold out, or to put on another side:
    about `fraction` of all, and of each algorithm with two or more units at least one there and
    one elsewhere."""
    if not 0 <= fraction <= 1:
        raise OmgError(f"{side}={fraction:g} is not a fraction between 0 and 1.")
    if fraction in (0, 1):
        return set(algorithms) if fraction else set()
    units: dict[str, list[str]] = {}
    for unit in sorted(algorithms):
        units.setdefault(algorithms[unit], []).append(unit)
    rng = SeedTree(seed).numpy("pool.split" if side == "heldout" else f"pool.split.{side}")
    names = [str(name) for name in rng.permutation(sorted(units))]
    least = {name: int(len(units[name]) >= 2) for name in names}
    most = {name: max(1, len(units[name]) - 1) for name in names}
    quota = {name: fraction * len(units[name]) for name in names}
    count = {name: min(max(int(quota[name]), least[name]), most[name]) for name in names}
    total = min(max(round(fraction * len(algorithms)), 1), len(algorithms) - 1)
    while sum(count.values()) < total:
        room = [name for name in names if count[name] < most[name]]
        if not room:
            break
        count[max(room, key=lambda name: quota[name] - count[name])] += 1
    return {
        str(unit) for name in sorted(units) for unit in rng.permutation(units[name])[: count[name]]
    }


# How the one learning seat changes from episode to episode.
Shift: TypeAlias = Literal["fixed", "rotate", "random"]


class LineUp(ABC):
    """Who sits where. Seats of an episode live in the carry, one row per copy."""

    n_learning: int  # learning seats of an episode
    seats: tuple[int, ...] | None = None  # which, where they are the same in every episode
    players: Players | None = None  # who takes the other seats
    roles: tuple[str, ...] = ()  # of those that learn; empty where seats have none

    def initial_carry(self, n_copies: int) -> Carry:
        """What is kept of the seating."""
        return {} if self.players is None else self.players.initial_carry(n_copies)

    def skip_episodes(self, carry: Carry, episodes: int) -> None:  # noqa: B027 - optional
        """Count episodes as played that a fresh carry knows nothing of (rotating seats go on)."""

    def begin(
        self, carry: Carry, copies: IntArray, rng: np.random.Generator
    ) -> Mapping[str, NDArray[Any]]:
        """Seat everybody for new episodes of some copies; the constants to store with them."""
        return {}

    def record_fields(self) -> Mapping[str, Field]:
        """The constants that `begin` gives."""
        return {} if self.players is None else self.players.record_fields()

    @abstractmethod
    def learning_seats(self, carry: Carry) -> Tensor | None:
        """The learning seats of running games, [B, n]; None: all seats in order."""

    @abstractmethod
    def trajectories(self, batch: EpisodeBatch) -> Trajectories:
        """What the learning seats of stored episodes learn from."""


class EveryoneLearns(LineUp):
    """A whole team; there are no frozen players."""

    def __init__(self, spec: EnvSpec, roles: Sequence[str] | None = None) -> None:
        """`roles`: those that are played for real, where the policy knows only some."""
        self.n_learning = spec.n_agents
        self.seats = tuple(range(spec.n_agents))
        self.roles = tuple(dict.fromkeys(spec.roles if roles is None else roles))

    def learning_seats(self, carry: Carry) -> Tensor | None:
        return None

    def trajectories(self, batch: EpisodeBatch) -> Trajectories:
        return Trajectories.of(batch)


class PoolDraw:
    """Draws members of a pool for free seats, each for a role it plays."""

    def __init__(
        self, members: Sequence[PoolMember], roles: Sequence[str], mode: LineupMode
    ) -> None:
        self._members, self._roles, self._mode = tuple(members), tuple(roles), mode

    @cached_property
    def _able(self) -> dict[str, IntArray]:
        """Members by the role they play."""
        return {
            role: np.array(
                [i for i, m in enumerate(self._members) if role in (m.roles or self._roles)]
            )
            for role in dict.fromkeys(self._roles)
        } or {"": np.arange(len(self._members))}

    def able(self, role: str) -> IntArray:
        """The members that play a role."""
        return self._able[role]

    def draw(self, free_EN: BoolArray, rng: np.random.Generator) -> IntArray:
        """Members for the free seats [E, N] of new episodes, as many of each role in every
        episode; -1 elsewhere."""
        members = np.full(free_EN.shape, -1, np.int64)
        for role, able in self._able.items():
            seats = np.flatnonzero(np.array(self._roles) == role) if self._roles else slice(None)
            free = free_EN[:, seats]
            count = int(free[0].sum())
            if not count:
                continue
            if not len(able):
                raise OmgError(
                    f"The pool has no member that plays the role '{role}', which has {count} free "
                    f"seat{'s'[: count != 1]}. Add some with 'omg pool add'."
                )
            players = [self._members[i] for i in able]
            drawn = draw_lineups(players, len(free), count, rng, mode=self._mode)
            block = np.full(free.shape, -1, np.int64)
            block[free] = able[drawn].reshape(-1)
            members[:, seats] = block
        return members


class RoleLearns(LineUp):
    """All seats of one role learn; members of a pool are drawn for the others."""

    def __init__(self, spec: EnvSpec, role: str, *, players: Players, draw: PoolDraw) -> None:
        self.seats = spec.seats_of(role)
        self.n_learning, self.roles, self.players = len(self.seats), (role,), players
        self._draw = draw
        self._free = np.ones(spec.n_agents, np.bool_)
        self._free[list(self.seats)] = False

    def begin(
        self, carry: Carry, copies: IntArray, rng: np.random.Generator
    ) -> Mapping[str, NDArray[Any]]:
        assert self.players is not None
        members = self._draw.draw(np.tile(self._free, (len(copies), 1)), rng)
        self.players.seat(carry, torch.from_numpy(copies), members)
        return {LINEUP: members}

    def learning_seats(self, carry: Carry) -> Tensor | None:
        assert self.seats is not None
        return torch.tensor(self.seats).expand(len(carry["member"]), -1)

    def trajectories(self, batch: EpisodeBatch) -> Trajectories:
        assert self.seats is not None
        return Trajectories.of(batch, *seats_part(batch, self.seats))


class OneLearns(LineUp):
    """One agent learns in one seat of its role; frozen players take the others. With `gathering`
    one of them takes its seat, too: games of the frozen players alone, to gather the states they
    visit."""

    n_learning = 1

    def __init__(
        self,
        spec: EnvSpec,
        role: str,
        *,
        players: Players,
        others: PoolDraw | IntArray,
        seat: int,
        shift: Shift = "fixed",
        gathering: bool = False,
    ) -> None:
        """`others` are drawn from a pool, or the members of a team by seat (-1 where it learns);
        `seat` is the one taken without shifting, counted among those of the role."""
        self.players, self.roles = players, (role,) if spec.roles else ()
        self.own_seats: IntArray = np.array(spec.seats_of(role), np.int64)
        self._role, self._others, self._seat = role, others, seat
        self._shift, self._gathering = shift, gathering
        self._agents = np.arange(spec.n_agents)

    def initial_carry(self, n_copies: int) -> Carry:
        return {
            "seat": torch.zeros(n_copies, dtype=torch.int64),
            "episode": torch.zeros(n_copies, dtype=torch.int64),
            **super().initial_carry(n_copies),
        }

    def skip_episodes(self, carry: Carry, episodes: int) -> None:
        carry["episode"] += episodes

    def begin(
        self, carry: Carry, copies: IntArray, rng: np.random.Generator
    ) -> Mapping[str, NDArray[Any]]:
        assert self.players is not None
        places, rows = len(self.own_seats), torch.from_numpy(copies)
        shift = np.zeros(len(copies), np.int64)
        if self._shift == "random":
            shift = rng.integers(0, places, len(copies))
        elif self._shift == "rotate":
            shift = (copies + carry["episode"][rows].numpy()) % places
        seats, members = self.line_up(shift, rng)
        if self._gathering:
            members = self.fill(seats, members, rng)
        carry["episode"][rows] += 1
        carry["seat"][rows] = torch.from_numpy(seats)
        self.players.seat(carry, rows, members)
        return {SEAT: seats, LINEUP: members}

    def line_up(self, shift: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Learning seats [E] and members [E, N] (-1 there) of new episodes."""
        own = self.own_seats
        seats = own[(self._seat + shift) % len(own)]
        if isinstance(self._others, PoolDraw):
            return seats, self._others.draw(self._agents != seats[:, None], rng)
        order = np.tile(self._agents, (len(shift), 1))
        order[:, own] = own[(np.arange(len(own)) - shift[:, None]) % len(own)]
        return seats, self._others[order]

    def fill(self, seats: IntArray, members: IntArray, rng: np.random.Generator) -> IntArray:
        """The same line-ups with a member in the learning seat."""
        assert self.players is not None
        filled: IntArray = members.copy()
        able: IntArray = np.arange(len(self.players.names))
        if isinstance(self._others, PoolDraw):
            able = self._others.able(self._role)
        if not len(able):
            raise OmgError(
                f"The pool has no member that plays the role '{self._role}' in place of the "
                "learning agent. Add some with 'omg pool add'."
            )
        filled[np.arange(len(seats)), seats] = able[rng.integers(0, len(able), len(seats))]
        return filled

    def record_fields(self) -> Mapping[str, Field]:
        kept = Field(dtype=torch.int64, storage=torch.int16, episode_const=True)
        return {SEAT: kept, **super().record_fields()}

    def learning_seats(self, carry: Carry) -> Tensor | None:
        return carry["seat"].unsqueeze(1)

    def trajectories(self, batch: EpisodeBatch) -> Trajectories:
        return Trajectories.of(batch, *seats_part(batch))
