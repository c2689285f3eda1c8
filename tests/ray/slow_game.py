"""Foraging for tests that need time to interfere: a step waits."""

from __future__ import annotations

import time

from omg.envs.foraging.env import ForagingEnv
from omg.types import IntArray, TimeStep


class SlowForagingEnv(ForagingEnv):
    """Takes 8 ms per step of all copies."""

    def step(self, actions: IntArray) -> TimeStep:
        time.sleep(0.008)
        return super().step(actions)
