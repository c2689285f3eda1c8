"""The `omg` command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from omg.doctor_cli import doctor

app = typer.Typer(
    help="Opponent modelling in multi-agent reinforcement learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
config_app = typer.Typer(help="Configurations.", no_args_is_help=True)
app.add_typer(config_app, name="config")
app.command()(doctor)

FREE_FORM = {"allow_extra_args": True, "ignore_unknown_options": True}


def _add_parts() -> None:
    """Commands that have files of their own."""
    from omg.envs_cli import envs_app
    from omg.evaluate_cli import crossplay, evaluate
    from omg.pipeline_cli import pipeline
    from omg.pool_cli import pool_app
    from omg.report_cli import report

    app.add_typer(envs_app, name="envs")
    app.add_typer(pool_app, name="pool")
    for command in (evaluate, crossplay, report):
        app.command()(command)
    app.command(context_settings=FREE_FORM)(pipeline)


_broken: ImportError | None = None
try:
    _add_parts()
except ImportError as error:  # numpy is missing or damaged
    _broken = error


def _run(action: Callable[[], Any], words: Sequence[str] = ()) -> None:
    from omg.main import report_errors, wants_debug

    raise typer.Exit(report_errors(wants_debug(words), action))


def _console() -> Console:
    """Tables as wide as they need to be where no terminal limits them."""
    return Console(width=None if sys.stdout.isatty() else 1000, markup=False, emoji=False)


def _version(wanted: bool) -> None:
    if wanted:
        from omg.run import package_version

        typer.echo(f"omg-marl {package_version()}")
        raise typer.Exit


@app.callback()
def _top(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True),
) -> None:
    """Opponent modelling in multi-agent reinforcement learning."""


@app.command(context_settings={**FREE_FORM, "help_option_names": []})
def train(context: typer.Context) -> None:
    """Train, test or evaluate: --config=<alg> --env-config=<env> [--key=value …] [with a.b=c …]"""
    from omg.main import main as entry

    raise typer.Exit(entry(context.args))


@app.command()
def demo(
    results: str = typer.Option("results", help="where the folder 'demo' is made"),
    jobs: int = typer.Option(0, min=0, help="runs at a time; 0: one per core"),
) -> None:
    """The whole story in five minutes: opponents, prior, OMG and its rivals, cross-play, report."""

    def action() -> None:
        from omg.demo import run_demo

        run_demo(results, jobs=jobs)

    _run(action)


@app.command()
def plot(
    runs: list[Path] = typer.Argument(help="folders of runs; seeds of one task share a line"),
    metric: str = typer.Option("test_return_mean"),
    out: Path = typer.Option(Path("curve.png"), help=".png, .svg or .pdf"),
) -> None:
    """Learning curves of runs, with 95 % bands over seeds."""

    def action() -> None:
        from omg.evaluation.curves import draw_curves, group_runs

        typer.echo(f"Wrote {draw_curves(group_runs(runs), out, metric=metric)}")

    _run(action)


@app.command("algorithms")
def list_algorithms(
    as_json: bool = typer.Option(False, "--json", help="everything about them, for programs"),
) -> None:
    """The shipped algorithms (--config) and what each can do."""

    def action() -> None:
        from omg.algorithms import algorithms, as_plain

        rows = algorithms()
        if as_json:
            import json

            typer.echo(json.dumps(as_plain(rows), indent=2, ensure_ascii=False))
            return
        for learns, title in (
            ("a team", "Train a whole team"),
            ("one agent among others", "Train one agent among others (a pool, or a team string)"),
        ):
            table = Table(
                *("--config", "learning", "reward", "network", "with", "what it is"),
                title=title,
                title_justify="left",
            )
            for row in rows:
                if row.learns == learns:
                    extra = ", ".join(filter(None, (row.opponent_model, row.parts)))
                    table.add_row(
                        row.name, row.learning, row.reward, row.network, extra or "-", row.about
                    )
            _console().print(table)
        typer.echo(
            "All act in games with discrete actions and take every network (policy_model=rnn, "
            "mlp, idv_rnn); recurrent by default where the network is an rnn."
        )

    _run(action)


@config_app.command("show", context_settings=FREE_FORM)
def config_show(context: typer.Context) -> None:
    """The merged configuration of a command line, with the origin of each value."""

    def action() -> None:
        from omg.config.loader import load_command_line

        table = Table("key", "value", "from", title="Configuration", title_justify="left")
        for key, value, origin in load_command_line(context.args).rows():
            table.add_row(key, repr(value), origin)
        _console().print(table)

    _run(action, context.args)


@config_app.command("list")
def config_list() -> None:
    """The shipped algorithm and environment configurations."""

    def action() -> None:
        from omg.config.loader import available

        typer.echo(f"--config:     {', '.join(available('algs'))}")
        typer.echo(f"--env-config: {', '.join(available('envs'))}")

    _run(action)


def main() -> None:
    """The command; where a needed package cannot be imported, `omg doctor` still runs."""
    try:
        if _broken is not None:
            raise _broken
        app()
    except ImportError as error:
        if sys.argv[1:2] == ["doctor"]:
            from omg.doctor.__main__ import main as plain_doctor

            raise SystemExit(plain_doctor(sys.argv[2:])) from None
        print(
            f"omg: a needed package cannot be imported: {error}. 'omg doctor' says what is "
            "missing and what to do.",
            file=sys.stderr,
        )
        raise SystemExit(1) from None
