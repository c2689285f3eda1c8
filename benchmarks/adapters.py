"""`python -m benchmarks.adapters`: what the adapters cost beside stepping the games themselves.

Both sides step the same number of copies with the same actions, drawn before, and begin a new
seeded episode where one ends. They alternate in one run, and CPU seconds of this thread are taken.
A neighbour's load slows both sides by more than what is measured here, so rounds are short and
many. The ratio is ours over theirs, the median over the rounds, with its quartiles.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from statistics import median, quantiles
from time import thread_time
from typing import Any

import numpy as np

from omg.envs.adapters.packages import import_foreign, parallel_maker
from omg.envs.registry import make_batched
from omg.types import IntArray

COPIES, STEPS, ROUNDS = 8, 10, 120
# Adapter and env_args.
GAMES = [
    ("pettingzoo", "mpe2:simple_spread_v3"),
    ("pettingzoo", "mpe2:simple_tag_v3"),
    ("gymnasium", "lbforaging:Foraging-8x8-2p-3f-v3"),
    ("gymnasium", "rware:rware-tiny-2ag-v2"),
]
Side = Callable[[IntArray], None]


def _pettingzoo_alone(key: str) -> Side:
    games = [parallel_maker(key)() for _ in range(COPIES)]
    names, seeds = games[0].possible_agents, itertools.count()
    for game in games:
        game.reset(seed=next(seeds))

    def play(actions: IntArray) -> None:
        plan = [[dict(zip(names, row, strict=True)) for row in step] for step in actions.tolist()]
        for step in plan:
            for game, chosen in zip(games, step, strict=True):
                game.step(chosen)
                if not game.agents:
                    game.reset(seed=next(seeds))

    return play


def _gymnasium_alone(key: str) -> Side:
    gymnasium = import_foreign("gymnasium")
    games = [gymnasium.make(key, disable_env_checker=True) for _ in range(COPIES)]
    seeds = itertools.count()
    for game in games:
        game.reset(seed=next(seeds))

    def play(actions: IntArray) -> None:
        for step in actions.tolist():
            for game, chosen in zip(games, step, strict=True):
                _, _, terminated, truncated, _ = game.step(chosen)
                if terminated or truncated:
                    game.reset(seed=next(seeds))

    return play


ALONE: dict[str, Callable[[str], Side]] = {
    "pettingzoo": _pettingzoo_alone,
    "gymnasium": _gymnasium_alone,
}


def _seconds(side: Side, actions: IntArray) -> float:
    start = thread_time()
    side(actions)
    return thread_time() - start


def overhead(adapter: str, key: str, *, rounds: int = ROUNDS) -> dict[str, Any]:
    """Microseconds per step of one copy on both sides, and their ratio."""
    env = make_batched(adapter, {"key": key}, n_copies=COPIES)
    spec, rng = env.spec, np.random.default_rng(0)
    most = env.reset(0).avail[0].sum(axis=-1)

    def ours(actions: IntArray) -> None:
        for step in actions:
            env.step(step)

    theirs = ALONE[adapter](key)
    times: list[tuple[float, float]] = []
    for number in range(rounds + 1):
        actions = rng.integers(0, most, (STEPS, COPIES, spec.n_agents))
        pair: list[Side] = [theirs, ours] if number % 2 else [ours, theirs]
        first, second = (_seconds(side, actions) for side in pair)
        times.append((first, second) if number % 2 else (second, first))
    env.close()
    return _summary(key, times[1:])  # the first round warms up


def _summary(key: str, times: Sequence[tuple[float, float]]) -> dict[str, Any]:
    per_step = 1e6 / (STEPS * COPIES)
    ratios = quantiles([ours / theirs for theirs, ours in times])
    return {
        "key": key,
        "alone": median(theirs for theirs, _ in times) * per_step,
        "adapted": median(ours for _, ours in times) * per_step,
        "ratios": ratios,
    }


def main() -> None:
    print(f"{COPIES} copies, {STEPS} steps, {ROUNDS} rounds, CPU time per step of one copy")
    for adapter, key in GAMES:
        found = overhead(adapter, key)
        low, ratio, high = found["ratios"]
        print(
            f"{key:34s} alone {found['alone']:5.0f} µs  adapted {found['adapted']:5.0f} µs  "
            f"ratio {ratio:.3f} ({low:.3f}-{high:.3f})"
        )


if __name__ == "__main__":
    main()
