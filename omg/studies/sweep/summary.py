"""The end of a sweep: its files, and what is printed."""

from __future__ import annotations

from collections.abc import Sequence

from omg.evaluation.words import seed_notes, spoken_log
from omg.report.html import decimals, interval, number
from omg.report.sweep import write_sweep_page
from omg.report.sweep_charts import SweepPage, SweepRow
from omg.studies.display import duration
from omg.studies.sweep.outcome import Outcome, best_of, outcomes, ranked, write_csv
from omg.studies.sweep.plan import SweepPlan

SHOWN = 5


def finish(plan: SweepPlan) -> list[str]:
    """Write `sweep.csv` and `sweep.html` of what there is; lines to print."""
    found = outcomes(plan)
    table = write_csv(plan, found)
    page = write_sweep_page(plan.out / "sweep.html", page_of(plan, found))
    best = best_of(found, plan.spec.mode)
    if best is None:
        failed = [run for outcome in found for run in outcome.runs if run.status == "failed"]
        why = f"; the first failed: {failed[0].note}" if failed else ""
        return [f"No run was tested{why}", f"Everything is in {plan.out}"]
    order = ranked([o for o in found if o.score() is not None], plan.spec.mode)
    lines = [f"Best by {spoken_log(plan.spec.metric)}:"]
    lines += [f"  {score_words(o)}  {settings_words(plan, o)}" for o in order[:SHOWN]]
    notes = _notes(plan, found, best)
    return [
        *lines,
        *notes,
        f"Train the best again: {command_of(plan, best)}",
        f"Wrote {table} and {page}",
    ]


def _notes(plan: SweepPlan, found: Sequence[Outcome], best: Outcome) -> list[str]:
    runs = [run for outcome in found for run in outcome.runs]
    notes = []
    failed = [run for run in runs if run.status == "failed"]
    if failed:
        notes.append(f"{len(failed)} of {plan.runs} runs failed, e.g. {failed[0].name}: ")
        notes[-1] += failed[0].note
    stopped = sum(run.status == "stopped" for run in runs)
    if stopped:
        notes.append(f"{stopped} of {plan.runs} runs were stopped early")
    if not best.complete:
        notes.append(f"Of the best, {best.finished} of {len(best.runs)} seeds went to their end")
    if plan.spec.scheduler != "pbt":
        notes += seed_notes([len(plan.seeds)])
    return notes


def command_of(plan: SweepPlan, outcome: Outcome) -> str:
    """The command that trains a configuration again, with its first seed."""
    return plan.command(outcome.settings, outcome.runs[0].seed)


def settings_words(plan: SweepPlan, outcome: Outcome) -> str:
    return ", ".join(f"{d.key}={outcome.settings[d.key]}" for d in plan.dimensions)


def score_words(outcome: Outcome) -> str:
    """The mean with its interval, or with the seeds where there is none."""
    score, values = outcome.score(), outcome.values()
    assert score is not None
    places = decimals([score.value, *values])
    beside = interval(score.low, score.high, places)
    if not beside and len(values) > 1:
        beside = f"(seeds {', '.join(number(value, places) for value in values)})"
    return f"{number(score.value, places)} {beside}".strip()


def page_of(plan: SweepPlan, found: Sequence[Outcome]) -> SweepPage:
    """What the page shows."""
    spec = plan.spec
    order = ranked(found, spec.mode)
    rows = []
    for outcome in order:
        score = outcome.score()
        rows.append(
            SweepRow(
                number=outcome.number,
                settings={d.key: outcome.settings[d.key] for d in plan.dimensions},
                value=None if score is None else score.value,
                low=None if score is None else score.low,
                high=None if score is None else score.high,
                seeds=tuple(outcome.values()),
                finished=outcome.finished,
                runs=len(outcome.runs),
                curves=tuple(run.curve for run in outcome.runs if run.curve is not None),
                command=command_of(plan, outcome),
            )
        )
    runs = [run for outcome in found for run in outcome.runs]
    return SweepPage(
        title=f"{spec.config} on {spec.env_config}",
        metric=spec.metric,
        mode=spec.mode,
        keys=tuple(d.key for d in plan.dimensions),
        logarithmic=frozenset(d.key for d in plan.dimensions if d.is_log),
        rows=tuple(rows),
        facts=(
            ("Search", plan.spec.search_kind()),
            ("Scheduler", spec.scheduler),
            ("Configurations", str(plan.count)),
            ("Runs", str(plan.runs)),
            ("Time of all runs", duration(sum(run.seconds for run in runs))),
        ),
        space=tuple(d.written() for d in plan.dimensions),
        common=plan.command({}),
        failures=tuple((run.name, run.note) for run in runs if run.status == "failed"),
        stopped=sum(run.status == "stopped" for run in runs),
        shared_seeds=spec.scheduler != "pbt",
    )
