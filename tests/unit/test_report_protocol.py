"""What the report says of the protocol: comparisons, looks at the unseen side, headroom, tuning."""

from __future__ import annotations

from pathlib import Path

from omg.evaluation.comparisons import comparisons, p_words
from omg.report.formats import read_crossplay
from tests.unit.report_data import Shape, write_pipeline
from tests.unit.test_report import page_of


def test_the_comparisons_stand_with_their_corrected_p_values(tmp_path: Path) -> None:
    folder = write_pipeline(tmp_path / "study")
    rows = comparisons(read_crossplay(folder / "crossplay.json"))
    shown = next(t for t in page_of(folder).tables if t.caption == "Comparisons").rows[1:]
    told = [r for r in rows if r.lineup == "homologue"]
    assert len(shown) == len(told)
    for row, wanted in zip(shown, sorted(told, key=lambda r: r.split != "train"), strict=True):
        assert wanted.method in row[1]
        assert f"{wanted.other} ({wanted.against})" in row[2]
        assert row[4:6] == [p_words(wanted.p), p_words(wanted.p_holm)]


def test_the_primary_metric_is_said_to_be_named_before_only_where_a_pipeline_did(
    tmp_path: Path,
) -> None:
    folder = write_pipeline(tmp_path / "study")
    assert "named in the pipeline's file" not in page_of(folder).text
    (folder / "pipeline.json").write_text("{}")
    words = page_of(folder).text
    assert "Primary metric: own return, named in the pipeline's file before the runs." in words
    assert "The smallest sample has 3 seeds: a headline asks for 10 per method" in words


def test_one_method_is_compared_with_nobody(tmp_path: Path) -> None:
    folder = write_pipeline(tmp_path / "study", Shape(methods=("D3QN",)))
    assert not [t for t in page_of(folder).tables if t.caption == "Comparisons"]
