"""`make results-check`: numbers on pages are found in files, and wrong ones are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.results_check import ROOT, pages, untraced

CELLS = """agent,method,seed,split,lineup,opponent,opponent_algorithm,episodes,own_return,ep_length
a1,A,1,heldout,homologue,x,script,9,1.0,20
a2,A,2,heldout,homologue,x,script,9,2.0,21
a3,A,3,heldout,homologue,x,script,9,3.0,22
b1,B fine,1,heldout,homologue,x,script,9,0.5,30
b2,B fine,2,heldout,homologue,x,script,9,0.6,31
b3,B fine,3,heldout,homologue,x,script,9,0.7,32
"""
TEAMS = "name,first,best\none,0.11,0.91\ntwo,0.22,0.72\n"


def missing(tmp_path: Path, text: str) -> list[str]:
    """What nothing carries of a page about two methods; A earns 2.00 ± 2.48, B 0.60 ± 0.25."""
    (tmp_path / "page").mkdir(exist_ok=True)
    (tmp_path / "page/crossplay.csv").write_text(CELLS)
    (tmp_path / "page/teams.csv").write_text(TEAMS)
    (tmp_path / "page.md").write_text(text)
    return [number.text for number in untraced(tmp_path / "page.md", tmp_path)[0]]


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
        (HEAD + "| A − B fine | +1.40 ± 2.45 | −10.0 |", []),
        ("A 2.00 and B fine 0.60.", []),
        ("A 2.00 and B fine 2.00.", ["2.00"]),
        ("It is 2.00 with `0.12345` and 17 seeds.", []),
        ("It is 2.34.", ["2.34"]),
        ("| team | first | best |\n|---|---|---|\n| the first | 0.11 | 0.91 |", []),
        ("| team | first | best |\n|---|---|---|\n| the first | 0.11 | 0.72 |", ["0.11", "0.72"]),
    ],
)
def test_a_number_is_carried_only_by_what_it_is_about(
    text: str, expected: list[str], tmp_path: Path
) -> None:
    assert missing(tmp_path, text) == expected


def test_figures_of_others_stand_in_a_list(tmp_path: Path) -> None:
    table = "| method | the paper |\n|---|---|\n| A | 2.00 |"
    assert missing(tmp_path, table) == ["2.00"], "even where a file has such a number"
    (tmp_path / "quoted.csv").write_text("page,number,source\npage.md,2.00,somebody\n")
    assert missing(tmp_path, table) == []


@pytest.mark.long
def test_every_number_of_the_pages_is_carried_by_a_file() -> None:
    results = ROOT / "docs" / "results"
    for page in pages():
        assert not untraced(page, results)[0], page
