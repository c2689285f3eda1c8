"""`python -m benchmarks.ray_runner`: steps per second of runner=ray over those of runner=parallel.

The game takes 5 ms per step, with SMAC's sizes on 8m. It waits that long, as for a program such as
StarCraft II that computes elsewhere, or it computes itself (`--busy`). Both runners have as many
workers and copies. Short windows of both alternate in one run; the ratio of a round is that of its
two windows, and the median over the rounds is reported with its quartiles. Beside it: what one
step of all workers costs more than the game itself, in milliseconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import median, quantiles
from time import perf_counter, sleep
from typing import Any

import numpy as np

from omg.config.loader import load_command_line
from omg.envs.contract import BatchedEnv, MultiAgentEnv
from omg.registry import trust
from omg.runners import runner_of
from omg.types import FloatArray

WORKERS, ROUNDS, SECONDS = 2, 15, 1.0
COPIES_PER_WORKER = (1, 4, 8)


class SlowGame(MultiAgentEnv):
    """A game of the size of 8m whose steps take a given time."""

    N_AGENTS, N_ACTIONS, OBS, STATE, LIMIT = 8, 14, 80, 168, 120

    def __init__(self, *, milliseconds: float = 5.0, busy: bool = False) -> None:
        self._seconds, self._busy = milliseconds / 1000, busy
        self._steps = 0
        self._obs = list(np.zeros((self.N_AGENTS, self.OBS), np.float32))
        self._state = np.zeros(self.STATE, np.float32)
        self._avail = np.ones((self.N_AGENTS, self.N_ACTIONS), np.int64).tolist()

    def reset(self, seed: int | None = None) -> tuple[list[FloatArray], FloatArray]:
        self._steps = 0
        return self._obs, self._state

    def step(self, actions: Sequence[int]) -> tuple[float, bool, dict[str, Any]]:
        end = perf_counter() + self._seconds
        if not self._busy:
            sleep(self._seconds)
        while perf_counter() < end:
            pass
        self._steps += 1
        over = self._steps >= self.LIMIT
        return 0.0, over, {"episode_limit": over}

    def get_obs(self) -> list[FloatArray]:
        return self._obs

    def get_state(self) -> FloatArray:
        return self._state

    def get_avail_actions(self) -> list[list[int]]:
        return self._avail

    def get_env_info(self) -> dict[str, Any]:
        return {
            "state_shape": self.STATE,
            "obs_shape": self.OBS,
            "n_actions": self.N_ACTIONS,
            "n_agents": self.N_AGENTS,
            "episode_limit": self.LIMIT,
        }


def copies(runner: str, *, per_worker: int, milliseconds: float, busy: bool) -> BatchedEnv:
    """The slow game, as a run with this runner would make it."""
    words = [
        *("--config=iql", "--env-config=foraging", f"--runner={runner}"),
        *(f"--n_workers={WORKERS}", f"--batch_size_run={WORKERS * per_worker}"),
    ]
    config = load_command_line(words).config.model_copy(
        update={
            "env": "benchmarks.ray_runner:SlowGame",
            "env_args": {"milliseconds": milliseconds, "busy": busy},
        }
    )
    return runner_of(config).copies(WORKERS * per_worker)


def steps_per_second(env: BatchedEnv, seconds: float) -> float:
    """Steps of all copies together, over a while."""
    actions = np.zeros((env.n_copies, env.spec.n_agents), np.int64)
    begin, steps = perf_counter(), 0
    while (passed := perf_counter() - begin) < seconds:
        env.step(actions)
        steps += 1
    return steps / passed


def measure(*, per_worker: int, milliseconds: float, busy: bool, rounds: int) -> str:
    """One line: the ratio with its quartiles, and the overhead of a step of each runner."""
    options: dict[str, Any] = {
        "per_worker": per_worker,
        "milliseconds": milliseconds,
        "busy": busy,
    }
    sides = {name: copies(name, **options) for name in ("parallel", "ray")}
    found: dict[str, list[float]] = {name: [] for name in sides}
    try:
        for env in sides.values():
            env.reset(1)
            steps_per_second(env, SECONDS / 2)
        for _ in range(rounds):
            for name, env in sides.items():
                found[name].append(steps_per_second(env, SECONDS))
    finally:
        for env in sides.values():
            env.close()
    ratios = [b / a for a, b in zip(found["parallel"], found["ray"], strict=True)]
    low, _, high = quantiles(ratios, n=4)
    own = per_worker * milliseconds
    costs = [f"{name} {1000 / median(rates) - own:.2f} ms" for name, rates in found.items()]
    return (
        f"{WORKERS} workers x {per_worker} copies: ratio {median(ratios):.3f} "
        f"({low:.3f} to {high:.3f}); more than the game per step: {', '.join(costs)}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray_runner", description=__doc__)
    parser.add_argument("--milliseconds", type=float, default=5.0, help="a game's step")
    parser.add_argument("--busy", action="store_true", help="the game computes; else it waits")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--copies", type=int, nargs="*", default=COPIES_PER_WORKER)
    asked = parser.parse_args()
    trust("benchmarks")
    how = "computes" if asked.busy else "waits"
    print(f"A game that {how} {asked.milliseconds:g} ms per step, ray over parallel:")
    for per_worker in asked.copies:
        print(
            measure(
                per_worker=per_worker,
                milliseconds=asked.milliseconds,
                busy=asked.busy,
                rounds=asked.rounds,
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
