"""The three sides of a pool: who is met in training, in tests, in tuning, and by nobody."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omg.config.loader import load_command_line
from omg.evaluation.crossplay import CrossplayPlan, run_crossplay
from omg.evaluation.evaluate import crossplay, evaluate
from omg.experiment.run import Run
from omg.opponents.pool import OpponentPool
from omg.opponents.pool_members import MANIFEST
from omg.opponents.sides import named_member
from omg.storage.files import RunFolder
from omg.types import OmgError

from .studies import SMALL, TASK, make_run
from .test_pool import make_pool

SCRIPTS = {"nearest_food": "train", "highest_level": "validation", "random": "heldout"}


def scripted(folder: Path) -> OpponentPool:
    """A script on every side."""
    pool = OpponentPool.create(folder / "pool")
    for name, split in SCRIPTS.items():
        pool.add_script(name, split=split)  # type: ignore[arg-type]
    return pool


def started(pool: OpponentPool, folder: Path, *words: str) -> Run:
    """A run that has been set up and trains nothing."""
    named = ["--config=d3qn", f"--opponent_pool={pool.path}", *words]
    config = load_command_line([*SMALL, *named, *TASK]).config
    (folder / "run").mkdir()
    return Run(config, RunFolder(folder / "run"))


# --- the pool ------------------------------------------------------------------------------------


@given(
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    heldout=st.sampled_from([0.0, 0.2, 0.4]),
    validation=st.sampled_from([0.0, 0.2, 0.4]),
    seed=st.integers(0, 3),
)
def test_sides_share_no_run_and_validation_leaves_the_held_out_ones_alone(
    tmp_path_factory: pytest.TempPathFactory,
    counts: list[int],
    heldout: float,
    validation: float,
    seed: int,
) -> None:
    pool = OpponentPool.create(tmp_path_factory.mktemp("p") / "pool")
    names = ("nearest_food", "random", "centre")
    for name, levels in zip(names, counts, strict=False):
        for noise in range(levels):
            pool.add_script(name, noise=noise / 10)
    two = {m.id: m.split for m in pool.split(heldout, seed=seed, by="member")}
    three = {
        m.id: m.split for m in pool.split(heldout, validation=validation, seed=seed, by="member")
    }
    assert {i for i, side in two.items() if side == "heldout"} == {
        i for i, side in three.items() if side == "heldout"
    }
    assert all(two[i] == "train" for i, side in three.items() if side == "validation")
    assert (
        bool(validation) == ("validation" in three.values())
        or list(two.values()).count("train") < 2
    )


def test_fractions_are_of_all_runs_and_named_ones_are_taken(tmp_path: Path) -> None:
    pool = make_pool(tmp_path, **{f"run{k}": "iql" for k in range(10)})
    pool.split(0.3, validation=0.2, seed=1)
    assert [len(pool.members(side)) for side in ("train", "validation", "heldout")] == [5, 2, 3]
    assert (
        pool.counted() == "5 seen (to train with), 2 validation (to tune by), 3 unseen (held out)"
    )
    pool.split(["run3"], validation=["run4", "run5"])
    assert [m.run for m in pool.members("validation")] == ["run4", "run5"]
    with pytest.raises(OmgError, match="'run3' is held out and named for validation"):
        pool.split(["run3"], validation=["run3"])
    with pytest.raises(OmgError, match=r"validation=0.5 asks for more than the 3 of 10"):
        pool.split(0.7, validation=0.5)


def test_a_pool_of_two_sides_reads_as_before(tmp_path: Path) -> None:
    pool = OpponentPool.create(tmp_path / "pool")
    pool.add_script("random", split="heldout")
    pool.add_script("centre")
    assert {m["split"] for m in json.loads((pool.path / MANIFEST).read_text())["members"]} == {
        "train",
        "heldout",
    }
    assert pool.counted() == "1 seen (to train with), 1 unseen (held out)"


def test_a_member_is_found_by_its_id_or_by_run_and_skill(tmp_path: Path) -> None:
    pool = make_pool(tmp_path, one="iql", two="vdn")
    assert named_member(pool, "one:final").id == "one-100"
    assert named_member(pool, "two-100").run == "two"
    with pytest.raises(OmgError, match="no member 'one:early'"):
        named_member(pool, "one:early")


# --- runs ----------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_run_trains_with_the_train_side_and_is_tested_with_validation(tmp_path: Path) -> None:
    pool = scripted(tmp_path)
    with started(pool, tmp_path) as run:
        assert run.parts.mac.players() == ["script-nearest_food-0"]
        assert run.parts.meta["players"] == ["script-nearest_food-0"]
        assert run.parts.tester.mac.players() == ["script-highest_level-0"]


@pytest.mark.long
def test_without_a_validation_side_tests_are_played_with_the_train_side(tmp_path: Path) -> None:
    pool = scripted(tmp_path)
    pool.split(["script-random", "script-highest_level"])
    with started(pool, tmp_path) as run:
        assert run.parts.tester.mac.players() == ["script-nearest_food-0"]


@pytest.mark.long
def test_named_members_are_trained_and_tested_with_whatever_their_side(tmp_path: Path) -> None:
    pool = scripted(tmp_path)
    with started(pool, tmp_path, "--opponent_members=['script-random-0']") as run:
        assert run.parts.mac.players() == ["script-random-0"]
        assert run.parts.tester.mac.players() == ["script-random-0"]


def test_named_members_without_a_pool_are_refused(tmp_path: Path) -> None:
    config = load_command_line([*SMALL, "--config=d3qn", "--opponent_members=['a']", *TASK]).config
    with pytest.raises(OmgError, match=r"opponent_members=.* has no effect"):
        Run(config, RunFolder(tmp_path))


@pytest.mark.long
def test_a_prior_gathers_and_is_tested_with_the_train_side(tmp_path: Path) -> None:
    pool = scripted(tmp_path)
    words = ["--config=d3qn_omg", "--learner=am_learner", f"--opponent_pool={pool.path}"]
    config = load_command_line([*SMALL, *words, *TASK]).config
    (tmp_path / "run").mkdir()
    with Run(config, RunFolder(tmp_path / "run")) as run:
        assert run.parts.tester.mac.players() == ["script-nearest_food-0"]


# --- evaluation ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    pool = scripted(folder)
    make_run(folder, "d3qn", "--config=d3qn", f"--opponent_pool={pool.path}")
    return folder


@pytest.mark.long
@pytest.mark.parametrize(
    ("split", "sides"),
    [
        ("validation", ["validation"]),
        ("both", ["train", "heldout"]),
        ("all", ["train", "validation", "heldout"]),
    ],
)
def test_a_split_plays_its_sides(trained: Path, split: str, sides: list[str]) -> None:
    table = crossplay([trained / "d3qn"], split=split, episodes=2)
    assert [cell.split for cell in table.cells] == sides


@pytest.mark.long
def test_an_evaluation_meets_validation_unless_it_is_asked_for_more(trained: Path) -> None:
    table = evaluate(trained / "d3qn", episodes=2)
    assert {row["split"] for row in table.rows()} == {"validation"}


@pytest.mark.long
def test_replays_of_validation_do_not_show_held_out_opponents(
    trained: Path, tmp_path: Path
) -> None:
    table = crossplay(
        [trained / "d3qn"], split="validation", episodes=2, replays=2, out=tmp_path / "out"
    )
    shown = [p.name for p in table.files if p.parent.name == "replays"]
    assert len(shown) == 2
    assert all("highest_level" in name for name in shown)


@pytest.mark.long
def test_validation_opponents_met_in_training_are_refused(trained: Path) -> None:
    pool = OpponentPool.open(trained / "pool")
    try:
        pool.split(["script-random"], validation=["script-nearest_food"])
        plan = CrossplayPlan(splits=("validation",), episodes=1)
        with pytest.raises(OmgError, match="keeps for validation now"):
            run_crossplay([trained / "d3qn"], pool.path, plan)
    finally:
        pool.split(["script-random"], validation=["script-highest_level"])
