"""Looks by meaning, and several studies on one page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from omg.report import SideBySide, collect, collect_all, render
from omg.report.html import Html, scoped
from omg.report.intervals import Interval, interval_plot
from omg.report.looks import explained_looks, kind_of, look_class, looks_of, nth_look
from omg.types import OmgError

from .report_data import Shape, write_agents, write_json, write_pipeline
from .test_report import Page

FEW = Shape(methods=("D3QN", "OMG tuned"), seeds=3, seen=2, unseen=2, tests=4)
OTHER = Shape(methods=("OMG tuned", "Naive OM", "D3QN"), seeds=2, seen=2, unseen=2, tests=4)


# --- looks -----------------------------------------------------------------------------------


def test_dashes_say_what_an_agent_knows_about_the_others() -> None:
    models = {"PPO": "none_am", "OMG": "omg_am", "LIAM": "liam_am", "Oracle": "oracle_am"}
    looks = looks_of({method: kind_of(model) for method, model in models.items()})
    classes = {method: look_class(look) for method, look in looks.items()}
    assert classes == {"PPO": "c6 d1", "OMG": "c0", "LIAM": "c1", "Oracle": "c12 d2"}
    words = explained_looks({m: kind_of(model) for m, model in models.items()})
    assert "dashed grey: no opponent model" in words
    assert kind_of("moa", "subgoal") == "subgoals"
    assert kind_of("moa", "discrete") == "model"


def test_no_two_methods_of_a_page_look_the_same() -> None:
    for models in (["none_am"] * 30, ["none_am", "omg_am"] * 15, ["oracle_am"] * 9 + ["omg_am"]):
        looks = looks_of({f"m{i}": kind_of(model) for i, model in enumerate(models)})
        assert len({look_class(look) for look in looks.values()}) == len(models)


def test_where_all_are_of_one_kind_the_looks_are_plain() -> None:
    kinds = {name: kind_of("none_am") for name in ("IQL", "VDN", "QMIX")}
    assert [look_class(look) for look in looks_of(kinds).values()] == ["c0", "c1", "c2"]
    assert explained_looks(kinds) == ""
    assert look_class(nth_look(9)) == "c1 d1"


# --- words and lines -------------------------------------------------------------------------


@pytest.mark.parametrize("label", ["A", "a long name − another long name, lr=0.001"])
def test_no_line_of_the_grid_strikes_through_words(label: str) -> None:
    """Behind the words of a row, and before them in the drawing's order, stands a plain box."""
    rows = [Interval(label, 0, 0.1 * i, -1.0, 1.0) for i in range(3)]
    text = interval_plot("x", rows, title="X", zero=True, x_label="x")
    boxes = [
        (m.start(), float(m[1]), float(m[2]))
        for m in re.finditer(r'<rect x="-6" y="([-\d]+)" width="104%" height="(\d+)"', text)
    ]
    words = list(re.finditer(r'<text x="[^"]*" y="(\d+)"[^>]*class="row-(?:label|value)"', text))
    assert len(words) == 6
    last_line = max(text.rindex('class="grid"'), text.rindex('class="zero"'))
    for word in words:
        y = float(word[1])
        assert any(
            last_line < at < word.start() and top <= y - 13 and y + 4 <= top + height
            for at, top, height in boxes
        )


# --- ids -------------------------------------------------------------------------------------


def test_a_scope_renames_ids_and_references_and_nothing_else() -> None:
    text = '<a href="#x">id="y"</a><b id="x" aria-labelledby="x y" data-chart="c"></b>'
    assert scoped(Html(text), "p-") == (
        '<a href="#p-x">id="y"</a><b id="p-x" aria-labelledby="p-x p-y" data-chart="p-c"></b>'
    )


# --- side by side ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("studies")
    return write_pipeline(root / "small", FEW), write_pipeline(root / "large", OTHER)


@pytest.fixture(scope="module")
def data(two: tuple[Path, Path]) -> SideBySide:
    found = collect_all(two)
    assert isinstance(found, SideBySide)
    return found


