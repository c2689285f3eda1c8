"""One situation of Spread as plain numbers: what pictures are drawn from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from omg.envs.particles.frame import ParticleFrame, places_of, points, reach_of, whole_episode
from omg.envs.spread.args import AGENT_SIZE, COLLISION_DISTANCE, COVER_DISTANCE, SpreadArgs
from omg.types import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadFrame(ParticleFrame):
    """Things are landmarks; contacts are pairs of seats that collide."""

    covered: tuple[bool, ...]  # which landmarks have an agent on them


def frame_of(
    state: FloatArray,
    *,
    args: SpreadArgs,
    step: int = 0,
    score: tuple[float, ...] = (),
    collisions: int = 0,
) -> SpreadFrame:
    """The frame that a state vector [S] describes."""
    agents, landmarks = places_of(state, args.n_agents)
    apart = np.linalg.norm(agents[:, None] - agents, axis=-1)
    gaps = np.linalg.norm(landmarks[:, None] - agents, axis=-1).min(axis=1)
    # A step's end only: where an episode begins, nobody pays for a collision.
    colliding = np.triu(apart < COLLISION_DISTANCE, 1) & (step > 0)
    return SpreadFrame(
        agents=points(agents),
        things=points(landmarks),
        covered=tuple((gaps < COVER_DISTANCE).tolist()),
        contacts=tuple((int(a), int(b)) for a, b in np.argwhere(colliding)),
        reach=reach_of(agents, AGENT_SIZE + 0.05),
        step=step,
        score=score or (0.0,) * args.n_agents,
        collisions=collisions,
    )


def frames_from_states(
    states: FloatArray, rewards: FloatArray, *, args: SpreadArgs
) -> list[SpreadFrame]:
    """An episode's frames from its states [T + 1, S] and rewards [T, N]; a common reward [T, 1] is
    shown for everybody."""
    return whole_episode(
        states,
        rewards,
        n_agents=args.n_agents,
        frame_of=lambda state, step, score: frame_of(state, args=args, step=step, score=score),
    )
