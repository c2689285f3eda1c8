"""The running battles of all copies as arrays, [B, U] with our units first. Both simulators work
on these in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omg.envs.battle.rules import Rules
from omg.types import BoolArray, FloatArray, IntArray, Snapshot

# What a snapshot holds of a battle; everything else follows from the rules or lasts a step only.
KEPT = (
    *("x", "y", "health", "shield", "energy", "cooldown", "peace", "target", "burst", "moving"),
    *("goal_x", "goal_y", "press_x", "press_y", "dice", "last", "ticks"),
)


class Field:
    """Battles in progress. A unit lives as long as its health is above zero."""

    def __init__(self, rules: Rules, n_copies: int) -> None:
        shape, floats = (n_copies, rules.n_units), np.float32
        self.x, self.y = np.zeros(shape, floats), np.zeros(shape, floats)
        self.health, self.shield = np.zeros(shape, floats), np.zeros(shape, floats)
        self.energy = np.zeros(shape, floats)
        self.cooldown = np.zeros(shape, np.int32)  # ticks until the next attack
        self.peace = np.zeros(shape, np.int32)  # ticks since the last hit
        self.target = np.zeros(shape, np.int32)  # whom to attack or heal; -1: nobody
        self.burst = np.zeros(shape, np.int32)  # 1: killed, and explodes in the next tick
        self.moving = np.zeros(shape, np.int32)  # 1: walks to its goal
        # Where others pushed it last: it does not walk against them, but past them.
        self.press_x, self.press_y = np.zeros(shape, floats), np.zeros(shape, floats)
        self.goal_x, self.goal_y = np.zeros(shape, floats), np.zeros(shape, floats)
        self.dice = np.zeros(shape, np.uint32)  # state of each unit's random numbers
        self.last = np.full((n_copies, rules.n_seats), -1, np.int32)  # actions; -1: none yet
        self.ticks = np.zeros(n_copies, np.int32)

    def snapshot(self) -> Snapshot:
        """Copies of everything that matters for what follows."""
        return {name: getattr(self, name).copy() for name in KEPT}

    def fits(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot is of as many battles of this kind."""
        return all(
            name in snapshot and snapshot[name].shape == getattr(self, name).shape for name in KEPT
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from a snapshot that fits."""
        for name in KEPT:
            getattr(self, name)[...] = snapshot[name]


@dataclass(frozen=True, slots=True)
class Seen:
    """What agents see and may do, of all copies or of some."""

    obs: FloatArray
    state: FloatArray
    avail: BoolArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a step brought, [B] or [B, 2] for the two sides."""

    reward: FloatArray  # [B, 2]
    terminated: BoolArray
    truncated: BoolArray
    won: NDArray[np.int8]  # 1: ours, -1: theirs, 0: nobody
    dead: IntArray  # [B, 2]: of ours and of theirs
    final: Seen | None  # of the copies that ended, in order


Array = NDArray[Any]
