"""`python -m benchmarks.kernels_learning [qmix] [omg]`: the same training with our kernels and with
torch alone.

QMIX-RNN on Foraging-5x5-2p-1f-v3, 30,000 steps, and OMG (`iql_omg`) on Foraging-5x5-2p-2f-v3 beside
a scripted player, 10,000 steps per seat after 4,000 of the prior, three seeds each: the return of
the last test (200 episodes) and the mean over all tests, which says how soon it was learned.
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
from omg.opponents.pool import OpponentPool

SHARED = (
    *("--env-config=foraging", "--test_interval=5000", "--test_nepisode=200", "--lr=0.001"),
    *("--quiet", "--epsilon_anneal_time=10000", "--use_sacred=False", "--use_tensorboard=False"),
    "--runner=batch",
)
QMIX = ("--config=qmix", "--env_args.key=Foraging-5x5-2p-1f-v3", "--t_max=30000")
OMG = ("--config=iql_omg", "--env_args.key=Foraging-5x5-2p-2f-v3", "--prior_kl_weight=0.0001")


def _train(root: Path, name: str, *words: str) -> Path:
    place = (f"--local_results_path={root}", f"--run_name={name}")
    subprocess.check_call([sys.executable, "-m", "omg", "train", *SHARED, *words, *place])
    return root / name


def _qmix(root: Path, *words: str) -> Path:
    return _train(root, "agent", *QMIX, "--save_model=False", *words)


def _omg(root: Path, *words: str) -> Path:
    """A prior, then the agent that learns with it."""
    pool = OpponentPool.create(root / "pool")
    pool.add_script("nearest_food")
    words = (*OMG, f"--opponent_pool={root / 'pool'}", *words)
    prior = _train(root, "prior", "--learner=am_learner", "--t_max=4000", *words)
    return _train(root, "agent", "--t_max=10000", f"--init_param_path={prior}", *words)


CASES = {"qmix": _qmix, "omg": _omg}


def returns(case: str, *, kernels: bool, seed: int) -> list[float]:
    """The returns of a run's tests."""
    with tempfile.TemporaryDirectory() as folder:
        run = CASES[case](Path(folder), f"--seed={seed}", f"--use_kernels={kernels}")
        return [value for _, value, _ in curve(run)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="case")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    given = parser.parse_args()
    for case in given.cases:
        for kernels in (True, False):
            found = [returns(case, kernels=kernels, seed=seed) for seed in given.seeds]
            last = ", ".join(f"{tests[-1]:.2f}" for tests in found)
            whole = ", ".join(f"{mean(tests):.2f}" for tests in found)
            name = "our kernels" if kernels else "torch alone"
            print(f"{case}, {name}: last test {last}; mean of all tests {whole}", flush=True)


if __name__ == "__main__":
    main()
