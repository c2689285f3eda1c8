"""Which files one training walks through: those of `omg/` in which a function was called.

    python -m benchmarks.walk

An OMG agent is trained for a few steps against a scripted pool, after its prior. It is trained
twice: the second time is watched, from the command line to the metrics, when everything has been
imported and nothing is counted that only importing calls.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

SMALL = (
    *("--env-config=foraging", "--t_max=60", "--batch_size=2", "--batch_size_run=2", "--quiet"),
    *("--test_nepisode=2", "--prior_min_accuracy=0", "--use_sacred=False"),
    *("--use_tensorboard=False", "with", "env_args.max_episode_steps=6"),
)


def walked(words: list[str]) -> list[str]:
    """The files of the package in which functions ran while `omg train` did."""
    import omg
    from omg.cli.train import main as train

    root = str(Path(next(iter(omg.__path__))))
    seen: set[str] = set()

    def watch(frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(root) and code.co_name != "<module>":
            seen.add(code.co_filename[len(root) + 1 :])

    sys.setprofile(watch)
    try:
        train(words)
    finally:
        sys.setprofile(None)
    return sorted(seen)


def main() -> None:
    """Print the files."""
    from omg.cli.train import main as train
    from omg.opponents.pool import OpponentPool

    with tempfile.TemporaryDirectory() as made:
        pool = OpponentPool.create(f"{made}/pool")
        pool.add_script("nearest_food")
        base = ["--config=iql_omg", f"--local_results_path={made}", f"--opponent_pool={made}/pool"]
        train([*base, "--learner=am_learner", "--run_name=prior", *SMALL])
        train([*base, f"--init_param_path={made}/prior", "--run_name=first", *SMALL])
        files = walked([*base, f"--init_param_path={made}/prior", "--run_name=run", *SMALL])
    for name in files:
        print(name)
    print(f"{len(files)} files")


if __name__ == "__main__":
    main()
