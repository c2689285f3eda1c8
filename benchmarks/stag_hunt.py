"""`python -m benchmarks.stag_hunt`: native Stag Hunt and Snowdrift against a plain loop.

Both play random actions, restarts and everything that players see included. They alternate, and
what counts is the ratio; CPU seconds of this thread, so that a busy machine disturbs less.
"""

from __future__ import annotations

import argparse
import random
import statistics
from time import thread_time

import numpy as np

from benchmarks.reference.grid_games import PlainGame, PlainSnowdrift, PlainStagHunt
from omg.envs.registry import make_batched

GAMES = ("stag_hunt", "snowdrift")
PLAYERS, TARGETS = 4, {"stag_hunt": 5, "snowdrift": 6}


def native_steps(game: str, copies: int, seconds: float) -> float:
    """Environment steps per CPU second of our copies."""
    env = make_batched(game, {}, n_copies=copies)
    env.reset(0)
    rng = np.random.default_rng(0)
    shape = (copies, env.spec.n_agents)
    actions = [rng.integers(0, env.spec.n_actions, shape) for _ in range(64)]
    for row in actions[:8]:
        env.step(row)
    steps, start = 0, thread_time()
    while thread_time() - start < seconds:
        env.step(actions[steps % 64])
        steps += 1
    return steps * copies / (thread_time() - start)


def plain_game(game: str, rng: random.Random) -> PlainGame:
    """A new episode of the plain loop."""
    cells = rng.sample(
        [(row, col) for row in range(8) for col in range(8)], PLAYERS + TARGETS[game]
    )
    kind = PlainStagHunt if game == "stag_hunt" else PlainSnowdrift
    return kind(players=cells[:PLAYERS], targets=cells[PLAYERS:])


def plain_steps(game: str, seconds: float) -> float:
    """The same of the plain loop."""
    rng = random.Random(0)
    running = plain_game(game, rng)
    steps, start = 0, thread_time()
    while thread_time() - start < seconds:
        seen = running.step([rng.randrange(running.n_actions) for _ in range(PLAYERS)])
        if seen.terminated or seen.truncated:
            running = plain_game(game, rng)
        steps += 1
    return steps / (thread_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stag_hunt", description=__doc__)
    parser.add_argument("--copies", type=int, nargs="+", default=[1, 64, 1024])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    given = parser.parse_args()
    print("env-steps per CPU second of one thread; median of the rounds")
    for game in GAMES:
        for copies in given.copies:
            pairs = [
                (native_steps(game, copies, given.seconds), plain_steps(game, given.seconds))
                for _ in range(given.rounds)
            ]
            fast, slow = (statistics.median(side) for side in zip(*pairs, strict=True))
            ratio = statistics.median(a / b for a, b in pairs)
            print(f"{game}, {copies} copies: {fast:,.0f}  plain loop {slow:,.0f}  {ratio:.1f}x")


if __name__ == "__main__":
    main()
