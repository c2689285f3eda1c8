"""What the report says of the protocol: comparisons, looks at the unseen side, headroom, tuning."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from omg.evaluation.comparisons import comparisons, p_words
from omg.evaluation.gap import write_headroom
from omg.evaluation.named import Named
from omg.opponents.pool import OpponentPool
from omg.opponents.unseen import FILE, record_look
from omg.report.formats import read_crossplay
from tests.unit.report_data import Shape, write_pipeline
from tests.unit.test_headroom import PLAIN, found
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


def test_what_was_named_and_changed_is_told_with_the_looks_until_then(tmp_path: Path) -> None:
    folder = write_pipeline(tmp_path / "study")
    (folder / "pipeline.json").write_text("{}")
    assert "Named on" not in page_of(folder).text
    named = Named(
        when="2026-11-19T10:00:00+00:00",
        sha256="f",
        omg="1",
        commit="c",
        metric="own_return",
        baseline="OMG event",
        methods={f"m{i}": 3 for i in range(11)},
        looks=0,
        steps=0,
        parts={"metric": "a"},
    )
    write_named(folder, named)
    words = page_of(folder).text
    told = "Named on 2026-11-19 before any look: own_return, baseline OMG event, 11 methods."
    assert told in words
    assert "named in the pipeline's file before the runs" in words
    day = "2026-12-01T10:00:00+00:00"
    changes = ("method LIAM", "metric")
    write_named(folder, named, dataclasses.replace(named, when=day, looks=2, changed=changes))
    words = page_of(folder).text
    assert f"{told} Changed on 2026-12-01 after 2 looks: method LIAM, metric." in words
    assert "named in the pipeline's file before the runs" not in words
    write_named(folder, dataclasses.replace(named, looks=1, steps=7, metric="", methods={"m": 1}))
    late = "Named on 2026-11-19 after 1 look, when 7 steps had been begun: 1 method."
    words = page_of(folder).text
    assert late in words
    assert "named in the pipeline's file before the runs" not in words


def write_named(folder: Path, *lines: Named) -> None:
    text = "".join(json.dumps(dataclasses.asdict(line)) + "\n" for line in lines)
    (folder / "named.jsonl").write_text(text)


def test_one_method_is_compared_with_nobody(tmp_path: Path) -> None:
    folder = write_pipeline(tmp_path / "study", Shape(methods=("D3QN",)))
    assert not [t for t in page_of(folder).tables if t.caption == "Comparisons"]


def test_a_study_without_headroom_says_so_before_anything_else(tmp_path: Path) -> None:
    folder = write_pipeline(tmp_path / "study")
    assert "Headroom" not in page_of(folder).text
    write_headroom(found(oracle=PLAIN), folder)
    page = page_of(folder)
    warned = page.text.index("No headroom with unseen opponents in own return")
    assert warned < page.text.index("Headroom by side") < page.text.index("Results per method")
    rows = page.table("Headroom by opponent").rows
    assert rows[1][:3] == ["a", "unseen", "0.00"]
    assert rows[1][6].startswith("9.50")


def test_how_far_held_out_members_are_from_training_ones_stands_beside_the_gain(
    tmp_path: Path,
) -> None:
    folder = write_pipeline(tmp_path / "study")
    assert not [t for t in page_of(folder).tables if t.caption.startswith("Differences from tr")]
    (folder / "nearest.csv").write_text(
        "member,side,nearest,disagreement,mean\na,heldout,b,0.4321,0.5\nz,heldout,b,0.1,0.5\n"
        "b,train,c,0.2,0.3\nc,train,b,0.3,0.3\n"
    )
    write_headroom(found(), folder)
    page = page_of(folder)
    rows = page.table("Differences from training members").rows
    assert len(rows) == 3  # the head, and who was not trained with
    assert "Training members differ by 0.250 on average from the nearest other one." in page.text
    gain = next(row.difference for row in found().rows() if row.opponent == "a")
    assert gain is not None
    assert rows[1] == ["a", "unseen", "0.432", "b", f"+{gain:.3f}"]
    assert rows[2] == ["z", "unseen", "0.100", "b", "–"]


def test_a_study_with_headroom_is_not_warned_of(tmp_path: Path) -> None:
    folder = write_pipeline(tmp_path / "study")
    write_headroom(found(), folder)
    page = page_of(folder)
    assert "No headroom" not in page.text
    assert page.table("Headroom by side").rows[1][3] == "yes"


def test_looks_at_the_unseen_side_are_counted_and_listed(tmp_path: Path) -> None:
    folder = write_pipeline(tmp_path / "study")
    assert "The unseen side was looked at" not in page_of(folder).text
    pool = OpponentPool.create(tmp_path / "pool")
    pool.add_script("random", split="heldout")
    for kind in ("evaluation", "headroom"):
        record_look(pool, pool.members(), kind=kind, runs={"a": ""})
    (pool.path / FILE).rename(folder / FILE)
    page = page_of(folder)
    said = "looked at 2 times: 1 to evaluate agents, 1 to measure headroom."
    assert f"The unseen side was {said}" in page.text
    rows = page.table("Looks at the unseen side").rows[1:]
    assert [row[1:4] for row in rows] == [
        ["evaluation", "1", "script-random-0"],
        ["headroom", "1", "script-random-0"],
    ]


def test_the_configurations_that_were_tried_are_listed(tmp_path: Path) -> None:
    folder = write_pipeline(tmp_path / "study")
    assert "Tuning" not in page_of(folder).text
    (folder / "tuning.csv").write_text(
        "method,configuration,chosen,metric,mean,seeds,opponents,env_steps,settings\n"
        "D3QN,0,False,own_return,0.25,0.2 0.3,2,1000,lr=0.1\n"
        'D3QN,1,True,own_return,0.5,0.4 0.6,2,1000,"lr=0.2, gamma=0.9"\n'
    )
    page = page_of(folder)
    rows = page.table("Tuning").rows[1:]
    assert [row[1:] for row in rows] == [
        ["0", "lr=0.1", "0.250", "1,000", ""],
        ["1", "lr=0.2, gamma=0.9", "0.500", "1,000", "chosen"],
    ]
    assert "Not tuned: Control, Naive OM, OMG paper, OMG tuned." in page.text