@pytest.fixture(scope="module")
def page(data: SideBySide) -> Page:
    return Page(render(data))


def test_every_method_of_every_study_stands_in_one_table(data: SideBySide, page: Page) -> None:
    assert data.names == ("small", "large")
    head, *rows = page.table("Results of all studies").rows
    assert head == [
        "Method",
        *(f"{n}: own return, {s} opponents" for n in data.names for s in ("seen", "unseen")),
    ]
    found = {row[0].strip(): row[1:] for row in rows}
    assert list(found) == ["D3QN", "OMG tuned", "Naive OM"]
    for column, (study, split) in enumerate(
        (study, split) for study in data.studies for split in ("train", "heldout")
    ):
        assert study.crossplay is not None
        (own,) = [
            row
            for row in study.crossplay.summaries()
            if (row.method, row.split, row.metric, row.lineup)
            == ("OMG tuned", split, "own_return", "homologue")
        ]
        assert found["OMG tuned"][column].startswith(f"{own.mean:.3f}")
    assert found["Naive OM"][:2] == ["–", "–"]


def test_a_method_looks_the_same_in_all_studies(data: SideBySide, page: Page) -> None:
    looks = {
        one["label"]: one["look"]
        for name, content in page.data.items()
        if name.endswith("curve-test-own-return-mean-data")
        for one in content["series"]
    }
    assert looks == {m: look_class(data.looks[m]) for m in data.methods}
    alone = collect([data.sources[1]])
    assert alone.slot("OMG tuned") == data.looks["OMG tuned"]


def test_ids_of_two_studies_do_not_meet(page: Page) -> None:
    ids = [str(a["id"]) for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    assert {"study1-results", "study2-results", "study2-replay-data"} <= set(ids)
    for _, attributes in page.elements:
        for key in ("aria-labelledby", "aria-controls", "for"):
            for name in str(attributes.get(key) or "").split():
                assert name in ids, name
        href = attributes.get("href")
        assert href is None or href[1:] in ids
        chart = attributes.get("data-chart")
        assert not chart or chart.startswith("study") or f"{chart}-data" in ids


def test_curves_that_are_compared_have_equal_axes(page: Page) -> None:
    one, other = (page.data[f"compared-{n}-curve-data"] for n in (1, 2))
    assert one["y"] == other["y"]


def test_settings_that_differ_between_studies_are_listed(
    two: tuple[Path, Path], tmp_path: Path
) -> None:
    again = write_pipeline(tmp_path / "again", FEW)
    for config in again.glob("agents/*/config.yaml"):
        text = config.read_text()
        config.write_text(re.sub(r"^lr: .*$", "lr: 0.123", text, flags=re.MULTILINE))
    rows = Page(render(collect_all([two[0], again]))).table(
        "Settings that differ between the studies"
    )
    assert [row[0] for row in rows.rows] == ["key", "lr"]
    assert rows.rows[1][2] == "0.123"


def test_runs_and_one_study_stay_one_study(two: tuple[Path, Path], tmp_path: Path) -> None:
    write_agents(tmp_path, Shape(methods=("Control",), seeds=1, tests=4))
    found = collect_all([two[0], tmp_path])
    assert not isinstance(found, SideBySide)
    assert "Control" in found.methods
    assert not isinstance(collect_all([two[0], two[0]]), SideBySide)  # the same folder twice


def test_studies_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    folders = [write_pipeline(tmp_path / name / "study", FEW) for name in "ab"]
    found = collect_all(folders)
    assert isinstance(found, SideBySide)
    assert found.names == tuple(map(str, folders))


def test_a_damaged_study_is_named(two: tuple[Path, Path], tmp_path: Path) -> None:
    broken = write_pipeline(tmp_path / "broken", FEW)
    content = json.loads((broken / "crossplay.json").read_text())
    write_json(broken / "crossplay.json", {**content, "format": 9})
    with pytest.raises(OmgError, match=r"broken, one of 2 studies: .* has format 9"):
        collect_all([two[0], broken])
