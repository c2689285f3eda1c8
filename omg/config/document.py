"""The table of all keys for the docs: names, types and bounds from the schema, defaults and
meanings from `default.yaml`.

    python -m omg.config.document docs/configuration.md

writes it between the marks in that page; a test compares the page to it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omg.config.loader import CONFIG_DIR
from omg.config.schema import LARGEST, Config, mark_of

MARK = "keys"
_SECTION = re.compile(r"# -+ (.+?) -+$")
_KEY = re.compile(r"(\w+):\s*(.*?)\s*(?:#\s*(.*))?$")
_KINDS = {
    "boolean": "true, false",
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "object": "mapping",
    "array": "list",
    "null": "null",
}


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the configuration."""

    section: str
    name: str
    default: str
    kind: str
    meaning: str


def keys() -> Iterator[Key]:
    """Every key, in the order of default.yaml."""
    kinds = Config.model_json_schema()["properties"]
    section, found, meaning = "", None, ""
    for line in (CONFIG_DIR / "default.yaml").read_text(encoding="utf-8").splitlines():
        started = _SECTION.match(line)
        matched = None if line.startswith(("#", " ")) else _KEY.match(line)
        if found and (started or matched):
            yield _key(section, found, meaning, kinds)
            found = None
        if started:
            section = started[1]
        elif matched:
            found, meaning = matched, matched[3] or ""
        elif found and line.startswith(" "):
            meaning += " " + line.strip().lstrip("# ")
    if found:
        yield _key(section, found, meaning, kinds)


def _key(section: str, found: re.Match[str], meaning: str, kinds: dict[str, Any]) -> Key:
    return Key(section, found[1], found[2], _kind(kinds[found[1]]), meaning.strip())


def _kind(schema: dict[str, Any]) -> str:
    """Type and bounds in words."""
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    if "anyOf" in schema:
        return ", ".join(_kind(part) for part in schema["anyOf"])
    if "description" in schema:
        return str(schema["description"])
    words = _KINDS[schema["type"]]
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    bounds = [
        f"{sign} {schema[name]}"
        for name, sign in signs.items()
        if schema.get(name, LARGEST) != LARGEST
    ]
    if "items" in schema:
        words += f" of {_kind(schema['items'])}"
    return " ".join([words, ", ".join(bounds)]).strip()


def influence(name: str) -> str:
    """What a key influences, in words."""
    mark = mark_of(name)
    if not mark.result:
        return "what is shown or recorded"
    words = ["place" if mark.place else "result"]
    if mark.weights:
        words = ["weights"]
    if mark.prior:
        words.append("prior")
    if mark.resume:
        words.append("may change on resume")
    return ", ".join(words)


def markdown() -> str:
    """A table per section."""
    lines, section = [], ""
    for key in keys():
        if key.section != section:
            section = key.section
            lines += ["", f"### {section[0].upper()}{section[1:]}", ""]
            lines += ["| key | default | type | what it is | influences |", "|---|---|---|---|---|"]
        default = f"`{key.default}`" if key.default else ""
        cells = (f"`{key.name}`", default, key.kind, key.meaning, influence(key.name))
        lines.append("| " + " | ".join(plain(cell) for cell in cells) + " |")
    return "\n".join(lines).strip() + "\n"


def plain(cell: str) -> str:
    """Text that neither ends a cell nor begins a tag."""
    return cell if cell.startswith("`") else cell.replace("|", "\\|").replace("<", "&lt;")


def rewritten(page: str, mark: str, table: str) -> str:
    """A page with what stands between two marks of this name replaced."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n\n{table}\n{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    text = rewritten(path.read_text(encoding="utf-8"), MARK, markdown())
    path.write_text(text, encoding="utf-8")
