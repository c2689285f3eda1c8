"""`python -m benchmarks.kernels_learning`: the same training with our kernels and with torch alone.

QMIX-RNN on Foraging-5x5-2p-1f-v3, 30,000 steps, three seeds each: the return of the last test (200
greedy episodes, the best is 1) and the mean over all tests, which says how soon it was learned.
Rounding differs, so that runs of one seed part ways; over seeds they must not differ.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean

from benchmarks.time_to_quality import curve

WORDS = (
    *("--config=qmix", "--env-config=foraging", "--env_args.key=Foraging-5x5-2p-1f-v3"),
    *("--t_max=30000", "--test_interval=5000", "--test_nepisode=200", "--lr=0.001", "--quiet"),
    *("--epsilon_anneal_time=10000", "--use_sacred=False", "--use_tensorboard=False"),
    *("--runner=batch", "--save_model=False"),
)


def returns(root: Path, *, kernels: bool, seed: int) -> list[float]:
    """The returns of a run's tests."""
    name = f"{kernels}-{seed}"
    place = (f"--local_results_path={root}", f"--run_name={name}", f"--seed={seed}")
    subprocess.check_call(
        [sys.executable, "-m", "omg", "train", *WORDS, *place, f"--use_kernels={kernels}"]
    )
    return [value for _, value, _ in curve(root / name)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for kernels in (True, False):
            found = [returns(Path(folder), kernels=kernels, seed=seed) for seed in given.seeds]
            last = ", ".join(f"{tests[-1]:.2f}" for tests in found)
            whole = ", ".join(f"{mean(tests):.2f}" for tests in found)
            name = "our kernels" if kernels else "torch alone"
            print(f"{name}: last test {last}; mean of all tests {whole}", flush=True)


if __name__ == "__main__":
    main()
