"""`python -m benchmarks.particles`: microseconds of a step in C and in NumPy, alternating. And what
the benchmarks of both games against mpe2's share.

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

from benchmarks.report import markdown_table
from omg.envs.particles.env import ParticleEnv
from omg.envs.particles.kernel import particle_kernel
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


def step_microseconds(name: str, copies: int, *, in_c: bool, steps: int = 50) -> float:
    """Of all copies of the default game."""
    env = make_batched(name, {}, n_copies=copies)
    assert isinstance(env, ParticleEnv)
    env.use(particle_kernel()[0] if in_c else None)
    env.reset(0)
    actions = np.random.default_rng(0).integers(0, 5, (steps, copies, env.spec.n_agents))
    for act in actions:
        env.step(act)
    start = thread_time()
    for act in actions:
        env.step(act)
    return 1e6 * (thread_time() - start) / steps


def main() -> None:
    header, rows = ["game", "copies", "C", "NumPy", "ratio"], []
    for name in ("spread", "predator_prey"):
        for copies in (8, 64, 1024):
            pairs = [
                [step_microseconds(name, copies, in_c=in_c) for in_c in (True, False)]
                for _ in range(9)
            ]
            ours, theirs = (median(side) for side in zip(*pairs, strict=True))
            ratio = median(theirs / ours for ours, theirs in pairs)
            rows.append([name, f"{copies:,}", f"{ours:.0f}", f"{theirs:.0f}", f"{ratio:.1f}x"])
    print(markdown_table(header, rows))


if __name__ == "__main__":
    main()
