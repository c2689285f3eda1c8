"""Values that change with the environment steps; pure functions of the step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class DecayThenFlat:
    """From `start` to `finish` over `time_length` steps, flat afterwards."""

    start: float
    finish: float
    time_length: int
    decay: Literal["linear", "exp"] = "linear"

    def __call__(self, env_steps: int) -> float:
        if self.decay == "linear":
            share = min(1.0, env_steps / self.time_length)
            return self.start + share * (self.finish - self.start)
        # e^(-t/scaling), scaled so that it meets `finish` at time_length.
        floor = max(self.finish, 1e-12)
        rate = math.log(max(self.start, floor) / floor) / self.time_length
        return min(self.start, max(self.finish, self.start * math.exp(-rate * env_steps)))
