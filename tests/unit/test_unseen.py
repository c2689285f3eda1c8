"""Looks at the held-out side: each is recorded once, where everybody finds it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from omg.catalogue.choice import choose_of_run
from omg.catalogue.play.episodes import play
from omg.config.loader import load_command_line
from omg.envs.registry import make_batched
from omg.evaluation.agent_runs import SeatedAgent, read_agent_run
from omg.evaluation.crossplay import CrossplayPlan, run_crossplay
from omg.evaluation.disagreement import compare_pool
from omg.evaluation.evaluate import crossplay
from omg.evaluation.gap import measure_headroom
from omg.evaluation.own_game import play_own_game
from omg.evaluation.subgoal_replay import write_subgoal_replays
from omg.experiment.run import Run
from omg.opponents.building import pool_players
from omg.opponents.pool import OpponentPool
from omg.opponents.unseen import (
    FILE,
    Look,
    looks_in,
    looks_of,
    looks_words,
    read_looks,
    record_look,
    record_seated,
    recorded,
)
from omg.storage.files import RunFolder
from omg.types import OmgError

from .studies import SMALL, TASK, make_run
from .test_sides import scripted, started

CPU = torch.device("cpu")
UNSEEN = "--opponent_members=['script-random-0']"


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
    assert look(pool, run="b"), "after it"
    assert [found.runs for found in read_looks(path)] == [("a",), ("b",)]
    path.write_text("nonsense\n" + whole)
    with pytest.raises(OmgError, match="line 1, is damaged"):
        read_looks(path)


def test_a_look_written_by_two_processes_at_once_is_one(tmp_path: Path) -> None:
    pool = scripted(tmp_path)
    look(pool)
    path = pool.path / FILE
    path.write_text(path.read_text() * 2)
    assert len(read_looks(path)) == 1
    (tmp_path / FILE).write_text(path.read_text())
    assert len(looks_in(tmp_path)) == 1


def test_what_the_caller_records_is_not_recorded_again(tmp_path: Path) -> None:
    pool = scripted(tmp_path)
    with recorded():
        record_seated(pool, pool.members())
    assert not (pool.path / FILE).exists()
    record_seated(pool, pool.members())
    assert len(read_looks(pool.path / FILE)) == 1


def test_entering_a_run_with_held_out_members_is_a_look_before_anything_is_played(
    tmp_path: Path,
) -> None:
    pool = scripted(tmp_path)
    with started(pool, tmp_path, UNSEEN):
        (found,) = read_looks(pool.path / FILE)
    assert (found.kind, found.members) == ("training", ("script-random-0",))


def test_comparing_members_is_a_look_where_some_are_held_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = scripted(tmp_path)
    config = load_command_line([*SMALL, "--config=d3qn", *TASK]).config

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("omg.evaluation.disagreement._Table.play", crash)
        with pytest.raises(KeyboardInterrupt):
            compare_pool(pool, config, episodes=2)
    (found,) = read_looks(pool.path / FILE)
    assert (found.kind, found.members, found.episodes) == ("comparison", ("script-random-0",), 2)
    assert looks_words([found]).endswith("1 to compare members of the pool.")
    compare_pool(pool, config, episodes=2)
    assert len(read_looks(pool.path / FILE)) == 1
    compare_pool(pool, config, episodes=2, beside="script-nearest_food-0")
    assert len(read_looks(pool.path / FILE)) == 2
    with pytest.raises(OmgError, match="no member"):
        compare_pool(pool, config, episodes=3, beside="nobody")
    assert len(read_looks(pool.path / FILE)) == 2, "refused, so nobody played"


def test_comparing_members_that_are_not_held_out_is_no_look(tmp_path: Path) -> None:
    pool = OpponentPool.create(tmp_path / "pool")
    pool.add_script("random")
    pool.add_script("nearest_food", split="validation")
    config = load_command_line([*SMALL, "--config=d3qn", *TASK]).config
    compare_pool(pool, config, episodes=2)
    assert not (pool.path / FILE).exists()


def test_players_that_nobody_records_are_recorded_when_they_are_made(tmp_path: Path) -> None:
    pool = scripted(tmp_path)
    config = load_command_line([*SMALL, "--config=d3qn", *TASK]).config
    env = make_batched(config.env, config.env_args, n_copies=1)
    pool_players(config, env.spec, CPU, (pool, pool.members("train")))
    assert not (pool.path / FILE).exists()
    pool_players(config, env.spec, CPU, (pool, pool.members("heldout")))
    (found,) = read_looks(pool.path / FILE)
    assert found.kind == "evaluation"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    words = ["--config=d3qn", f"--opponent_pool={scripted(folder).path}"]
    make_run(folder, "plain", *words, "--label=Plain")
    make_run(folder, "best", *words, "--label=Best", UNSEEN)
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


@pytest.fixture
def fresh(study: Path) -> Callable[[], list[Look]]:
    """The looks that a test adds."""
    before = len(read_looks(study / "pool" / FILE))
    return lambda: read_looks(study / "pool" / FILE)[before:]


def among_unseen(study: Path, out: Path, *words: str) -> Run:
    """A test of the plain agent among the held-out member."""
    named = ["--config=d3qn", f"--opponent_pool={study / 'pool'}", UNSEEN, "--evaluate=True"]
    words = (*SMALL, *named, f"--checkpoint_path={study / 'plain'}", *words, *TASK)
    out.mkdir(exist_ok=True)
    return Run(load_command_line([*words]).config, RunFolder(out))


@pytest.mark.long
def test_a_run_that_is_tested_with_held_out_members_is_a_look_before_it_plays(
    study: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fresh: Callable[[], list[Look]],
) -> None:
    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("omg.experiment.run.run_test", crash)
        with pytest.raises(KeyboardInterrupt), among_unseen(study, tmp_path / "out") as run:
            run.evaluate()
    (found,) = fresh()
    assert (found.kind, found.members) == ("evaluation", ("script-random-0",))
    assert (found.runs, found.episodes) == ((str(study / "plain"),), 4)
    with among_unseen(study, tmp_path / "other") as run:
        run.evaluate()
    assert len(fresh()) == 1, "the same numbers"
    with among_unseen(study, tmp_path / "other", "--seed=7") as run:
        run.replays(0)
    assert [look.options["seed"] for look in fresh()][1:] == [7]
    with among_unseen(study, tmp_path / "other", "--opponent_epsilon=0.5"):
        assert len(fresh()) == 3, "the others act otherwise"


@pytest.mark.long
def test_a_crash_or_several_processes_leave_one_look(
    study: Path, monkeypatch: pytest.MonkeyPatch, fresh: Callable[[], list[Look]]
) -> None:
    def crash(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("omg.evaluation.crossplay.play_all", crash)
        with pytest.raises(KeyboardInterrupt):
            crossplay([study / "plain"], split="unseen", episodes=3, seed=11)
        patch.setattr("omg.evaluation.gap.play_all", crash)
        with pytest.raises(KeyboardInterrupt):
            measure_headroom(
                [study / "plain"], study / "pool", names={"plain": "Plain"}, episodes=3
            )
    assert [look.kind for look in fresh()] == ["evaluation", "headroom"]
    crossplay([study / "plain"], split="unseen", episodes=3, seed=11)
    assert len(fresh()) == 2
    make_run(study, "plain-s2", "--config=d3qn", f"--opponent_pool={study / 'pool'}",
             "--label=Plain", "--seed=2")  # fmt: skip
    crossplay([study / "plain", study / "plain-s2"], split="unseen", episodes=3, jobs=2)
    assert len(fresh()) == 3


@pytest.mark.long
def test_replays_of_a_cross_play_belong_to_its_look_and_others_are_looks(
    study: Path, tmp_path: Path, fresh: Callable[[], list[Look]]
) -> None:
    crossplay([study / "plain"], split="unseen", episodes=3, seed=12, out=tmp_path, replays=2)
    assert len(fresh()) == 1
    agent, pool = read_agent_run(study / "plain"), OpponentPool.open(study / "pool")
    for _ in range(2):
        write_subgoal_replays("a", agent, pool, pool.members("heldout"), tmp_path, count=2)
    write_subgoal_replays("a", agent, pool, pool.members("train"), tmp_path, count=2)
    assert [(look.kind, look.episodes) for look in fresh()[1:]] == [("evaluation", 2)]


@pytest.mark.long
def test_a_metric_that_nobody_measures_is_refused_without_a_look_where_another_side_is_played(
    study: Path, tmp_path: Path, fresh: Callable[[], list[Look]]
) -> None:
    with pytest.raises(OmgError, match="no metric"):
        crossplay([study / "plain"], split="both", episodes=3, seed=13, metric="x", out=tmp_path)
    assert not fresh()
    with pytest.raises(OmgError, match="no metric"):
        crossplay([study / "plain"], split="unseen", episodes=3, seed=13, metric="x", out=tmp_path)
    assert len(fresh()) == 1, "two episodes were played to find out"


@pytest.mark.long
def test_other_ways_to_play_with_held_out_members_are_looks(
    study: Path, fresh: Callable[[], list[Look]]
) -> None:
    play_own_game(study / "plain", episodes=2)
    assert not fresh(), "among those it was trained with, who are not held out"
    for _ in range(2):
        play_own_game(study / "best", episodes=2)
    (own,) = fresh()
    assert (own.kind, own.runs, own.episodes) == ("evaluation", (str(study / "best"),), 2)
    play(choose_of_run(study / "best"), str(study / "best"), episodes=3, seed=0, out=None)
    assert [look.episodes for look in fresh()[1:]] == [3]
    agent, pool = read_agent_run(study / "plain"), OpponentPool.open(study / "pool")
    seen = pool.members("train")
    with SeatedAgent(agent, pool, seen, episodes=2, seed=5, device=CPU) as seated:
        assert len(fresh()) == 2
        seated.lineup(pool.members("heldout"))
    assert [look.runs for look in fresh()[2:]] == [(str(study / "plain"),)]


@pytest.mark.long
def test_a_collector_in_a_process_of_its_own_adds_no_look(tmp_path: Path) -> None:
    pool = scripted(tmp_path)
    make_run(tmp_path, "a", "--config=d3qn", f"--opponent_pool={pool.path}", UNSEEN,
             "--collect_ahead=1")  # fmt: skip
    assert [look.kind for look in read_looks(pool.path / FILE)] == ["training"]
