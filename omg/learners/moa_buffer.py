"""What MOA learns from: rows of (observation, action, time, target, available actions) of each
other player, taken from the episodes that the run plays anyway."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from omg.components.episodes import ALIVE, REACHED, EpisodeBatch, environment_scheme
from omg.components.trajectories import SeatOrder, Trajectories, seats_part
from omg.functional import hindsight_goals
from omg.types import BoolArray, EnvSpec, OmgError


@dataclass(frozen=True, slots=True, kw_only=True)
class MoaRows:
    """Moments of other players, each seen by one player: a row is for one pair of seats."""

    pair: Tensor  # [n], as `PairNets` counts them
    obs: Tensor  # [n, O], what the other saw, as it is stored (not scaled)
    action: Tensor  # [n], what it did
    time: Tensor  # [n], steps since the episode began
    target: Tensor  # [n], the goal it reached next, -1: none; or [n, G], a subgoal
    avail: Tensor  # [n, A], what it could do
    valid: Tensor  # [n], whether it is learned from: both were there, and the goal is known

    def take(self, rows: Tensor) -> MoaRows:
        """Some of the rows."""
        return MoaRows(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    def state_dict(self) -> dict[str, Tensor]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


def moa_rows(played: Trajectories, order: SeatOrder, target: Tensor | None = None) -> MoaRows:
    """One row per transition, learning seat and other, in this order. Without a `target` [P·n, G]
    (subgoals of the learning seats) it is the goal that the other reaches next, if goals are
    declared."""
    packing, now = played.packing, played.packing.now
    seats = played.seats_PN[now]
    others = order(seats)  # [K, n, J]
    at = (torch.arange(len(now), device=now.device).view(-1, 1, 1), others)

    def of_others(name: str) -> Tensor:
        return packing.take(played.team.raw(name), now)[at].flatten(0, 2)

    valid = torch.ones(others.shape, dtype=torch.bool, device=now.device)
    if (alive := played.team_alive) is not None:
        there = alive[now]
        own = there.gather(1, seats).unsqueeze(-1)
        valid = there[at] & own
    wanted = torch.zeros(others.numel(), 0, device=now.device)
    if target is not None:
        chosen = target.view(len(packing.time), played.n_seats, -1)[now]
        wanted = chosen.unsqueeze(2).expand(*others.shape, -1).flatten(0, 2)
    elif REACHED in played.team.scheme.fields:
        reached = packing.pack(played.team.raw(REACHED))
        wanted = hindsight_goals(reached, packing)[now][at].flatten()
        valid = valid & (wanted >= 0).view(valid.shape)
    pairs = seats.unsqueeze(-1) * others.shape[-1] + torch.arange(
        others.shape[-1], device=now.device
    )
    return MoaRows(
        pair=pairs.flatten(),
        obs=of_others("obs"),
        action=of_others("actions").long(),
        time=packing.time[now].view(-1, 1, 1).expand(others.shape).flatten(),
        target=wanted,
        avail=of_others("avail_actions"),
        valid=valid.flatten(),
    )


class MoaBuffer:
    """Rows of all pairs, in the order in which they came. An update takes a pair's rows out."""

    def __init__(self, spec: EnvSpec, *, n_pairs: int, goals: bool = True) -> None:
        """`goals`: whether goals the environment declares are targets."""
        self._spec, self._order, self._n_pairs = spec, SeatOrder(spec), n_pairs
        self._goals = goals
        self._parts: list[MoaRows] = []

    def insert(
        self, episode: Trajectories | Mapping[str, Any], target: Tensor | None = None
    ) -> None:
        """Add whole episodes: as a learner gets them, or one as a plain dictionary (see
        `episode_of`)."""
        if isinstance(episode, Mapping):
            if "subgoal" in episode and target is None:
                target = _subgoals(episode)
            episode = episode_of(episode, self._spec)
        if not self._goals and target is None:
            width = len(episode.packing.time) * episode.n_seats
            target = torch.zeros(width, 0, device=episode.packing.time.device)
        self._parts.append(moa_rows(episode, self._order, target))

    @property
    def rows(self) -> MoaRows | None:
        """All of them; None where there are none."""
        if len(self._parts) > 1:
            names = [f.name for f in fields(MoaRows)]
            joined = {k: torch.cat([getattr(part, k) for part in self._parts]) for k in names}
            self._parts = [MoaRows(**joined)]
        return self._parts[0] if self._parts else None

    def __len__(self) -> int:
        return sum(len(part.pair) for part in self._parts)

    def forget_useless(self) -> None:
        """Drop the rows that nobody can learn from; of players that never reach a goal they would
        pile up."""
        rows = self.rows
        if rows is not None and not rows.valid.all():
            kept = rows.valid.nonzero(as_tuple=True)[0]
            self._parts = [rows.take(kept)] if len(kept) else []

    def sizes(self) -> Tensor:
        """How many rows of every pair can be learned from, [pairs]."""
        rows = self.rows
        if rows is None:
            return torch.zeros(self._n_pairs, dtype=torch.int64)
        return torch.bincount(rows.pair[rows.valid], minlength=self._n_pairs)

    def take(self, pairs: Tensor) -> MoaRows:
        """The valid rows of some pairs, pair by pair; all their rows leave the buffer."""
        rows = self.rows
        assert rows is not None
        wanted = torch.isin(rows.pair, pairs.to(rows.pair.device))
        left = (~wanted).nonzero(as_tuple=True)[0]
        taken = rows.take((wanted & rows.valid).nonzero(as_tuple=True)[0])
        self._parts = [rows.take(left)] if len(left) else []
        return taken.take(torch.argsort(taken.pair, stable=True))

    def state_dict(self) -> dict[str, Tensor]:
        """The rows, for an exact continuation."""
        rows = self.rows
        return {} if rows is None else {k: v.clone() for k, v in rows.state_dict().items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self._parts = [MoaRows(**{k: v.clone() for k, v in state.items()})] if state else []


# --- episodes as plain dictionaries ----------------------------------------------------------

# Names by which other programs call the fields of an episode.
_CALLED = {"rewards": "reward", "dones": "terminated", "avail": "avail_actions"}
_NEEDED = ("obs", "actions")


def episode_of(given: Mapping[str, Any], spec: EnvSpec) -> Trajectories:
    """A whole episode of T steps from a plain dictionary of arrays: obs [T or T+1, N, O], actions
    [T, N]; as far as they are known: avail_actions [T or T+1, N, A], alive and reached [T, N],
    dones [T] or [T, N], truncated (a flag), seat (who learns; else everybody). Without `alive`,
    who is done is absent from then on. A part of an episode is refused, because its goals lie
    beyond it."""
    named = {_CALLED.get(key, key): value for key, value in given.items()}
    missing = [key for key in _NEEDED if key not in named]
    if missing:
        raise OmgError(
            f"An episode as a dictionary needs {', '.join(missing)}. It has: {', '.join(given)}."
        )
    steps = len(named["actions"])
    if not steps:
        raise OmgError("The episode has no step, so there is nothing to learn. Leave it out.")
    ended: BoolArray = np.eye(steps, dtype=np.bool_)[:, -1:]  # [T, 1 or N]
    if "terminated" in named:
        ended = np.asarray(named["terminated"], np.bool_).reshape(steps, -1)
        ended = np.maximum.accumulate(ended, axis=0)
    done: BoolArray = np.all(ended, axis=1)
    whole = bool(done[-1]) or bool(np.any(named.get("truncated", False)))
    if not whole or done[:-1].any():
        raise OmgError(
            "The dictionary holds a part of an episode or several (dones), and what a player goes "
            "for shows at an episode's end. Give whole episodes one by one; say truncated=True of "
            "one that was cut."
        )
    scheme = environment_scheme(spec, common_reward=False)
    batch = EpisodeBatch(scheme, batch_size=1, max_seq_length=steps + 1)
    fallback: dict[str, Any] = {
        "avail_actions": np.ones((steps, spec.n_agents, spec.n_actions), np.bool_),
        ALIVE: np.ones((steps, spec.n_agents), np.bool_) & ~_before(ended),
        REACHED: np.full((steps, spec.n_agents), -1),
    }
    if REACHED in scheme.fields:  # nobody acts on the last observation
        batch.update({REACHED: -1}, steps=slice(steps, None))
    for name in ("obs", "actions", *fallback):
        if name not in scheme.fields:
            continue
        value = np.asarray(named.get(name, fallback.get(name)))
        if len(value) not in (steps, steps + 1):
            raise OmgError(
                f"The episode has {steps} actions and {len(value)} of {name}. Give {steps}, or one "
                "more."
            )
        batch.update({name: value[None]}, steps=slice(0, len(value)))
    batch.update({"terminated": done[None]}, steps=slice(0, steps))
    batch.filled[:] = True
    if "seat" not in named:
        return Trajectories.of(batch)
    seat = int(named["seat"])
    return Trajectories.of(batch, *seats_part(batch, [seat]))


def _before(ended_TN: BoolArray) -> BoolArray:
    """Who had ended before each step."""
    before: BoolArray = np.concatenate([np.zeros_like(ended_TN[:1]), ended_TN[:-1]])
    return before


def _subgoals(given: Mapping[str, Any]) -> Tensor:
    """Subgoals [T, G] of one who learns or [T, N, G] of everybody, at every slot."""
    found = torch.as_tensor(np.asarray(given["subgoal"]), dtype=torch.float32)
    found = torch.cat([found, torch.zeros_like(found[:1])]) if len(found) else found
    return found.reshape(-1, found.shape[-1])
