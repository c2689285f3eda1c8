"""How scripted agents of Predator-Prey see the field and steer through it, many rows at once.

A row is one copy and one seat to act for. R rows, P predators, Q prey, K obstacles.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from omg.envs.particles.physics import DAMPING, DIRECTIONS, TIME_STEP
from omg.envs.predator_prey.args import (
    ACCELERATION,
    MAX_SPEED,
    OBSTACLE_SIZE,
    PREDATOR,
    PREY,
    SIZE,
    PredatorPreyArgs,
)
from omg.types import BoolArray, FloatArray, IntArray

Doubles = NDArray[np.float64]

# Seconds of motion by which an action is judged: a push shows only after the next step.
_LOOK_AHEAD = 0.3
# How far from an obstacle's surface a way round it leads.
_BERTH = 0.06


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The situation of every row."""

    place: Doubles  # [R, 2], of the row's own agent
    velocity: Doubles  # [R, 2]
    is_prey: BoolArray  # [R]
    seats: IntArray  # [R]
    predators: Doubles  # [R, P, 4]: x, y and velocity
    prey: Doubles  # [R, Q, 4]
    obstacles: Doubles  # [R, K, 2]

    @classmethod
    def read(cls, state: FloatArray, seats: IntArray, args: PredatorPreyArgs) -> Scene:
        """From states [R, S]: x, y, vx, vy of each agent, then x, y of each obstacle."""
        agents, n_predators, n_obstacles = args.n_agents, args.n_predators, args.n_obstacles
        if state.ndim != 2 or state.shape[1] != args.state_dim:
            raise ValueError(
                f"States of {agents} agents and {n_obstacles} obstacles must be "
                f"[R, {args.state_dim}], not {state.shape}."
            )
        numbers = state.astype(np.float64)
        everybody = numbers[:, : 4 * agents].reshape(len(state), agents, 4)
        own = everybody[np.arange(len(state)), seats]
        return cls(
            place=own[:, :2],
            velocity=own[:, 2:],
            is_prey=seats >= n_predators,
            seats=seats,
            predators=everybody[:, :n_predators],
            prey=everybody[:, n_predators:],
            obstacles=numbers[:, 4 * agents :].reshape(len(state), n_obstacles, 2),
        )

    def rows(self, chosen: IntArray) -> Scene:
        """Some of the rows."""
        return Scene(**{f.name: getattr(self, f.name)[chosen] for f in fields(self)})

    @property
    def own(self) -> Doubles:
        """Place and velocity of the row's own agent, [R, 4]."""
        return np.concatenate([self.place, self.velocity], axis=1)


def distance(points: Doubles, others: Doubles) -> Doubles:
    """Euclidean, along the last axis."""
    difference = points - others
    found: Doubles = np.sqrt((difference * difference).sum(axis=-1))
    return found


def nearest_of(points: Doubles, others: Doubles) -> Doubles:
    """The row of `others` [R, K, F] nearest to each point [R, 2], [R, F]."""
    which = distance(points[:, None], others[:, :, :2]).argmin(axis=1)
    chosen: Doubles = others[np.arange(len(which)), which]
    return chosen


def round_obstacles(scene: Scene, goal: Doubles) -> Doubles:
    """Where to steer for to reach `goal` [R, 2]: beside the first obstacle in the way, else it."""
    if not scene.obstacles.shape[1]:
        return goal
    way = goal - scene.place
    length = np.maximum(distance(goal, scene.place), 1e-9)[:, None]
    ahead = way / length
    to_obstacle = scene.obstacles - scene.place[:, None]
    along = (to_obstacle * ahead[:, None]).sum(axis=-1)
    side = to_obstacle[..., 1] * ahead[:, :1] - to_obstacle[..., 0] * ahead[:, 1:]
    size = np.where(scene.is_prey, SIZE[PREY], SIZE[PREDATOR])[:, None]
    clearance = OBSTACLE_SIZE + size
    blocks = (along > 0) & (along < length) & (np.abs(side) < clearance)
    first = np.where(blocks, along, np.inf).argmin(axis=1)
    rows = np.arange(len(first))
    centre, lies = scene.obstacles[rows, first], side[rows, first]
    # Pass on the side that the straight way is on already.
    across = np.stack([-ahead[:, 1], ahead[:, 0]], axis=1) * np.where(lies > 0, -1.0, 1.0)[:, None]
    detour = centre + across * (clearance + _BERTH)
    return np.where(blocks.any(axis=1)[:, None], detour, goal)


def steer(scene: Scene, goal: Doubles, avail: BoolArray) -> IntArray:
    """The available action [R] whose motion ends nearest to `goal` [R, 2]."""
    power = np.where(scene.is_prey, ACCELERATION[PREY], ACCELERATION[PREDATOR])
    limit = np.where(scene.is_prey, MAX_SPEED[PREY], MAX_SPEED[PREDATOR])
    push = power[:, None, None] * TIME_STEP * DIRECTIONS
    after = scene.velocity[:, None] * (1 - DAMPING) + push  # [R, A, 2]
    speed = distance(after, np.zeros(2))
    after *= np.minimum(1.0, limit[:, None] / np.maximum(speed, 1e-9))[..., None]
    place = (scene.place + TIME_STEP * scene.velocity)[:, None] + _LOOK_AHEAD * after
    cost = distance(place, goal[:, None])
    action: IntArray = np.where(avail, cost, np.inf).argmin(axis=1)
    return action
