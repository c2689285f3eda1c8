"""`python -m benchmarks.smax`: battles beside JaxMARL's SMAX, alternating; needs the extra `smax`.

256 copies, random available actions, restarts included. SMAX is measured at its best: twenty steps
with drawing of actions, observations, state and masks compiled into one call. CPU seconds of the
process, because JAX computes in threads of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from time import process_time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.battle import COPIES, make
from omg.envs.adapters.smax import SmaxArgs, compiled_battles

MAPS = ("3m", "8m")
STEPS = 20


def ours(name: str, copies: int, *, kernel: bool) -> Callable[[], int]:
    """Makes twenty steps of our battles and says how many that were."""
    env = make(name, copies, kernel=kernel)
    views: list[Any] = [env.reset(0)]
    chances = np.random.default_rng(0).random((STEPS, *views[0].avail.shape), np.float32)

    def run() -> int:
        for chance in chances:
            views[0] = env.step(np.where(views[0].avail, chance, -1).argmax(-1))
        return STEPS * copies

    return run


def theirs(name: str, copies: int) -> Callable[[], int]:
    """The same with SMAX, all in one compiled call."""
    game = compiled_battles(SmaxArgs(map_name=name)).game

    def one(carry: Any, _: Any) -> Any:
        state, key = carry
        key, act, step = jax.random.split(key, 3)
        avail = game.get_avail_actions(state)
        keys = jax.random.split(act, len(game.agents))
        actions = {
            agent: jax.random.categorical(keys[seat], jnp.where(avail[agent] > 0, 0.0, -1e9))
            for seat, agent in enumerate(game.agents)
        }
        obs, state, rewards, done, _ = game.step(step, state, actions)
        return (state, key), (obs, rewards, done["__all__"])

    @jax.jit
    @jax.vmap
    def steps(state: Any, key: Any) -> Any:
        (state, key), seen = jax.lax.scan(one, (state, key), None, STEPS)
        return state, key, seen

    keys = jax.random.split(jax.random.PRNGKey(0), copies)
    held: list[Any] = [jax.vmap(lambda key: game.reset(key)[1])(keys), keys]

    def run() -> int:
        state, key, seen = steps(*held)
        jax.block_until_ready((state, seen))
        held[:] = state, key
        return STEPS * copies

    return run


def speed(run: Callable[[], int], seconds: float) -> float:
    """Environment steps per CPU second."""
    made, start = 0, process_time()
    while process_time() - start < seconds:
        made += run()
    return made / (process_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.smax", description=__doc__)
    parser.add_argument("--maps", nargs="+", default=MAPS)
    parser.add_argument("--copies", type=int, default=COPIES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args()
    print(f"{given.copies} copies, env-steps per CPU second, and their ratio to SMAX's")
    for name in given.maps:
        runs = [
            ours(name, given.copies, kernel=True),
            ours(name, given.copies, kernel=False),
            theirs(name, given.copies),
        ]
        for run in runs:
            run()
        found = [[speed(run, given.seconds) for run in runs] for _ in range(given.rounds)]
        fast, slow, smax = (median(side) for side in zip(*found, strict=True))
        ratios = [median(row[k] / row[2] for row in found) for k in (0, 1)]
        print(
            f"{name}: C {fast:,.0f} ({ratios[0]:.1f}x), NumPy {slow:,.0f} ({ratios[1]:.2f}x), "
            f"SMAX {smax:,.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
