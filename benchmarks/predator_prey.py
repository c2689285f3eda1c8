"""`python -m benchmarks.predator_prey`: the native game against mpe2's simple_tag, alternating.

Random actions, restarts included, CPU seconds of this thread, so that a busy machine disturbs less.
"""

from __future__ import annotations

import argparse

from benchmarks import particles


def native_steps(copies: int, seconds: float) -> float:
    """Environment steps per second of our copies (3 predators, 1 prey, 2 obstacles)."""
    return particles.native_steps("predator_prey", copies, seconds)


def mpe2_steps(seconds: float) -> float:
    """The same with the reference package."""
    return particles.mpe2_steps("mpe2.simple_tag_v3", seconds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.predator_prey", description=__doc__)
    parser.add_argument("--copies", type=int, nargs="+", default=particles.COPIES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    arguments = parser.parse_args()
    print("3 predators, 1 prey, 2 obstacles, 25 steps; env-steps per CPU second of one thread")
    particles.print_comparison(
        lambda copies: native_steps(copies, arguments.seconds),
        lambda: mpe2_steps(arguments.seconds),
        copies=arguments.copies,
        rounds=arguments.rounds,
    )


if __name__ == "__main__":
    main()
