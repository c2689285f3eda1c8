"""Looks at the held-out side: each is recorded once, where everybody finds it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omg.evaluation.crossplay import CrossplayPlan, run_crossplay
from omg.evaluation.evaluate import crossplay
from omg.evaluation.gap import measure_headroom
from omg.opponents.pool import OpponentPool
from omg.opponents.unseen import FILE, looks_of, looks_words, read_looks, record_look
from omg.types import OmgError

from .studies import make_run
from .test_sides import scripted


def look(pool: OpponentPool, *, run: str = "a", weights: str = "1", episodes: int = 5) -> bool:
    return record_look(
        pool, pool.members(), kind="evaluation", runs={run: weights}, episodes=episodes
    )


def test_a_look_is_recorded_once_and_another_one_again(tmp_path: Path) -> None:
    pool = scripted(tmp_path)
    assert look(pool)
    assert not look(pool), "the same numbers"
    assert look(pool, weights="2"), "the run was trained again"
    assert look(pool, episodes=6)
    first, *others = read_looks(pool.path / FILE)
    assert len(others) == 2
    assert (first.runs, first.members, first.episodes) == (("a",), ("script-random-0",), 5)
    assert looks_words([first]) == "The unseen side was looked at once: 1 to evaluate agents."
    assert looks_words([]) == ""


def test_what_is_not_held_out_is_no_look(tmp_path: Path) -> None:
    pool = scripted(tmp_path)
    seen = [*pool.members("train"), *pool.members("validation")]
    assert not record_look(pool, seen, kind="evaluation", runs={"a": ""})
    assert not (pool.path / FILE).exists()


def test_a_study_keeps_the_looks_at_its_pool(tmp_path: Path) -> None:
    pool = scripted(tmp_path)
    assert looks_of(pool) == pool.path / FILE
    (tmp_path / "pipeline.json").write_text("{}")
    assert looks_of(pool) == tmp_path / FILE


def test_a_line_cut_off_by_a_crash_is_left_out_and_damage_is_told(tmp_path: Path) -> None:
    pool = scripted(tmp_path)
    look(pool)
    path = pool.path / FILE
    whole = path.read_text()
    path.write_text(whole + '{"key": "x"')
    assert len(read_looks(path)) == 1
    path.write_text("nonsense\n" + whole)
    with pytest.raises(OmgError, match="line 1, is damaged"):
        read_looks(path)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    words = ["--config=d3qn", f"--opponent_pool={scripted(folder).path}"]
    make_run(folder, "plain", *words, "--label=Plain")
    make_run(folder, "best", *words, "--label=Best", "--opponent_members=['script-random-0']")
    return folder


def kinds(study: Path) -> list[str]:
    return [look.kind for look in read_looks(study / "pool" / FILE)]


@pytest.mark.long
def test_training_evaluation_and_headroom_are_looks_of_their_own_kinds(
    study: Path, tmp_path: Path
) -> None:
    assert kinds(study) == ["training"], "a best response to a held-out opponent"
    crossplay([study / "plain"], split="validation", episodes=2)
    assert kinds(study) == ["training"]
    for _ in range(2):
        crossplay([study / "plain"], split="both", episodes=2, out=tmp_path / "out")
    assert kinds(study) == ["training", "evaluation"]
    run_crossplay([study / "plain"], study / "pool", CrossplayPlan(episodes=3))
    assert kinds(study)[2:] == ["evaluation"]
    measure_headroom([study / "plain"], study / "pool", names={"plain": "Plain"}, episodes=2)
    assert kinds(study)[3:] == ["headroom"]
    entry = json.loads((study / "pool" / FILE).read_text().splitlines()[1])
    assert entry["runs"] == [str(study / "plain")]
    assert entry["options"]["finetune_episodes"] == 0


@pytest.mark.long
def test_a_look_that_cannot_be_recorded_is_refused_before_anything_is_played(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omg.opponents.unseen.looks_of", lambda pool: study / "no" / FILE)
    played: list[object] = []
    with pytest.raises(OmgError, match="Looks at held-out opponents are recorded there"):
        crossplay(
            [study / "plain"], split="both", episodes=7, on_cell=lambda *cell: played.append(cell)
        )
    assert not played
