"""`python -m benchmarks.subgoal_course <agent run> …`: how inference went in training.

One line per run that infers subgoals, from its metrics.jsonl: hit ratio and own return of every
test, and at the end the chosen steps ahead, KL, reconstruction and active dimensions. As CSV.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from omg.experiment.output import read_metrics


def course(run: Path) -> dict[str, str]:
    """The columns of one run."""
    records = read_metrics(run / "metrics.jsonl")
    tests = [r for r in records if "test_hit_ratio_mean" in r]
    last = [r for r in records if "subgoal_k1" in r][-1]
    shares = sorted(key for key in last if key.startswith("subgoal_k"))
    joined = {
        "steps": [f"{r['t_env']:.0f}" for r in tests],
        "hit_ratio": [f"{r['test_hit_ratio_mean']:.3f}" for r in tests],
        "own_return": [f"{r['test_own_return_mean']:.2f}" for r in tests],
        "chosen_k": [f"{last[key]:.2f}" for key in shares],
    }
    single = {key: f"{last[key]:.4g}" for key in ("am_kl", "am_recon", "am_active_dims")}
    return {"run": run.name, **{k: " ".join(v) for k, v in joined.items()}, **single}


def main() -> None:
    rows = [course(Path(word)) for word in sys.argv[1:]]
    if not rows:
        sys.exit(__doc__)
    writer = csv.DictWriter(sys.stdout, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)


if __name__ == "__main__":
    main()
