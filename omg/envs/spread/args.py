"""The arguments of Spread, the sizes that follow from them, and the game's constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from omg.envs.contract import parse_arguments

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


class SpreadArgs(BaseModel):
    """How many play, what a collision weighs, and how long it takes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    n_agents: int = Field(3, ge=1, le=MOST_AGENTS)
    local_ratio: float = Field(0.5, ge=0, le=1)
    max_cycles: int = Field(25, ge=1, le=2**31)

    @classmethod
    def parse(cls, values: SpreadArgs | Mapping[str, Any]) -> SpreadArgs:
        """From a mapping; what does not fit is an OmgError naming the field."""
        return parse_arguments(cls, values, game="Spread")

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
