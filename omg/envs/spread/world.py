"""The bodies of many games of Spread, what is covered, who collides, and what everybody earns."""

from __future__ import annotations

from math import inf

import numpy as np

from omg.envs.particles.physics import Bodies, Doubles, Particles
from omg.envs.spread.args import (
    ACCELERATION,
    AGENT_SIZE,
    COLLISION_DISTANCE,
    COLLISION_PENALTY,
    COVER_DISTANCE,
    SpreadArgs,
)
from omg.types import BoolArray, IntArray


class World(Particles):
    """Agents that push each other, and landmarks that nobody bumps into."""

    def __init__(self, args: SpreadArgs, n_copies: int) -> None:
        n = args.n_agents
        bodies = Bodies(
            sizes=[AGENT_SIZE] * n,
            accelerations=[ACCELERATION] * n,
            max_speeds=[inf] * n,
            n_ghosts=args.n_landmarks,
        )
        # Nobody sees velocities: messages, always zero, end an observation.
        super().__init__(bodies, n_copies, obs_dim=args.obs_dim, seen_velocities=[()] * n)
        self.args = args
        rows = [[at for at, pair in enumerate(self.pairs) if seat in pair] for seat in range(n)]
        self._pairs_of = np.array(rows, np.int64).reshape(n, n - 1)

    def gaps(self) -> Doubles:
        """How far the nearest agent is from every landmark, [L, B]."""
        to_landmarks = self.squared[len(self.pairs) :]
        shape = (self.args.n_agents, self.args.n_landmarks, self.n_copies)
        nearest: Doubles = np.sqrt(to_landmarks.reshape(shape).min(axis=0))
        return nearest

    def covered(self, gaps: Doubles) -> Doubles:
        """The share of landmarks with an agent on them, [B]."""
        share: Doubles = (gaps < COVER_DISTANCE).mean(axis=0)
        return share

    def collisions(self) -> BoolArray:
        """Which pairs of agents overlap, [pairs, B]."""
        touching: BoolArray = np.sqrt(self.squared[: len(self.pairs)]) < COLLISION_DISTANCE
        return touching

    def rewards(self, gaps: Doubles, collisions: BoolArray) -> Doubles:
        """What every agent earns, [N, B]: all share the gaps, each pays for its collisions."""
        counts: IntArray = collisions[self._pairs_of].sum(axis=1)
        ratio = self.args.local_ratio
        shared = -gaps.sum(axis=0) * (1 - ratio)
        reward: Doubles = shared - COLLISION_PENALTY * counts * ratio
        return reward
