"""`make results-check`: numbers on pages are found in files, and wrong ones are not."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.results_check import ROOT, numbers_of, pages, untraced
from benchmarks.results_pages import Written

RESULTS = ROOT / "docs" / "results"
CELLS = """agent,method,seed,split,lineup,opponent,opponent_algorithm,episodes,own_return,ep_length
a1,A,1,heldout,homologue,x,script,9,1.0,20
a2,A,2,heldout,homologue,x,script,9,2.0,21
a3,A,3,heldout,homologue,x,script,9,3.0,22
b1,B fine,1,heldout,homologue,x,script,9,0.5,30
b2,B fine,2,heldout,homologue,x,script,9,0.6,31
b3,B fine,3,heldout,homologue,x,script,9,0.7,32
a1,A,1,train,homologue,y,script,9,5.0,40
a2,A,2,train,homologue,y,script,9,6.0,41
a3,A,3,train,homologue,y,script,9,7.0,42
"""
TEAMS = "name,first,best\none,0.11,0.91\ntwo,0.22,0.72\n"
# The page's study: A earns 2.00 ± 2.48 (in training 6.00), B fine 0.60 ± 0.25.
TESTED = """method,other,split,lineup,metric,difference,low,high,p,p_holm
B fine,A,heldout,homologue,own_return,-1.4,-3.85,1.05,0.017,0.034
C,A,heldout,homologue,own_return,-1.2,-3.65,1.25,4e-05,8e-05
B fine,A,train,homologue,own_return,-4.4,-5.4,-3.4,0.003,0.006
"""
PARTS = """what,method,other,difference,low,high,p
old ones,A,C,0.3,0.2,0.4,0.21
new ones,A,C,0.5,0.4,0.6,0.44
"""
TUNED = "method,configuration,chosen,mean,settings\nA,0,True,0.81,lr=1\nA,1,False,0.42,lr=2\n"
STEPS = "agent,method,seed,total_steps\na1,A,1,200192\nb1,B fine,1,90144\n"
OTHER = TESTED.replace("-1.4,-3.85,1.05,0.017,0.034", "-1.7,-1.8,-1.6,0.29,0.58")
TASKS = """task,method,tested,seeds,steps,max_return,max_low,max_high,max_at,average_return
3p-5f,VDN,greedy,5,2000000,0.28,0.22,0.34,1900608,0.16
3p-5f,IPPO 20M,greedy,5,20000000,0.41,0.32,0.54,20000000,0.36
4p-3f,VDN,greedy,4,3000000,0.77,0.72,0.84,3000000,0.66
"""
PAPER = """task,method,maximum,maximum_half,average,average_half
3p-5f,VDN,0.58,0.04,0.45,0.02
3p-5f,IPPO,0.61,,0.47,
4p-3f,VDN,0.93,0.01,0.82,0.03
"""
FILES = {
    "page": {
        "crossplay": CELLS,
        "teams": TEAMS,
        "comparisons": TESTED,
        "pairs": PARTS,
        "tuning": TUNED,
        "steps": STEPS,
    },
    "twin": {"comparisons": OTHER},
    "bench": {"benchmark": TASKS, "paper": PAPER},
}


def missing(tmp_path: Path, text: str, page: str = "page.md") -> list[str]:
    """What nothing carries of a page beside these files."""
    for folder, files in FILES.items():
        (tmp_path / folder).mkdir(exist_ok=True)
        for name, content in files.items():
            (tmp_path / folder / f"{name}.csv").write_text(content)
    (tmp_path / page).write_text(text)
    return [number.text for number in untraced(tmp_path / page, tmp_path)[0]]


HEAD = "| method | own return | steps per episode |\n|---|---|---|\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HEAD + "| A | 2.00 ± 2.48 | 21.0 |", []),
        (HEAD + "| A | 2.01 ± 2.48 | 21.0 |", ["2.01 ± 2.48"]),
        (HEAD + "| A | 2.00 ± 0.25 | 21.0 |", ["2.00 ± 0.25"]),
        (HEAD + "| A | 0.60 ± 0.25 | 21.0 |", ["0.60 ± 0.25"]),  # the other's
        (HEAD + "| **B, fine** | 0.60 ± 0.25 | 31.0 |", []),
        (HEAD + "| A | 21.0 | 2.00 |", ["21.0", "2.00"]),  # columns exchanged
        (HEAD + "| Another | 2.00 ± 2.48 | 21.0 |", ["2.00 ± 2.48", "21.0"]),
        (HEAD + "| A − B fine | +1.40 ± 2.45 | −10.0 |", []),
        (HEAD + "| A − B fine | −1.40 ± 2.45 | 10.0 |", ["−1.40 ± 2.45", "10.0"]),  # the wrong way
        ("A 2.00 and B fine 0.60.", []),
        ("A 2.00 and B fine 2.00.", ["2.00"]),
        ("It is 2.00 with `0.12345` and 17 seeds.", []),
        ("It is 2.34.", ["2.34"]),
        ("# With 2.34 in a heading", ["2.34"]),
        ("| team | first | best |\n|---|---|---|\n| the first | 0.11 | 0.91 |", []),
        ("| team | first | best |\n|---|---|---|\n| the first | 0.11 | 0.72 |", ["0.11", "0.72"]),
    ],
)
def test_a_number_is_carried_only_by_what_it_is_about(
    text: str, expected: list[str], tmp_path: Path
) -> None:
    assert missing(tmp_path, text) == expected


PAIRS = "| own return | difference | p | p (Holm) |\n|---|---|---|---|\n"
PART = "| difference | of | own return | p |\n|---|---|---|---|\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PAIRS + "| A − B fine | +1.40 ± 2.45 | 0.017 | 0.034 |", []),
        (PAIRS + "| A − B fine | +1.40 ± 2.45 | 0.034 | 0.017 |", ["0.034", "0.017"]),
        (PAIRS + "| A − C | +1.20 ± 2.45 | 4e-5 | 8e-5 |", []),
        (PAIRS + "| A − C | +1.20 ± 2.45 | 4e-4 | 9e-5 |", ["4e-4", "9e-5"]),
        (PAIRS + "| A − C | +1.20 ± 2.45 | 0.000 | 8e-5 |", ["0.000"]),
        (PAIRS + "| A − B fine | +1.40 ± 2.45 | 4e-5 | 8e-5 |", ["4e-5", "8e-5"]),  # another pair's
        (PART + "| A − C | old ones | +0.30 ± 0.10 | 0.210 |", []),
        (PART + "| A − C | old ones | +0.50 ± 0.10 | 0.440 |", ["+0.50 ± 0.10", "0.440"]),
        (PART + "| A − C | old ones | +0.30 ± 0.10 | 0.440 |", ["0.440"]),
        ("A minus B fine is +1.40 ± 2.45 (p 0.034 after Holm).", []),
        ("A minus B fine is +1.40 ± 2.45 (p 0.017 after Holm).", ["0.017"]),
        ("A − B fine +1.40 ± 2.45 (p 0.017, corrected 0.034).", []),
        ("A − B fine +1.40 ± 2.45 (p 0.017, corrected 0.017).", ["0.017"]),
        ("A − B fine +1.40 ± 2.45 (p 0.017) and A − C +1.20 ± 2.45 (p 4e-5).", []),
        ("A − B fine +1.40 ± 2.45 (p 4e-5) and A − C +1.20 ± 2.45 (p 0.017).", ["4e-5", "0.017"]),
        ("A − B fine +1.20 ± 2.45 (p 4e-5).", ["+1.20 ± 2.45", "4e-5"]),
        ("It is surely more (p 0.017).", ["0.017"]),  # than what?
        ("A − B fine +1.40 (p 0.034 after Holm) and A − C +1.20 (p 8e-5).", []),  # said once
        ("A − B fine +1.40 (p 0.017) and A − C +1.20 (p 8e-5).", ["8e-5"]),
    ],
)
def test_a_p_value_belongs_to_its_pair_and_its_difference(
    text: str, expected: list[str], tmp_path: Path
) -> None:
    assert missing(tmp_path, text) == expected


COUNTS = "| method | seeds | steps | own return |\n|---|---|---|---|\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (COUNTS + "| A | 3 | 200,192 | 2.00 |\n| B fine | 3 | 90,144 | 0.60 |", []),
        (COUNTS + "| A | 3 | 200,000 | 2.00 |", []),  # rounded to thousands
        (COUNTS + "| A | 4 | 200,191 | 2.00 |", ["4", "200,191"]),
        (COUNTS + "| A | 3 | 90,144 | 2.00 |", ["90,144"]),
        (COUNTS + "| A | 3 | 201,000 | 2.00 |", ["201,000"]),
    ],
)
def test_seeds_and_steps_are_the_methods(text: str, expected: list[str], tmp_path: Path) -> None:
    assert missing(tmp_path, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Opponents never met:\n\n" + HEAD + "| A | 2.00 | 21.0 |", []),
        ("Opponents of training:\n\n" + HEAD + "| A | 6.00 | 41.0 |", []),
        ("Opponents never met:\n\n" + HEAD + "| A | 6.00 | 41.0 |", ["6.00", "41.0"]),
        ("Opponents of training:\n\n" + HEAD + "| A | 2.00 | 21.0 |", ["2.00", "21.0"]),
        ("## Met in training\n\n" + HEAD + "| A | 6.00 | 41.0 |", []),
        ("## Met in training\n\nText.\n\n## Then\n\n" + HEAD + "| A | 6.00 | 21.0 |", ["6.00"]),
        ("| method | seen | unseen |\n|---|---|---|\n| A | 6.00 | 2.00 |", []),
        ("| method | seen | unseen |\n|---|---|---|\n| A | 2.00 | 6.00 |", ["2.00", "6.00"]),
        ("A − B fine is +4.40 ± 1.00 with opponents of training (p 0.003).", []),
        ("A − B fine is +4.40 ± 1.00 (p 0.003).", ["+4.40 ± 1.00", "0.003"]),
        ("A 2.00 on opponents never met and A 6.00 on those met in training.", []),
        ("A 6.00 on opponents never met and A 2.00 on those met in training.", ["6.00", "2.00"]),
    ],
)
def test_a_side_is_the_unseen_one_unless_words_say_otherwise(
    text: str, expected: list[str], tmp_path: Path
) -> None:
    assert missing(tmp_path, text) == expected


MANY = "| study | what | A − B fine | p (Holm) |\n|---|---|---|---|\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[One](page.md) A − B fine +1.40 ± 2.45 (p 0.017). [Two](twin.md) A − B fine +1.70.", []),
        ("[One](twin.md) A − B fine +1.40 ± 2.45. [Two](page.md) A − B fine +1.70.", ["all"]),
        ("A − B fine: +1.40 ± 2.45 ([the study](page.md)).", []),  # the first of its section
        ("[Two](twin.md).\n\nA − B fine: +1.40 ± 2.45 ([the study](page.md)).", ["all"]),
        ("[Two](twin.md).\n\n## One\n\nA − B fine: +1.40 ± 2.45 ([the study](page.md)).", []),
        ("[One](page.md):\n\n" + PAIRS + "| A − B fine | +1.40 | 0.017 | 0.034 |", []),
        ("[Two](twin.md):\n\n" + PAIRS + "| A − B fine | +1.40 | 0.017 | 0.034 |", ["all"]),
        (MANY + "| [1](page.md) | x | +1.40 | 0.034 |\n| [2](twin.md) | y | +1.70 | 0.580 |", []),
        (
            MANY + "| [1](twin.md) | x | +1.40 | 0.034 |\n| [2](page.md) | y | +1.70 | 0.580 |",
            ["all"],
        ),
        (
            MANY.replace("A − B fine", "B fine − A") + "| [1](page.md) | x | +1.40 | 0.034 |",
            ["all"],
        ),
        ("A − B fine: +1.40 ± 2.45.", ["all"]),  # no study is linked
    ],
)
def test_on_a_page_of_several_studies_a_number_is_of_the_one_linked_last(
    text: str, expected: list[str], tmp_path: Path
) -> None:
    found = missing(tmp_path, text, "many.md")
    numbers = [number.text for number in numbers_of(tmp_path / "many.md", tmp_path)]
    assert found == (numbers if expected == ["all"] else expected)


LEAD = (
    "| method | own return | A minus it | p (Holm) | steps per episode |\n|---|---|---|---|---|\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LEAD + "| B fine (new) | 0.60 ± 0.25 | +1.40 ± 2.45 | 0.034 | 31.0 |", []),
        (
            LEAD + "| B fine | 0.60 ± 0.25 | −1.40 ± 2.45 | 0.034 | 21.0 |",
            ["−1.40 ± 2.45", "0.034", "21.0"],
        ),
        (LEAD + "| B fine | 0.60 ± 0.25 | +1.40 ± 2.45 | 8e-5 | 31.0 |", ["8e-5"]),
    ],
)
def test_it_in_a_columns_head_is_the_rows_method(
    text: str, expected: list[str], tmp_path: Path
) -> None:
    assert missing(tmp_path, text) == expected


@pytest.mark.parametrize(("setting", "expected"), [("lr=1", []), ("lr=2", ["0.81"])])
def test_the_words_of_a_row_are_those_of_the_files_row(
    setting: str, expected: list[str], tmp_path: Path
) -> None:
    table = f"| method | configuration | score |\n|---|---|---|\n| A | `{setting}` | **0.81** |"
    assert missing(tmp_path, table) == expected


BENCH = "| method | seeds | steps | maximum at | maximum | average |\n|---|---|---|---|---|---|\n"
VDN = "| VDN | 5 | 2,000,000 | 1,900,608 | 0.28 (0.22 to 0.34) | 0.16 |"
BESIDE = "| method | maximum | the paper: maximum | the paper: average |\n|---|---|---|---|\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("## 3p-5f\n\n" + BENCH + VDN, []),
        ("## 3p-5f\n\n## 4p-3f\n\n" + BENCH + VDN, ["all"]),
        ("## Tasks\n\n" + BENCH + VDN, ["all"]),  # which of the two?
        ("## `Foraging-3p-5f-v3`\n\n### All methods\n\n" + BENCH + VDN, []),
        (
            "## 3p-5f\n\n" + BENCH + "| VDN | 5 | 2,000,000 | 1,900,608 | 0.16 | 0.28 |",
            ["0.16", "0.28"],
        ),
        (
            "## 3p-5f\n\n" + BENCH + "| VDN | 4 | 2,100,000 | 1,900,608 | 0.28 | 0.16 |",
            ["4", "2,100,000"],
        ),
        ("## 3p-5f\n\n" + BENCH + VDN.replace("0.28", "0.22"), ["0.22"]),  # its lower end
        ("## 3p-5f\n\n" + BENCH + VDN.replace("0.34", "0.28"), ["0.28"]),
        ("## 3p-5f\n\n" + BESIDE + "| VDN | 0.28 | 0.58 ± 0.04 | 0.45 |", []),
        ("## 3p-5f\n\n" + BESIDE + "| IPPO 20M | 0.41 | 0.61 | 0.47 |", []),
        ("## 3p-5f\n\n" + BESIDE + "| VDN | 0.28 | 0.45 | 0.58 |", ["0.45", "0.58"]),
        ("## 3p-5f\n\n" + BESIDE + "| VDN | 0.28 | 0.58 ± 0.02 | 0.47 |", ["0.58 ± 0.02", "0.47"]),
        ("## 3p-5f\n\n" + BESIDE + "| VDN | 0.58 | 0.28 | 0.45 |", ["0.58", "0.28"]),
        ("## 4p-3f\n\n" + BESIDE + "| VDN | 0.77 | 0.58 | 0.45 |", ["0.58", "0.45"]),
        ("| task | VDN, the paper |\n|---|---|\n| 4p-3f | 0.93 |", ["0.93"]),  # no such head
        ("| method | task | the paper |\n|---|---|---|\n| VDN | 4p-3f | 0.93 |", []),
        ("| method | task | the paper |\n|---|---|---|\n| VDN | 3p-5f | 0.93 |", ["0.93"]),
    ],
)
def test_benchmarks_and_the_papers_figures_are_bound_to_their_task(
    text: str, expected: list[str], tmp_path: Path
) -> None:
    found = missing(tmp_path, text, "bench.md")
    numbers = [number.text for number in numbers_of(tmp_path / "bench.md", tmp_path)]
    assert found == (numbers if expected == ["all"] else expected)


def test_figures_of_others_stand_in_a_list(tmp_path: Path) -> None:
    table = "| method | the paper |\n|---|---|\n| A | 2.00 |"
    assert missing(tmp_path, table) == ["2.00"], "even where a file has such a number"
    (tmp_path / "quoted.csv").write_text("page,number,source\npage.md,2.00,somebody\n")
    assert missing(tmp_path, table) == []
    assert missing(tmp_path, HEAD + "| B fine | 2.00 | 31.0 |") == ["2.00"], "not below other heads"


# --- the pages as they are ------------------------------------------------------------------------

Kind = Callable[[Written], bool]
KINDS: dict[str, Kind] = {
    "a mean": lambda number: number.in_table and bool(number.half) and len(number.who) == 1,
    "a difference": lambda number: bool(number.half) and len(number.who) == 2,
    "a p-value": lambda number: number.column == "p" and bool(number.who),
    "a corrected p-value": lambda number: number.column == "p (holm)",
    "seeds": lambda number: number.column == "seeds",
}
STUDIES = ("foraging-strangers", "foraging-strangers-supervised", "foraging-three")


def mistakes(page: Path, text: str, tmp_path: Path) -> list[Written]:
    """What is reported of a real page with another text."""
    (tmp_path / page.name).write_text(text, encoding="utf-8")
    return untraced(tmp_path / page.name, RESULTS)[0]


def other(digit: str) -> str:
    return str((int(digit) + 3) % 9 + 1)


@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_number_of_a_real_page_is_reported(name: str, kind: str, tmp_path: Path) -> None:
    page = RESULTS / f"{name}.md"
    lines = page.read_text(encoding="utf-8").splitlines()
    number = next(each for each in numbers_of(page, RESULTS) if KINDS[kind](each))
    line = lines[number.line - 1]
    first = re.search(r"[1-9]", number.text)
    assert first
    changed = number.text[: first.start()] + other(first[0]) + number.text[first.end() :]
    cell = rf"(?<![\w.]){re.escape(number.text)}(?![\w.])"
    lines[number.line - 1] = re.sub(cell, changed, line, count=1)
    assert lines[number.line - 1] != line
    found = mistakes(page, "\n".join(lines), tmp_path)
    assert changed in [each.text for each in found]
    assert {each.line for each in found} == {number.line}, "p-values have lost their difference"


@pytest.mark.parametrize("name", STUDIES)
def test_exchanged_sides_of_a_real_page_are_reported(name: str, tmp_path: Path) -> None:
    page = RESULTS / f"{name}.md"
    text = page.read_text(encoding="utf-8")
    never, training = "Opponents never met", "Opponents of training"
    swapped = text.replace(never, "\0").replace(training, never).replace("\0", training)
    found, tables = mistakes(page, swapped, tmp_path), {"own return", "p", "food collected"}
    assert tables <= {number.column for number in found}


def test_exchanged_studies_of_a_real_page_are_reported(tmp_path: Path) -> None:
    page = RESULTS / "README.md"
    text = page.read_text(encoding="utf-8")
    numbers = numbers_of(page, RESULTS)
    first, second = list(dict.fromkeys(n.study for n in numbers if len(n.who) == 2))[:2]
    swapped = text.replace(f"({first}.md", "(\0.md").replace(f"({second}.md", f"({first}.md")
    found = mistakes(page, swapped.replace("\0", second), tmp_path)
    assert {first, second} <= {number.study for number in found}


def test_every_number_of_the_pages_is_carried_by_a_file() -> None:
    for page in pages():
        assert not untraced(page, RESULTS)[0], page
