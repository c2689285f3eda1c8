"""The kind of command that `omg` is made of: takes --debug, reports its errors in sentences."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from omg.cli.errors import run, trusting, wants_debug

# Settings of a command that takes configuration keys: --key=value … with a.b=c …
FREE_FORM = {"allow_extra_args": True, "ignore_unknown_options": True}
DEBUG = "omg.debug"
HELP = (
    "--debug, anywhere on the command line, shows where an error arose. --trust=module lets a "
    "saved run or pool name code of your own."
)

Function = TypeVar("Function", bound=Callable[..., Any])


def _without_debug(context: Any, words: list[str]) -> list[str]:
    """The words without --debug, which the context remembers."""
    end = words.index("--") if "--" in words else len(words)
    asked = [word.startswith("--") and wants_debug([word]) for word in words[:end]]
    context.meta[DEBUG] = context.meta.get(DEBUG, False) or any(asked)
    kept = [word for word, taken in zip(words[:end], asked, strict=True) if not taken]
    return [*kept, *words[end:]]


class TidyHelp:
    """Help whose flags name no type, and whose lines end in no spaces where it goes to a pipe."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        for option in self.get_params(ctx):  # type: ignore[attr-defined]
            if getattr(option, "is_flag", False):
                option.metavar = ""
        if sys.stdout.isatty():
            super().format_help(ctx, formatter)  # type: ignore[misc]
            return
        with contextlib.redirect_stdout(io.StringIO()) as text:
            super().format_help(ctx, formatter)  # type: ignore[misc]
        print("\n".join(line.rstrip() for line in text.getvalue().splitlines()))


class Command(TidyHelp, TyperCommand):
    """A command that takes --debug and whose failures become sentences and exit codes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """--debug may stand anywhere; among configuration keys it is one of them, and stays."""
        args = trusting(args)
        if ctx.ignore_unknown_options:
            args = [*args, "--debug"] if ctx.meta.get(DEBUG) else args
            ctx.meta[DEBUG] = wants_debug(args)
        else:
            args = _without_debug(ctx, args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        invoke = super().invoke
        computes = self.name != "doctor"  # which tells what is wrong with the machine
        raise typer.Exit(run(ctx.meta[DEBUG], lambda: invoke(ctx), computes=computes))


class Group(TidyHelp, TyperGroup):
    """Commands under one name; --debug before a command's name is handed on to it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        first = next((i for i, word in enumerate(args) if not word.startswith("-")), len(args))
        return super().parse_args(ctx, [*_without_debug(ctx, args[:first]), *args[first:]])


class Commands(typer.Typer):
    """A typer app whose commands all are of this kind."""

    def __init__(self, help: str, *, completion: bool = False) -> None:
        super().__init__(
            help=help,
            epilog=HELP,
            cls=Group,
            no_args_is_help=True,
            add_completion=completion,
            pretty_exceptions_enable=False,
        )

    def command(self, *args: Any, **settings: Any) -> Callable[[Function], Function]:
        return super().command(*args, cls=Command, epilog=HELP, **settings)
