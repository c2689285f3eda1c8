"""`omg evaluate` and `omg crossplay`: learning agents against opponents seen and unseen."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer
from rich.console import Console

from omg.cli.console import say, show

if TYPE_CHECKING:
    from omg.evaluation.crossplay_table import Cell, Crossplay
    from omg.evaluation.own_game import OwnGame

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
    False, "--sample", help="agents explore or sample as in training; without it: as tested there"
)
GREEDY = typer.Option(
    False, "--greedy", help="agents take their best action; without it policies (PPO, COMA) sample"
)
REPLAYS = 3
JOBS = typer.Option(1, min=0, help="agents that play at a time; 0: one per core")
SEED = typer.Option(0, help="of the episodes; every agent plays the same ones")


def evaluate(
    run: Path = typer.Argument(help="folder of a run"),
    pool: str = typer.Option("", help="opponent pool; empty: that of the run, if it has one"),
    split: str = typer.Option("", help="seen, validation, unseen, both, all; empty: see docs"),
    episodes: int = typer.Option(200, help="per opponent; of a team: in all"),
    lineup: str = LINEUP,
    which: str = WHICH,
    finetune_episodes: int = FINETUNE,
    seed: int = SEED,
    permute: bool = PERMUTE,
    sample: bool = SAMPLE,
    greedy: bool = GREEDY,
    out: str = typer.Option("", help="folder of the results; empty: <run>/evaluation"),
    replays: int | None = typer.Option(
        None, help=f"native games: episodes written with what was inferred ({REPLAYS} with a pool)"
    ),
) -> None:
    """Test any run. An agent trained with a pool meets every opponent of it; a team plays alone."""
    from omg.evaluation.evaluate import evaluate as play
    from omg.evaluation.own_game import OwnGame, needs_pool

    if replays is None:
        replays = REPLAYS if pool or needs_pool(run, which) else 0
    place = Path(out) if out else run / "evaluation"
    again = (place / "crossplay.json").is_file()
    with progress() as on_cell:
        table = play(
            run,
            pool,
            split=split,
            episodes=episodes,
            lineup=lineup,
            which=which,
            finetune_episodes=finetune_episodes,
            seed=seed,
            permute=permute,
            sample=sample,
            greedy=greedy,
            out=place,
            replays=replays,
            on_cell=on_cell,
        )
    if isinstance(table, OwnGame):
        _print_own_game(table)
        return
    _print_cells(table)
    _print_metrics(table)
    _print_permutation(table)
    sides = {cell.split for cell in table.cells}
    if not split and sides == {"train"}:
        say("Note: the pool has no unseen opponents; these are those of training.")
    if not split and sides == {"validation"}:
        say("Note: these are the pool's validation opponents; --split=unseen plays the others.")
    _print_closing(table, replays)
    if again:
        say(f"The evaluation that was in {place} is replaced; --out=<folder> keeps several.")


def crossplay(
    runs: list[Path] = typer.Argument(help="folders of runs; the seeds of a method share a label"),
    pool: str = POOL,
    split: str = typer.Option("both", help="seen, validation, unseen, both (seen, unseen) or all"),
    episodes: int = typer.Option(100, help="per cell"),
    lineup: str = LINEUP,
    which: str = WHICH,
    finetune_episodes: int = FINETUNE,
    seed: int = SEED,
    permute: bool = PERMUTE,
    sample: bool = SAMPLE,
    greedy: bool = GREEDY,
    metric: str = typer.Option("own_return", help="what is printed and drawn; all are written"),
    baseline: str = typer.Option("", help="method the others are compared to; empty: the first"),
    out: Path = typer.Option(Path("crossplay"), help="folder of the results"),
    replays: int = typer.Option(0, help="native games: replays of each method's first agent"),
    headroom: str = typer.Option("", help="headroom.json, to normalise by; empty: the pool's"),
    jobs: int = JOBS,
) -> None:
    """Play learning agents against all opponents, and compare their methods."""
    from omg.evaluation.evaluate import crossplay as play

    with progress() as on_cell:
        table = play(
            runs,
            pool,
            split=split,
            episodes=episodes,
            lineup=cast(Any, lineup),
            which=which,
            finetune_episodes=finetune_episodes,
            seed=seed,
            permute=permute,
            sample=sample,
            greedy=greedy,
            metric=metric,
            baseline=baseline,
            out=out,
            replays=replays,
            headroom=headroom,
            jobs=jobs,
            on_cell=on_cell,
        )
    normalised = f"normalised_{table.metric}"
    for shown in (table.metric, *(name for name in table.metrics() if name == normalised)):
        _print_summary(table, shown)
    _print_paired(table, table.metric)
    _print_comparisons(table)
    _print_permutation(table)
    _print_closing(table, replays)


@contextlib.contextmanager
def progress() -> Iterator[Callable[[Cell, int], None]]:
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


def _print_own_game(game: OwnGame) -> None:
    from omg.evaluation.words import ACTED, spoken

    rows = [
        (spoken(name), f"{value.mean:.3f}", f"{value.error:.3f}", f"{value.std:.3f}")
        for name, value in game.metrics.items()
    ]
    weights = Path(game.run, "models", game.model)
    say(f"{weights}, trained for {game.env_steps:,} steps")
    title = f"{game.env}, {game.episodes} episodes, {ACTED[game.greedy]}"
    show("metric", "mean", "± (error)", "deviation of episodes", rows=rows, title=title)
    if game.others:
        say(f"The others are those it was trained with: {', '.join(game.others)}.")
    else:
        say("Its policy plays every seat.")
    say(f"Wrote {', '.join(map(str, game.files))}")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _print_cells(table: Crossplay) -> None:
    from omg.evaluation.words import ACTED, SIDES, spoken

    agent, *_ = table.agents
    metrics = table.metrics()
    members = {member.id: member for member in table.opponents}
    rows = []
    for cell in table.cells:
        member = members.get(cell.opponent)
        kind = (member.algorithm, member.skill) if member else ("drawn", "-")
        numbers = [_number(cell.metrics.get(name)) for name in metrics]
        rows.append((cell.opponent, *kind, SIDES[cell.split], *numbers))
    weights = Path(agent.run, "models", agent.model)
    acted = ACTED[table.acted_greedily(agent)]
    title = f"{agent.id}: {weights}, trained for {agent.env_steps:,} steps, {acted}"
    columns = ("opponent", "algorithm", "skill", "side", *map(spoken, metrics))
    if left := show(*columns, rows=rows, title=title, least=5):
        say(f"{left} more columns show in a wider window; all are in crossplay.csv.")


def _print_metrics(table: Crossplay) -> None:
    """Every metric of one agent, over its opponents."""
    from omg.evaluation.words import LINEUPS, SIDES, explained, spoken

    rows = [
        [
            *(spoken(row["metric"]), f"{row['mean']:.3f}", f"{row['iqm']:.3f}"),
            *(SIDES[row["split"]], row["lineup"], str(row["opponents"])),
        ]
        for row in table.summary()
    ]
    columns = ("metric", "mean", "IQM", "side", "line-up", "opponents")
    show(*columns, rows=rows, title=f"{table.agents[0].method}, over opponents")
    for words in (LINEUPS, *explained(table.metrics())):
        say(words)


def _print_summary(table: Crossplay, metric: str) -> None:
    from omg.evaluation.words import SIDES, spoken, value_words

    rows = [
        [
            *(row["method"], SIDES[row["split"]], row["lineup"]),
            *(value_words(row), f"{row['iqm']:.3f}"),
            *(str(row["agents"]), str(row["opponents"])),
        ]
        for row in table.summary()
        if row["metric"] == metric
    ]
    columns = ("method", "side", "line-up", "mean [95 %]", "IQM", "seeds", "opponents")
    title = f"{spoken(metric)}, mean and interquartile mean"
    show(*columns, rows=rows, title=title, whole_names=False)


def _print_paired(table: Crossplay, metric: str) -> None:
    from omg.evaluation.words import SIDES, spoken, value_words

    rows = [
        (
            *(row["method"], SIDES[row["split"]], row["lineup"]),
            *(value_words(row, "difference", sign=True), f"{row['higher']:.2f}"),
        )
        for row in table.paired()
        if row["metric"] == metric
    ]
    if rows:
        title = f"{spoken(metric)}: difference to {table.compared_to}"
        columns = ("method", "side", "line-up", "difference [95 %]", "P(higher)")
        show(*columns, rows=rows, title=title, whole_names=False)


def _print_comparisons(table: Crossplay) -> None:
    from omg.evaluation.comparisons import HOLM, comparison_words, primary_metric
    from omg.evaluation.words import spoken

    titles, rows = comparison_words(table)
    if rows:
        title = f"{spoken(primary_metric(table))}: comparisons"
        show(*titles, rows=rows, title=title, whole_names=False)
        say(HOLM)


def _print_permutation(table: Crossplay) -> None:
    from omg.evaluation.words import PERMUTATION, SIDES, spoken, value_words

    metric = table.permuted_metric()
    rows = [
        (
            *(row.method, SIDES[row.split], row.lineup, f"{row.mean:.3f}", f"{row.permuted:.3f}"),
            value_words(asdict(row), "difference", sign=True),
        )
        for row in table.permutations()
        if row.metric == metric
    ]
    if rows:
        title = f"{spoken(metric)}: permutation test"
        columns = ("method", "side", "line-up", "as it plays", "permuted", "difference [95 %]")
        show(*columns, rows=rows, title=title, whole_names=False)
        say(PERMUTATION)


def _print_closing(table: Crossplay, replays: int) -> None:
    written = table.files
    for note in _notes(table):
        say(f"Note: {note}")
    if replays and not any(path.parent.name == "replays" for path in written):
        from omg.evaluation.subgoal_replay import ENVS

        say(f"Note: replays are written for {', '.join(ENVS)} only.")
    files = [path for path in written if path.parent.name != "replays"]
    say(f"Wrote {', '.join(str(path) for path in files)}")
    if len(written) > len(files):
        say(f"Wrote {len(written) - len(files)} replays in {written[-1].parent}")


def _notes(table: Crossplay) -> list[str]:
    """What a reader of the tables should know."""
    from omg.evaluation.words import FIXED, seed_notes

    counts = [len(ids) for ids in table.methods().values()]
    notes = [*([table.acting()] if len(table.agents) > 1 else []), *table.remarks]
    notes += seed_notes(counts)
    if max(counts) >= 3:
        notes.append(FIXED)
    if len({agent.gamma for agent in table.agents}) > 1:
        notes.append("The discounted return uses each agent's own gamma, and they differ.")
    if table.strangers:
        notes.append(f"Trained with other env_args than the agents: {', '.join(table.strangers)}.")
    return notes
