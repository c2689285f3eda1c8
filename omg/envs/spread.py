"""Spread: the rules of MPE's simple_spread (mpe2 1.1.1), written for many copies at once.

Actions: none, left, right, down, up. In pictures agents are discs of their true size, a little
transparent. A landmark is a cross in a ring that has the radius within which it is covered; while
it is, a halo lies around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from pydantic import Field

from omg.envs.contract import GameArguments
from omg.envs.drawing import Polygon, Shape, Style, Text, disc
from omg.envs.particles.env import COLLISIONS, ParticleEnv, agent_columns
from omg.envs.particles.kernel import SPREAD
from omg.envs.particles.physics import N_ACTIONS, Bodies, Doubles, Particles
from omg.envs.particles.scene import THEME, WHITE, ParticleFrame, Scene, places_of, points, reach_of
from omg.types import BoolArray, EnvSpec, FloatArray, IntArray

# Agents are discs of this radius; the physics is that of omg/envs/particles.
AGENT_SIZE = 0.15
ACCELERATION = 5.0
COLLISION_DISTANCE = AGENT_SIZE + AGENT_SIZE
# A landmark is covered when an agent's centre is nearer than this.
COVER_DISTANCE = 0.1
COLLISION_PENALTY = 1.0
# Agents and landmarks begin anywhere in [-1, 1]².
START_SPREAD = 1.0

MOST_AGENTS = 100


class SpreadArgs(GameArguments):
    """How many play, what a collision weighs, and how long it takes."""

    game = "Spread"

    n_agents: int = Field(3, ge=1, le=MOST_AGENTS)
    local_ratio: float = Field(0.5, ge=0, le=1)
    max_cycles: int = Field(25, ge=1, le=2**31)

    @property
    def name(self) -> str:
        """What the game is called in headers and folders."""
        return f"Spread-{self.n_agents}"

    @property
    def n_landmarks(self) -> int:
        """One for each agent."""
        return self.n_agents

    @property
    def obs_dim(self) -> int:
        """Itself, landmarks, and place and (silent) message of every other agent."""
        return 4 + 2 * self.n_landmarks + 4 * (self.n_agents - 1)

    @property
    def state_dim(self) -> int:
        """Four numbers per agent, two per landmark."""
        return 4 * self.n_agents + 2 * self.n_landmarks

    @property
    def obs_format(self) -> str:
        """Tells observations from those of other games of the same width."""
        return f"agents={self.n_agents}, landmarks={self.n_landmarks}"


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


HALO, HALO_RIM = "#ffd23f", "#b88a00"
# Wider than an agent that covers the landmark from the side.
_HALO_RADIUS = COVER_DISTANCE + AGENT_SIZE + 0.03
_AGENT_OPACITY, _HALO_OPACITY = 0.78, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadFrame(ParticleFrame):
    """Things are landmarks; contacts are pairs of seats that collide."""

    covered: tuple[bool, ...]  # which landmarks have an agent on them


class SpreadScene(Scene[SpreadFrame]):
    """How Spread is drawn."""

    style = Style("spread", "Spread", THEME)
    flash_radii = (0.24, 0.19)

    def things(self, frame: SpreadFrame) -> list[Shape]:
        """The landmarks."""
        radius = COVER_DISTANCE * self.scale(frame)
        shapes: list[Shape] = []
        for point in frame.things:
            x, y = self.at(frame, point)
            shapes += [disc(x, y, radius, fill="none", rim="ink"), _cross(x, y, 0.62 * radius)]
        return shapes

    def lights(self, frame: SpreadFrame) -> list[tuple[list[Shape], bool]]:
        """A halo for each landmark, on while it is covered."""
        radius = _HALO_RADIUS * self.scale(frame)
        halos: list[list[Shape]] = [
            [disc(*self.at(frame, point), radius, fill=HALO, rim=HALO_RIM, opacity=_HALO_OPACITY)]
            for point in frame.things
        ]
        return list(zip(halos, frame.covered, strict=True))

    def agent(self, frame: SpreadFrame, seat: int) -> list[Shape]:
        """A disc around (0, 0) with its seat's number."""
        radius = AGENT_SIZE * self.scale(frame)
        return [
            disc(0, 0, radius, fill=self.colour(frame, seat), rim=WHITE, opacity=_AGENT_OPACITY),
            Text(x=0, y=0, words=str(seat), size=0.8 * radius, fill=WHITE),
        ]

    def touched(self, frame: SpreadFrame, seat: int) -> bool:
        """Whether an agent collides with another."""
        return any(seat in pair for pair in frame.contacts)

    def counted(self, frame: SpreadFrame) -> str:
        """Landmarks covered now, collisions so far."""
        hits = f"{frame.collisions} collision{'' if frame.collisions == 1 else 's'}"
        return f"{sum(frame.covered)} of {len(frame.covered)} covered, {hits}"


def _cross(x: float, y: float, radius: float) -> Polygon:
    """An upright cross."""
    far, near = radius, 0.3 * radius
    right = ((near, -far), (near, -near), (far, -near), (far, near), (near, near), (near, far))
    left = tuple((-dx, -dy) for dx, dy in right)
    return Polygon(x=x, y=y, corners=right + left, fill="ink")


SCENE = SpreadScene()


COVERED = "covered"


class SpreadEnv(ParticleEnv[SpreadFrame]):
    """Agents share out landmarks among themselves and keep out of each other's way."""

    scene = SCENE
    things = "landmarks"
    thing_size = COVER_DISTANCE

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

    def _kernel_rules(self) -> Mapping[str, float] | None:
        if self._differs_from(SpreadEnv):
            return None
        return {
            "game": SPREAD,
            "cover_distance": COVER_DISTANCE,
            "collision_distance": COLLISION_DISTANCE,
            "collision_penalty": COLLISION_PENALTY,
            "local_ratio": self.args.local_ratio,
        }

    def _outcome(self) -> Doubles:
        gaps, collisions = self._world.gaps(), self._world.collisions()
        self._counters[COVERED][:] = self._world.covered(gaps)
        self._counters[COLLISIONS] += collisions.sum(axis=0)
        return self._world.rewards(gaps, collisions)
