"""What a study names before it runs is written down first, and so is every change of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import omg.studies.plan
from omg.evaluation.named import FILE, Named, read_named
from omg.experiment.provenance import source_commit
from omg.opponents.pool import OpponentPool
from omg.opponents.unseen import record_look
from omg.studies.execute import run_pipeline
from omg.studies.named import name_study
from omg.studies.steps import Plan
from omg.types import OmgError

from .test_pipeline import STUDY, changed


def planned(
    folder: Path, content: dict[str, Any], *words: str, headroom: bool = False, note: str = ""
) -> Plan:
    """The plan of a file that is written again."""
    file = folder / "study.yaml"
    file.write_text(note + yaml.safe_dump(content))
    return omg.studies.plan.plan_of(
        pipeline=str(file), out=str(folder / "out"), words=words, headroom=headroom
    )


def name(plan: Plan, begun: int = 0) -> list[Named]:
    plan.out.mkdir(exist_ok=True)
    name_study(plan, begun=begun)
    return read_named(plan.out)


def test_the_first_line_says_what_the_file_names(tmp_path: Path) -> None:
    (line,) = name(planned(tmp_path, changed("agents.methods.1.seeds", [7])))
    assert (line.metric, line.baseline, line.changed) == ("own_return", "D3QN", ())
    assert line.methods == {"OMG tuned": 2, "D3QN": 1}
    assert (line.looks, line.steps, line.commit) == (0, 0, source_commit())
    text = (tmp_path / "study.yaml").read_bytes()
    assert line.sha256 == hashlib.sha256(text).hexdigest()


def test_without_a_baseline_it_is_the_first_method(tmp_path: Path) -> None:
    (line,) = name(planned(tmp_path, changed("crossplay.baseline", ...)))
    assert line.baseline == "OMG tuned"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (changed("crossplay.split", "both"), []),  # the default, said
        (changed("agents.methods", STUDY["agents"]["methods"][::-1]), []),
        (STUDY, ["--n_workers=3"]),  # changes no result
    ],
)
def test_what_means_the_same_adds_no_line(
    tmp_path: Path, content: dict[str, Any], words: list[str]
) -> None:
    name(planned(tmp_path, STUDY))
    assert len(name(planned(tmp_path, content, *words, note="# a remark\n"))) == 1


def test_what_a_file_does_not_say_is_no_part_of_it(tmp_path: Path) -> None:
    """Else a key that a later version brings would be a change of every older file."""
    assert set(planned(tmp_path, STUDY).parts) == {
        *("env_config", "common", "opponents", "priors", "agents", "crossplay", "report"),
        *("metric", "baseline", "method OMG tuned", "method D3QN"),
    }


def test_measuring_headroom_first_is_no_change_of_the_file(tmp_path: Path) -> None:
    name(planned(tmp_path, changed("agents.methods.1.seeds", [1, 2, 3]), headroom=True))
    assert len(name(planned(tmp_path, changed("agents.methods.1.seeds", [1, 2, 3])))) == 1


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("crossplay.metric", "team_return", ("metric",)),
        ("crossplay.baseline", "OMG tuned", ("baseline",)),
        ("crossplay.episodes", 8, ("crossplay",)),
        ("agents.methods.1.settings", {"lr": 0.5}, ("method D3QN",)),
        ("agents.methods.1.name", "New", ("method D3QN", "baseline", "method New")),
        ("agents.seeds", [1, 2, 3], ("agents",)),
        ("common.lr", 0.2, ("common",)),
        ("report", False, ("report",)),
    ],
)
def test_a_change_is_another_line_that_says_what_changed(
    tmp_path: Path, path: str, value: Any, told: tuple[str, ...]
) -> None:
    name(planned(tmp_path, STUDY))
    content = changed(path, value)
    if value == "New":
        content["crossplay"]["baseline"] = "New"
    assert set(name(planned(tmp_path, content))[-1].changed) == set(told)


def test_settings_of_the_command_line_count(tmp_path: Path) -> None:
    name(planned(tmp_path, STUDY))
    assert name(planned(tmp_path, STUDY, "--lr=0.7"))[-1].changed == ("command line",)
    assert name(planned(tmp_path, STUDY))[-1].changed == ("command line",)


def test_looks_and_steps_until_then_are_counted(tmp_path: Path) -> None:
    name(planned(tmp_path, STUDY))
    out = tmp_path / "out"
    (out / "pipeline.json").write_text("{}")
    pool = OpponentPool.create(out / "pool")
    pool.add_script("random", split="heldout")
    record_look(pool, pool.members(), kind="evaluation", runs={"a": ""})
    line = name(planned(tmp_path, changed("report", False)), begun=4)[-1]
    assert (line.looks, line.steps) == (1, 4)


def test_a_line_cut_off_by_a_crash_is_written_again(tmp_path: Path) -> None:
    plan = planned(tmp_path, STUDY)
    (first,) = name(plan)
    path = plan.out / FILE
    path.write_text(path.read_text()[:40])
    assert read_named(plan.out) == []
    (again,) = name(plan)
    assert again.parts == first.parts


def test_it_is_written_before_anything_starts_and_not_for_what_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there: list[int] = []
    plan = planned(tmp_path, STUDY)

    def run(self: Any, decisions: Any) -> None:
        there.append(len(read_named(plan.out)))

    monkeypatch.setattr("omg.studies.execute._Executor.run", run)
    run_pipeline(plan, jobs=1)
    assert there == [1]
    foreign = plan.out / "agents/d3qn-s1"
    foreign.mkdir(parents=True)
    with pytest.raises(OmgError, match="did not make it"):
        run_pipeline(planned(tmp_path, changed("report", False)), jobs=1)
    assert len(read_named(plan.out)) == 1
    assert json.loads((plan.out / FILE).read_text())["steps"] == 0
