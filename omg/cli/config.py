"""`omg config` and `omg algorithms`: what can be trained, and with which settings."""

from __future__ import annotations

import typer

from omg.cli.commands import FREE_FORM, Commands
from omg.cli.console import in_lines, show, show_json

config_app = Commands("Configurations.")

TITLES = {
    "a team": "Train a whole team",
    "one agent among others": "Train one agent among others, or agents that model each other",
}


@config_app.command("show", context_settings=FREE_FORM)
def config_show(context: typer.Context) -> None:
    """The merged configuration of a command line, with the origin of each value."""
    from omg.config.loader import load_command_line

    loaded = load_command_line(context.args)
    rows = [(key, repr(value), origin) for key, value, origin in loaded.rows()]
    show("key", "value", "from", rows=rows, title="Configuration")
    from omg.experiment.checks import sanity_check

    sanity_check(loaded.config)  # what `omg train` would refuse


@config_app.command("list")
def config_list() -> None:
    """The shipped algorithm and environment configurations."""
    from omg.config.shipped import available

    for option, kind in (("--config:", "algs"), ("--env-config:", "envs")):
        typer.echo(in_lines(f"{option} {', '.join(available(kind))}", indent="  "))


def algorithms(
    as_json: bool = typer.Option(False, "--json", help="everything about them, for programs"),
) -> None:
    """The shipped algorithms (--config) and what each can do."""
    from omg.catalogue.algorithms import algorithms, as_plain

    known = algorithms()
    if as_json:
        show_json(as_plain(known))
        return
    columns = ("--config", "learning", "reward", "network", "with", "what it is")
    for learns, title in TITLES.items():
        rows = []
        for row in known:
            if row.learns == learns:
                extra = ", ".join(filter(None, (row.opponent_model, row.parts))) or "-"
                rows.append((row.name, row.learning, row.reward, row.network, extra, row.about))
        show(*columns, rows=rows, title=title)
    typer.echo(
        "All act in games with discrete actions and take every network (policy_model=rnn,\nmlp, "
        "idv_rnn); recurrent by default where the network is an rnn."
    )
