"""The bodies of many games: how they move, push each other, and what they earn.

Arrays have the copies last, so that every operation runs along contiguous memory: places and
velocities are [bodies, 2, B]. A pair of bodies pushes only when it is near; far pairs, nearly all,
cost one comparison.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from omg.envs.predator_prey.args import (
    ACCELERATION,
    BORDER,
    BORDER_BEGIN,
    BORDER_CAP,
    BORDER_SLOPE,
    CONTACT_DISTANCE,
    CONTACT_FORCE,
    CONTACT_MARGIN,
    CONTACT_REWARD,
    DAMPING,
    DIRECTIONS,
    MAX_SPEED,
    N_ACTIONS,
    OBSTACLE_SIZE,
    SHAPE_WEIGHT,
    SIZE,
    TIME_STEP,
    PredatorPreyArgs,
)
from omg.types import BoolArray, FloatArray, IntArray

Doubles = NDArray[np.float64]

# Beyond this gap between two surfaces the push is below 1e-23 and left out.
_PUSH_RANGE = 50 * CONTACT_MARGIN


class World:
    """B games as arrays. The world is the rows places of bodies, velocities of agents, a zero."""

    def __init__(self, args: PredatorPreyArgs, n_copies: int) -> None:
        self.args = args
        n, bodies = args.n_agents, args.n_bodies
        self.n_copies = n_copies
        self._rows = np.zeros((bodies + n + 1, 2, n_copies))
        self.place = self._rows[:bodies]
        self.velocity = self._rows[bodies:-1]
        self._set_up_pairs()
        self._max_speed = np.array([MAX_SPEED[role] for role in args.roles])[:, None]
        # The force of every (agent, action), one table per axis.
        acceleration = np.array([ACCELERATION[role] for role in args.roles])
        self._thrust = np.multiply.outer(DIRECTIONS.T, acceleration).transpose(0, 2, 1).copy()
        self._choice = N_ACTIONS * np.arange(n)[:, None]
        self._force = np.zeros((n, 2, n_copies))
        self._state_rows = self._rows_of_state()
        self._obs_rows = self._rows_of_observations()

    def _set_up_pairs(self) -> None:
        """Pairs of bodies in the order of the reference, without those of two obstacles."""
        args = self.args
        sizes = [SIZE[role] for role in args.roles] + [OBSTACLE_SIZE] * args.n_obstacles
        pairs = [(a, b) for a, b in combinations(range(args.n_bodies), 2) if a < args.n_agents]
        self._first, self._second = (np.array(side) for side in zip(*pairs, strict=True))
        self._touch = np.array([sizes[a] + sizes[b] for a, b in pairs])
        self._near = ((self._touch + _PUSH_RANGE) ** 2)[:, None]
        number = {pair: index for index, pair in enumerate(pairs)}
        hunters, hunted = range(args.n_predators), range(args.n_predators, args.n_agents)
        self._hunts = np.array([[number[a, b] for b in hunted] for a in hunters])  # [P, Q]
        self._apart = np.zeros((len(pairs), 2, self.n_copies))
        self._squared = np.zeros((len(pairs), self.n_copies))

    def _rows_of_state(self) -> IntArray:
        """Place and velocity of each agent, then the obstacles' places."""
        n, bodies = self.args.n_agents, self.args.n_bodies
        agents = [row for agent in range(n) for row in (agent, bodies + agent)]
        return np.array([*agents, *range(n, bodies)])

    def _rows_of_observations(self) -> IntArray:
        """Own velocity and place, obstacles, other agents, velocities of other prey; then zeros."""
        args, n, bodies = self.args, self.args.n_agents, self.args.n_bodies
        table = np.full((n, max(args.obs_dims) // 2), bodies + n)
        for agent in range(n):
            others = [other for other in range(n) if other != agent]
            rows = [bodies + agent, agent, *range(n, bodies), *others]
            rows += [bodies + other for other in others if other >= args.n_predators]
            table[agent, : len(rows)] = rows
        return table

    def put(self, copies: IntArray, place: Doubles, velocity: Doubles) -> None:
        """Places [bodies, 2, E] and velocities [N, 2, E] of some copies; before `measure`."""
        self.place[:, :, copies] = place
        self.velocity[:, :, copies] = velocity

    def measure(self) -> None:
        """Bring the differences between bodies up to date; after every change of places."""
        place, start = self.place, 0
        for agent in range(self.args.n_agents):
            stop = start + self.args.n_bodies - agent - 1
            np.subtract(place[agent], place[agent + 1 :], out=self._apart[start:stop])
            start = stop
        np.einsum("pcb,pcb->pb", self._apart, self._apart, out=self._squared)

    def move(self, actions: IntArray) -> None:
        """One time step with actions [B, N] in range."""
        force, choice = self._force, self._choice + actions.T
        for axis in range(2):
            force[:, axis] = self._thrust[axis].take(choice)
        self._push(force)
        place, velocity = self.place[: self.args.n_agents], self.velocity
        place += velocity * TIME_STEP
        velocity *= 1 - DAMPING
        force *= TIME_STEP
        velocity += force
        self._limit_speed()
        self.measure()

    def _push(self, force: Doubles) -> None:
        """Add to forces [N, 2, B] what bodies that touch, or nearly do, do to each other."""
        near = (self._squared < self._near).ravel().nonzero()[0]
        if not near.size:
            return
        pair, copy = np.divmod(near, self.n_copies)
        distance = np.sqrt(self._squared.reshape(-1)[near])
        overlap = np.logaddexp(0, (self._touch[pair] - distance) / CONTACT_MARGIN) * CONTACT_MARGIN
        # Two bodies on one spot have no direction to push to.
        distance[distance == 0] = np.inf
        first, second = self._first[pair], self._second[pair]
        movable = second < self.args.n_agents
        flat = force.reshape(-1)
        for axis in range(2):
            push = CONTACT_FORCE * self._apart[pair, axis, copy] / distance * overlap
            at = (2 * first + axis) * self.n_copies + copy
            np.add.at(flat, at, push)
            at = (2 * second + axis) * self.n_copies + copy
            np.subtract.at(flat, at[movable], push[movable])

    def _limit_speed(self) -> None:
        velocity = self.velocity
        speed = np.sqrt(np.einsum("ncb,ncb->nb", velocity, velocity))
        agent, copy = (speed > self._max_speed).nonzero()
        if agent.size:
            fast = velocity[agent, :, copy] / speed[agent, copy, None]
            velocity[agent, :, copy] = fast * self._max_speed[agent]

    def contacts(self) -> BoolArray:
        """Which predators touch which prey, [P, Q, B]."""
        touching: BoolArray = np.sqrt(self._squared[self._hunts]) < CONTACT_DISTANCE
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
            distance = np.sqrt(self._squared[self._hunts])
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

    def view(self, copies: IntArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Fresh observations [B, N, O] and states [B, S] of all or some copies."""
        rows = self._rows if copies is None else self._rows[:, :, copies]
        n, around = self.args.n_agents, slice(2, 1 + self.args.n_bodies)
        seen = _scratch((*self._obs_rows.shape, 2), rows.shape[-1])
        np.subtract(rows[self._obs_rows[:, around]], rows[:n, None], out=seen[:, around])
        for own in (slice(0, 2), slice(around.stop, None)):
            seen[:, own] = rows[self._obs_rows[:, own]]
        state = _scratch((len(self._state_rows), 2), rows.shape[-1])
        state[:] = rows[self._state_rows]
        return _copies_first(seen, (n, -1)), _copies_first(state, (-1,))


def _scratch(shape: tuple[int, ...], n_copies: int) -> Doubles:
    """Room for [*shape, n_copies] whose rows do not begin at like addresses modulo a page, which
    makes transposing it several times faster."""
    lines = -(-n_copies // 8)
    lines += (3 - lines) % 8
    room: Doubles = np.empty((*shape, 8 * lines))[..., :n_copies]
    return room


def _copies_first(rows: Doubles, shape: tuple[int, ...]) -> FloatArray:
    """Rows [..., B] as single-precision [B, *shape]."""
    flat = rows.reshape(-1, rows.shape[-1])
    out = np.empty(flat.shape[::-1], np.float32)
    out[...] = flat.T
    return out.reshape(len(out), *shape)
