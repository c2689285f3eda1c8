"""`omg demo`: the main job on the embedded default, with its pictures and numbers."""

from __future__ import annotations

import time
from pathlib import Path

from omg.evaluation.curves import draw_curves, label_of, read_curve, sparkline
from omg.main import train

TASK = "Foraging-5x5-2p-1f-v3"
STEPS = 60_000


def run_demo(results: str, *, steps: int = STEPS, seed: int = 1) -> Path:
    """Train QMIX on a small Foraging, draw the learning curve and replays; the run's folder."""
    started = time.monotonic()
    result = train(
        [
            *("--config=qmix", "--env-config=foraging", f"--seed={seed}", f"--t_max={steps}"),
            *(f"--local_results_path={results}", "--save_replay", "--label=demo"),
            *("--test_interval=5000", "--log_interval=5000"),
            *("--runner_log_interval=5000", "--learner_log_interval=5000"),
            *("with", f"env_args.key={TASK}"),
        ]
    )
    curve = read_curve(result.folder, "test_return_mean")
    picture = draw_curves({label_of(result.folder): [result.folder]}, result.folder / "curve.png")
    print()
    print(f"Test return {sparkline(curve.values.tolist())}  {curve.values[0]:.2f} → ", end="")
    print(f"{curve.values[-1]:.2f} (best possible 1.00)")
    print(f"Learning curve: {picture}")
    print(f"Replays:        {result.folder / 'replays'} (open the .svg files in a browser)")
    print(f"Took {time.monotonic() - started:.0f} s")
    return result.folder
