"""Recomputes the numbers in README.md and docs/results from the CSV files beside them.

    python -m benchmarks.results_check        (make results-check)

The convention needs no markup. A page docs/results/<page>.md has its files in
docs/results/<page>/; README.md and docs/results/README.md have those of the pages they link to.
Every number with a decimal point or a per cent sign outside of code must be carried by a file,
or follow from one (means over seeds, half intervals, differences …), at the precision it is
written with; `a ± b` must belong together. In a table the row's method (or the two of a
difference) and the column's metric, where the words name them, must be those of the number; a
row that names nobody must stand in one row of a file as a whole. In a sentence the method named
right before a number must be its own; a number that names nobody passes if any fact of the
study reads like it. That is a weak test, so put results into tables. Values of the shipped YAML
files are settings and no results. quoted.csv (page, number, source) lists figures of others.
Anything else is listed, and fails.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from benchmarks.results_values import Fact, facts_of

ROOT = Path(__file__).parents[1]
_CODE = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)\n]*\)|<[^>\n]*>", re.S)
# A number with decimals, or whole with a per cent sign; then perhaps its half interval.
_FOUND = re.compile(
    r"(?<![\w.,])(?P<sign>[+−-]?)(?P<number>\d[\d,]*\.\d+|\.\d+|\d+(?= %))"
    r"(?:\s*±\s*(?P<half>\d+(?:\.\d+)?))?(?P<percent> %)?(?![\w]|\.\d)"
)
METRICS = {
    "discounted": "discounted_return",
    "own return": "own_return",
    "score": "return",
    "steps per episode": "ep_length",
    "food collected": "food_collected",
}
QUOTES = "the paper"  # the head of a column with figures of others
NOT_RESULTS = ("95 %",)  # the level of intervals


@dataclass(frozen=True, slots=True)
class Written:
    """A number as it stands on a page."""

    line: int
    text: str
    value: float
    places: int
    half: str = ""
    percent: bool = False
    label: str = ""  # the first cell of its row
    column: str = ""  # the head of its column

    @property
    def in_table(self) -> bool:
        return bool(self.column)


def numbers_of(text: str, methods: Collection[str] = ()) -> Iterator[Written]:
    """All numbers of a page that could be results, with their place in tables; in a sentence,
    with the method whose name stands right before them."""
    plain = _CODE.sub(lambda found: "\n" * found[0].count("\n"), text)
    head, raw = list[str](), text.splitlines()
    for number, line in enumerate(plain.splitlines(), 1):
        if not line.lstrip().startswith("|"):
            head = []
            yield from _in(line, number, methods=methods)
            continue
        cells = [cell.strip(" *") for cell in line.strip().strip("|").split("|")]
        first = raw[number - 1].strip().strip("|").split("|")[0].strip(" *`")
        if not head:
            head = cells
        for place, cell in enumerate(cells):
            column = head[place] if place < len(head) else ""
            yield from _in(cell, number, label=first, column=column or "-")


def _in(
    text: str, line: int, *, label: str = "", column: str = "", methods: Collection[str] = ()
) -> Iterator[Written]:
    for found in _FOUND.finditer(text):
        before = text[: found.start()].rstrip()
        there = [name for name in methods if re.search(rf"(^|\W){re.escape(name)}$", before)]
        label = max(there, key=len) if there else label if column else ""
        digits = found["number"].replace(",", "")
        value = float(digits) * (-1 if found["sign"] in ("−", "-") else 1)
        places = len(digits.partition(".")[2])
        whole = found[0].strip()
        if whole not in NOT_RESULTS:
            share = bool(found["percent"]) or text[found.end() :].startswith(" %")
            yield Written(line, whole, value, places, found["half"] or "", share, label, column)


def carried(number: Written, facts: Sequence[Fact]) -> bool:
    """Whether some fact reads like this number."""
    return any(_reads(number, fact) for fact in facts)


def _reads(number: Written, fact: Fact) -> bool:
    for scale in (100.0, 1.0) if number.percent else (1.0,):
        signed = abs(fact.value) if number.value >= 0 and "+" not in number.text else fact.value
        if _equal(signed * scale, number.value, number.places):
            places = len(number.half.partition(".")[2])
            if not number.half:
                return True
            if fact.half is not None and _equal(fact.half * scale, float(number.half), places):
                return True
    return False


def _equal(value: float, written: float, places: int) -> bool:
    return abs(value - written) <= 0.5 * 10.0**-places * (1 + 1e-6) + 1e-12


def narrowed(number: Written, facts: Sequence[Fact]) -> list[Fact]:
    """The facts about what a table's row and column name."""
    methods = {name for fact in facts for name in fact.who}
    who = named(number.label, methods)
    if number.label and not number.in_table and not who:
        return []  # a sentence about a method that the study does not have
    column = number.column.lower()
    if column == QUOTES:
        return []  # only quoted.csv has these
    metric = next((m for words, m in METRICS.items() if words in column), "")
    if number.in_table and not who and not metric and not number.half:
        return []  # nobody and nothing is named: such rows must stand in a file as a whole
    kept = [f for f in facts if who <= f.who or not f.who]
    return [f for f in kept if f.metric in ("", metric)] if metric else kept


