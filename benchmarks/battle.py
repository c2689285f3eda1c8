"""`python -m benchmarks.battle`: how fast battles are, in C and in NumPy; `--scripts`: how often
scripted soldiers win on every map; `--among`: how often a team of one script wins in which one
soldier plays another, which tells what one of many can gain by knowing the others.

Speed: 256 copies, random available actions; observations, states, masks, rewards and restarts are
included, choosing the actions is not. CPU seconds of this thread, alternating, so that a busy
machine disturbs less.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import thread_time
from typing import Any

import numpy as np

from omg.compiled import use_kernels
from omg.envs.battle import BattleEnv
from omg.envs.battle.maps import BATTLES
from omg.opponents import scripted_battle as soldiers
from omg.opponents.scripted_battle import SCRIPTS

MAPS = ("3m", "8m", "27m_vs_30m", "2c_vs_64zg")
COPIES = 256


def make(name: str, copies: int, *, kernel: bool = True, **args: Any) -> BattleEnv:
    """A battle with the C kernel or without it."""
    use_kernels(kernel)
    try:
        return BattleEnv(args={"map_name": name, **args}, n_copies=copies)
    finally:
        use_kernels(True)


def steps_per_second(env: BattleEnv, seconds: float) -> float:
    """Environment steps per CPU second of random play."""
    view: Any = env.reset(0)
    chances = np.random.default_rng(0).random((16, *view.avail.shape), np.float32)
    steps, spent, turn = 0, 0.0, 0
    while spent < seconds:
        actions = np.where(view.avail, chances[turn % 16], -1).argmax(-1)
        start = thread_time()
        view = env.step(actions)
        spent += thread_time() - start
        steps, turn = steps + env.n_copies, turn + 1
    return steps / spent


@dataclass(frozen=True, slots=True)
class Results:
    """Shares of battles that were won, lost and cut off, and their mean length."""

    won: float
    lost: float
    cut: float
    length: float


def play_scripts(
    name: str,
    ours: Sequence[str],
    theirs: Sequence[str] | None = None,
    *,
    episodes: int = 512,
    copies: int = 256,
    seed: int = 0,
    **args: Any,
) -> Results:
    """Battles of our scripts, in the seats in turn, against the scripted enemy or other scripts."""
    given = {"map_name": name, **args, **({"enemies": "seats"} if theirs else {})}
    env, board = BattleEnv(args=given, n_copies=copies), soldiers.board_of(given)
    seats, n_allies = env.spec.n_agents, env.rules.n_allies
    names = [*ours, *(theirs or ())]
    players = [soldiers.make_script(each) for each in names]
    members = np.array(
        [
            seat % len(ours) if seat < n_allies else len(ours) + seat % len(theirs or "x")
            for seat in range(seats)
        ]
    )
    rows, who = np.tile(np.arange(seats), copies), np.tile(members, copies)
    memory = np.zeros((len(rows), soldiers.MEMORY_DIM), np.int64)
    rng, view = np.random.default_rng(seed), env.reset(seed)
    quota = -(-episodes // copies)
    ends, counted, steps = [], np.zeros(copies, np.int64), np.zeros(copies, np.int64)
    while (counted < quota).any():
        state = np.repeat(view.state, seats, 0)
        avail = view.avail.reshape(len(rows), -1)
        actions, memory = soldiers.act_together(
            players, who, state, rows, avail, memory, rng, board
        )
        view = env.step(actions.reshape(copies, seats))
        steps += 1
        over = view.terminated | view.truncated
        # As many of every copy: the first to end would be the short ones.
        for copy in (over & (counted < quota)).nonzero()[0].tolist():
            won = view.info["battle_won"][copy] > 0
            ends.append((won, view.terminated[copy] and not won, view.truncated[copy], steps[copy]))
        counted[over] += 1
        steps[over] = 0
    return Results(*np.array(ends, np.float64).mean(0).tolist())


def print_speed(names: Sequence[str], *, copies: int, seconds: float, rounds: int) -> None:
    print(f"{copies} copies, env-steps per CPU second")
    print(f"{'map':<12}{'C':>12}{'NumPy':>10}{'ratio':>8}")
    for name in names:
        envs = [make(name, copies, kernel=kernel) for kernel in (True, False)]
        pairs = [[steps_per_second(env, seconds) for env in envs] for _ in range(rounds)]
        fast, slow = (median(side) for side in zip(*pairs, strict=True))
        ratio = median(one / other for one, other in pairs)
        print(f"{name:<12}{fast:>12,.0f}{slow:>10,.0f}{ratio:>7.1f}x", flush=True)


def print_scripts(names: Sequence[str], *, episodes: int) -> None:
    scripts = ["random", *(name for name in SCRIPTS if name != "random")]
    print(f"Share of {episodes} battles won; in brackets those cut off by the limit")
    print("| map | " + " | ".join(scripts) + " | attack_nearest on both sides |")
    print("|---" * (len(scripts) + 2) + "|")
    for name in names:
        cells = []
        for script in scripts:
            found = play_scripts(name, [script], episodes=episodes)
            cut = f" ({found.cut:.2f})" if found.cut >= 0.005 else ""
            cells.append(f"{found.won:.2f}{cut}")
        both = play_scripts(name, ["attack_nearest"], ["attack_nearest"], episodes=episodes)
        print(f"| {name} | " + " | ".join(cells) + f" | {both.won:.2f} |", flush=True)


def print_among(names: Sequence[str], *, episodes: int) -> None:
    """One soldier, in the first seat or in the middle one, among others of another script."""
    others = [name for name in SCRIPTS if name != "random"]
    for name in names:
        size = make(name, 1).rules.n_allies
        print(f"{name}: share of {2 * episodes} battles won by {size - 1} of the row's script")
        print("| others | " + " | ".join(SCRIPTS) + " |")
        print("|---" * (len(SCRIPTS) + 1) + "|")
        for script in others:
            cells = []
            for own in SCRIPTS:
                teams = [[script] * size for _ in range(2)]
                teams[0][0] = teams[1][size // 2] = own
                found = [
                    play_scripts(name, team, episodes=episodes, seed=seed).won
                    for seed, team in enumerate(teams)
                ]
                cells.append(f"{sum(found) / 2:.2f}")
            print(f"| {script} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.battle", description=__doc__)
    parser.add_argument("--maps", nargs="+", choices=BATTLES, help="default: four, or all")
    parser.add_argument("--scripts", action="store_true", help="win rates instead of speed")
    parser.add_argument("--among", action="store_true", help="one soldier among others; on 8m")
    parser.add_argument("--episodes", type=int, default=512, help="of each win rate")
    parser.add_argument("--copies", type=int, default=COPIES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each speed measurement")
    given = parser.parse_args()
    if given.among:
        print_among(given.maps or ["8m"], episodes=given.episodes)
    elif given.scripts:
        print_scripts(given.maps or list(BATTLES), episodes=given.episodes)
    else:
        print_speed(
            given.maps or MAPS, copies=given.copies, seconds=given.seconds, rounds=given.rounds
        )


if __name__ == "__main__":
    main()
