"""The top of the page: what was trained on what, when, how often."""

from __future__ import annotations

import time
from collections.abc import Sequence

from omg.evaluation.named import named_words
from omg.evaluation.words import SIDES
from omg.opponents.unseen import looks_words
from omg.report.data import ReportData
from omg.report.html import Child, Html, details, el, join, note, section, table
from omg.report.methods import command_table, difference_table, shared_table

NOT_SHOWN = ("started", "packages")  # of a session; packages one by one


def header(data: ReportData) -> Html:
    """The title, a sentence, and the facts."""
    return top(data.title, summary(data))


def top(title: str, *content: Child) -> Html:
    """The head of a page: its title, and the button for light or dark."""
    toggle = el(
        "button", "Dark", type="button", id="theme", aria_pressed="false", title="Light or dark"
    )
    line = el("div", el("p", "Report", class_="eyebrow"), toggle, class_="topline")
    return el("header", line, el("h1", title), content)


def summary(data: ReportData) -> Html:
    """A sentence about a study, and its facts."""
    facts = [
        el("div", el("dt", term), el("dd", value, el("small", why) if why else None))
        for term, value, *rest in _facts(data)
        for why in (rest[0] if rest else "",)
    ]
    told = [named_words(data.named), looks_words(data.unseen_looks)]
    about = [el("p", words, class_="about") for words in told if words]
    return join(el("p", _lede(data), class_="lede"), el("dl", facts, class_="facts"), *about)


def setup_section(data: ReportData) -> Html:
    """Commands and settings, collapsed."""
    notes = [note(words) for words in data.notes]
    if not data.agents:
        missing = note("No runs of learning agents were found, so there are no commands to show.")
        return section("setup", "Setup", missing, notes)
    intro = el(
        "p",
        "Each command trains one seed again (change --seed for the others); settings are read from "
        "every run's config.yaml.",
    )
    shared = shared_table(data)
    return section(
        "setup",
        "Setup",
        intro,
        details("Commands per method", command_table(data)),
        details("Settings that differ between methods", difference_table(data))
        if shared
        else details("Settings that differ from the defaults", difference_table(data)),
        details("Settings shared by all methods", shared) if shared else None,
        _looked(data),
        _provenance(data),
        notes,
    )


def _looked(data: ReportData) -> Html | None:
    """Every look at the unseen side, in its order."""
    rows: list[Sequence[Child]] = [
        [look.when, look.kind, str(len(look.runs)), ", ".join(look.members), str(look.episodes)]
        for look in data.unseen_looks
    ]
    if not rows:
        return None
    head = ["when", "for", "runs", "opponents", "episodes"]
    content = table(head, rows, caption="Looks at the unseen side", numeric=[2, 4], wrap=[3])
    return details("Looks at the unseen side", content)


def _provenance(data: ReportData) -> Html | None:
    """Versions and machines of all sessions of all runs, each value once."""
    found: dict[str, dict[str, None]] = {}
    for run in (*data.agents, *data.priors):
        for session in run.sessions:
            packages = session.get("packages")
            flat = {
                **{key: value for key, value in session.items() if key not in NOT_SHOWN},
                **(packages if isinstance(packages, dict) else {}),
            }
            for key, value in flat.items():
                shown = {True: "on", False: "off"}.get(value, str(value)) if value != "" else "-"
                found.setdefault(str(key), {})[shown] = None
    if not found:
        return None
    rows = [el("div", el("dt", key), el("dd", ", ".join(known))) for key, known in found.items()]
    return details("What the runs were made with", el("dl", rows, class_="replay-facts"))


def _lede(data: ReportData) -> str:
    tasks = " and ".join(dict.fromkeys(run.task for run in data.agents))
    if not data.agents:
        return (
            "Results of games, without the runs they came from."
            if data.crossplay
            else ("Recorded episodes, without the runs they came from.")
        )
    count = len({run.method for run in data.agents})
    methods = f"{count} methods were" if count > 1 else f"{data.agents[0].method} was"
    seeds = _seeds(data)
    per = " each" if count > 1 else ""
    words = f"{methods} trained on {tasks} with {seeds}{per}, {_steps(data)} per run."
    if data.crossplay:
        sides = {o.split for o in data.crossplay.opponents}
        if "heldout" in sides:
            words += " The trained agents then played opponents they had never met."
    return words


def _seeds(data: ReportData) -> str:
    counts = sorted({len(data.runs_of(m)) for m in data.methods if data.runs_of(m)})
    if counts == [1]:
        return "one seed"
    return (f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}") + " seeds"


def _steps(data: ReportData) -> str:
    steps = sorted({run.env_steps for run in data.agents})
    # Runs stop at the first whole step of all copies, so their ends differ a little.
    if steps[-1] - steps[0] <= 0.02 * steps[-1]:
        return f"{steps[-1]:,} steps"
    return f"{steps[0]:,} to {steps[-1]:,} steps"


def _why_steps(data: ReportData) -> str:
    """How a run's steps follow from t_max, where they are more."""
    asked = {int(run.config.get("t_max") or 0) for run in data.agents}
    last = max(run.env_steps for run in data.agents)
    if len(asked) != 1 or not (t_max := asked.pop()) or last <= t_max:
        return ""
    seats = last // t_max
    each = f" for each of {seats} seats" if seats > 1 else ""
    ended = ", and the round of all copies was finished" if last > seats * t_max else ""
    return f"t_max {t_max:,}{each}{ended}"


def _facts(data: ReportData) -> list[tuple[str, ...]]:
    """Terms, values and, where it needs one, a reason."""
    facts: list[tuple[str, ...]] = []
    if data.methods:
        facts.append(("Methods", str(len(data.methods))))
    if data.agents:
        facts.append(("Runs", str(len(data.agents))))
        facts.append(
            ("Seeds per method", _seeds(data).removesuffix(" seeds").removesuffix(" seed"))
        )
        facts.append(("Steps per run", _steps(data).removesuffix(" steps"), _why_steps(data)))
    for split, words in SIDES.items():
        count = sum(o.split == split for o in data.opponents)
        if count:
            facts.append((f"Opponents, {words}", str(count)))
    if data.crossplay and data.crossplay.episodes:
        facts.append(("Episodes per cell", f"{data.crossplay.episodes:,}"))
    if data.agents:
        facts.append(("Trained until", _day(max(run.written for run in data.agents))))
        hours = sum(run.seconds for run in data.agents) / 3600
        facts.append(("Training time", _duration(hours)))
    return facts


def _duration(hours: float) -> str:
    if hours >= 1:
        return f"{hours:.1f} h"
    return f"{hours * 60:.0f} min" if hours * 60 >= 1 else "under 1 min"


def _day(when: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(when))


def navigation(parts: list[tuple[str, str]]) -> Html:
    """Links to the parts of the page."""
    links = [el("a", title, href=f"#{name}") for name, title in parts]
    return el("nav", join(*links), aria_label="Parts of the report")
