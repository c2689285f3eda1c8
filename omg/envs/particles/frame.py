"""One situation of a game of moving discs as plain numbers: what pictures are drawn from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from omg.envs.particles.physics import Doubles
from omg.types import FloatArray

Point = tuple[float, float]
# How far a picture reaches from the centre, at least; more if somebody has left the field.
_LEAST_REACH = 1.12
TRAIL = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ParticleFrame:
    """Agents by seat, things, where agents were, and their summed rewards so far."""

    agents: tuple[Point, ...]
    things: tuple[Point, ...]
    contacts: tuple[tuple[int, int], ...] = ()  # who touches whom, where the game counts it
    reach: float = _LEAST_REACH
    step: int = 0
    score: tuple[float, ...] = ()
    collisions: int = 0
    trails: tuple[tuple[Point, ...], ...] = ()  # per seat, oldest first


F = TypeVar("F", bound=ParticleFrame)


def places_of(state: FloatArray, n_agents: int) -> tuple[Doubles, Doubles]:
    """Places [N, 2] of the agents and of the things that a state vector [S] describes."""
    agents = state[: 4 * n_agents].reshape(n_agents, 4)[:, :2].astype(np.float64)
    return agents, state[4 * n_agents :].reshape(-1, 2).astype(np.float64)


def points(array: Doubles) -> tuple[Point, ...]:
    """Rows (x, y) as plain numbers."""
    return tuple((float(x), float(y)) for x, y in array)


def reach_of(agents: Doubles, margin: float) -> float:
    """How far a picture must reach to show these agents with a margin around their centres."""
    return max(_LEAST_REACH, float(np.abs(agents).max()) + margin)


def whole_episode(
    states: FloatArray,
    rewards: FloatArray,
    *,
    n_agents: int,
    frame_of: Callable[[FloatArray, int, tuple[float, ...]], F],
) -> list[F]:
    """An episode's frames from its states [T + 1, S] and rewards [T, N], with `frame_of(state,
    step, score)`; a common reward [T, 1] is shown for everybody."""
    rewards = np.broadcast_to(rewards, (len(rewards), n_agents))
    start = np.zeros((1, n_agents))
    scores = np.concatenate([start, np.cumsum(rewards, axis=0, dtype=np.float64)])
    frames = [
        frame_of(state, step, tuple(score.tolist()))
        for step, (state, score) in enumerate(zip(states, scores, strict=True))
    ]
    counts = np.cumsum([len(frame.contacts) for frame in frames]).tolist()
    reach = max((frame.reach for frame in frames), default=_LEAST_REACH)
    return [
        replace(
            frame,
            reach=reach,
            collisions=counts[at],
            trails=tuple(
                tuple(past.agents[seat] for past in frames[max(0, at - TRAIL) : at])
                for seat in range(n_agents)
            ),
        )
        for at, frame in enumerate(frames)
    ]
