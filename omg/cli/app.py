"""The `omg` command, put together from its subcommands."""

from __future__ import annotations

import sys

import typer

from omg.cli.choose import choose
from omg.cli.commands import FREE_FORM, Commands
from omg.cli.config import algorithms, config_app
from omg.cli.doctor.command import doctor
from omg.cli.doctor.line import version_of
from omg.cli.envs import envs_app
from omg.cli.errors import report as report_error
from omg.cli.evaluate import crossplay, evaluate
from omg.cli.export import export
from omg.cli.headroom import gap, headroom
from omg.cli.pipeline import demo, pipeline
from omg.cli.pool import pool_app
from omg.cli.report import benchmark, plot, report
from omg.cli.sweep import sweep
from omg.cli.train import train_command

app = Commands("Opponent modelling in multi-agent reinforcement learning.", completion=True)
app.command("train", context_settings={**FREE_FORM, "help_option_names": []})(train_command)
app.command(context_settings=FREE_FORM)(pipeline)
app.command(context_settings=FREE_FORM)(headroom)
app.command(context_settings=FREE_FORM)(sweep)
games = (demo, evaluate, crossplay, gap, choose)
for command in (*games, export, report, plot, benchmark, algorithms, doctor):
    app.command()(command)
for name, group in (("config", config_app), ("envs", envs_app), ("pool", pool_app)):
    app.add_typer(group, name=name)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"omg-marl {version_of('omg-marl') or 'unknown'}")
        raise typer.Exit


@app.callback()
def _top(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True),
) -> None:
    """Opponent modelling in multi-agent reinforcement learning."""


def main() -> None:
    """The command. Where a package that typer needs is missing, `omg doctor` still runs."""
    try:
        app()
    except ImportError as error:
        if sys.argv[1:2] != ["doctor"]:
            raise SystemExit(report_error(error)) from None
        from omg.cli.doctor.__main__ import main as plain_doctor

        raise SystemExit(plain_doctor(sys.argv[2:])) from None
