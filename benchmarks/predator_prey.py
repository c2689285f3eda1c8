"""`python -m benchmarks.predator_prey`: the native game against mpe2's simple_tag, alternating.

Random actions, restarts included, CPU seconds of this thread, so that a busy machine disturbs less.
"""

from __future__ import annotations

import argparse
from functools import cache
from statistics import median
from time import thread_time
from typing import Any

import numpy as np

from omg.envs.registry import make_batched

COPIES = 1024
AGENTS = 4


def native_steps(copies: int, seconds: float) -> float:
    """Environment steps per second of our copies (3 predators, 1 prey, 2 obstacles)."""
    env = make_batched("predator_prey", {}, n_copies=copies)
    env.reset(0)
    actions = np.random.default_rng(0).integers(0, 5, (50, copies, AGENTS))
    for act in actions:
        env.step(act)
    steps, start = 0, thread_time()
    while thread_time() - start < seconds:
        for act in actions:
            env.step(act)
        steps += len(actions) * copies
    return steps / (thread_time() - start)


@cache
def _reference_game() -> Any:
    from mpe2 import simple_tag_v3

    return simple_tag_v3.parallel_env()


def mpe2_steps(seconds: float) -> float:
    """The same with the reference package, by its parallel interface."""
    game = _reference_game()
    game.reset(seed=0)
    drawn = np.random.default_rng(0).integers(0, 5, (50, AGENTS)).tolist()
    actions = [dict(zip(game.possible_agents, row, strict=True)) for row in drawn]
    steps, start = 0, thread_time()
    while thread_time() - start < seconds:
        for act in actions:
            game.step(act)
            if not game.agents:
                game.reset()
        steps += len(actions)
    return steps / (thread_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.predator_prey", description=__doc__)
    parser.add_argument("--copies", type=int, nargs="+", default=[1, 16, 128, COPIES])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    arguments = parser.parse_args()
    print("3 predators, 1 prey, 2 obstacles, 25 steps; env-steps per CPU second of one thread")
    print(f"{'copies':>8}{'native':>14}{'mpe2':>10}{'ratio':>10}{'range':>16}")
    for copies in arguments.copies:
        pairs = [
            (native_steps(copies, arguments.seconds), mpe2_steps(arguments.seconds))
            for _ in range(arguments.rounds)
        ]
        ratios = sorted(ours / theirs for ours, theirs in pairs)
        ours, theirs = (median(side) for side in zip(*pairs, strict=True))
        spread = f"{ratios[0]:.0f}-{ratios[-1]:.0f}"
        print(f"{copies:>8,}{ours:>14,.0f}{theirs:>10,.0f}{median(ratios):>9.0f}x{spread:>16}")


if __name__ == "__main__":
    main()
