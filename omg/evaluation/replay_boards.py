"""What a recorded episode looks like from above, for the report's player: a grid of cells, or a
plane that is mapped onto one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from omg.envs.foraging.env import ForagingEnv
from omg.envs.foraging.render import frames_from_states
from omg.envs.goal_grid.env import GridEnv
from omg.envs.goal_grid.games import state_parts
from omg.envs.particles.env import ParticleEnv
from omg.types import FloatArray

Playable: TypeAlias = ForagingEnv | GridEnv | ParticleEnv[Any]
PLANE_SIDE = 12  # cells along a side of a plane's picture
NEAR = 0.1  # on a plane: what an agent covers in one step at speed 1


@dataclass(frozen=True, slots=True)
class Board:
    """The size in cells, every frame, and for a plane what its picture needs beside them."""

    size: tuple[int, int]
    frames: list[dict[str, Any]]
    plane: dict[str, Any] | None = None
    reach: float = 0.0  # of a plane, from its centre to its sides

    def at(self, places: Tensor) -> Tensor:
        """Features (row, column), or (x, y) of a plane, [..., 2], as (row, column)."""
        if self.plane is None:
            return places
        return torch.stack([-places[..., 1], places[..., 0]], -1) * self.scale + self.middle

    @property
    def scale(self) -> float:
        """Cells per unit of a plane."""
        return PLANE_SIDE / (2 * self.reach)

    @property
    def middle(self) -> float:
        """The row and the column of a plane's centre."""
        return (PLANE_SIDE - 1) / 2


def board_of(env: Playable, states: FloatArray, rewards: FloatArray) -> Board:
    """The board of an episode, states [T + 1, S] and rewards [T, N or 1]."""
    if isinstance(env, ForagingEnv):
        return _foraging(env, states, rewards)
    if isinstance(env, GridEnv):
        return _grid(env, states, rewards)
    return _plane(env, states, rewards)


def _foraging(env: ForagingEnv, states: FloatArray, rewards: FloatArray) -> Board:
    rules = env.rules
    size = (rules.rows, rules.cols)
    frames = frames_from_states(states, rewards, field_size=size, n_foods=rules.max_num_food)
    shown = [
        _shown(
            [
                [row, col, level]
                for (row, col), level in zip(f.player_pos, f.player_levels, strict=True)
            ],
            [list(food) for food in f.foods],
            f.score,
        )
        for f in frames
    ]
    return Board(size, shown)


def _grid(env: GridEnv, states: FloatArray, rewards: FloatArray) -> Board:
    """Games whose players go for targets; who is gone has level 0. Targets have the number of
    their kind, the first kind the highest (stag 2, hare 1)."""
    targets, players, _ = state_parts(np.ascontiguousarray(states), env.size)
    kinds = [goal.split()[0] for goal in env.spec.goals]
    known = list(dict.fromkeys(kinds))
    marks = np.array([len(known) - known.index(kind) for kind in kinds]) * (targets[..., 2] > 0)
    score = np.concatenate([np.zeros_like(rewards[:1]), rewards.cumsum(0)])
    things = np.concatenate([targets[..., :2], marks[..., None]], -1)
    frames = [
        _shown(there.tolist(), beside.tolist(), earned)
        for there, beside, earned in zip(players, things, score, strict=True)
    ]
    return Board((env.size.rows, env.size.cols), frames)


def _plane(env: ParticleEnv[Any], states: FloatArray, rewards: FloatArray) -> Board:
    """Moving discs: the picture reaches as far as anybody went, y upwards."""
    frames = env.frames(states, rewards)
    empty = Board((PLANE_SIDE, PLANE_SIDE), [], {}, frames[0].reach)

    def spots(points: tuple[tuple[float, float], ...]) -> list[list[float]]:
        found = empty.at(torch.tensor(points, dtype=torch.float64).reshape(-1, 2)).tolist()
        return [[round(row, 3), round(col, 3), 1] for row, col in found]

    shown = [_shown(spots(f.agents), spots(f.things), f.score) for f in frames]
    plane = {
        "players": [round(size * empty.scale, 3) for size in env.agent_sizes],
        "thing": round(env.thing_size * empty.scale, 3),
        "things": env.things.capitalize(),
        "near": round(NEAR * empty.scale, 3),
    }
    return Board(empty.size, shown, plane, empty.reach)


def _shown(players: list[Any], foods: list[Any], score: Any) -> dict[str, Any]:
    earned = [round(float(value), 6) for value in score]
    return {"players": players, "foods": foods, "score": earned}
