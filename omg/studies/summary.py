"""The cross-play's result as tables: every method against opponents seen and unseen."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from omg.evaluation.comparisons import HOLM, comparison_words, primary_metric
from omg.evaluation.crossplay_table import Crossplay
from omg.evaluation.gap import FILE, read_headroom
from omg.evaluation.headroom import COLUMNS as HEADROOM
from omg.evaluation.headroom import closing_words, opponent_words, warnings
from omg.evaluation.words import PERMUTATION, SIDES, seed_notes, spoken, value_words
from omg.experiment.output import wrapped
from omg.opponents.unseen import looks_in, looks_words
from omg.report.formats import read_crossplay
from omg.studies.steps import Plan


def print_result(plan: Plan) -> None:
    """The result tables, and where everything lies."""
    if plan.spec is None:
        print(f"The table is {plan.out / 'benchmark.csv'}; to see it: omg benchmark {plan.out}")
        return
    if plan.spec.headroom is not None:
        for sentence in warnings(read_headroom(plan.out / FILE)):
            _say(sentence)
    if plan.spec.crossplay is not None:
        console = _console()
        found = read_crossplay(plan.out / "crossplay.json")
        console.print(summary_table(found, plan.spec.crossplay.metric))
        titles, compared = comparison_words(found)
        if compared:
            title = f"{spoken(primary_metric(found))} (primary metric), comparisons"
            table = Table(*titles, title=title, title_justify="left")
            for row in compared:
                table.add_row(*row)
            console.print(table)
            _say(HOLM)
        if found.permutations():
            console.print(permutation_table(found))
            _say(PERMUTATION)
        for line in steps_lines(found):
            _say(line)
        if said := looks_words(looks_in(plan.out)):
            _say(said)
        for note in seed_notes([len(ids) for ids in found.methods().values()]):
            print(note)
    if plan.spec.report:
        print(f"The report is {plan.out / 'report.html'}")
    print(f"Everything is in {plan.out}")


def _say(text: str) -> None:
    print("\n".join(wrapped(text, _console().width)))


def print_headroom(plan: Plan) -> None:
    """What there is to gain, and where it was written."""
    found = read_headroom(plan.out / FILE)
    table = Table(*HEADROOM, title=f"{spoken(found.metric)}: headroom", title_justify="left")
    for row in opponent_words(found):
        table.add_row(*row)
    _console().print(table)
    for sentence in closing_words(found):
        _say(sentence)
    print(f"Wrote {plan.out / FILE} and {plan.out / 'headroom.csv'}")


def _console() -> Console:
    told = os.environ.get("COLUMNS", "")
    piped = int(told) if told.isdecimal() and int(told) > 0 else 80
    width = None if sys.stdout.isatty() else piped
    return Console(width=width, markup=False, emoji=False, highlight=False)


def steps_lines(found: Crossplay) -> list[str]:
    """The steps of the methods that began with a prior, its own included."""
    most: dict[str, tuple[int, int]] = {}
    for agent in found.agents:
        if agent.prior_steps and agent.total_steps:
            most[agent.method] = max(
                most.get(agent.method, (0, 0)), (agent.total_steps, agent.prior_steps)
            )
    return [
        f"{method}: {total:,} steps per agent, of which its prior took {prior:,}"
        for method, (total, prior) in most.items()
    ]


def summary_table(found: Crossplay, metric: str) -> Table:
    """Mean and 95 % interval of a metric per method (rows), side and kind of line-up (columns)."""
    rows = [row for row in found.summaries() if row.metric == metric]
    cells = {(r.method, r.split, r.lineup): value_words(asdict(r)) for r in rows}
    interval = " and 95 % interval" if any(row.mean_low is not None for row in rows) else ""
    return _table(cells, f"{spoken(metric)}, mean{interval}")


def permutation_table(found: Crossplay) -> Table:
    """What every method that infers something loses when it is fed another episode's inference."""
    metric = found.permuted_metric()
    cells = {
        (r.method, r.split, r.lineup): value_words(asdict(r), "difference", sign=True)
        for r in found.permutations()
        if r.metric == metric
    }
    return _table(cells, f"{spoken(metric)}, change in the permutation test")


def _table(cells: dict[tuple[str, str, str], str], title: str) -> Table:
    splits = [split for split in SIDES if any(split == side for _, side, _ in cells)]
    columns = [(split, kind) for split in splits for kind in _kinds(cells, split)]
    table = Table("method", title=title, title_justify="left")
    for split, kind in columns:
        several = len(_kinds(cells, split)) > 1
        table.add_column(SIDES[split] + (f", {kind}" if several else ""))
    for method in dict.fromkeys(method for method, _, _ in cells):
        table.add_row(method, *(cells.get((method, *column), "-") for column in columns))
    return table


def _kinds(cells: dict[tuple[str, str, str], str], split: str) -> list[str]:
    return list(dict.fromkeys(kind for _, side, kind in cells if side == split))
