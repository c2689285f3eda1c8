"""Predator-Prey, many copies at once. Actions: none, left, right, down, up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from omg.envs.particles.env import COLLISIONS, ParticleEnv, agent_columns
from omg.envs.particles.frame import places_of, points, reach_of
from omg.envs.particles.physics import N_ACTIONS, Doubles
from omg.envs.predator_prey.args import (
    AGENT_SPREAD,
    CONTACT_DISTANCE,
    OBSTACLE_SPREAD,
    PredatorPreyArgs,
)
from omg.envs.predator_prey.render import SCENE, PredatorPreyFrame
from omg.envs.predator_prey.world import World
from omg.types import EnvSpec, FloatArray, Observation

SURVIVAL = "survival"


class PredatorPreyEnv(ParticleEnv[PredatorPreyFrame]):
    """Slow predators hunt faster prey among obstacles; every contact pays all predators."""

    scene = SCENE

    def __init__(
        self,
        *,
        args: PredatorPreyArgs | Mapping[str, Any],
        n_copies: int,
        first_copy: int = 0,
    ) -> None:
        self.args = args = PredatorPreyArgs.parse(args)
        self._world = World(args, n_copies)
        spec = EnvSpec(
            name=args.name,
            n_agents=args.n_agents,
            n_actions=N_ACTIONS,
            obs_dim=max(args.obs_dims),
            state_dim=args.state_dim,
            episode_limit=args.max_cycles,
            obs_format=args.obs_format,
            agent_features=agent_columns(args.n_agents),
            roles=args.roles,
            obs_dims=args.obs_dims,
            statistics=(COLLISIONS, SURVIVAL),
        )
        super().__init__(
            spec=spec,
            world=self._world,
            spread=[AGENT_SPREAD] * args.n_agents + [OBSTACLE_SPREAD] * args.n_obstacles,
            # Survival is the step of the first contact; the limit as long as there was none.
            counters={COLLISIONS: 0, SURVIVAL: args.max_cycles},
            first_copy=first_copy,
        )

    def set_layout(
        self,
        copy: int,
        *,
        agent_pos: Sequence[Sequence[float]],
        obstacles: Sequence[Sequence[float]] = (),
        agent_vel: Sequence[Sequence[float]] | None = None,
        step: int = 0,
    ) -> Observation:
        """Put one copy into a given situation: (x, y) of every agent, predators first, and of every
        obstacle; agents rest unless velocities are given."""
        return self._put_layout(
            copy, agent_pos=agent_pos, agent_vel=agent_vel, step=step, obstacles=obstacles
        )

    def _frame_of(
        self, state: FloatArray, step: int, score: tuple[float, ...]
    ) -> PredatorPreyFrame:
        predators = self.args.n_predators
        agents, obstacles = places_of(state, self.args.n_agents)
        gaps = np.linalg.norm(agents[:predators, None] - agents[None, predators:], axis=-1)
        # A step's end only: where an episode begins, nobody is paid for touching.
        touching = np.argwhere((gaps < CONTACT_DISTANCE) & (step > 0))
        return PredatorPreyFrame(
            agents=points(agents),
            things=points(obstacles),
            n_predators=predators,
            contacts=tuple((int(a), int(b)) for a, b in touching),
            reach=reach_of(agents, 0.12),
            step=step,
            score=score,
        )

    def _outcome(self) -> Doubles:
        contacts = self._world.contacts()
        touched = contacts.reshape(-1, self.n_copies).sum(axis=0)
        collisions, survival = self._counters[COLLISIONS], self._counters[SURVIVAL]
        first = (touched > 0) & (collisions == 0)
        survival[first] = self._steps[first]
        collisions += touched
        return self._world.rewards(contacts)
