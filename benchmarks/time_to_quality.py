"""`python -m benchmarks.time_to_quality`: minutes of training until a result is reached.

- qmix: `--config=qmix_quick` on Foraging-8x8-2p-2f-coop-v3 until a test of 100 greedy episodes
  returns 0.9 (the best is 1).
- omg: `--config=d3qn_omg_tuned` on the same task beside scripted players, prior included, until a
  test reaches 95 % of the best one of the run (its plateau).

Time is the run's own wall clock, tests included; on a busy machine it is too long. One run each.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from omg.experiment.output import read_metrics

KEY = "--env_args.key=Foraging-8x8-2p-2f-coop-v3"
SHARED = (
    *("--env-config=foraging", KEY, "--quiet", "--use_sacred=False", "--use_tensorboard=False"),
    *("--runner=batch", "--batch_size_run=32", "--test_nepisode=100", "--save_model=False"),
)
SCRIPTS = ("nearest_food", "highest_level", "follow", "random")
Curve = list[tuple[float, float, int]]  # (seconds, test return, environment steps)


def _omg(*words: str) -> None:
    subprocess.check_call([sys.executable, "-m", "omg", *words])


def curve(folder: Path) -> Curve:
    """The tests of a run: when, what and at which step."""
    return [
        (
            float(record["wall_s"]),
            float(record.get("test_own_return_mean", record["test_return_mean"])),
            int(record["t_env"]),
        )
        for record in read_metrics(folder / "metrics.jsonl")
        if "test_return_mean" in record
    ]


def first_at_least(points: Curve, wanted: float) -> tuple[float, float, int] | None:
    """The first test that reaches a value."""
    return next((point for point in points if point[1] >= wanted), None)


def qmix(root: Path, seed: int, steps: int) -> str:
    _omg(
        *("train", "--config=qmix_quick", *SHARED, f"--seed={seed}", f"--t_max={steps}"),
        *("--test_interval=10000", f"--local_results_path={root}", "--run_name=qmix"),
    )
    points = curve(root / "qmix")
    found = first_at_least(points, 0.9)
    last = f"last test {points[-1][1]:.2f} after {points[-1][2]:,} steps"
    if found is None:
        return (
            f"qmix, seed {seed}: 0.9 was not reached; {last} and {points[-1][0] / 60:.1f} minutes"
        )
    return f"qmix, seed {seed}: 0.9 after {found[0] / 60:.1f} minutes, {found[2]:,} steps; {last}"


def omg(root: Path, seed: int, steps: int) -> str:
    pool = root / "pool"
    for script in SCRIPTS:
        _omg("pool", "add", str(pool), f"--script={script}")
    agent = (
        *("--config=d3qn_omg_tuned", *SHARED, f"--opponent_pool={pool}", "--is_agent_shift=True"),
        *("--lr=0.001", "--epsilon_anneal_time=30000", f"--seed={seed}"),
        f"--local_results_path={root}",
    )
    _omg(
        *("train", *agent, "--save_model=True", "--learner=am_learner", "--t_max=30000"),
        *("--updates_per_episode=4", "--prior_kl_weight=0.00001", "--run_name=prior"),
    )
    _omg(
        *("train", *agent, f"--init_param_path={root / 'prior'}", f"--t_max={steps // 2}"),
        *("--test_interval=10000", "--run_name=omg"),
    )
    prior, points = curve(root / "prior")[-1][0], curve(root / "omg")
    best = max(value for _, value, _ in points)
    found = first_at_least(points, 0.95 * best)
    assert found is not None
    return (
        f"omg, seed {seed}: plateau (95 % of {best:.2f}) after {found[0] / 60:.1f} minutes, "
        f"{found[2]:,} steps, and {prior / 60:.1f} minutes for the prior; "
        f"{points[-1][2]:,} steps took {points[-1][0] / 60:.1f}"
    )


CASES: dict[str, tuple[Callable[[Path, int, int], str], int]] = {
    "qmix": (qmix, 300_000),
    "omg": (omg, 400_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"of: {', '.join(CASES)}; default: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, help="environment steps instead of the case's")
    given = parser.parse_args()
    for name in given.cases or CASES:
        run, steps = CASES[name]
        with tempfile.TemporaryDirectory() as root:
            print(run(Path(root), given.seed, given.steps or steps), flush=True)


if __name__ == "__main__":
    main()
