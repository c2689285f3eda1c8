"""HTML by small functions: whatever is not marked as HTML is escaped, so a name cannot break it."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from omg.report.looks import look_class

VOID = frozenset(["meta", "link", "br", "hr", "input", "col", "img"])


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


Child: TypeAlias = "str | Html | Iterable[Child] | None"


def _flat(children: Iterable[Child]) -> str:
    parts = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Html):
            parts.append(str(child))
        elif isinstance(child, str):
            parts.append(html.escape(child))
        else:
            parts.append(_flat(child))
    return "".join(parts)


def join(*children: Child) -> Html:
    """Several pieces in a row."""
    return Html(_flat(children))


def el(name: str, /, *children: Child, **attributes: Any) -> Html:
    """An element. `class_` and `aria_label` become `class` and `aria-label`; True is an attribute
    without a value, None and False leave it out."""
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = key.rstrip("_").replace("_", "-")
        words.append(attribute if value is True else f'{attribute}="{html.escape(str(value))}"')
    opening = f"<{' '.join(words)}>"
    return Html(opening) if name in VOID else Html(f"{opening}{_flat(children)}</{name}>")


def data_script(name: str, content: Any) -> Html:
    """Data for the page's script, in a form that cannot end the element it stands in."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(f'<script type="application/json" id="{html.escape(name)}">{text}</script>')


def scoped(content: Html, prefix: str) -> Html:
    """The same with a prefix before every id and every reference to one, so that a page can hold
    it beside others of its kind. Data of scripts cannot match: quotes are escaped there."""

    def renamed(match: re.Match[str]) -> str:
        names = " ".join(prefix + name for name in match[3].split(" "))
        return f'{match[1]}="{match[2]}{names}"'

    named = r'( (?:id|for|aria-controls|aria-labelledby|data-chart))="()([^"]+)"'
    return Html(re.sub(r'( href)="(#)([^"]+)"', renamed, re.sub(named, renamed, content)))


def slug(text: str) -> str:
    """A name usable as an id."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "x"


def decimals(values: Iterable[float | None]) -> int:
    """How many decimals show about four digits of the largest of some values."""
    sizes = [abs(v) for v in values if v is not None and math.isfinite(v)]
    top = max(sizes, default=0.0)
    if 0.0 < top < 0.01:
        return min(8, 2 - math.floor(math.log10(top)))
    return 3 if top < 10 else 2 if top < 100 else 1 if top < 1000 else 0


def number(value: float | None, places: int | None = None, *, sign: bool = False) -> str:
    """A value as it is shown; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    places = decimals([value]) if places is None else places
    return f"{value:{'+' if sign else ''},.{places}f}".replace("-", "−")


def interval(low: float | None, high: float | None, places: int) -> str:
    """`[low, high]`, or nothing where it is not known."""
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return ""
    return f"[{number(low, places)}, {number(high, places)}]"


def steps_text(steps: float) -> str:
    """A number of steps, short: 250k, 1.5M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(steps) >= size:
            return f"{steps / size:.4g}{letter}"
    return f"{steps:.4g}"


def swatch(slot: int) -> Html:
    """A short line in a method's colour and dash."""
    mark = el("line", x1="0", x2="22", y1="5", y2="5", class_=line_class(slot))
    return el("svg", mark, class_="swatch", width="22", height="10", aria_hidden="true")


def line_class(slot: int) -> str:
    """The classes of a method's line."""
    return f"line {look_class(slot)}"


def table(
    head: Sequence[Child],
    rows: Iterable[Sequence[Child]],
    *,
    caption: str,
    numeric: Iterable[int] = (),
    wrap: Iterable[int] = (),
) -> Html:
    """A table whose first column names the row; on a phone every row becomes a card. `numeric`
    columns are aligned to the right, `wrap` columns may break their lines."""
    right, soft = frozenset(numeric), frozenset(wrap)
    names = [cell if isinstance(cell, str) else None for cell in head]

    def style(column: int) -> str | None:
        classes = ["num"] * (column in right) + ["soft"] * (column in soft)
        return " ".join(classes) or None

    header = el("tr", [el("th", cell, scope="col", class_=style(i)) for i, cell in enumerate(head)])
    body = [
        el(
            "tr",
            el("th", row[0], scope="row", class_=style(0)),
            [
                el("td", cell, class_=style(i), data_label=names[i])
                for i, cell in enumerate(row[1:], 1)
            ],
        )
        for row in rows
    ]
    content = el(
        "table",
        el("caption", caption, class_="hidden-caption"),
        el("thead", header),
        el("tbody", body),
        class_="cards",
    )
    return scroll_box(content, caption)


def scroll_box(content: Child, label: str) -> Html:
    """A region that scrolls sideways and can be reached by keyboard."""
    return el("div", content, class_="scroll", role="region", aria_label=label, tabindex="0")


def details(summary: str, *content: Child, open_: bool = False) -> Html:
    """A part that is shown on demand."""
    inside = el("div", content, class_="inside")
    return el("details", el("summary", summary), inside, open=open_)


def figure(content: Child, caption: Child) -> Html:
    """A chart or table with its caption."""
    return el("figure", content, el("figcaption", caption))


def tabs(name: str, panels: Sequence[tuple[str, Html]], *, label: str) -> Html:
    """Panels of which one is shown at a time; all of them where no script runs."""
    if len(panels) == 1:
        return panels[0][1]
    buttons = [
        el(
            "button",
            title,
            type="button",
            role="tab",
            id=f"{name}-tab-{i}",
            aria_controls=f"{name}-panel-{i}",
            aria_selected="true" if i == 0 else "false",
            tabindex="0" if i == 0 else "-1",
        )
        for i, (title, _) in enumerate(panels)
    ]
    bodies = [
        el(
            "div",
            content,
            role="tabpanel",
            id=f"{name}-panel-{i}",
            aria_labelledby=f"{name}-tab-{i}",
            class_="panel",
        )
        for i, (_, content) in enumerate(panels)
    ]
    row = el("div", buttons, role="tablist", aria_label=label, class_="tablist")
    return el("div", row, bodies, class_="tabs")


def section(name: str, title: str, *content: Child) -> Html:
    """A part of the page."""
    heading = el("h2", title, id=f"{name}-title")
    return el("section", heading, content, id=name, aria_labelledby=f"{name}-title")


def note(*content: Child) -> Html:
    """A sentence in the place of something that is missing or needs care."""
    return el("p", content, class_="note")
