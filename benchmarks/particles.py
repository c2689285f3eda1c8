"""Games of moving discs against mpe2's, alternating: what their benchmarks share.

Random actions, restarts included, CPU seconds of this thread, so that a busy machine disturbs less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from statistics import median
from time import thread_time
from typing import Any

import numpy as np

from omg.envs.registry import make_batched

COPIES = (1, 16, 128, 1024)


def native_steps(name: str, copies: int, seconds: float) -> float:
    """Environment steps per second of our copies, in the default game."""
    env = make_batched(name, {}, n_copies=copies)
    env.reset(0)
    actions = np.random.default_rng(0).integers(0, 5, (50, copies, env.spec.n_agents))
    for act in actions:
        env.step(act)
    steps, start = 0, thread_time()
    while thread_time() - start < seconds:
        for act in actions:
            env.step(act)
        steps += len(actions) * copies
    return steps / (thread_time() - start)


@cache
def _reference_game(module: str) -> Any:
    return import_module(module).parallel_env()


def mpe2_steps(module: str, seconds: float) -> float:
    """The same with the reference package, by its parallel interface."""
    game = _reference_game(module)
    game.reset(seed=0)
    seats = game.possible_agents
    drawn = np.random.default_rng(0).integers(0, 5, (50, len(seats))).tolist()
    actions = [dict(zip(seats, row, strict=True)) for row in drawn]
    steps, start = 0, thread_time()
    while thread_time() - start < seconds:
        for act in actions:
            game.step(act)
            if not game.agents:
                game.reset()
        steps += len(actions)
    return steps / (thread_time() - start)


def print_comparison(
    native: Callable[[int], float],
    reference: Callable[[], float],
    *,
    copies: Sequence[int],
    rounds: int,
) -> None:
    """One line per number of copies: median speeds, and the ratio with its range."""
    print(f"{'copies':>8}{'native':>14}{'mpe2':>10}{'ratio':>10}{'range':>16}")
    for number in copies:
        pairs = [(native(number), reference()) for _ in range(rounds)]
        ratios = sorted(ours / theirs for ours, theirs in pairs)
        ours, theirs = (median(side) for side in zip(*pairs, strict=True))
        spread = f"{ratios[0]:.0f}-{ratios[-1]:.0f}"
        print(f"{number:>8,}{ours:>14,.0f}{theirs:>10,.0f}{median(ratios):>9.0f}x{spread:>16}")
