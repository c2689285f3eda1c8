"""Recomputes the numbers in README.md and docs/results from the CSV files beside them.

    python -m benchmarks.results_check        (make results-check)

No markup is needed; docs/protocol.md, "Numbers on pages", says the same to writers. Checked is
every number with a decimal point, an exponent or a per cent sign outside of code, and whole numbers
below the heads `seeds`, `steps` and `maximum at`. Each must stand in a file, or follow from one
(means over seeds, half intervals, differences …), at the precision it is written with, and be about
what the words around it name:

- the study: that of the page docs/results/<page>.md; on pages of several studies the one linked in
  the table's row, else the one linked last before the number in its section;
- the methods: a row's first cell, or a pair in a column's head; in a sentence the name right before
  the number, and for differences and p-values the pair named last in the paragraph;
- the metric and the kind of value: the column's head. A p-value must stand in one row of a file
  with the difference before it;
- the side: the unseen one, unless column, row, sentence, paragraph above or heading name another;
- the task, where a column, a row or a heading names one;
- the cells of its row that stand in a row of a file.

A table's row that names nobody must stand in one row of a file as a whole. In a sentence a number
that names nobody passes if any fact of that study and side reads like it. That is a weak test, so
put results into tables. Values of the shipped YAML files are settings and no results. A column
headed "the paper …" holds figures of others: docs/results/<page>/paper.csv has them by task and
method, docs/results/quoted.csv as they are written (page, number, source; also those in sentences).
Anything else is listed, and fails.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from benchmarks.results_pages import Page, Texts, Written
from benchmarks.results_study import QUOTES, Study, reads
from benchmarks.results_values import Fact, methods_in

ROOT = Path(__file__).parents[1]


@lru_cache(maxsize=1)
def settings() -> tuple[Fact, ...]:
    """Numbers of the shipped configurations."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "omg/config").rglob("*.yaml")]
    plain = [re.sub(r"#.*", "", text) for text in texts]
    values = {
        float(n) for text in plain for n in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w])", text)
    }
    return tuple(Fact(value) for value in sorted(values))


def is_setting(number: Written) -> bool:
    """Whether a number in a sentence may be a setting."""
    result = number.in_table or number.who or number.half or number.signed or number.column
    return not result and any(reads(number, fact) for fact in settings())


def listed(page: str, results: Path) -> set[str]:
    """Figures of others on a page, as they are written."""
    path = results / "quoted.csv"
    if not path.is_file():
        return set()
    with path.open(encoding="utf-8", newline="") as file:
        return {row["number"] for row in csv.DictReader(file) if row["page"] == page}


@lru_cache(maxsize=64)
def study_of(folder: Path | None) -> Study:
    return Study(folder)


@lru_cache(maxsize=8)
def everybody(results: Path) -> dict[str, set[str]]:
    """The methods of every study."""
    return {path.name: methods_in(path) for path in sorted(results.iterdir()) if path.is_dir()}


def numbers_of(page: Path, results: Path) -> list[Written]:
    """The numbers of a page that could be results."""
    own = page.stem if (results / page.stem).is_dir() else ""
    return list(Page(page.read_text(encoding="utf-8"), everybody(results), own).numbers())


def untraced(page: Path, results: Path) -> tuple[list[Written], int]:
    """The numbers of a page that nothing carries, and how many were checked."""
    numbers, quoted = numbers_of(page, results), listed(page.name, results)
    rows: dict[int, list[Written]] = {}
    missing = []
    for number in numbers:
        if number.in_table:
            rows.setdefault(number.line, []).append(number)
    for number in numbers:
        study = study_of(results / number.study if number.study else None)
        others = not number.in_table or QUOTES.match(number.column)
        if (others and number.text in quoted) or is_setting(number) or study.carries(number):
            continue
        if number.in_table and study.in_one_row(rows[number.line]):
            continue
        missing.append(number)
    return missing, len(numbers)


def where(number: Written, results: Path) -> str:
    """What a number was taken for, for whoever has to correct it."""
    study = study_of(results / number.study if number.study else None)
    parts: Iterable[Texts] = (
        (f"row '{number.cells[0]}', column '{number.column}'",) if number.in_table else (),
        (number.study or "no study is linked",),
        (" − ".join(number.who),) if number.who else (),
        tuple(sorted(study.side(number) - {""})),
        tuple(sorted(study.task(number))),
    )
    return "; ".join(text for each in parts for text in each)


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
            print(f"  line {number.line}: {number.text} ({where(number, results)})")
    if failed:
        print(
            f"{failed} numbers follow from no file. Correct them, or add the file they come from."
        )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
