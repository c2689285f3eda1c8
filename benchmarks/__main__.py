"""`python -m benchmarks [name …]`: print every ratio and write benchmarks/results.json.

Absolute speeds depend on the machine and its load; each comparison alternates both sides several
times and reports the median ratio, with the smallest and largest. `training` compares whole set-ups
(ours: 16 copies, action masks, episodes without padding, Adam; reference: one game, no masks,
padded episodes, RMSprop); `update` compares one update on equal, full-length batches. `omg_*` and
`stacked` compare parts of ours with each other, see `benchmarks.omg`.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import omg, ours, predator_prey, spread
from benchmarks.reference import measure
from benchmarks.reference.episode_data import Sizes, bytes_per_transition

Measure = Callable[[], float]
ROUNDS = 5


def compare(fast: Measure, slow: Measure, *, rounds: int = ROUNDS) -> dict[str, float]:
    """Median speed of both sides and of their ratio, alternating."""
    pairs = [(fast(), slow()) for _ in range(rounds)]
    ratios = sorted(a / b for a, b in pairs)
    return {
        "ours": median(a for a, _ in pairs),
        "reference": median(b for _, b in pairs),
        "ratio": median(ratios),
        "lowest": ratios[0],
        "highest": ratios[-1],
    }


def environment() -> dict[str, float]:
    return compare(lambda: ours.foraging_steps(1024, 1.0), lambda: ours.lbforaging_steps(1.0))


def rollout() -> dict[str, float]:
    return compare(lambda: ours.rollout_steps(256, 1.5), lambda: measure.measure_rollout(1.5))


def training() -> dict[str, float]:
    return compare(
        lambda: ours.training_steps(8.0), lambda: measure.measure_training(episodes=60), rounds=3
    )


def update() -> dict[str, float]:
    return compare(
        lambda: 1 / ours.update_seconds(12), lambda: 1 / measure.measure_update(n=8, state_size=15)
    )


def gru() -> dict[str, float]:
    return compare(lambda: ours.gru_passes(own=True), lambda: ours.gru_passes(own=False))


def storage() -> dict[str, float]:
    sizes = Sizes(n_agents=2, obs_size=15, state_size=15, n_actions=6, episode_limit=50)
    mine, theirs = float(ours.stored_bytes()), float(bytes_per_transition(sizes))
    return {"ours": mine, "reference": theirs, "ratio": mine / theirs}


# name -> (what is compared, unit, wanted ratio, whether a larger ratio is better, measurement)
BENCHMARKS: dict[str, tuple[str, str, float, bool, Callable[[], dict[str, float]]]] = {
    "environment": (
        "Foraging-8x8-2p-3f, 1,024 native copies vs lbforaging",
        "env-steps/s",
        100,
        True,
        environment,
    ),
    "predator_prey": (
        "Predator-Prey 3v1, 1,024 native copies vs mpe2",
        "env-steps/s",
        100,
        True,
        lambda: compare(
            lambda: predator_prey.native_steps(1024, 1.0), lambda: predator_prey.mpe2_steps(1.0)
        ),
    ),
    "spread": (
        "Spread, 3 agents, 1,024 native copies vs mpe2",
        "env-steps/s",
        100,
        True,
        lambda: compare(lambda: spread.native_steps(1024, 1.0), lambda: spread.mpe2_steps(1.0)),
    ),
    "rollout": (
        "recurrent policy, native batch of 256 vs one environment, one forward per step",
        "env-steps/s",
        50,
        True,
        rollout,
    ),
    "training": (
        "QMIX-RNN, batch 32 x 50, hidden 64, one update per episode vs per-step unrolls",
        "env-steps/s",
        4,
        True,
        training,
    ),
    "update": ("one QMIX-RNN update of that size", "updates/s", 1, True, update),
    "gru": ("GRU forward + backward, 64 rows x 51 steps x 64 vs torch's", "passes/s", 1, True, gru),
    "storage": ("stored transition vs PyMARL's layout", "bytes", 0.5, False, storage),
    "omg_update": (
        "OMG update, H = 5, 64 trajectories x 50 vs IQL on the same episodes",
        "µs",
        3,
        False,
        lambda: omg.update()["iql"],
    ),
    "omg_acting": (
        "OMG vs IQL acting in a mixed team, 256 copies, without the environment",
        "env-steps/s",
        0.4,
        True,
        lambda: omg.acting(256)["act"],
    ),
    "omg_rollout": (
        "OMG vs IQL in a mixed team, 256 copies, with environment and storing",
        "env-steps/s",
        0.4,
        True,
        lambda: omg.acting(256)["step"],
    ),
    "stacked": (
        "512 rows of 64 frozen members vs of one member",
        "rows/s",
        0.5,
        True,
        omg.stacked,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of: {', '.join(BENCHMARKS)}; default: all")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="torch threads")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no benchmark called {', '.join(sorted(unknown))}")
    torch_bound = {"training", "update", "gru", "rollout"}
    results: list[dict[str, object]] = []
    table = Table("what", "threads", "unit", "ours", "reference", "ratio", "range", "wanted")
    for name in arguments.names or BENCHMARKS:
        what, unit, wanted, larger, run = BENCHMARKS[name]
        for threads in arguments.threads if name in torch_bound else [1]:
            torch.set_num_threads(threads)
            found = run()
            sign = "≥" if larger else "≤"
            spread = f"{found['lowest']:.2f}-{found['highest']:.2f}" if "lowest" in found else "-"
            row = [f"{found['ours']:,.0f}", f"{found['reference']:,.0f}", f"{found['ratio']:.2f}x"]
            goal = f"{sign} {wanted:g}x" if name not in ("update", "gru") else "-"
            table.add_row(what, str(threads), unit, *row, spread, goal)
            print(f"{name} ({threads} threads): {found['ratio']:.2f}x", flush=True)
            results.append({"name": name, "threads": threads, "unit": unit, **found})
    Console(width=150).print(table)
    out = Path(__file__).with_name("results.json")
    machine = {"machine": platform.machine(), "torch": torch.__version__}
    out.write_text(json.dumps({**machine, "results": results}, indent=2) + "\n", encoding="utf-8")
    print(f"Wrote {out.relative_to(Path.cwd()) if out.is_relative_to(Path.cwd()) else out}")


if __name__ == "__main__":
    main()
