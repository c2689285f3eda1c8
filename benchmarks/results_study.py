"""A study's facts, and which of them a number on a page may mean: those about the side, task,
methods and metric that the words around the number name."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.results_pages import CHANCE, WHOLE, Written
from benchmarks.results_values import Fact, facts_of

METRICS = {
    "normalised own return": "normalised_own_return",
    "discounted": "discounted_return",
    "own return": "own_return",
    "team return": "return",
    "steps per episode": "ep_length",
    "food collected": "food_collected",
    "unfinished": "truncated",
}
OTHERS = ("the paper: maximum", "the paper: average")  # figures of others
# Heads of columns that name columns of the files; the values of those in ALONE serve nothing else.
COLUMNS = {
    "p": ("p",),
    "p (holm)": ("p_holm",),
    "seeds": ("seeds", "agents"),
    "steps": ("steps", "total_steps"),
    "maximum at": ("max_at",),
    "maximum": ("max_return", "max_low", "max_high"),
    "average": ("average_return", "average_low", "average_high"),
    "the paper": OTHERS,
    "the paper: maximum": ("the paper: maximum",),
    "the paper: average": ("the paper: average",),
}
REACHES = ("maximum", "average")  # heads above "mean (low to high)"
ALONE = {
    *("p", "p_holm", "seeds", "other_seeds", "agents", "opponents", "comparisons", "episodes"),
    *("seed", "configuration", "env_steps", "prior_steps", "total_steps"),
    *OTHERS,
}
QUOTES = re.compile(r"the paper\b(?!')")  # how heads of columns with figures of others begin
UNSEEN = re.compile(r"unseen|unmet|held[- ]out|never\W+met(\W+in\W+training)?", re.I)
SEEN = re.compile(r"\b(seen|met|(of|in) training|training (opponents|partners|side))\b", re.I)


def sides(text: str) -> frozenset[str]:
    """The sides that words name."""
    found = {"unseen"} if UNSEEN.search(text) else set()
    found |= {"seen"} if SEEN.search(UNSEEN.sub("", text)) else set()
    found |= {"validation"} if "validation" in text.lower() else set()
    return frozenset(found)


def tasks(text: str, known: Collection[str]) -> frozenset[str]:
    """The tasks that words name; "Foraging-" and "-v3" may be there or not."""
    words = {_task(word.strip(".,:;()*`")) for word in text.split()}
    return frozenset(task for task in known if _task(task) in words)


def _task(name: str) -> str:
    return re.sub(r"^foraging-|-v3$", "", name.lower())


class Study:
    """The facts of a folder, and which of them a number may mean."""

    def __init__(self, folder: Path | None):
        facts = facts_of(folder) if folder else []
        self.facts = sorted(facts, key=lambda fact: abs(fact.value))
        self.sizes = [abs(fact.value) for fact in self.facts]
        self.sides = {fact.side for fact in self.facts}
        self.tasks = frozenset(fact.task for fact in self.facts if fact.task)
        self.own = frozenset(f.task for f in self.facts if f.task and f.column not in OTHERS)
        self.who = {name for fact in self.facts for name in fact.who}
        self.texts = {text for fact in self.facts for text in fact.texts}

    def meant(self, number: Written) -> list[Fact]:
        """The facts that read like a number and are about what the words around it name."""
        if not set(number.who) <= self.who:
            return []
        side, task, lineup = self.side(number), self.task(number), lineups(number)
        words, head, wanted = self.words(number), _head(number), metric(number)
        return [
            fact
            for fact in self.near(number)
            if fact.side in side
            and fact.lineup in lineup
            and (not fact.task or fact.task in task)
            and (words <= fact.texts or fact.column in OTHERS)
            and _of_column(head, wanted, fact)
            and (head not in REACHES or fact.column == COLUMNS[head][number.bound])
            and any(reads(number, each) for each in _of_methods(number, fact))
        ]

    def near(self, number: Written) -> Iterator[Fact]:
        """The facts of about a number's size."""
        for scale in (100.0, 1.0) if number.percent else (1.0,):
            size = abs(number.value) / scale
            reach = number.unit / scale + 0.01 * size
            first = bisect_left(self.sizes, size - reach)
            yield from self.facts[first : bisect_right(self.sizes, size + reach)]

    def side(self, number: Written) -> frozenset[str]:
        """The sides that a number's place names; else the unseen one, where there is one."""
        near = number.near if number.in_table else number.near[:2]
        places = [*near, *number.above, *number.headings]
        said = next((found for text in places if (found := sides(text))), frozenset[str]())
        default = frozenset({"unseen"} if "unseen" in self.sides else self.sides)
        return (said & self.sides or default) | {""}

    def task(self, number: Written) -> frozenset[str]:
        """The tasks that a number's place names; a table must name one of several."""
        named = (tasks(text, self.tasks) for text in (*number.near, *number.headings))
        default = frozenset() if number.in_table and len(self.own) > 1 else self.own
        return next((found for found in named if found), default)

    def carries(self, number: Written) -> bool:
        """Whether a fact about what is named reads like the number."""
        facts = self.meant(number)
        if not CHANCE.match(number.column):
            return bool(facts) and not self.nameless(number)
        if number.value == 0.0:
            return False  # no p-value is
        if number.beside is None:
            return bool(facts) and bool(number.who)
        rows = {fact.source for fact in self.meant(number.beside)}
        return any(fact.source in rows for fact in facts)

    def nameless(self, number: Written) -> bool:
        """Whether a table names neither methods nor a metric nor a row of a file; rows below
        "method" must name one."""
        named = number.half or metric(number) or _head(number) in COLUMNS
        named = number.who or self.words(number) or (named and number.first != "method")
        return number.in_table and not named

    def words(self, number: Written) -> set[str]:
        """The cells of a number's row that stand in a row of a file, but for its methods."""
        return {text.lower() for text in number.cells} & self.texts - set(number.who)

    def in_one_row(self, row: Sequence[Written]) -> bool:
        """Whether all numbers of a table's row that names nobody stand in one row of a file (or in
        rows that belong together)."""
        if any(n.who or n.first == "method" or self.words(n) for n in row):
            return False
        sources = [
            {fact.source for fact in self.meant(number) if fact.source and len(fact.who) < 2}
            for number in row
        ]
        return bool(set.intersection(*sources))