def named(label: str, methods: set[str]) -> frozenset[str]:
    """The methods that a row's first cell names: one, or two of a difference."""
    found = set()
    for part in re.split(r" − | minus ", label):
        plain = part.lower().replace(",", "")
        there = [m for m in methods if plain == m.lower() or plain.startswith(f"{m.lower()} ")]
        found |= {max(there, key=len)} if there else set()
    return frozenset(found)


@lru_cache(maxsize=1)
def settings() -> tuple[Fact, ...]:
    """Numbers of the shipped configurations."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "omg/config").rglob("*.yaml")]
    plain = [re.sub(r"#.*", "", text) for text in texts]
    values = {
        float(n) for text in plain for n in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w])", text)
    }
    return tuple(Fact(value) for value in sorted(values))


def listed(name: str, page: str, results: Path) -> set[str]:
    """Numbers of a page that a list beside the pages holds, as they are written."""
    path = results / name
    if not path.is_file():
        return set()
    with path.open(encoding="utf-8", newline="") as file:
        return {row["number"] for row in csv.DictReader(file) if row["page"] == page}


def folders_of(page: Path, text: str, results: Path) -> list[Path]:
    """Where the files of a page lie."""
    own = results / page.stem
    if own.is_dir():
        return [own]
    links = re.findall(r"\]\((?:docs/results/)?([\w-]+)\.md", text)
    return [results / name for name in dict.fromkeys(links) if (results / name).is_dir()]


@lru_cache(maxsize=64)
def _facts(folder: Path) -> tuple[Fact, ...]:
    return tuple(facts_of(folder))


def untraced(page: Path, results: Path) -> tuple[list[Written], int]:
    """The numbers of a page that nothing carries, and how many were checked."""
    text = page.read_text(encoding="utf-8")
    studies = [_facts(folder) for folder in folders_of(page, text, results)]
    everybody = {name for path in results.iterdir() if path.is_dir() for name in methods_in(path)}
    quoted = listed("quoted.csv", page.name, results)
    missing, count = [], 0
    rows: dict[int, list[Written]] = {}
    for number in numbers_of(text, everybody):
        if number.in_table and number.text not in quoted:
            rows.setdefault(number.line, []).append(number)
    together = {line for line, each in rows.items() if any(_one_row(each, s) for s in studies)}
    for number in numbers_of(text, everybody):
        count += 1
        if number.text in quoted or number.line in together:
            continue
        if any(carried(number, narrowed(number, s)) for s in studies):
            continue
        if not number.in_table and not number.label and carried(number, settings()):
            continue
        missing.append(number)
    return missing, count


def _one_row(row: Sequence[Written], facts: Sequence[Fact]) -> bool:
    """Whether all numbers of a table's row stand in one row of a file (or in rows that belong
    together): so rows are known that name nobody."""
    sources: dict[str, list[Fact]] = {}
    for fact in facts:
        if fact.source:
            sources.setdefault(fact.source, []).append(fact)
    return any(all(carried(n, found) for n in row) for found in sources.values())


def methods_in(folder: Path) -> set[str]:
    """The methods of a study."""
    return {name for fact in _facts(folder) for name in fact.who}


def pages(root: Path = ROOT) -> list[Path]:
    """README.md and every page of results."""
    return [root / "README.md", *sorted((root / "docs" / "results").glob("*.md"))]


def main() -> int:
    results, failed = ROOT / "docs" / "results", 0
    for page in pages():
        missing, count = untraced(page, results)
        failed += len(missing)
        print(f"{page.relative_to(ROOT).as_posix()}: {count} numbers, {len(missing)} untraced")
        for number in missing:
            where = f" (row '{number.label}', column '{number.column}')" if number.in_table else ""
            print(f"  line {number.line}: {number.text}{where}")
    if failed:
        print(
            f"{failed} numbers follow from no file. Correct them, or add the file they come from."
        )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
