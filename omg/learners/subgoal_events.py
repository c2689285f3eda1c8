"""Where the others' next events lie in stored episodes: what `subgoal_mode=event` heads for."""

from __future__ import annotations

import torch
from torch import Tensor

from omg.components.episodes import ALIVE, EpisodeBatch
from omg.components.trajectories import SeatOrder, Trajectories
from omg.types import EnvSpec


def seat_events(spec: EnvSpec, episodes: EpisodeBatch) -> Tensor:
    """At which slots something happens to which seat, [B, T, N]: it does what the environment
    calls an event (`EnvSpec.event_actions`). Where none is named: it is rewarded, or its features
    are the same at the next slot. An absent seat has none."""
    actions = episodes["actions"]
    if spec.event_actions:
        found = torch.isin(actions, torch.tensor(spec.event_actions, device=actions.device))
    else:
        found = (episodes["reward"] > 0).expand(*actions.shape) | _standing(spec, episodes)
    if ALIVE in episodes.scheme.fields:
        found = found & episodes[ALIVE]
    follows = torch.zeros_like(episodes.filled)
    follows[:, :-1] = episodes.filled[:, 1:]
    return found & follows.unsqueeze(2)  # nobody acts at the last slot


def _standing(spec: EnvSpec, episodes: EpisodeBatch) -> Tensor:
    """Whose features do not change until the next slot, [B, T, N]; nobody's where the environment
    does not say whose they are."""
    stands = torch.zeros_like(episodes["actions"], dtype=torch.bool)
    if spec.agent_features:
        features = episodes["state"][..., torch.tensor(spec.agent_features)]  # [B, T, N, W]
        stands[:, :-1] = (features[:, 1:] == features[:, :-1]).all(-1)
    return stands


def next_events(events_BTN: Tensor) -> Tensor:
    """The time of each seat's first event after every slot, [B, T, N]; T where there is none."""
    steps = events_BTN.shape[1]
    number = torch.arange(steps, device=events_BTN.device).view(1, -1, 1)
    from_here = torch.where(events_BTN, number, steps).flip(1).cummin(1).values.flip(1)
    return torch.cat([from_here[:, 1:], torch.full_like(from_here[:, :1], steps)], 1)


def rows_of_next_events(spec: EnvSpec, played: Trajectories, order: SeatOrder) -> Tensor:
    """The row of each other's next event after every transition's row, [K·n, N-1]; the episode's
    last row where nothing happens to it any more."""
    packing = played.rows
    now = packing.now
    times = played.for_rows(played.packing.pack(next_events(seat_events(spec, played.team))))
    ahead = order.relative(times[now], played.seats_PN.flatten()[now])
    ahead = ahead.minimum((packing.length[now] - 1).unsqueeze(1))
    sizes = packing.sizes.to(now.device)
    return (torch.cumsum(sizes, 0) - sizes)[ahead] + packing.rank[now].unsqueeze(1)
