"""`omg headroom` and `omg gap`: what there is to gain from knowing the others."""

from __future__ import annotations

from pathlib import Path

import typer

from omg.cli.console import show
from omg.cli.evaluate import GREEDY, POOL, SAMPLE, SEED, WHICH, progress
from omg.cli.evaluate import JOBS as PLAYING
from omg.cli.pipeline import JOBS, print_commands


def headroom(
    context: typer.Context,
    env_config: str = typer.Option("", "--env-config", "--env_config", help="the environment"),
    pipeline: str = typer.Option("", help="a shipped pipeline or a .yaml file; empty: env-config"),
    out: str = typer.Option("", help="folder of everything; empty: results/<pipeline>"),
    jobs: int = JOBS,
    dry_run: bool = typer.Option(False, "--dry-run", help="print the commands and do nothing"),
    redo: bool = typer.Option(False, "--redo", help="do again what was done with other settings"),
) -> None:
    """What a study can gain: plain, control, oracle, the best response to each opponent alone.

    Does the part of a pipeline that this needs; 'omg pipeline' with the same folder does the rest.
    """
    from omg.studies.plan import plan_of
    from omg.types import OmgError

    whole = plan_of(
        env_config=env_config, pipeline=pipeline, out=out, words=context.args, headroom=True
    )
    if whole.spec is None:
        raise OmgError("A benchmark of teams has no opponents to gain from. Give a study.")
    plan = whole.until("headroom")
    if dry_run:
        return print_commands(plan)
    from omg.studies.execute import run_pipeline
    from omg.studies.summary import print_headroom

    run_pipeline(plan, jobs=jobs, redo=redo)
    return print_headroom(plan)


def gap(
    runs: list[Path] = typer.Argument(help="folders of runs: plain agents, oracles … responses"),
    plain: str = typer.Option(help="what the plain agent is called (its label)"),
    control: str = typer.Option("", help="the control"),
    oracle: str = typer.Option("", help="the oracle"),
    pool: str = POOL,
    episodes: int = typer.Option(100, help="per agent and opponent"),
    metric: str = typer.Option("own_return", help="what is printed; all are written"),
    seed: int = SEED,
    sample: bool = SAMPLE,
    greedy: bool = GREEDY,
    which: str = WHICH,
    out: Path = typer.Option(Path("headroom"), help="folder of the results"),
    jobs: int = PLAYING,
) -> None:
    """Measure headroom with runs that are trained already.

    A run with opponent_members=[one member] is the best response to it.
    """
    from omg.evaluation.gap import measure_headroom
    from omg.evaluation.headroom import COLUMNS, closing_words, opponent_words
    from omg.evaluation.words import spoken

    names = {"plain": plain, "control": control, "oracle": oracle}
    with progress() as on_cell:
        found = measure_headroom(
            runs,
            pool,
            names=names,
            metric=metric,
            episodes=episodes,
            seed=seed,
            sample=sample,
            greedy=greedy,
            which=which,
            out=out,
            jobs=jobs,
            on_cell=on_cell,
        )
    title = f"{spoken(found.metric)}: headroom"
    show(*COLUMNS, rows=opponent_words(found), title=title, whole_names=False)
    for sentence in closing_words(found):
        typer.echo(sentence)
    typer.echo(f"Wrote {out / 'headroom.json'} and {out / 'headroom.csv'}")
