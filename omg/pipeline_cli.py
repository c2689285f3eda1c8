"""`omg pipeline`: all stages of a study from one file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from omg.pipeline.steps import Plan


def pipeline(
    context: typer.Context,
    env_config: str = typer.Option("", "--env-config", "--env_config", help="the environment"),
    pipeline: str = typer.Option("", help="a shipped pipeline or a .yaml file; empty: env-config"),
    out: str = typer.Option("", help="folder of everything; empty: results/<pipeline>"),
    jobs: int = typer.Option(0, min=0, help="commands at a time; 0: one per core"),
    dry_run: bool = typer.Option(False, "--dry-run", help="print the commands and do nothing"),
    redo: bool = typer.Option(False, "--redo", help="do again what was done with other settings"),
) -> None:
    """Opponents, pool, priors, agents, cross-play and report: --env-config=<env> [--key=value …]

    What is done is skipped, what was interrupted is resumed. Keys go to every training run.
    """

    def action() -> None:
        from omg.pipeline.plan import plan_of

        plan = plan_of(env_config=env_config, pipeline=pipeline, out=out, words=context.args)
        if dry_run:
            _print_commands(plan)
            return
        from omg.pipeline.execute import run_pipeline
        from omg.pipeline.summary import print_result

        run_pipeline(plan, jobs=jobs, redo=redo)
        print_result(plan)

    raise typer.Exit(_run(action, context.args))


def _run(action: Callable[[], None], words: Sequence[str]) -> int:
    """As `report_errors`; it is imported (and torch with it) only where there is one."""
    try:
        action()
    except KeyboardInterrupt as stop:
        print(f"omg: interrupted. {stop}".rstrip(), file=sys.stderr)
        return 130
    except Exception as error:
        from omg.main import report_errors, wants_debug

        caught = error

        def again() -> None:
            raise caught

        return report_errors(wants_debug(words), again)
    return 0


def _print_commands(plan: Plan) -> None:
    """A script that does the same as the pipeline, one after the other."""
    stage = ""
    for step in plan.steps:
        if step.stage != stage:
            stage = step.stage
            print(f"# {stage}")
        print("\n".join(step.shown()))
