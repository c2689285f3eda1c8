"""One situation of Predator-Prey as plain numbers: what pictures are drawn from."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from omg.envs.predator_prey.args import CONTACT_DISTANCE, PredatorPreyArgs
from omg.types import FloatArray

Point = tuple[float, float]
# How far a picture reaches from the centre, at least; more if somebody has left the field.
_LEAST_REACH, _MARGIN = 1.12, 0.12
TRAIL = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PredatorPreyFrame:
    """Agents by seat (predators first), where they were, and their summed rewards so far."""

    predators: tuple[Point, ...]
    prey: tuple[Point, ...]
    obstacles: tuple[Point, ...]
    contacts: tuple[tuple[int, int], ...] = ()  # (predator, prey) that touch, by number
    reach: float = _LEAST_REACH
    step: int = 0
    score: tuple[float, ...] = ()
    collisions: int = 0
    trails: tuple[tuple[Point, ...], ...] = ()  # per seat, oldest first

    @property
    def agents(self) -> tuple[Point, ...]:
        """Everybody by seat."""
        return self.predators + self.prey


def frame_of(
    state: FloatArray,
    *,
    args: PredatorPreyArgs,
    step: int = 0,
    score: tuple[float, ...] = (),
    collisions: int = 0,
) -> PredatorPreyFrame:
    """The frame that a state vector [S] describes."""
    n, predators = args.n_agents, args.n_predators
    agents = state[: 4 * n].reshape(n, 4)[:, :2].astype(np.float64)
    obstacles = state[4 * n :].reshape(-1, 2).astype(np.float64)
    gaps = np.linalg.norm(agents[:predators, None] - agents[None, predators:], axis=-1)
    return PredatorPreyFrame(
        predators=_points(agents[:predators]),
        prey=_points(agents[predators:]),
        obstacles=_points(obstacles),
        # A step's end only: where an episode begins, nobody is paid for touching.
        contacts=tuple(
            (int(a), int(b)) for a, b in np.argwhere((gaps < CONTACT_DISTANCE) & (step > 0))
        ),
        reach=max(_LEAST_REACH, float(np.abs(agents).max()) + _MARGIN),
        step=step,
        score=score or (0.0,) * n,
        collisions=collisions,
    )


def frames_from_states(
    states: FloatArray, rewards: FloatArray, *, args: PredatorPreyArgs
) -> list[PredatorPreyFrame]:
    """An episode's frames from its states [T + 1, S] and rewards [T, N]; a common reward [T, 1] is
    shown for everybody."""
    rewards = np.broadcast_to(rewards, (len(rewards), args.n_agents))
    start = np.zeros((1, args.n_agents))
    scores = np.concatenate([start, np.cumsum(rewards, axis=0, dtype=np.float64)])
    frames = [
        frame_of(state, args=args, step=step, score=tuple(score.tolist()))
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
                for seat in range(args.n_agents)
            ),
        )
        for at, frame in enumerate(frames)
    ]


def _points(array: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> tuple[Point, ...]:
    return tuple((float(x), float(y)) for x, y in array)
