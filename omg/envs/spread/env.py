"""Spread, many copies at once. Actions: none, left, right, down, up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from omg.envs.particles.env import COLLISIONS, ParticleEnv, agent_columns
from omg.envs.particles.frame import places_of, points, reach_of
from omg.envs.particles.physics import N_ACTIONS, Doubles
from omg.envs.spread.args import (
    AGENT_SIZE,
    COLLISION_DISTANCE,
    COVER_DISTANCE,
    START_SPREAD,
    SpreadArgs,
)
from omg.envs.spread.render import SCENE, SpreadFrame
from omg.envs.spread.world import World
from omg.types import EnvSpec, FloatArray, Observation

COVERED = "covered"


class SpreadEnv(ParticleEnv[SpreadFrame]):
    """Agents share out landmarks among themselves and keep out of each other's way."""

    scene = SCENE

    def __init__(
        self,
        *,
        args: SpreadArgs | Mapping[str, Any],
        n_copies: int,
        first_copy: int = 0,
    ) -> None:
        self.args = args = SpreadArgs.parse(args)
        self._world = World(args, n_copies)
        spec = EnvSpec(
            name=args.name,
            n_agents=args.n_agents,
            n_actions=N_ACTIONS,
            obs_dim=args.obs_dim,
            state_dim=args.state_dim,
            episode_limit=args.max_cycles,
            obs_format=args.obs_format,
            agent_features=agent_columns(args.n_agents),
            statistics=(COVERED, COLLISIONS),
        )
        super().__init__(
            spec=spec,
            world=self._world,
            spread=[START_SPREAD] * (args.n_agents + args.n_landmarks),
            counters={COVERED: 0.0, COLLISIONS: 0},
            first_copy=first_copy,
        )

    def set_layout(
        self,
        copy: int,
        *,
        agent_pos: Sequence[Sequence[float]],
        landmarks: Sequence[Sequence[float]],
        agent_vel: Sequence[Sequence[float]] | None = None,
        step: int = 0,
    ) -> Observation:
        """Put one copy into a given situation: (x, y) of every agent and of every landmark; agents
        rest unless velocities are given."""
        return self._put_layout(
            copy, agent_pos=agent_pos, agent_vel=agent_vel, step=step, landmarks=landmarks
        )

    def _frame_of(self, state: FloatArray, step: int, score: tuple[float, ...]) -> SpreadFrame:
        agents, landmarks = places_of(state, self.args.n_agents)
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
            score=score,
        )

    def _outcome(self) -> Doubles:
        gaps, collisions = self._world.gaps(), self._world.collisions()
        self._counters[COVERED][:] = self._world.covered(gaps)
        self._counters[COLLISIONS] += collisions.sum(axis=0)
        return self._world.rewards(gaps, collisions)
