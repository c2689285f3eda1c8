"""Predator-Prey: the rules of MPE's simple_tag (mpe2 1.1.1), written for many copies at once.

Actions: none, left, right, down, up. In pictures predators are discs, prey are diamonds, obstacles
are large plain discs: nothing is told by colour alone. All have their true size; a diamond's
inscribed circle is the prey's body.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field

from omg.envs.contract import GameArguments
from omg.envs.drawing import Point, Polygon, Shape, Style, Text, disc
from omg.envs.particles.env import COLLISIONS, ParticleEnv, agent_columns
from omg.envs.particles.kernel import PREDATOR_PREY
from omg.envs.particles.physics import N_ACTIONS, Bodies, Doubles, Particles
from omg.envs.particles.scene import THEME, WHITE, ParticleFrame, Scene, places_of, points, reach_of
from omg.types import BoolArray, EnvSpec, FloatArray

PREDATOR, PREY = "predator", "prey"

# Sizes are radii. The physics is that of omg/envs/particles.
SIZE = {PREDATOR: 0.075, PREY: 0.05}
ACCELERATION = {PREDATOR: 3.0, PREY: 4.0}
MAX_SPEED = {PREDATOR: 1.0, PREY: 1.3}
OBSTACLE_SIZE = 0.2
CONTACT_DISTANCE = SIZE[PREDATOR] + SIZE[PREY]

# Agents begin anywhere in [-1, 1]², obstacles in [-0.9, 0.9]².
AGENT_SPREAD, OBSTACLE_SPREAD = 1.0, 0.9

# Rewards: of one contact, and where the prey's penalty for leaving the field begins.
CONTACT_REWARD = 10.0
SHAPE_WEIGHT = 0.1
BORDER_BEGIN, BORDER = 0.9, 1.0
BORDER_SLOPE, BORDER_CAP = 10.0, 10.0

MOST_AGENTS = 100


class PredatorPreyArgs(GameArguments):
    """How many play, among how many obstacles, and for how long."""

    game = "Predator-Prey"

    n_predators: int = Field(3, ge=1, le=MOST_AGENTS)
    n_prey: int = Field(1, ge=1, le=MOST_AGENTS)
    n_obstacles: int = Field(2, ge=0, le=MOST_AGENTS)
    max_cycles: int = Field(25, ge=1, le=2**31)
    shaped_reward: bool = False

    @property
    def name(self) -> str:
        """What the game is called in headers and folders."""
        return f"PredatorPrey-{self.n_predators}v{self.n_prey}-{self.n_obstacles}o"

    @property
    def n_agents(self) -> int:
        """Predators and prey."""
        return self.n_predators + self.n_prey

    @property
    def n_bodies(self) -> int:
        """Agents and obstacles."""
        return self.n_agents + self.n_obstacles

    @property
    def roles(self) -> tuple[str, ...]:
        """The role of every seat: predators first."""
        return (PREDATOR,) * self.n_predators + (PREY,) * self.n_prey

    @property
    def obs_dims(self) -> tuple[int, ...]:
        """How many features every seat sees: itself, bodies around it, velocities of prey."""
        seen = 4 + 2 * (self.n_bodies - 1)
        velocities = {PREDATOR: self.n_prey, PREY: self.n_prey - 1}
        return tuple(seen + 2 * velocities[role] for role in self.roles)

    @property
    def state_dim(self) -> int:
        """Four numbers per agent, two per obstacle."""
        return 4 * self.n_agents + 2 * self.n_obstacles

    @property
    def obs_format(self) -> str:
        """Games of equal width may still mean different things by their columns."""
        return f"predators={self.n_predators}, prey={self.n_prey}, obstacles={self.n_obstacles}"


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


PREY_FILL, PREY_RIM = "#ffd23f", "#3a2d00"


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


class PredatorPreyScene(Scene[PredatorPreyFrame]):
    """How Predator-Prey is drawn."""

    style = Style("pp", "Predator-Prey", THEME)
    flash_radii = (0.17, 0.11)

    def things(self, frame: PredatorPreyFrame) -> list[Shape]:
        """Where the prey's penalty begins, and the obstacles."""
        radius = OBSTACLE_SIZE * self.scale(frame)
        stones = [
            disc(*self.at(frame, point), radius, fill="stone", rim="pale") for point in frame.things
        ]
        return [self.square(frame, BORDER_BEGIN, fill="none", rim="rim"), *stones]

    def colour(self, frame: PredatorPreyFrame, seat: int) -> str:
        """Predators have their own, prey leaves dark footprints."""
        return super().colour(frame, seat) if seat < frame.n_predators else "ink"

    def agent(self, frame: PredatorPreyFrame, seat: int) -> list[Shape]:
        """A disc or a diamond around (0, 0) with its seat's number."""
        zoom = self.scale(frame)
        if seat < frame.n_predators:
            radius, ink = SIZE[PREDATOR] * zoom, WHITE
            body: Shape = disc(0, 0, radius, fill=self.colour(frame, seat), rim=WHITE)
        else:
            radius, ink = SIZE[PREY] * math.sqrt(2) * zoom, PREY_RIM
            body = _diamond(0, 0, radius)
        return [body, Text(x=0, y=0, words=str(seat), size=0.95 * radius, fill=ink)]

    def mark(self, frame: PredatorPreyFrame, seat: int, x: float, y: float) -> Shape:
        """The same shapes beside the scores."""
        return super().mark(frame, seat, x, y) if seat < frame.n_predators else _diamond(x, y, 8)

    def touched(self, frame: PredatorPreyFrame, seat: int) -> bool:
        """Whether the prey in a seat is in contact with a predator."""
        return any(prey == seat - frame.n_predators for _, prey in frame.contacts)

    def counted(self, frame: PredatorPreyFrame) -> str:
        """Contacts so far."""
        return f"{frame.collisions} contact{'' if frame.collisions == 1 else 's'}"


def _diamond(x: float, y: float, radius: float) -> Polygon:
    corners = ((0.0, -radius), (radius, 0.0), (0.0, radius), (-radius, 0.0))
    return Polygon(x=x, y=y, corners=corners, fill=PREY_FILL, rim=PREY_RIM)


SCENE = PredatorPreyScene()


SURVIVAL = "survival"


class PredatorPreyEnv(ParticleEnv[PredatorPreyFrame]):
    """Slow predators hunt faster prey among obstacles; every contact pays all predators."""

    scene = SCENE
    things = "obstacles"
    thing_size = OBSTACLE_SIZE

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
            opposed=True,
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

    def _kernel_rules(self) -> Mapping[str, float] | None:
        if self._differs_from(PredatorPreyEnv):
            return None
        return {
            "game": PREDATOR_PREY,
            "n_predators": self.args.n_predators,
            "shaped": self.args.shaped_reward,
            "contact_distance": CONTACT_DISTANCE,
            "contact_reward": CONTACT_REWARD,
            "shape_weight": SHAPE_WEIGHT,
            "border_begin": BORDER_BEGIN,
            "border": BORDER,
            "border_slope": BORDER_SLOPE,
            "border_cap": BORDER_CAP,
        }

    def _outcome(self) -> Doubles:
        contacts = self._world.contacts()
        touched = contacts.reshape(-1, self.n_copies).sum(axis=0)
        collisions, survival = self._counters[COLLISIONS], self._counters[SURVIVAL]
        first = (touched > 0) & (collisions == 0)
        survival[first] = self._steps[first]
        collisions += touched
        return self._world.rewards(contacts)
