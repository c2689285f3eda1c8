"""`python -m benchmarks.spread`: the native game against mpe2's simple_spread, and QMIX on it.

The games alternate: random actions, restarts included, CPU seconds of this thread, so that a busy
machine disturbs less. Training is QMIX-RNN with 8 copies, batches of 32 episodes of 25 steps (26
slots), hidden size 64, one update per episode and one torch thread. `python -m benchmarks.peers`
measures JaxMARL beside it.
"""

from __future__ import annotations

import argparse
from time import perf_counter, thread_time

import torch

from benchmarks import ours, particles
from omg.config.loader import load_command_line
from omg.config.schema import Config

WORDS = (
    *("--config=qmix", "--env-config=spread", "--batch_size_run=8", "--batch_size=32"),
    *("--rnn_hidden_dim=64", "--updates_per_episode=1"),
)


def native_steps(copies: int, seconds: float) -> float:
    """Environment steps per second of our copies (3 agents)."""
    return particles.native_steps("spread", copies, seconds)


def mpe2_steps(seconds: float) -> float:
    """The same with the reference package."""
    return particles.mpe2_steps("mpe2.simple_spread_v3", seconds)


def config() -> Config:
    """The measured training, as a user would ask for it."""
    return load_command_line(list(WORDS)).config


def training_steps(seconds: float) -> float:
    """Environment steps per second of QMIX: playing, storing and learning."""
    return ours.training_steps(seconds, config())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spread", description=__doc__)
    parser.add_argument("--copies", type=int, nargs="+", default=particles.COPIES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each game measurement")
    parser.add_argument("--training-seconds", type=float, default=20.0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("3 agents, 25 steps; env-steps per CPU second of one thread")
    particles.print_comparison(
        lambda copies: native_steps(copies, arguments.seconds),
        lambda: mpe2_steps(arguments.seconds),
        copies=arguments.copies,
        rounds=arguments.rounds,
    )
    print("\nQMIX-RNN, 8 copies, 32 episodes x 25 steps, hidden 64, one update per episode")
    for name, clock in (("second", perf_counter), ("CPU second", thread_time)):
        speed = ours.training_steps(arguments.training_seconds, config(), clock)
        print(f"env-steps per {name}: {speed:,.0f}")


if __name__ == "__main__":
    main()
