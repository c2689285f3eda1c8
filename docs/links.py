"""Links in our Markdown: which there are, where they lead, and what they are called on the site.

Used by the tests (`tests/unit/test_docs.py`) and by the site (`docs/hooks.py`). It needs neither
mkdocs nor omg.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
# Pages of the site that do not lie in docs/: their place in the repository, their place there.
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "license.md",
    "CITATION.cff": "citation.md",
}
# Files in examples/ become pages that show them.
SHOWN = (".py", ".ipynb")

_FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
_SPAN = re.compile(r"(`+)(?:.*?[^`])\1(?!`)", re.DOTALL)
_LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\()([^()\s]+)((?:\s+\"[^\"]*\")?\))")
_HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.*?)\s*#*$")
_NO_WORD = re.compile(r"[^\w\- ]")


@dataclass(frozen=True, slots=True)
class Link:
    """A link of a page: its line, where it leads (empty: to this page), and the part after #."""

    line: int
    target: str
    anchor: str


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The lines that are no code block, with their numbers."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        found = _FENCE.match(line)
        if fence:
            if found and found[1].startswith(fence):
                fence = ""
        elif found:
            fence = found[1]
        else:
            yield number, line


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Lines of prose that belong together (code between backticks may span lines), with the number
    of the first."""
    first, lines = 0, list[str]()
    for number, line in prose(text):
        if lines and (number != first + len(lines) or not line.strip()):
            yield first, "\n".join(lines)
            lines = []
        if line.strip():
            first = first if lines else number
            lines.append(line)
    if lines:
        yield first, "\n".join(lines)


def links(text: str) -> Iterator[Link]:
    """Links and images to files and headings of our own."""
    for first, paragraph in paragraphs(text):
        for found in _LINK.finditer(_without_code(paragraph)):
            if not _foreign(found[2]):
                target, _, anchor = found[2].partition("#")
                yield Link(first + found.string[: found.start()].count("\n"), target, anchor)


def anchors(text: str) -> set[str]:
    """What `#…` may name in a page: its headings as GitHub writes them."""
    found: dict[str, int] = {}
    for _, line in prose(text):
        if heading := _HEADING.match(line):
            name = slug(heading[1])
            found[name] = found.get(name, -1) + 1
    return {f"{name}-{n}" if n else name for name, last in found.items() for n in range(last + 1)}


def slug(heading: str) -> str:
    """The anchor of a heading: GitHub's rule, which the site follows."""
    shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return _NO_WORD.sub("", shown.lower()).replace(" ", "-")


def pages() -> list[Path]:
    """All Markdown that people read: what lies in docs/ and beside it."""
    beside = [ROOT / name for name in OUTSIDE if name.endswith(".md")]
    return [*beside, *sorted((ROOT / "docs").rglob("*.md"))]


def site_uri(path: str) -> str | None:
    """Where a file of the repository is on the site; None where it is not there."""
    if path in OUTSIDE:
        return OUTSIDE[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("examples/") and path.endswith(SHOWN):
        return str(PurePosixPath(path).with_suffix(".md"))
    return None


def relinked(text: str, source: str) -> str:
    """A page of the repository with its links as they have to be on the site."""
    here = site_uri(source) or ""

    def change(found: re.Match[str]) -> str:
        target, mark, anchor = found[2].partition("#")
        if _foreign(found[2]) or not target:
            return found[0]
        uri = site_uri(os.path.normpath(os.path.join(os.path.dirname(source), target)))
        if uri is None:
            return found[0]
        near = os.path.relpath(uri, os.path.dirname(here) or ".")
        return f"{found[1]}{near}{mark}{anchor}{found[3]}"

    return _replaced(text, change)


def _replaced(text: str, change: Callable[[re.Match[str]], str]) -> str:
    lines = text.split("\n")
    for first, paragraph in paragraphs(text):
        parts, at = [], 0
        for code in _SPAN.finditer(paragraph):  # a link's own words may be code
            if not paragraph[: code.start()].endswith("["):
                parts += [_LINK.sub(change, paragraph[at : code.start()]), code[0]]
                at = code.end()
        changed = "".join([*parts, _LINK.sub(change, paragraph[at:])]).split("\n")
        lines[first - 1 : first - 1 + len(changed)] = changed
    return "\n".join(lines)


def _without_code(paragraph: str) -> str:
    return _SPAN.sub(lambda found: re.sub(r"[^`\n]", "x", found[0]), paragraph)


def _foreign(target: str) -> bool:
    return bool(re.match(r"[a-z][a-z+.-]*:", target))
