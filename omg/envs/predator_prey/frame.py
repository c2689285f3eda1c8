"""One situation of Predator-Prey as plain numbers: what pictures are drawn from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from omg.envs.particles.frame import (
    ParticleFrame,
    Point,
    places_of,
    points,
    reach_of,
    whole_episode,
)
from omg.envs.predator_prey.args import CONTACT_DISTANCE, PredatorPreyArgs
from omg.types import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class PredatorPreyFrame(ParticleFrame):
    """Predators first; contacts are (predator, prey) by number."""

    n_predators: int

    @property
    def predators(self) -> tuple[Point, ...]:
        """Where predators are."""
        return self.agents[: self.n_predators]

    @property
    def prey(self) -> tuple[Point, ...]:
        """Where prey is."""
        return self.agents[self.n_predators :]


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
    agents, obstacles = places_of(state, n)
    gaps = np.linalg.norm(agents[:predators, None] - agents[None, predators:], axis=-1)
    return PredatorPreyFrame(
        agents=points(agents),
        things=points(obstacles),
        n_predators=predators,
        # A step's end only: where an episode begins, nobody is paid for touching.
        contacts=tuple(
            (int(a), int(b)) for a, b in np.argwhere((gaps < CONTACT_DISTANCE) & (step > 0))
        ),
        reach=reach_of(agents, 0.12),
        step=step,
        score=score or (0.0,) * n,
        collisions=collisions,
    )


def frames_from_states(
    states: FloatArray, rewards: FloatArray, *, args: PredatorPreyArgs
) -> list[PredatorPreyFrame]:
    """An episode's frames from its states [T + 1, S] and rewards [T, N]; a common reward [T, 1] is
    shown for everybody."""
    return whole_episode(
        states,
        rewards,
        n_agents=args.n_agents,
        frame_of=lambda state, step, score: frame_of(state, args=args, step=step, score=score),
    )
