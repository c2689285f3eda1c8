"""The arguments of Predator-Prey, the sizes that follow from them, and the game's constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from omg.envs.contract import parse_arguments

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


class PredatorPreyArgs(BaseModel):
    """How many play, among how many obstacles, and for how long."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    n_predators: int = Field(3, ge=1, le=MOST_AGENTS)
    n_prey: int = Field(1, ge=1, le=MOST_AGENTS)
    n_obstacles: int = Field(2, ge=0, le=MOST_AGENTS)
    max_cycles: int = Field(25, ge=1, le=2**31)
    shaped_reward: bool = False

    @classmethod
    def parse(cls, values: PredatorPreyArgs | Mapping[str, Any]) -> PredatorPreyArgs:
        """From a mapping; what does not fit is an OmgError naming the field."""
        return parse_arguments(cls, values, game="Predator-Prey")

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
