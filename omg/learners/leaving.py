"""What learners make of seats that leave an episode early (`EnvSpec.leavers`).

Nobody learns from the slots of an absent seat. The transition with which a seat leaves is its
last: it has no more decisions to make, so nothing is bootstrapped after it. Where the reward is
common and the team plays on, what the team still earns is part of what leaving brought: the reward
of that transition is the discounted sum of the rewards until the episode's end. With a reward of
its own a seat earns nothing after it has left, and the same formula gives that reward alone.

A mixer values the team, which plays on: absent seats contribute nothing to it, and it bootstraps.
"""

from __future__ import annotations

import torch
from torch import Tensor

from omg.components.trajectories import Trajectories
from omg.functional import backward_sums


def acting(played: Trajectories, *, team: bool = False) -> Tensor | None:
    """Which learning seats act in every transition, [K, n] (with `team`: whether any does,
    [K, 1]); None: all of them."""
    alive = _alive(played, team=team)
    return None if alive is None else alive[played.packing.now]


def outcomes(played: Trajectories, *, gamma: float, team: bool = False) -> tuple[Tensor, Tensor]:
    """The rewards of every transition, [K, 1 or n], and whether it was the last: of the episode,
    [K], or, where seats may leave, of each seat, [K, n] (with `team`: of all of them, [K, 1])."""
    reward, terminated = played.now("reward"), played.now("terminated")
    alive = _alive(played, team=team)
    if alive is None:
        return reward, terminated
    packing = played.packing
    leaves = alive[packing.now] & ~alive[packing.next]
    to_come = backward_sums(reward, torch.full_like(reward, gamma), packing)
    return torch.where(leaves, to_come, reward), terminated.unsqueeze(1) | leaves


def of_acting(values_KN: Tensor, acting_KN: Tensor | None) -> Tensor:
    """The values of seats that act, [L, 1]; as they are where nobody leaves."""
    return values_KN if acting_KN is None else values_KN[acting_KN].unsqueeze(1)


def without_absent(values_KN: Tensor, alive_KN: Tensor | None) -> Tensor:
    """Values for a mixer: absent seats contribute nothing."""
    return values_KN if alive_KN is None else values_KN * alive_KN


def _alive(played: Trajectories, *, team: bool) -> Tensor | None:
    alive = played.alive
    return alive.any(1, keepdim=True) if team and alive is not None else alive
