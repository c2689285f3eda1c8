"""`omg sweep`: many settings and seeds side by side, on one machine or a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from omg.studies.sweep.plan import SweepPlan

DRIVER = "omg.integrations.ray.tuning:run_sweep"


def sweep(
    context: typer.Context,
    config: str = typer.Option("", help="the algorithm"),
    env_config: str = typer.Option("", "--env-config", "--env_config", help="the environment"),
    space: str = typer.Option("", help="a shipped sweep or a .yaml file; options add to it"),
    seeds: str = typer.Option("", help="seeds of every configuration: 1:5, or 1,3,4"),
    search: str = typer.Option(
        "", help="grid: every combination; random; optuna. Empty: grid if all keys are grids"
    ),
    samples: int | None = typer.Option(
        None, min=0, help="configurations to draw (each grid with each); 10 by default"
    ),
    draw_seed: int | None = typer.Option(
        None, "--draw-seed", min=0, help="of drawing configurations; 0 by default"
    ),
    scheduler: str = typer.Option("", help="none; asha: stop early; pbt: a population"),
    metric: str = typer.Option("", help="what to compare, of the last test"),
    mode: str = typer.Option("", help="max or min: what is better"),
    out: str = typer.Option("", help="folder of everything; on a cluster one that all nodes see"),
    cpus: float | None = typer.Option(
        None, min=0.0, help="cores of one run; by default its threads and workers"
    ),
    gpus: float | None = typer.Option(None, min=0.0, help="GPUs of one run; 0.5: two share one"),
    jobs: int = typer.Option(0, min=0, help="cores to use here; 0: all (not with --address)"),
    address: str = typer.Option("", help="a Ray cluster: auto or host:port; empty: this machine"),
    grace: int | None = typer.Option(None, min=0, help="asha: steps before a run may be stopped"),
    reduction: float | None = typer.Option(
        None, help="asha: one run in so many goes on; 3 by default"
    ),
    perturb: int | None = typer.Option(None, min=0, help="pbt: steps between two exchanges"),
    max_failures: int | None = typer.Option(
        None,
        "--max-failures",
        min=0,
        help="restarts of a run whose worker or node died; 5 by default",
    ),
    resume: bool = typer.Option(False, "--resume", help="go on with the sweep in --out"),
    dry_run: bool = typer.Option(False, "--dry-run", help="print the commands and do nothing"),
    quiet: bool = typer.Option(False, "--quiet", help="only the result"),
) -> None:
    """Try settings: --config=<alg> --env-config=<env> lr=grid:0.0005,0.001 [--key=value …]

    Search spaces: key=grid:a,b,c (all of them), key=choice:a,b (drawn),
    key=uniform:low,high, loguniform, randint, lograndint. Every configuration
    is trained with every seed. At the end: sweep.csv, sweep.html, and the
    command that trains the best again.
    """
    given: dict[str, Any] = {
        "config": config,
        "env_config": env_config,
        "seeds": seeds,
        "search": search,
        "samples": samples,
        "draw_seed": draw_seed,
        "scheduler": scheduler,
        "metric": metric,
        "mode": mode,
        "cpus": cpus,
        "gpus": gpus,
        "grace": grace,
        "reduction": reduction,
        "perturb": perturb,
        "max_failures": max_failures,
    }
    options = {key: value for key, value in given.items() if value not in (None, "")}
    plan = _plan(context.args, options, space=space, out=out, resume=resume)
    if dry_run:
        _print_commands(plan)
        return
    _check_jobs(address, jobs)
    from omg.registry import load_attribute
    from omg.studies.sweep.summary import finish

    run_sweep = load_attribute(DRIVER)
    try:
        run_sweep(plan, address=address, jobs=jobs or None, resume=resume, quiet=quiet)
    except KeyboardInterrupt:
        if (plan.out / "runs").is_dir():
            finish(plan)
        raise
    for line in finish(plan):
        typer.echo(line)


def _plan(
    words: list[str], options: dict[str, Any], *, space: str, out: str, resume: bool
) -> SweepPlan:
    """What the command line asks for; --resume with --out alone is the sweep in that folder."""
    from omg.studies.sweep.plan import FREE, plan_of, saved_plan
    from omg.types import OmgError, user_path

    if resume and not (words or space or options.keys() - FREE):
        if not out:
            raise OmgError("Which sweep? Give --out=<its folder> with --resume.")
        return saved_plan(Path(user_path(out)).absolute(), options)
    return plan_of(options=options, words=words, space=space, out=out)


def _check_jobs(address: str, jobs: int) -> None:
    from omg.types import OmgError

    if jobs and address:
        raise OmgError(
            "--jobs is for this machine alone; a cluster has the cores it has. Leave it out."
        )


def _print_commands(plan: SweepPlan) -> None:
    """A script that trains the same runs, one after the other."""
    if not plan.configurations:
        typer.echo(f"# Optuna chooses {plan.count} configurations one after the other")
    for index in range(plan.runs if plan.configurations else 0):
        number, seed = plan.place(index)
        typer.echo(plan.full_command(plan.configurations[number], number, seed))
