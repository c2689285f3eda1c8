"""The bodies of many games: how they move, push each other, and what agents see of them.

Arrays have the copies last, so that every operation runs along contiguous memory: places and
velocities are [bodies, 2, B]. A pair of bodies pushes only when it is near; far pairs, nearly all,
cost one comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from omg.types import FloatArray, IntArray, OmgError

Doubles = NDArray[np.float64]

# Actions: none, left, right, down, up; the direction each pushes to.
N_ACTIONS = 5
DIRECTIONS = np.array([[0.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [0.0, -1.0], [0.0, 1.0]])

# All bodies have mass 1.
TIME_STEP = 0.1
DAMPING = 0.25
CONTACT_FORCE = 100.0
CONTACT_MARGIN = 1e-3

# Beyond this gap between two surfaces the push is below 1e-23 and left out.
PUSH_RANGE = 50 * CONTACT_MARGIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Bodies:
    """What a game's bodies are like: agents, which move, then things that do not."""

    sizes: Sequence[float]  # radii of the solid bodies: all agents, and the first of the things
    accelerations: Sequence[float]  # of agents
    max_speeds: Sequence[float]  # of agents; infinity: no limit
    n_ghosts: int = 0  # things at the end that nobody bumps into

    @property
    def n_agents(self) -> int:
        """How many of the bodies move."""
        return len(self.accelerations)

    @property
    def n_solid(self) -> int:
        """How many of the bodies push each other."""
        return len(self.sizes)

    @property
    def n_bodies(self) -> int:
        """Agents and things."""
        return self.n_solid + self.n_ghosts


