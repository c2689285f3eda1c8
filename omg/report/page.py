"""The page: its parts in order, with style and script inside."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from omg.report.comparison import comparison, lede
from omg.report.data import ReportData, SideBySide
from omg.report.headroom import headroom_banner, headroom_section
from omg.report.heat import crossplay_section
from omg.report.html import Html, el, join, scoped, tabs
from omg.report.opponents import opponents_section
from omg.report.overview import header, navigation, setup_section, summary, top
from omg.report.replays import replays_section
from omg.report.results import results_section
from omg.report.training import curves_section, models_section
from omg.report.trials import tuning_section

PARTS = (
    ("headroom", "Headroom", headroom_section),
    ("results", "Results", results_section),
    ("tuning", "Tuning", tuning_section),
    ("curves", "Learning curves", curves_section),
    ("models", "Models", models_section),
    ("crossplay", "Cross-play", crossplay_section),
    ("replays", "Replays", replays_section),
    ("opponents", "Opponents", opponents_section),
    ("setup", "Setup", setup_section),
)
# Nothing is fetched, whatever a name in the data may contain; pictures are inside the page.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
SCRIPTS = ("report.js", "curves.js", "download.js", "replays.js")


def asset(name: str) -> str:
    """A file shipped beside this module."""
    return (resources.files("omg.report") / name).read_text(encoding="utf-8")


def script() -> Html:
    """The page's script: files that share their names, and share nothing with the page."""
    body = "".join(asset(name) for name in SCRIPTS)
    return el("script", Html(f'"use strict";\n(() => {{\n{body}}})();\n'))


def render(data: ReportData | SideBySide) -> str:
    """The whole page, of one study or of several."""
    if isinstance(data, SideBySide):
        return document(data.title, data.sources, *_several(data))
    content = el("main", headroom_banner(data), _parts(data), id="content")
    return document(data.title, data.sources, header(data), _links(data), content)


def document(title: str, sources: Sequence[Path], *content: Html) -> str:
    """A page around its content, with style and script inside."""
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", http_equiv="Content-Security-Policy", content=POLICY),
        el("title", f"{title} - report"),
        el("style", Html(asset("style.css"))),
    )
    words = " ".join(str(source) for source in sources)
    made = time.strftime("%Y-%m-%d %H:%M")
    footer = el("footer", el("p", "Made ", made, " by ", el("code", f"omg report {words}"), "."))
    skip = el("a", "To the content", href="#content", class_="skip")
    body = el("body", skip, content, footer, script())
    return join(Html("<!doctype html>\n"), el("html", head, body, lang="en"), "\n")


def _shown(data: ReportData) -> list[str]:
    """Headroom and tuning are parts of studies that have them."""
    there = {"headroom": data.headroom is not None, "tuning": bool(data.tuning)}
    return [name for name, _, _ in PARTS if there.get(name, True)]


def _parts(data: ReportData) -> Html:
    return join(*(build(data) for name, _, build in PARTS if name in _shown(data)))


def _links(data: ReportData) -> Html:
    return navigation([(name, title) for name, title, _ in PARTS if name in _shown(data)])


def _several(data: SideBySide) -> tuple[Html, Html]:
    """The comparison, then every study by itself; ids of each get a prefix of their own."""
    panels = []
    for number, (name, study) in enumerate(zip(data.names, data.studies, strict=True), 1):
        content = join(
            *(el("h2", name), summary(study), headroom_banner(study)),
            *(_links(study), _parts(study)),
        )
        panels.append((name, el("div", scoped(content, f"study{number}-"), class_="study")))
    each = tabs("study", panels, label="Studies")
    head = top(data.title, el("p", lede(data), class_="lede"))
    heading = el("h2", "Each study", id="studies", class_="apart")
    return head, el("main", comparison(data), heading, each, id="content")
