"""The page: its parts in order, with style and script inside."""

from __future__ import annotations

import time
from importlib import resources

from omg.report.data import ReportData
from omg.report.heat import crossplay_section
from omg.report.html import Html, el, join
from omg.report.opponents import opponents_section
from omg.report.overview import header, navigation, setup_section
from omg.report.replays import replays_section
from omg.report.results import results_section
from omg.report.training import curves_section, models_section

PARTS = (
    ("results", "Results", results_section),
    ("curves", "Learning curves", curves_section),
    ("models", "Models", models_section),
    ("crossplay", "Cross-play", crossplay_section),
    ("replays", "Replays", replays_section),
    ("opponents", "Opponents", opponents_section),
    ("setup", "Setup", setup_section),
)
# Nothing is fetched, whatever a name in the data may contain.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def asset(name: str) -> str:
    """A file shipped beside this module."""
    return (resources.files("omg.report") / name).read_text(encoding="utf-8")


def render(data: ReportData) -> str:
    """The whole page."""
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", http_equiv="Content-Security-Policy", content=POLICY),
        el("title", f"{data.title} - report"),
        el("style", Html(asset("style.css"))),
    )
    sources = " ".join(str(source) for source in data.sources)
    made = time.strftime("%Y-%m-%d %H:%M")
    footer = el(
        "footer",
        el("p", "Made ", made, " by ", el("code", f"omg report {sources}"), "."),
    )
    body = el(
        "body",
        el("a", "To the content", href="#content", class_="skip"),
        header(data),
        navigation([(name, title) for name, title, _ in PARTS]),
        el("main", [build(data) for _, _, build in PARTS], id="content"),
        footer,
        el("script", Html(asset("report.js"))),
    )
    return join(Html("<!doctype html>\n"), el("html", head, body, lang="en"), "\n")
