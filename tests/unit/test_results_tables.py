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


def test_a_folder_without_a_study_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path)])
    assert ended.value.code == 2
    assert "has no summary.csv" in capsys.readouterr().err


@pytest.mark.parametrize("page", ["foraging-far-again", "foraging-strangers"])
def test_the_differences_on_a_page_are_the_printed_ones(page: str) -> None:
    results = ROOT / "docs" / "results"
    text = (results / f"{page}.md").read_text(encoding="utf-8")
    rows = [
        line for line in tables(results / page).splitlines() if line.startswith("| OMG event − ")
    ]
    assert len(rows) > 5
    assert [row for row in rows if row not in text] == []
