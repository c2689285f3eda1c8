"""The bodies of many games of Predator-Prey, who touches whom, and what everybody earns."""

from __future__ import annotations

import numpy as np

from omg.envs.particles.physics import Bodies, Doubles, Particles
from omg.envs.predator_prey.args import (
    ACCELERATION,
    BORDER,
    BORDER_BEGIN,
    BORDER_CAP,
    BORDER_SLOPE,
    CONTACT_DISTANCE,
    CONTACT_REWARD,
    MAX_SPEED,
    OBSTACLE_SIZE,
    SHAPE_WEIGHT,
    SIZE,
    PredatorPreyArgs,
)
from omg.types import BoolArray


class World(Particles):
    """Predators, prey and obstacles; agents see the velocities of all other prey."""

    def __init__(self, args: PredatorPreyArgs, n_copies: int) -> None:
        hunters, hunted = range(args.n_predators), range(args.n_predators, args.n_agents)
        bodies = Bodies(
            sizes=[SIZE[role] for role in args.roles] + [OBSTACLE_SIZE] * args.n_obstacles,
            accelerations=[ACCELERATION[role] for role in args.roles],
            max_speeds=[MAX_SPEED[role] for role in args.roles],
        )
        super().__init__(
            bodies,
            n_copies,
            obs_dim=max(args.obs_dims),
            seen_velocities=[
                [prey for prey in hunted if prey != agent] for agent in range(args.n_agents)
            ],
        )
        self.args = args
        number = {pair: index for index, pair in enumerate(self.pairs)}
        self._hunts = np.array([[number[a, b] for b in hunted] for a in hunters])  # [P, Q]

    def contacts(self) -> BoolArray:
        """Which predators touch which prey, [P, Q, B]."""
        touching: BoolArray = np.sqrt(self.squared[self._hunts]) < CONTACT_DISTANCE
        return touching

    def rewards(self, contacts: BoolArray) -> Doubles:
        """What every agent earns, [N, B]: all predators share every contact."""
        reward = np.empty((self.args.n_agents, self.n_copies))
        hunters, hunted = reward[: self.args.n_predators], reward[self.args.n_predators :]
        touched = contacts.sum(axis=0)
        hunters[:] = CONTACT_REWARD * touched.sum(axis=0)
        np.subtract(0.0, self._border_penalty(), out=hunted)
        hunted -= CONTACT_REWARD * touched
        if self.args.shaped_reward:
            distance = np.sqrt(self.squared[self._hunts])
            hunters -= SHAPE_WEIGHT * distance.min(axis=1).sum(axis=0)
            hunted += SHAPE_WEIGHT * distance.sum(axis=0)
        return reward

    def _border_penalty(self) -> Doubles:
        """What prey loses outside the field, [Q, B]."""
        far = np.abs(self.place[self.args.n_predators : self.args.n_agents])
        outside = (far >= BORDER_BEGIN).ravel().nonzero()[0]
        x = far.reshape(-1)[outside]
        beyond = np.exp(np.minimum(2 * x - 2, BORDER_CAP))
        cost = np.zeros(far.shape)
        cost.reshape(-1)[outside] = np.where(
            x < BORDER, (x - BORDER_BEGIN) * BORDER_SLOPE, np.minimum(beyond, BORDER_CAP)
        )
        total: Doubles = cost[:, 0] + cost[:, 1]
        return total