def lineups(number: Written) -> set[str]:
    """The line-ups that a number's place names: all alike, unless it says mixed."""
    for place, text in enumerate(number.near):
        if "alike" in text or "mixed" in text:
            alike = "alike" in text or (place > 0 and not number.in_table)
            return {"", *["homologue"] * alike, *["mixed"] * ("mixed" in text)}
    return {"", "homologue"}


def metric(number: Written) -> str:
    """The metric that a table's column names, or the head of its first column."""
    heads = (number.column, number.first) if number.in_table else ()
    return next((m for head in heads for words, m in METRICS.items() if words in head), "")


def _head(number: Written) -> str:
    """A column's head as in COLUMNS."""
    head = number.column
    if head.endswith(": steps"):
        return "steps"
    if QUOTES.match(head):
        kind = next((kind for kind in ("maximum", "average") if kind in head), "")
        return f"the paper: {kind}" if kind else "the paper"
    if CHANCE.match(head):
        corrected = re.search(r"holm|(?<!un)corrected", head)
        return "p (holm)" if corrected else "p"
    return head


def _of_column(head: str, wanted: str, fact: Fact) -> bool:
    """Whether a fact is of the kind that a column's head names, and of the wanted metric."""
    if head in ("seeds", "steps"):
        kind = fact.column in COLUMNS[head] or fact.column.startswith(f"{head}_to")
        return kind and bool(fact.who)
    if fact.column in ALONE or head in COLUMNS:
        return fact.column in COLUMNS.get(head, ()) and fact.metric in ("", wanted or fact.metric)
    if wanted and not fact.metric and fact.column in METRICS.values():
        return fact.column == wanted
    return fact.metric in ("", wanted or fact.metric)


def _of_methods(number: Written, fact: Fact) -> list[Fact]:
    """The fact, if it is about a number's methods; a difference may be read both ways round, but
    only one way where two methods are named."""
    who = number.who
    both = [fact]
    if len(fact.who) == 2 and fact.column in ("difference", "low", "high"):
        both.append(replace(fact, value=-fact.value, who=fact.who[::-1]))
    elif len(who) == 2:
        both.append(replace(fact, who=fact.who[::-1]))
    if len(who) == 2:
        return [each for each in both if each.who == who]
    if fact.column in OTHERS:  # "IPPO 20M" is beside the paper's IPPO
        return both if who and f"{who[0]} ".startswith(f"{fact.who[0]} ") else []
    if number.first == "method" and who:
        return [each for each in both if each.who in ((), who)]
    return [each for each in both if not each.who or set(who) <= set(each.who)]


def reads(number: Written, fact: Fact) -> bool:
    """Whether a fact, rounded, is what is written."""
    if WHOLE.fullmatch(number.column) and number.unit == 1.0:
        rounded = 500.0 if number.value and number.value % 1000 == 0 else 0.0
        return abs(fact.value - number.value) <= rounded
    strict = number.signed or number.value < 0 or len(number.who) == 2
    value = fact.value if strict else abs(fact.value)
    for scale in (100.0, 1.0) if number.percent else (1.0,):
        if _equal(value * scale, number.value, number.unit):
            places = 10.0 ** -len(number.half.partition(".")[2])
            if not number.half:
                return True
            half = fact.width()
            if half is not None and _equal(half * scale, float(number.half), places):
                return True
    return False


def _equal(value: float, written: float, unit: float) -> bool:
    return abs(value - written) <= 0.5 * unit * (1 + 1e-6) + 1e-15
