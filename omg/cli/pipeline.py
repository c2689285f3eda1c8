"""`omg pipeline` and `omg demo`: all stages of a study from one file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from omg.studies.steps import Plan

JOBS = typer.Option(0, min=0, help="commands at a time; 0: one per core")


def pipeline(
    context: typer.Context,
    env_config: str = typer.Option("", "--env-config", "--env_config", help="the environment"),
    pipeline: str = typer.Option("", help="a shipped pipeline or a .yaml file; empty: env-config"),
    out: str = typer.Option("", help="folder of everything; empty: results/<pipeline>"),
    jobs: int = JOBS,
    only: list[str] = typer.Option([], help="these steps and what they need, e.g. 'agents/liam-*'"),
    dry_run: bool = typer.Option(False, "--dry-run", help="print the commands and do nothing"),
    redo: bool = typer.Option(False, "--redo", help="do again what was done with other settings"),
    executor: str = typer.Option("local", help="local: processes here; ray: tasks of Ray"),
    address: str = typer.Option("", help="with ray: auto or host:port of a cluster; empty: here"),
    cpus_per_step: int = typer.Option(0, min=0, help="with ray: CPUs per command; 0: as it needs"),
) -> None:
    """Opponents, pool, priors, agents, cross-play and report: --env-config=<env> [--key=value …]

    What is done is skipped, what was interrupted is resumed. Keys go to every training run.
    """
    from omg.studies.plan import plan_of

    plan = plan_of(env_config=env_config, pipeline=pipeline, out=out, words=context.args)
    whole, plan = plan, plan.only(only) if only else plan
    if dry_run:
        return print_commands(plan)
    from omg.studies.execute import run_pipeline
    from omg.studies.summary import print_result

    run_pipeline(plan, jobs=jobs, redo=redo, executor=executor, address=address, cpus=cpus_per_step)
    if len(plan.steps) < len(whole.steps):
        return print(
            f"{len(plan.steps)} of {len(whole.steps)} steps are done here. Without --only the same "
            f"command does the rest. Everything is in {plan.out}"
        )
    return print_result(plan)


def print_commands(plan: Plan) -> None:
    """A script that does the same as the pipeline, one after the other."""
    stage = ""
    for step in plan.steps:
        if step.stage != stage:
            stage = step.stage
            print(f"# {stage}")
        print("\n".join(step.shown()))


def demo(
    results: str = typer.Option("results", help="where the folder 'demo' is made"),
    jobs: int = JOBS,
    quick: bool = typer.Option(
        False, "--quick", help="every stage in half a minute, to see that it works; learns nothing"
    ),
) -> None:
    """The whole story in five minutes: opponents, prior, OMG and its rivals, cross-play, report."""
    from omg.studies.demo import run_demo

    run_demo(results, jobs=jobs, quick=quick)
