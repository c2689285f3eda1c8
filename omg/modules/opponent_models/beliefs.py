"""Beliefs about goals: within an episode by Bayes' rule, between episodes from counts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from omg.types import OmgError

NAMELESS = -1  # a player whose identity is not known


def bayes(belief_G: Tensor, likelihood_G: Tensor, floor: float) -> Tensor:
    """b(g) ∝ b(g)·π(a | s, g), then (1 - floor)·b + floor / G: no goal is believed less than
    floor / G, so that a changed mind can be followed. Where nothing explains the action, the
    belief stays."""
    joint = belief_G * likelihood_G
    total = joint.sum(-1, keepdim=True)
    posterior = torch.where(total > 0, joint / total.clamp(min=1e-38), belief_G)
    return (1.0 - floor) * posterior + floor / belief_G.shape[-1]


def filtered(prior: Tensor, likelihood: Tensor, sizes: Tensor, floor: float) -> Tensor:
    """Beliefs at every packed row [P, …, G], from those at the first rows and the likelihood of
    what was done one step before each row. A belief needs the one before it, so this goes step by
    step, all episodes at once."""
    found: list[Tensor] = []
    start = 0
    for size in sizes.tolist():
        piece = likelihood[start : start + size]
        found.append(bayes(found[-1][:size], piece, floor) if found else prior[:size])
        start += size
    return torch.cat(found)


def likelihood_of(chances_RJGA: Tensor, actions_RJ: Tensor) -> Tensor:
    """How likely each goal made what was done, [R, N-1, G]; 1 where nothing is known."""
    at = actions_RJ.clamp(min=0).view(*actions_RJ.shape, 1, 1)
    found = chances_RJGA.gather(-1, at.expand(*chances_RJGA.shape[:-1], 1)).squeeze(-1)
    return found.masked_fill((actions_RJ < 0).unsqueeze(-1), 1.0)


def tally(table_KG: Tensor, keys: Tensor, goals: Tensor, discount: float) -> None:
    """c ← discount·c + 1(g) for every goal reached, in order, each in its row of the table; in
    place and all at once."""
    if not len(keys):
        return
    counts = torch.bincount(keys, minlength=len(table_KG))
    order = torch.argsort(keys, stable=True)
    first = torch.cumsum(counts, 0) - counts
    rank = torch.arange(len(keys), device=keys.device) - first[keys[order]]
    later = torch.empty_like(rank)
    later[order] = counts[keys[order]] - 1 - rank
    table_KG *= (discount ** counts.to(table_KG.dtype)).unsqueeze(1)
    table_KG.index_put_((keys, goals), discount ** later.to(table_KG.dtype), accumulate=True)


def written_names(names: Sequence[str], device: torch.device) -> Tensor:
    """Names of players as they are kept: a JSON list, byte by byte; nothing of nobody."""
    text = json.dumps(list(names)).encode() if names else b""
    return torch.tensor(list(text), dtype=torch.uint8, device=device)


def read_names(saved: Tensor, what: str) -> list[str]:
    """The names again; `what` they belong to is named where the file is damaged."""
    try:
        names = json.loads(bytes(saved.tolist()).decode() or "[]")
        return [str(name) for name in names]
    except (ValueError, TypeError) as error:
        raise OmgError(
            f"The {what} are damaged: they name no players. Use another model."
        ) from error


class GoalCounts(nn.Module):
    """How often each goal was reached, discounted: by every seat, and by every player that is
    known by name. The prior of a new episode."""

    seats: Tensor
    players: Tensor
    names: Tensor
    resizable = ("players", "names")  # a file may know other players

    def __init__(self, n_agents: int, n_goals: int, *, discount: float) -> None:
        super().__init__()
        self.discount = discount
        self.register_buffer("seats", torch.zeros(n_agents, n_goals))
        self.register_buffer("players", torch.zeros(0, n_goals))
        self.register_buffer("names", torch.zeros(0, dtype=torch.uint8))
        self._known: dict[str, int] = {}
        self._rows: dict[tuple[str, ...], Tensor] = {}
        self._fixed = False

    def meet(self, names: Sequence[str]) -> None:
        """Keep a row for each of these players and for no others: who plays in this run."""
        self._know(list(dict.fromkeys(names)))
        self.players = self.seats.new_zeros(len(self._known), self.seats.shape[1])
        self._fixed = True

    def _know(self, names: Sequence[str]) -> None:
        self._known = {name: row for row, name in enumerate(names)}
        self._rows = {}
        self.names = written_names(names, self.seats.device)

    def rows_of(self, names: Sequence[str]) -> Tensor:
        """The row of each of these players, NAMELESS for one that was never met, [P]."""
        key = tuple(names)
        if key not in self._rows:
            rows = [self._known.get(name, NAMELESS) for name in key]
            self._rows[key] = torch.tensor(rows, dtype=torch.int64)
        return self._rows[key]

    def add(self, seats: Tensor, players: Tensor, goals: Tensor) -> None:
        """Goals reached [E], in order, by players in these seats."""
        tally(self.seats, seats, goals, self.discount)
        known = players >= 0
        tally(self.players, players[known], goals[known], self.discount)

    def prior(self, seats: Tensor, players: Tensor | None = None) -> Tensor:
        """What somebody wants before anything is seen of it [..., G]: (c + 1) / Σ(c + 1) of its
        own counts if it has any, else of its seat's."""
        counts = self.seats[seats]
        if players is not None and len(self.players):
            own = self.players[players.clamp(min=0)]
            has_own = (players >= 0).unsqueeze(-1) & (own.sum(-1, keepdim=True) > 0)
            counts = torch.where(has_own, own, counts)
        raised = counts + 1.0
        return raised / raised.sum(-1, keepdim=True)

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Rows go to the players of the same names; a table that was told its players keeps no
        others."""
        state = dict(state_dict)
        rows = state[f"{prefix}players"].to(self.seats)
        names = read_names(state[f"{prefix}names"], "counts of goals")
        if rows.shape != (len(names), self.seats.shape[1]):
            raise OmgError(
                f"The counts of goals are of {tuple(rows.shape)} players and goals, and name "
                f"{len(names)} players in a game of {self.seats.shape[1]} goals. Use another model."
            )
        if not self._fixed:
            self._know(names)
            self.players = rows.clone()
        table = torch.zeros_like(self.players)
        for row, name in enumerate(names):
            if name in self._known:
                table[self._known[name]] = rows[row]
        state[f"{prefix}players"], state[f"{prefix}names"] = table, self.names
        self._rows = {}
        super()._load_from_state_dict(state, prefix, *args, **kwargs)