class Particles:
    """B games as arrays. The world is the rows places of bodies, velocities of agents, a zero.

    `squared` [.., B] holds squared distances: those of `pairs` (agent, solid body behind it) in the
    order of the reference, then those of every agent to every ghost.
    """

    def __init__(
        self,
        bodies: Bodies,
        n_copies: int,
        *,
        obs_dim: int,
        seen_velocities: Sequence[Sequence[int]],
    ) -> None:
        """`seen_velocities` are, for each agent, the agents whose velocities end its observation;
        what is left of `obs_dim` columns is zero."""
        if n_copies < 1:
            raise OmgError(f"n_copies is {n_copies}. Ask for at least one copy.")
        self.bodies = bodies
        self.n_copies = n_copies
        n = bodies.n_agents
        self.rows = np.zeros((bodies.n_bodies + n + 1, 2, n_copies))
        self.place = self.rows[: bodies.n_bodies]
        self.velocity = self.rows[bodies.n_bodies : -1]
        self._set_up_pairs()
        self._max_speed = np.array(bodies.max_speeds)[:, None]
        self._limited = bool(np.isfinite(self._max_speed).any())
        # The force of every (agent, action), one table per axis.
        acceleration = np.array(bodies.accelerations)
        self._thrust = np.multiply.outer(DIRECTIONS.T, acceleration).transpose(0, 2, 1).copy()
        self._choice = N_ACTIONS * np.arange(n)[:, None]
        self._force = np.zeros((n, 2, n_copies))
        self._state_rows = self._rows_of_state()
        self.obs_rows = self._rows_of_observations(obs_dim, seen_velocities)

    def _set_up_pairs(self) -> None:
        """Pairs of bodies that can touch, without those of two things, and their distances."""
        bodies = self.bodies
        n, solid = bodies.n_agents, bodies.n_solid
        self.pairs = [(a, b) for a, b in combinations(range(solid), 2) if a < n]
        self._first = np.array([a for a, _ in self.pairs], np.int64)
        self._second = np.array([b for _, b in self.pairs], np.int64)
        self._touch = np.array([bodies.sizes[a] + bodies.sizes[b] for a, b in self.pairs])
        self._near = ((self._touch + PUSH_RANGE) ** 2)[:, None]
        n_pairs = len(self.pairs) + n * bodies.n_ghosts
        self._apart = np.zeros((n_pairs, 2, self.n_copies))
        self.squared = np.zeros((n_pairs, self.n_copies))
        # Rows of `squared` that hold one agent's distances to these bodies.
        self._spans: list[tuple[int, slice, slice]] = []
        ranges = [(a, slice(a + 1, solid)) for a in range(n)]
        ranges += [(a, slice(solid, bodies.n_bodies)) for a in range(n)]
        start = 0
        for agent, others in ranges:
            stop = start + others.stop - others.start
            if stop > start:
                self._spans.append((agent, others, slice(start, stop)))
            start = stop

    def _rows_of_state(self) -> IntArray:
        """Place and velocity of each agent, then the things' places."""
        n, bodies = self.bodies.n_agents, self.bodies.n_bodies
        agents = [row for agent in range(n) for row in (agent, bodies + agent)]
        return np.array([*agents, *range(n, bodies)])

    def _rows_of_observations(
        self, obs_dim: int, seen_velocities: Sequence[Sequence[int]]
    ) -> IntArray:
        """Own velocity and place, things, other agents, velocities of some; then zeros."""
        n, bodies = self.bodies.n_agents, self.bodies.n_bodies
        table = np.full((n, obs_dim // 2), bodies + n)
        for agent, seen in enumerate(seen_velocities):
            others = [other for other in range(n) if other != agent]
            rows = [bodies + agent, agent, *range(n, bodies), *others]
            rows += [bodies + other for other in seen]
            table[agent, : len(rows)] = rows
        return table

    def put(self, copies: IntArray, place: Doubles, velocity: Doubles) -> None:
        """Places [bodies, 2, E] and velocities [N, 2, E] of some copies; before `measure`."""
        self.place[:, :, copies] = place
        self.velocity[:, :, copies] = velocity

    def measure(self) -> None:
        """Bring the differences between bodies up to date; after every change of places."""
        place = self.place
        for agent, others, span in self._spans:
            np.subtract(place[agent], place[others], out=self._apart[span])
        np.einsum("pcb,pcb->pb", self._apart, self._apart, out=self.squared)

    def move(self, actions: IntArray) -> None:
        """One time step with actions [B, N] in range."""
        force, choice = self._force, self._choice + actions.T
        for axis in range(2):
            force[:, axis] = self._thrust[axis].take(choice)
        self._push(force)
        place, velocity = self.place[: self.bodies.n_agents], self.velocity
        place += velocity * TIME_STEP
        velocity *= 1 - DAMPING
        force *= TIME_STEP
        velocity += force
        if self._limited:
            self._limit_speed()
        self.measure()

    def _push(self, force: Doubles) -> None:
        """Add to forces [N, 2, B] what bodies that touch, or nearly do, do to each other."""
        squared = self.squared[: len(self.pairs)]
        near = (squared < self._near).ravel().nonzero()[0]
        if not near.size:
            return
        pair, copy = np.divmod(near, self.n_copies)
        distance = np.sqrt(squared.reshape(-1)[near])
        overlap = np.logaddexp(0, (self._touch[pair] - distance) / CONTACT_MARGIN) * CONTACT_MARGIN
        # Two bodies on one spot have no direction to push to.
        distance[distance == 0] = np.inf
        first, second = self._first[pair], self._second[pair]
        movable = second < self.bodies.n_agents
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

    def view(self, copies: IntArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Fresh observations [B, N, O] and states [B, S] of all or some copies."""
        rows = self.rows if copies is None else self.rows[:, :, copies]
        n, around = self.bodies.n_agents, slice(2, 1 + self.bodies.n_bodies)
        seen = _scratch((*self.obs_rows.shape, 2), rows.shape[-1])
        np.subtract(rows[self.obs_rows[:, around]], rows[:n, None], out=seen[:, around])
        for own in (slice(0, 2), slice(around.stop, None)):
            seen[:, own] = rows[self.obs_rows[:, own]]
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
