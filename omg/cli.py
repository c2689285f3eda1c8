"""The `omg` command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from omg.types import OmgError

app = typer.Typer(
    help="Opponent modelling in multi-agent reinforcement learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
config_app = typer.Typer(help="Configurations.", no_args_is_help=True)
envs_app = typer.Typer(help="Environments.", no_args_is_help=True)
app.add_typer(config_app, name="config")
app.add_typer(envs_app, name="envs")

FREE_FORM = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def _run(action: Callable[[], Any], *, debug: bool = False) -> None:
    from omg.main import report_errors

    raise typer.Exit(report_errors(debug, action))


@app.command(context_settings=FREE_FORM)
def train(context: typer.Context) -> None:
    """Train, test or evaluate: --config=<alg> --env-config=<env> [--key=value …] [with a.b=c …]"""
    from omg.main import main as entry

    if context.args in ([], ["--help"], ["-h"]):
        typer.echo(_usage())
        raise typer.Exit(0 if context.args else 2)
    raise typer.Exit(entry(context.args))


def _usage() -> str:
    from omg.config.loader import available

    return (
        "Usage: omg train --config=<alg> --env-config=<env> [--key=value …] [with a.b=c …]\n"
        f"  alg: {', '.join(available('algs'))}\n"
        f"  env: {', '.join(available('envs'))}\n"
        "  keys: omg config show --config=<alg> --env-config=<env>\n"
        "Example: omg train --config=qmix --env-config=foraging "
        "with env_args.key=Foraging-5x5-2p-1f-v3 t_max=100000"
    )


@config_app.command("show", context_settings=FREE_FORM)
def config_show(context: typer.Context) -> None:
    """The merged configuration of a command line, with the origin of each value."""

    def action() -> None:
        from omg.config.loader import load_command_line

        loaded = load_command_line(context.args)
        table = Table("key", "value", "from", title="Configuration", title_justify="left")
        for key, value in loaded.config.as_dict().items():
            if isinstance(value, dict) and value:
                for inner, leaf in value.items():
                    path = f"{key}.{inner}"
                    table.add_row(path, repr(leaf), loaded.origins.get(path, "?"))
            else:
                table.add_row(key, repr(value), loaded.origins.get(key, "?"))
        width = None if sys.stdout.isatty() else 140
        Console(width=width).print(table)

    _run(action)


@config_app.command("list")
def config_list() -> None:
    """The shipped algorithm and environment configurations."""

    def action() -> None:
        from omg.config.loader import available

        typer.echo(f"--config:     {', '.join(available('algs'))}")
        typer.echo(f"--env-config: {', '.join(available('envs'))}")

    _run(action)


@envs_app.command("list")
def envs_list() -> None:
    """The environments that can be named by `env`."""

    def action() -> None:
        from omg.config.loader import CONFIG_DIR, available, read_yaml
        from omg.envs import ENVS

        configs: dict[str, list[str]] = {}
        for name in available("envs"):
            content = read_yaml(CONFIG_DIR / "envs" / f"{name}.yaml", name)
            configs.setdefault(str(content.get("env")), []).append(name)
        table = Table("env", "--env-config", "what it is")
        for name in ENVS:
            kind = ENVS[name]
            about = (kind.__doc__ or "").strip().splitlines()[0]
            table.add_row(name, ", ".join(configs.get(name, [])) or "-", about)
        Console().print(table)

    _run(action)


@envs_app.command("check", context_settings=FREE_FORM)
def envs_check(
    context: typer.Context,
    env: str = typer.Argument(help="a registered name or package.module:Class"),
) -> None:
    """Run the contract tests on an environment: omg envs check foraging [with key=value …]"""

    def action() -> None:
        from omg.config.arguments import parse_arguments
        from omg.envs.check import check_batched_env
        from omg.envs.registry import BatchFactory

        sys.path.insert(0, str(Path.cwd()))
        arguments = parse_arguments(context.args)
        args = {u.path.removeprefix("env_args."): u.value for u in arguments.updates}
        if not args and ":" not in env:
            args = _default_args(env)
        factory = BatchFactory(env, args)
        results = check_batched_env(lambda *, n_copies, first_copy: factory(first_copy, n_copies))
        table = Table("check", "", "detail", title=f"{env} {args or ''}", title_justify="left")
        for result in results:
            table.add_row(result.name, "ok" if result.ok else "FAILED", result.detail)
        Console().print(table)
        failed = [result.name for result in results if not result.ok]
        if failed:
            raise OmgError(f"{env} breaks the contract in: {', '.join(failed)}.")

    _run(action)


def _default_args(env: str) -> dict[str, Any]:
    from omg.config.loader import CONFIG_DIR, available, read_yaml

    for name in available("envs"):
        content = read_yaml(CONFIG_DIR / "envs" / f"{name}.yaml", name)
        if content.get("env") == env:
            return dict(content.get("env_args") or {})
    return {}


def main() -> None:
    app()
