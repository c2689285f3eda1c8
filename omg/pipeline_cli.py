"""`omg pipeline`: all stages of a study from one file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from omg.types import OmgError

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
        plan = _plan(env_config, pipeline, out, context.args)
        if dry_run:
            _print_commands(plan)
            return
        from omg.pipeline.execute import run_pipeline

        run_pipeline(plan, jobs=jobs, redo=redo)
        _print_result(plan)

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


def _plan(env_config: str, pipeline: str, out: str, words: Sequence[str]) -> Plan:
    from omg.config.loader import available
    from omg.pipeline.plan import Source, make_plan
    from omg.pipeline.spec import KIND, find_pipeline, read_spec

    if not (pipeline or env_config):
        raise OmgError(
            "Which pipeline? Give --env-config=<env> or --pipeline=<name or file>; shipped: "
            f"{', '.join(available(KIND))}."
        )
    path, shown = find_pipeline(pipeline or env_config)
    spec = read_spec(path, shown)
    env = env_config or spec.env_config
    if not env:
        raise OmgError(f"{shown} names no env_config. Give --env-config=<env>.")
    name = path.stem if env in (spec.env_config, path.stem) else f"{path.stem}-{Path(env).stem}"
    folder = Path(out or f"results/{name}").expanduser()
    source = Source(name=name, shown=shown, spec=spec, env_config=env, out=folder, words=words)
    return make_plan(source)


def _print_commands(plan: Plan) -> None:
    """A script that does the same as the pipeline, one after the other."""
    stage = ""
    for step in plan.steps:
        if step.stage != stage:
            stage = step.stage
            print(f"# {stage}")
        print("\n".join(step.shown()))


def _print_result(plan: Plan) -> None:
    from rich.console import Console

    from omg.pipeline.summary import summary_table

    if plan.spec.crossplay is not None:
        width = None if sys.stdout.isatty() else 1000
        table = summary_table(plan.out / "crossplay.json", plan.spec.crossplay.metric)
        Console(width=width, markup=False, emoji=False, highlight=False).print(table)
    if plan.spec.report:
        print(f"The report is {plan.out / 'report.html'}")
    print(f"Everything is in {plan.out}")
