"""One situation of the foraging game as plain numbers: what pictures are drawn from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from omg.types import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class ForagingFrame:
    """Players by seat, foods that are left, and the players' summed rewards so far."""

    field_size: tuple[int, int]
    player_pos: tuple[tuple[int, int], ...]
    player_levels: tuple[int, ...]
    foods: tuple[tuple[int, int, int], ...]  # (row, col, level)
    step: int = 0
    score: tuple[float, ...] = ()


def frame_of(
    state: FloatArray,
    *,
    field_size: tuple[int, int],
    n_foods: int,
    step: int = 0,
    score: tuple[float, ...] = (),
) -> ForagingFrame:
    """The frame that a state vector [S] describes."""
    rows = [(int(row), int(col), int(level)) for row, col, level in state.reshape(-1, 3)]
    players = rows[n_foods:]
    return ForagingFrame(
        field_size=field_size,
        player_pos=tuple((row, col) for row, col, _ in players),
        player_levels=tuple(level for _, _, level in players),
        foods=tuple(food for food in rows[:n_foods] if food[2] > 0),
        step=step,
        score=score or (0.0,) * len(players),
    )


def frames_from_states(
    states: FloatArray,
    rewards: FloatArray,
    *,
    field_size: tuple[int, int],
    n_foods: int,
) -> list[ForagingFrame]:
    """An episode's frames from its states [T + 1, S] and rewards [T, N]."""
    start = np.zeros((1, rewards.shape[1]))
    scores = np.concatenate([start, np.cumsum(rewards, axis=0, dtype=np.float64)])
    return [
        frame_of(
            state,
            field_size=field_size,
            n_foods=n_foods,
            step=step,
            score=tuple(score.tolist()),
        )
        for step, (state, score) in enumerate(zip(states, scores, strict=True))
    ]
