"""`omg train` and `python main.py`: words to configuration to run."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from omg.cli.console import in_lines
from omg.cli.errors import run, trusting, wants_debug

if TYPE_CHECKING:
    from omg.config.arguments import SacredWords
    from omg.config.schema import Config
    from omg.experiment.run import RunResult

# Sacred's -d, alone or among other flags without values.
SHORT_DEBUG = re.compile("-[Depqfu]*d[Ddepqfu]*")


def train_command(context: typer.Context) -> None:
    """Train, test or evaluate: --config=<alg> --env-config=<env> [--key=value …] [with a.b=c …]"""
    raise typer.Exit(main(context.args))


def main(words: Sequence[str]) -> int:
    """Train or explain; the exit code."""
    if not words or "--help" in words or "-h" in words or words[0] == "help":
        print(usage(), file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    debug = wants_debug(words) or any(SHORT_DEBUG.fullmatch(word) for word in words)
    return run(debug, lambda: train(trusting(words)))


def train(words: Sequence[str]) -> RunResult | None:
    """Do what a command line asks for: a run, or one of Sacred's commands."""
    from omg.config.arguments import parse_arguments, split_sacred

    if any(word.startswith("--seeds=") for word in words):
        _train_seeds(words)
        return None
    sacred, rest = split_sacred(words)
    if "loglevel" in sacred.flags:
        _log_from(sacred.flags["loglevel"])
    if sacred.command not in ("", "my_main"):
        _show(sacred, rest)
        return None
    from omg.experiment.sacred import changes, show
    from omg.experiment.session import execute, prepare

    arguments = parse_arguments(rest)
    config, resumed = prepare(arguments)
    if "print-config" in sacred.flags:
        show("print_config", arguments, config)
        print("-" * 79)
    given = changes(arguments, config)[0] if config.use_sacred else {}
    with _debugger() if "pdb" in sacred.flags else contextlib.nullcontext():
        result = execute(config, resumed, words=sacred, given=given)
    if not config.quiet or config.evaluate:
        _closing_lines(config, result)
    return result


def _train_seeds(words: Sequence[str]) -> None:
    """Several runs side by side."""
    from omg.config.arguments import split_sacred
    from omg.studies.seeds import split_seeds, train_seeds
    from omg.types import OmgError

    sacred, _ = split_sacred(words)
    if sacred.command or sacred.flags.keys() - {"debug", "name"}:
        raise OmgError("--seeds goes with keys alone. Leave Sacred's commands and flags out.")
    for line in train_seeds(split_seeds(words)):
        print(in_lines(line, indent="  "))


def _show(sacred: SacredWords, rest: Sequence[str]) -> None:
    """One of Sacred's commands."""
    from dataclasses import replace

    from omg.config.arguments import parse_arguments
    from omg.config.loader import available, load

    arguments = parse_arguments(rest)
    file = "config.json"
    if sacred.command == "save_config":
        named = [str(u.value) for u in arguments.updates if u.path == "config_filename"]
        file = named[-1] if named else file
        kept = tuple(u for u in arguments.updates if u.path != "config_filename")
        arguments = replace(arguments, updates=kept)
    from omg.experiment.checks import check_sacred
    from omg.experiment.sacred import show

    config = load(arguments).config
    check_sacred(sacred, config)
    show(sacred.command, arguments, config, file=file)
    if sacred.command == "print_named_configs":
        print(f"  --config=      {', '.join(available('algs'))}")
        print(f"  --env-config=  {', '.join(available('envs'))}")


def _log_from(level: str) -> None:
    """Show what is logged from a level on, in Sacred's format."""
    from omg.types import OmgError

    number = int(level) if level.isdigit() else logging.getLevelName(level.upper())
    if not isinstance(number, int) or not 0 <= number <= 50:
        raise OmgError(
            f"--loglevel={level} is not possible. Expected: DEBUG, INFO, WARNING, ERROR, CRITICAL "
            "or 0 to 50."
        )
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s - %(name)s - %(message)s"))
    logging.getLogger("omg").handlers = [handler]
    logging.getLogger("omg").setLevel(number or 1)


@contextlib.contextmanager
def _debugger() -> Iterator[None]:
    """Where a run fails, pdb opens there; the failure is reported afterwards."""
    import pdb
    import traceback

    try:
        yield
    except Exception as error:
        traceback.print_exc()
        pdb.post_mortem(error.__traceback__)
        raise


def _closing_lines(config: Config, result: RunResult) -> None:
    from omg.experiment.output import read_metrics

    shown = result.metrics
    records = [shown] if shown else read_metrics(result.folder / "metrics.jsonl")
    whose = "own" if any("test_own_return_mean" in record for record in records) else "team"
    if shown:
        own = f"own return {shown['test_own_return_mean']:.3f}, " if whose == "own" else ""
        tested = (
            f"Test over {config.test_nepisode} episodes: {own}team return "
            f"{shown['test_return_mean']:.3f} ± {shown['test_return_std']:.3f} (deviation of the "
            f"episodes), {shown['test_ep_length_mean']:.1f} steps per episode"
        )
        print(in_lines(tested))
    else:
        print(f"The run had reached t_max={config.t_max:,} before. Raise t_max to train on.")
    if result.best_return is not None:
        print(f"Best test: {whose} return {result.best_return:.3f} at step {result.best_step:,}")
    print(f"Everything is in {result.folder}")


def usage() -> str:
    from omg.config.arguments import SACRED_COMMANDS, SACRED_FLAGS
    from omg.config.loader import available

    flags = [
        (f"  -{flag.short}, --{flag.long + '=…' * flag.valued:<17} {flag.about}", 26)
        for flag in SACRED_FLAGS
        if not flag.refused
    ]
    commands = [(f"  {name:<24} {about}", 27) for name, about in SACRED_COMMANDS.items()]
    lines = [
        ("Usage: omg train --config=<alg> --env-config=<env> [--key=value …] [--flag]", 0),
        ("       [with a.b=c …]", 0),
        ("  --seeds=1:4 [--jobs=2] [--out=<folder>]: these seeds, side by side", 0),
        (f"  alg: {', '.join(available('algs'))}", 7),
        (f"  env: {', '.join(available('envs'))}", 7),
        ("  keys: omg config show --config=<alg> --env-config=<env>", 0),
        ("  --debug: show where an error arose, and check every update for NaN", 0),
        ("Example:", 0),
        ("  omg train --config=qmix --env-config=foraging --t_max=100000", 0),
        ("    with env_args.key=Foraging-5x5-2p-1f-v3", 0),
        ("Sacred's commands, before or after the words above:", 0),
        *(*commands, ("Sacred's flags:", 0), *flags),
    ]
    return "\n".join(in_lines(text, indent=" " * indent) for text, indent in lines)
