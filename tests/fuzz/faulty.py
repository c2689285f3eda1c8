"""A small game with the fault that it is told to have."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from typing import Any

import numpy as np

from omg.envs.contract import MultiAgentEnv

AGENTS, ACTIONS, WIDTH, LIMIT = 2, 3, 4, 6


class UnprintableError(Exception):
    """Cannot even be told."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class UnpicklableError(Exception):
    """Cannot be sent to another process."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__("two are needed")
        self.lock = threading.Lock()


def _break(fault: str) -> None:
    """Everything that can happen anywhere."""
    if fault == "raises":
        raise RuntimeError("broken on purpose")
    if fault == "exits":
        sys.exit(3)
    if fault == "interrupts":
        raise KeyboardInterrupt
    if fault == "floods":
        raise ValueError("\x1b[31m" + "x" * 100_000)
    if fault == "unprintable":
        raise UnprintableError
    if fault == "unpicklable":
        raise UnpicklableError(1, 2)
    if fault == "memory":
        raise MemoryError
    if fault == "recursion":
        _break(fault)
    if fault == "hangs":
        time.sleep(10_000)
    if fault == "dies":
        os._exit(7)
    if fault == "crashes":
        ctypes.string_at(0)


ANYWHERE = (
    *("raises", "exits", "interrupts", "floods", "unprintable", "unpicklable", "memory"),
    *("recursion", "hangs", "dies", "crashes"),
)
PLACES = ("init", "reset", "step", "close", "info")
RESULTS = (
    *("obs_short", "obs_long", "obs_nan", "obs_text", "obs_none", "obs_ragged", "state_nan"),
    *("state_short", "reward_nan", "reward_inf", "reward_text", "reward_none", "reward_many"),
    *("done_none", "info_none", "info_text", "info_changes", "no_action", "avail_short"),
    *("avail_text", "never_ends", "agents_0", "actions_0", "limit_0", "width_text", "width_huge"),
    *("no_shape", "info_is_list", "steps_are_short", "obs_changes", "limit_huge"),
)


class Faulty(MultiAgentEnv):
    """`fault`: where and what, e.g. `step raises`, or one of `RESULTS`."""

    def __init__(self, fault: str = "", **more: Any) -> None:
        self.fault, self.steps, self.resets = fault, 0, 0
        self._at("init")

    def _at(self, place: str) -> None:
        where, _, what = self.fault.partition(" ")
        late = place != "step" or self.steps >= 3
        if where == place and late:
            _break(what)

    def reset(self, seed: int | None = None) -> tuple[Any, Any]:
        self.steps, self.resets = 0, self.resets + 1
        if self.resets > 1:
            self._at("reset")
        return self.get_obs(), self.get_state()

    def step(self, actions: Any) -> tuple[Any, Any, Any]:
        self.steps += 1
        self._at("step")
        rewards = {
            "reward_nan": float("nan"),
            "reward_inf": float("inf"),
            "reward_text": "much",
            "reward_none": None,
            "reward_many": [1.0] * 7,
        }
        infos = {"info_none": None, "info_text": "x", "info_changes": {f"n{self.steps}": 1}}
        done: Any = self.steps >= LIMIT and self.fault != "never_ends"
        done = None if self.fault == "done_none" else done
        if self.fault == "steps_are_short":
            return 1.0, done  # type: ignore[return-value]
        return rewards.get(self.fault, 1.0), done, infos.get(self.fault, {})

    def get_obs(self) -> Any:
        good = [np.full(WIDTH, self.steps, np.float32) for _ in range(AGENTS)]
        odd = {
            "obs_short": [row[:-1] for row in good],
            "obs_long": [*good, good[0]],
            "obs_nan": [row * np.nan for row in good],
            "obs_text": ["a", "b"],
            "obs_none": None,
            "obs_ragged": [good[0], good[1][:2]],
            "obs_changes": good if self.steps < 2 else [row[:2] for row in good],
        }
        return odd.get(self.fault, good)

    def get_state(self) -> Any:
        good = np.full(WIDTH, self.steps, np.float32)
        return {"state_nan": good * np.nan, "state_short": good[:1]}.get(self.fault, good)

    def get_avail_actions(self) -> Any:
        good = [[1] * ACTIONS for _ in range(AGENTS)]
        none = [[0] * ACTIONS, [1] * ACTIONS] if self.steps > 1 else good
        odd = {"no_action": none, "avail_short": [[1]], "avail_text": "yes"}
        return odd.get(self.fault, good)

    def get_env_info(self) -> Any:
        self._at("info")
        good: dict[str, Any] = {
            "state_shape": WIDTH,
            "obs_shape": WIDTH,
            "n_actions": ACTIONS,
            "n_agents": AGENTS,
            "episode_limit": LIMIT,
        }
        odd: dict[str, Any] = {
            "agents_0": {**good, "n_agents": 0},
            "actions_0": {**good, "n_actions": 0},
            "limit_0": {**good, "episode_limit": 0},
            "limit_huge": {**good, "episode_limit": 10**12},
            "width_text": {**good, "obs_shape": "wide"},
            "width_huge": {**good, "obs_shape": 10**12, "state_shape": 10**12},
            "no_shape": {k: v for k, v in good.items() if k != "obs_shape"},
            "info_is_list": list(good.items()),
        }
        return odd.get(self.fault, good)

    def close(self) -> None:
        self._at("close")
