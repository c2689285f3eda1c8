"""`omg evaluate` and `omg crossplay`: learning agents against opponents seen and unseen."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer
from rich.console import Console
from rich.table import Table

from omg.types import OmgError

if TYPE_CHECKING:
    from omg.evaluation.crossplay import Plan
    from omg.evaluation.crossplay_table import Cell, Crossplay
    from omg.opponents.pool import Split

SIDES = {"train": ("train",), "heldout": ("heldout",), "both": ("train", "heldout")}

POOL = typer.Option("", help="opponent pool; empty: the one the (first) run was trained with")
LINEUP = typer.Option(
    "auto", help="homologue, mixed, both, or auto: both with three players or more"
)
WHICH = typer.Option("last", help="weights: last, best or a saved step")
FINETUNE = typer.Option(0, help="train on for so many episodes against each opponent first")
PERMUTE = typer.Option(
    False, "--permute", help="play again with what was inferred in other episodes (permuted_*)"
)
SAMPLE = typer.Option(
    False, "--sample", help="agents explore or sample as in training; without it they are greedy"
)
SEED = typer.Option(0, help="of the episodes; every agent plays the same ones")


def _run(action: Callable[[], Any]) -> None:
    from omg.main import report_errors

    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # environments of the user, by import path
    raise typer.Exit(report_errors(False, action))


def evaluate(
    run: Path = typer.Argument(help="folder of a learning agent's run"),
    pool: str = POOL,
    split: str = typer.Option("heldout", help="train, heldout or both"),
    episodes: int = typer.Option(200, help="per opponent"),
    lineup: str = LINEUP,
    which: str = WHICH,
    finetune_episodes: int = FINETUNE,
    seed: int = SEED,
    permute: bool = PERMUTE,
    sample: bool = SAMPLE,
    out: str = typer.Option("", help="folder of the results; empty: <run>/evaluation"),
    replays: int = typer.Option(3, help="Foraging: episodes written with the inferred subgoals"),
) -> None:
    """Test one learning agent against every opponent of a pool."""

    def action() -> None:
        plan = _plan(split, lineup, episodes, finetune_episodes, seed, which, permute, sample)
        folder = Path(out) if out else run / "evaluation"
        table, written = _carry_out([run], pool, plan, folder, replays=replays)
        _print_cells(table)
        _print_summary(table, table.metrics())
        _print_closing(table, written)

    _run(action)


def crossplay(
    runs: list[Path] = typer.Argument(help="folders of runs; the seeds of a method share a label"),
    pool: str = POOL,
    split: str = typer.Option("both", help="train, heldout or both"),
    episodes: int = typer.Option(100, help="per cell"),
    lineup: str = LINEUP,
    which: str = WHICH,
    finetune_episodes: int = FINETUNE,
    seed: int = SEED,
    permute: bool = PERMUTE,
    sample: bool = SAMPLE,
    metric: str = typer.Option("own_return", help="what is printed and drawn; all are written"),
    baseline: str = typer.Option("", help="method the others are compared to; empty: the first"),
    out: Path = typer.Option(Path("crossplay"), help="folder of the results"),
    replays: int = typer.Option(0, help="Foraging: subgoal replays of each method's first agent"),
) -> None:
    """Play learning agents against all opponents, and compare their methods."""

    def action() -> None:
        plan = _plan(split, lineup, episodes, finetune_episodes, seed, which, permute, sample)
        table, written = _carry_out(
            runs, pool, plan, out, replays=replays, metric=metric, baseline=baseline
        )
        _print_summary(table, [metric])
        _print_paired(table, metric)
        _print_closing(table, written)

    _run(action)


def _plan(
    split: str,
    lineup: str,
    episodes: int,
    finetune: int,
    seed: int,
    which: str,
    permute: bool,
    sample: bool,
) -> Plan:
    from omg.evaluation.crossplay import Plan

    if split not in SIDES:
        raise OmgError(f"split={split} is not known. Choose {', '.join(SIDES)}.")
    return Plan(
        splits=cast("tuple[Split, ...]", SIDES[split]),
        lineup=cast(Any, lineup),
        episodes=episodes,
        finetune_episodes=finetune,
        seed=seed,
        which=which,
        permute=permute,
        greedy=not sample,
    )


def _carry_out(
    runs: Sequence[Path],
    pool: str,
    plan: Plan,
    out: Path,
    *,
    replays: int,
    metric: str = "own_return",
    baseline: str = "",
) -> tuple[Crossplay, list[Path]]:
    """Play everything and write all files; those written. A metric that does not exist is refused
    when the numbers are safe."""
    from omg.evaluation.crossplay import read_agents, run_crossplay
    from omg.evaluation.crossplay_files import (
        check_metric,
        draw_heat_map,
        prepare_folder,
        write_tables,
    )

    if replays < 0:
        raise OmgError(f"replays={replays} is not possible. Use 0 or more.")
    read_agents(runs, plan.which)  # what is no agent is refused before a folder is made
    folder = prepare_folder(out)
    with _progress() as on_cell:
        table = run_crossplay(runs, pool, plan, baseline=baseline, on_cell=on_cell)
    written = write_tables(table, folder)
    check_metric(table, metric)
    written.append(draw_heat_map(table, folder / "crossplay.png", metric=metric))
    return table, written + _replays(table, pool, plan, folder / "replays", replays)


def _replays(table: Crossplay, pool: str, plan: Plan, folder: Path, count: int) -> list[Path]:
    """Replays of each method's first agent, against held-out opponents where there are any."""
    from omg.evaluation.crossplay import open_pool
    from omg.evaluation.subgoal_replay import ENV, clear_replays, write_subgoal_replays

    first, *_ = table.agents.values()
    if count and first.config.env != ENV:
        typer.echo(f"Note: replays with subgoals are written for env={ENV} only.")
    if not count or first.config.env != ENV:
        return []
    clear_replays(folder)
    opened = open_pool(pool, first)
    members = opened.members("heldout") or table.opponents
    return [
        path
        for agent_id, *_ in table.methods().values()
        for path in write_subgoal_replays(
            agent_id,
            table.agents[agent_id],
            opened,
            members,
            folder,
            count=count,
            seed=plan.seed,
        )
    ]


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[Cell, int], None]]:
    """A live line on stderr where that is a terminal; nothing otherwise."""
    if not sys.stderr.isatty():
        yield lambda cell, total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("cells"),
        BarColumn(24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[now]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as live:
        task = live.add_task("cells", total=None, now="")

        def on_cell(cell: Cell, total: int) -> None:
            now = f"{cell.agent} against {cell.opponent}"
            live.update(task, total=total, advance=1, now=now)

        yield on_cell


def _console() -> Console:
    """Tables as wide as they need to be where no terminal limits them."""
    width = None if sys.stdout.isatty() else 1000
    return Console(width=width, markup=False, emoji=False, highlight=False)


def _table(*columns: str, title: str) -> Table:
    table = Table(*columns, title=title, title_justify="left")
    for column in table.columns:
        column.overflow = "fold"  # in a narrow window an id must stay readable
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _interval(row: dict[str, Any], value: str, low: str, high: str) -> str:
    return f"{row[value]:.3f} [{row[low]:.3f}, {row[high]:.3f}]"


def _print_cells(table: Crossplay) -> None:
    (agent_id, agent), *_ = table.agents.items()
    title = f"{agent_id}: {agent.model}, trained for {agent.env_steps:,} steps"
    metrics = table.metrics()
    shown = _table("opponent", "algorithm", "skill", "split", *metrics, title=title)
    members = {member.id: member for member in table.opponents}
    for cell in table.cells:
        member = members.get(cell.opponent)
        shown.add_row(
            cell.opponent,
            member.algorithm if member else "drawn",
            member.skill if member else "-",
            cell.split,
            *(_number(cell.metrics.get(name)) for name in metrics),
        )
    _console().print(shown)


def _print_summary(table: Crossplay, metrics: Sequence[str]) -> None:
    title = f"{metrics[0]}, mean and interquartile mean" if len(metrics) == 1 else "Summary"
    columns = ["method", "split", "line-up", "mean [95 %]", "IQM [95 %]", "seeds", "opponents"]
    if len(metrics) > 1:
        columns.insert(0, "metric")
    shown = _table(*columns, title=title)
    for row in table.summary():
        if row["metric"] not in metrics:
            continue
        shown.add_row(
            *([row["metric"]] if len(metrics) > 1 else []),
            *(row["method"], row["split"], row["lineup"]),
            _interval(row, "mean", "mean_low", "mean_high"),
            _interval(row, "iqm", "iqm_low", "iqm_high"),
            *(str(row["agents"]), str(row["opponents"])),
        )
    _console().print(shown)


def _print_paired(table: Crossplay, metric: str) -> None:
    rows = [row for row in table.paired() if row["metric"] == metric]
    if not rows:
        return
    title = f"{metric}: difference to {table.baseline}"
    shown = _table("method", "split", "line-up", "difference [95 %]", "seeds", title=title)
    for row in rows:
        shown.add_row(
            *(row["method"], row["split"], row["lineup"]),
            _interval(row, "difference", "low", "high"),
            "drawn jointly" if row["same_seeds"] else "differ: drawn independently",
        )
    _console().print(shown)


def _print_closing(table: Crossplay, written: Sequence[Path]) -> None:
    for note in _notes(table):
        typer.echo(f"Note: {note}")
    files = [path for path in written if path.parent.name != "replays"]
    typer.echo(f"Wrote {', '.join(str(path) for path in files)}")
    if len(written) > len(files):
        typer.echo(f"Wrote {len(written) - len(files)} replays in {written[-1].parent}")


def _notes(table: Crossplay) -> list[str]:
    """What a reader of the tables should know."""
    notes = []
    agents = list(table.agents.values())
    if any(len(ids) == 1 for ids in table.methods().values()):
        notes.append("with one seed an interval covers the choice of opponents only.")
    if any(len(table.columns(split, lineup)) == 1 for split, lineup in table.blocks()):
        notes.append("with one opponent an interval covers the choice of seeds only.")
    if len({agent.config.gamma for agent in agents}) > 1:
        notes.append("discounted_return uses each agent's own gamma, and they differ.")
    game = agents[0].config.as_dict()["env_args"]
    other = [m.id for m in table.opponents if m.env_args and dict(m.env_args) != game]
    if other:
        notes.append(f"trained with other env_args than the agents: {', '.join(other)}.")
    return notes
