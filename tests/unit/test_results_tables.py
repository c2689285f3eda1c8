"""`benchmarks.results_tables`: a page's tables are what the study's files say."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.results_check import ROOT
from benchmarks.results_tables import main, tables

SUMMARY = """method,split,side,lineup,metric,mean,mean_low,mean_high,agents
B,heldout,unseen,homologue,own_return,0.2,0.1,0.3,5
A,heldout,unseen,homologue,own_return,0.5,0.48,0.52,10
A,heldout,unseen,homologue,ep_length,20.04,19.0,21.08,10
A,heldout,unseen,mixed,own_return,0.9,0.8,1.0,10
"""
COMPARED = """method,other,against,split,side,lineup,metric,difference,low,high,p,p_holm
B,A,baseline,heldout,unseen,homologue,own_return,-0.3,-0.4,-0.2,0.00000312,0.0312
A,B,best other,heldout,unseen,homologue,own_return,0.3,0.2,0.4,0.00000312,0.0312
"""
GAPS = """split,side,metric,gap,difference,low,high,headroom
heldout,unseen,own_return,oracle - plain,0.1,0.05,0.15,True
heldout,unseen,ep_length,oracle - plain,-3,-5,-1,True
"""

TEAMS = (
    "task,method,tested,seeds,steps,max_return,max_low,max_high,max_at,"
    "average_return,average_low,average_high,last_returns\n"
    "field,random play,as it plays,0,0,0.0125,,,0,0.0125,,,\n"
    "field,QMIX,greedy,5,2000000,0.987,0.96,1.0,1950000,0.81,0.7,0.92,1 1 1 1 0.9\n"
)

PAPER = (
    "task,method,maximum,maximum_half,average,average_half\n"
    "elsewhere,QMIX,0.1,0.1,0.1,0.1\n"
    "field,QMIX,0.96,0.07,-31.5,2.0\n"
)


def test_the_best_method_comes_first_and_the_baseline_is_ahead(tmp_path: Path) -> None:
    (tmp_path / "summary.csv").write_text(SUMMARY)
    (tmp_path / "comparisons.csv").write_text(COMPARED)
    (tmp_path / "headroom_sides.csv").write_text(GAPS)
    lines = [line for line in tables(tmp_path).splitlines() if line and "---" not in line]
    assert lines == [
        "## unseen opponents",
        "| method | seeds | own return | steps per episode |",
        "| A | 10 | 0.500 ± 0.020 | 20.0 ± 1.0 |",
        "| B | 5 | 0.200 ± 0.100 | - |",
        "| own return | difference | p | p (Holm) |",
        "| A − B | +0.300 ± 0.100 | 3e-6 | 0.031 |",
        "## Headroom",
        "| opponents | gap | own return |",
        "| unseen | oracle - plain | +0.100 ± 0.050 |",
    ]


def test_intervals_of_teams_stand_beside_their_means_and_the_best_comes_first(
    tmp_path: Path,
) -> None:
    (tmp_path / "benchmark.csv").write_text(TEAMS)
    (tmp_path / "paper.csv").write_text(PAPER)
    told = [line for line in tables(tmp_path).splitlines() if line.startswith("| ")][-2:]
    assert told == [
        "| QMIX | greedy | 5 | 2,000,000 | 1,950,000 | 0.99 (0.96 to 1.00) | 0.81 (0.70 to 0.92) "
        "| 0.96 ± 0.07 | −31.5 ± 2.0 |",
        "| random play | as it plays | - | - | - | 0.01 | 0.01 | - | - |",
    ]


def test_a_folder_without_a_study_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path)])
    assert ended.value.code == 2
    assert "has no summary.csv" in capsys.readouterr().err


@pytest.mark.parametrize("file", sorted((ROOT / "docs/results").glob("*/summary.csv")))
def test_every_study_can_be_told(file: Path) -> None:
    assert "| method | seeds |" in tables(file.parent)


def test_a_pair_is_compared_by_some_seeds_and_some_opponents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seeds 1 to 3 of A earn 1, 2, 3 with x; of B 0, 0.5, 1. Welch's t is 2.32 with 2.94."""
    head = "method,seed,split,lineup,opponent,own_return\n"
    rows = [
        f"{method},{seed},heldout,homologue,script-{opponent}-0,{value}"
        for method, each in (("A", (1.0, 2.0, 3.0, 99.0)), ("B", (0.0, 0.5, 1.0, -99.0)))
        for seed, own in enumerate(each, start=1)
        for opponent, value in (("x", own), ("y", 50.0 * seed))
    ]
    (tmp_path / "crossplay.csv").write_text(head + "\n".join(rows) + "\n")
    words = [str(tmp_path), "--pair", "A", "B", "--seeds", "1:3", "--opponents", "x"]
    out = tmp_path / "pairs.csv"
    assert main([*words, "--out", str(out), "--what", "first"]) == 0
    assert main([*words, "--out", str(out), "--what", "again"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == told[1]
    assert told[0].startswith("A − B: +1.500 ± 2.0")
    assert 0.10 < float(told[0].rpartition(" ")[2]) < 0.11
    lines = out.read_text().splitlines()
    assert [line.partition(",")[0] for line in lines] == ["what", "first", "again"]
    with pytest.raises(SystemExit, match="no such games of A and C"):
        main([str(tmp_path), "--pair", "A", "C"])


@pytest.mark.parametrize(
    "page",
    [
        "foraging-far-again",
        "foraging-strangers",
        "foraging-strangers-sight",
        "foraging-strangers-noise",
        "foraging-strangers-again",
        "foraging-population",
        "foraging-strangers-subgoals",
        "foraging-strangers-supervised",
        "foraging-strangers-ablations",
    ],
)
def test_the_differences_on_a_page_are_the_printed_ones(page: str) -> None:
    results = ROOT / "docs" / "results"
    text = (results / f"{page}.md").read_text(encoding="utf-8")
    rows = [
        line for line in tables(results / page).splitlines() if line.startswith("| OMG event − ")
    ]
    assert rows
    assert [row for row in rows if row not in text] == []
