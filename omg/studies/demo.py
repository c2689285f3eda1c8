"""`omg demo`: the whole story on the embedded default; the pipeline `demo` with its report."""

from __future__ import annotations

import time
from pathlib import Path

NAME = "demo"
QUICK = "tiny"  # every stage in seconds


def run_demo(results: str, *, jobs: int = 0, quick: bool = False) -> Path:
    """Opponents, pool, prior, five learning agents, cross-play and report; the report's path. What
    is done already is skipped. `quick`: so short that nothing is learned."""
    from omg.studies.execute import run_pipeline
    from omg.studies.plan import plan_of
    from omg.studies.summary import print_result

    started = time.monotonic()
    name = f"{NAME}-quick" if quick else NAME
    plan = plan_of(pipeline=QUICK if quick else NAME, out=str(Path(results) / name))
    run_pipeline(plan, jobs=jobs)
    print_result(plan)
    minutes, seconds = divmod(round(time.monotonic() - started), 60)
    print(f"Took {minutes} min {seconds} s")
    return plan.out / "report.html"
