"""`omg train` and `python main.py`: words to configuration to run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from omg.cli.errors import report_errors, trusting, wants_debug

if TYPE_CHECKING:
    from omg.config.schema import Config
    from omg.experiment.run import RunResult


def train_command(context: typer.Context) -> None:
    """Train, test or evaluate: --config=<alg> --env-config=<env> [--key=value …] [with a.b=c …]"""
    raise typer.Exit(main(context.args))


def main(words: Sequence[str]) -> int:
    """Train or explain; the exit code."""
    if not words or "--help" in words or "-h" in words:
        print(usage(), file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    return report_errors(wants_debug(words), lambda: train(trusting(words)))


def train(words: Sequence[str]) -> RunResult:
    """Run what a command line asks for."""
    from omg.config.arguments import parse_arguments
    from omg.experiment.session import execute, prepare

    config, resumed = prepare(parse_arguments(words))
    result = execute(config, resumed)
    if not config.quiet or config.evaluate:
        _closing_lines(config, result)
    return result


def _closing_lines(config: Config, result: RunResult) -> None:
    from omg.experiment.output import read_metrics

    shown = result.metrics
    records = [shown] if shown else read_metrics(result.folder / "metrics.jsonl")
    whose = "own" if any("test_own_return_mean" in record for record in records) else "team"
    if shown:
        own = f"own return {shown['test_own_return_mean']:.3f}, " if whose == "own" else ""
        print(
            f"Test over {config.test_nepisode} episodes: {own}team return "
            f"{shown['test_return_mean']:.3f} ± {shown['test_return_std']:.3f} (deviation of the "
            f"episodes), {shown['test_ep_length_mean']:.1f} steps per episode"
        )
    else:
        print(f"The run had reached t_max={config.t_max:,} before. Raise t_max to train on.")
    if result.best_return is not None:
        print(f"Best test: {whose} return {result.best_return:.3f} at step {result.best_step:,}")
    print(f"Everything is in {result.folder}")


def usage() -> str:
    from omg.config.loader import available

    return (
        "Usage: omg train --config=<alg> --env-config=<env> [--key=value …] [--flag] "
        "[with a.b=c …]\n"
        f"  alg: {', '.join(available('algs'))}\n"
        f"  env: {', '.join(available('envs'))}\n"
        "  keys: omg config show --config=<alg> --env-config=<env>\n"
        "  --debug: show where an error arose, and check every update for NaN\n"
        "Example: omg train --config=qmix --env-config=foraging "
        "with env_args.key=Foraging-5x5-2p-1f-v3 t_max=100000"
    )
