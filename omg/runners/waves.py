"""Episodes in waves, for learners that may only use what the present policy played."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from omg.envs.contract import BatchedEnv
from omg.runners.rollout import Finished, Rollout


class Waves:
    """One episode of every copy, then all copies start again. Copies that are done wait for the
    slowest one: nothing they play meanwhile is handed out or counted, so that no episode was
    begun by an older policy, and short ones are not preferred."""

    def __init__(self, rollout: Rollout) -> None:
        self._rollout = rollout
        self._round = 0
        self._waiting = np.zeros(rollout.env.n_copies, bool)
        self.stepped_last = 0

    @property
    def env(self) -> BatchedEnv:
        return self._rollout.env

    @property
    def dropped_last(self) -> int:
        return self._rollout.dropped_last

    def step(self, env_steps: int) -> Finished | None:
        """As `Rollout.step`, with the wave's episodes only."""
        self.stepped_last = int((~self._waiting).sum())
        finished = self._rollout.step(env_steps)
        if finished is None:
            return None
        wanted = np.flatnonzero(~self._waiting[finished.stats.copies])
        self._waiting[finished.stats.copies] = True
        if self._waiting.all():
            self._round += 1
            self._waiting[:] = False
            self._rollout.begin(self._round, played=self._round)
        return finished.take(wanted) if len(wanted) else None

    def state_dict(self) -> dict[str, Any]:
        return {
            "rollout": self._rollout.state_dict(),
            "round": self._round,
            "waiting": torch.from_numpy(self._waiting.copy()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._round = int(state["round"])
        self._waiting = state["waiting"].numpy().copy()
        self._rollout.load_state_dict(state["rollout"])
