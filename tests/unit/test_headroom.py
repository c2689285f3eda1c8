"""Headroom: who is measured, what the gaps are, and returns normalised by them."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from omg.evaluation.crossplay_table import Agent, Cell, Crossplay
from omg.evaluation.evaluate import crossplay
from omg.evaluation.gap import measure_headroom, read_headroom, write_headroom
from omg.evaluation.headroom import (
    RANDOM,
    Agents,
    Headroom,
    closing_words,
    normalised,
    references_remark,
    side_words,
    warnings,
)
from omg.evaluation.statistics import Welch
from omg.opponents.pool import OpponentPool
from omg.opponents.unseen import looks_of, read_looks
from omg.types import OmgError

from .studies import make_run
from .test_sides import scripted

PLAIN = {"a": (1.0, 2.0, 3.0), "b": (3.0, 4.0, 5.0)}
ORACLE = {"a": (5.0, 6.0, 7.0), "b": (7.0, 8.0, 9.0)}
BEST = {"a": (9.0, 9.5, 10.0), "b": (3.5, 4.0, 4.5)}


def found(
    oracle: dict[str, tuple[float, ...]] = ORACLE, metric: str = "own_return", seeds: int = 3
) -> Headroom:
    """Two held-out opponents; random play earns 0 with the first and 10 with the second."""
    cells = [
        Cell(RANDOM, o, "homologue", "heldout", 4, {metric: v})
        for o, v in (("a", 0.0), ("b", 10.0))
    ]
    told = {"plain": PLAIN, "oracle": oracle, "best": BEST}
    for who, values in told.items():
        for opponent, each in values.items():
            for seed, value in enumerate(each[:seeds]):
                name = f"{who}-{opponent}-{seed}" if who == "best" else f"{who}-{seed}"
                cells.append(Cell(name, opponent, "homologue", "heldout", 4, {metric: value}))
    return Headroom(
        format=1,
        env="foraging",
        env_args={},
        metric=metric,
        episodes=4,
        seed=0,
        names={"plain": "D3QN", "oracle": "Oracle"},
        agents=Agents(
            plain=tuple(f"plain-{s}" for s in range(seeds)),
            oracle=tuple(f"oracle-{s}" for s in range(seeds)),
            responses={o: tuple(f"best-{o}-{s}" for s in range(seeds)) for o in "ab"},
        ),
        cells=tuple(cells),
    )


# --- numbers -------------------------------------------------------------------------------------


def test_the_row_of_an_opponent_is_worked_out_by_hand() -> None:
    row, other = found().rows()
    assert (row.opponent, row.random, row.plain, row.control) == ("a", 0.0, 2.0, None)
    assert (row.oracle, row.best_response, row.difference, row.seeds) == (6.0, 9.5, 7.5, 3)
    wanted = Welch.of(BEST["a"], PLAIN["a"]).interval()
    assert (row.low, row.high) == (wanted.low, wanted.high)
    assert (other.difference, other.random) == (0.0, 10.0)


def test_a_gap_counts_seeds_by_their_mean_over_the_opponents() -> None:
    """Plain 2, 3, 4; oracle 6, 7, 8; best responses 6.25, 6.75, 7.25."""
    oracle, best = found().sides()
    assert (oracle.gap, oracle.difference, oracle.headroom) == ("oracle - plain", 4.0, True)
    wanted = Welch.of((6.0, 7.0, 8.0), (2.0, 3.0, 4.0)).interval()
    assert (oracle.low, oracle.high) == (wanted.low, wanted.high)
    assert (best.gap, best.difference) == ("best response - plain", 3.75)
    assert best.low == Welch.of((6.25, 6.75, 7.25), (2.0, 3.0, 4.0)).interval().low


def test_a_study_without_headroom_is_told_so_and_one_with_it_is_not() -> None:
    assert warnings(found()) == []
    (said,) = warnings(found(oracle=PLAIN))
    assert said.startswith("No headroom with unseen opponents in own return: oracle - plain +0.000")
    (few,) = warnings(found(seeds=2))
    assert "fewer than three seeds" in few
    assert "unseen opponents, oracle - plain: +4.000 [" in side_words(found())[0]


def weak(headroom: Headroom) -> Headroom:
    """The same with best responses that earn what random play and a bit more earns."""
    changed = [
        replace(c, metrics={"own_return": 0.1 * i}) if c.agent.startswith("best") else c
        for i, c in enumerate(headroom.cells)
    ]
    return replace(headroom, cells=tuple(changed))


def test_weak_best_responses_are_no_yardstick_and_do_not_hide_what_the_oracle_gains() -> None:
    (said,) = warnings(weak(found()))
    assert said.startswith("The best responses to unseen opponents are no yardstick")
    assert "best response - plain" in said
    assert "oracle - plain" not in said
    (neither,) = warnings(weak(found(oracle=PLAIN)))
    assert neither.startswith("No headroom")
    assert "oracle - plain" in neither
    assert "best response - plain" in neither


def test_a_best_response_that_a_plain_agent_beats_is_no_reference() -> None:
    headroom = found()
    plain = {"plain-0": 9.4, "plain-1": 9.5, "plain-2": 9.6}
    for more, wanted in ((0.0, {"a": (0.0, 9.5)}), (0.1, {})):
        changed = tuple(
            replace(c, metrics={"own_return": plain[c.agent] + more}) if c.agent in plain else c
            for c in headroom.cells
        )
        assert replace(headroom, cells=changed).references("own_return") == wanted


def test_where_less_is_better_headroom_lies_below_zero() -> None:
    steps = found(metric="ep_length")
    assert [row.headroom for row in steps.sides()] == [False, False]
    fewer = found(oracle={"a": (0.1, 0.2, 0.3), "b": (0.1, 0.2, 0.3)}, metric="ep_length")
    assert fewer.sides()[0].headroom is True


def test_how_the_agents_acted_is_told_and_older_files_say_nothing(tmp_path: Path) -> None:
    headroom = found()
    ids = [*headroom.agents.plain, *headroom.agents.oracle, *headroom.agents.all_responses]
    alike = replace(headroom, acted=dict.fromkeys(ids, False))
    assert alike.acting() == "Agents acted as in training (sampled or exploring)."
    write_headroom(alike, tmp_path)
    assert read_headroom(tmp_path / "headroom.json").acting() == alike.acting()
    assert alike.acting() in closing_words(alike)
    mixed = replace(headroom, acted={i: i.startswith("best") for i in ids})
    assert mixed.acting() == (
        "Agents acted greedily: best responses; as in training (sampled or exploring): D3QN, "
        "Oracle."
    )
    assert headroom.acting() == ""
    assert closing_words(headroom) == side_words(headroom)


def test_references_that_acted_otherwise_are_told() -> None:
    headroom = found()
    sampled = replace(headroom, acted=dict.fromkeys(headroom.agents.all_responses, False))
    assert references_remark(sampled, [False, False], "last") == ""
    assert references_remark(sampled, [True], "last") == (
        "Normalised returns compare two ways to act: best responses acted as in training (sampled "
        "or exploring), these agents greedily."
    )
    assert "these agents greedily and as in" in references_remark(sampled, [True, False], "last")
    assert references_remark(headroom, [True, False], "last") == "", "an older file does not say"
    assert references_remark(headroom, [True], "best") == (
        "Normalised returns compare weights of two kinds: best responses had which=last, these "
        "agents which=best."
    )
    early = replace(headroom, which="best")
    assert references_remark(early, [True], "best") == ""


def test_returns_are_normalised_where_the_best_response_beats_random_play() -> None:
    headroom = found()
    assert headroom.references("own_return") == {"a": (0.0, 9.5)}, "b: random play is better"
    cells = (
        Cell("x", "a", "homologue", "heldout", 4, {"own_return": 1.9}),
        Cell("x", "b", "homologue", "heldout", 4, {"own_return": 1.9}),
        Cell("x", "mixed", "mixed", "heldout", 4, {"own_return": 1.9}),
    )
    first, *others = normalised(cells, headroom, ["own_return"])
    assert first.metrics["normalised_own_return"] == pytest.approx(0.2)
    assert [dict(cell.metrics) for cell in others] == [{"own_return": 1.9}] * 2


def test_a_best_response_that_may_be_no_better_than_random_play_is_no_reference() -> None:
    """9.0 ± 4.3 · 1 / √3 reaches down to 6.5, and random play earns 7."""
    headroom = found()
    changed = [
        replace(c, metrics={"own_return": 7.0}) if (c.agent, c.opponent) == (RANDOM, "a") else c
        for c in headroom.cells
    ]
    spread = {"best-a-0": 8.0, "best-a-1": 9.0, "best-a-2": 10.0}
    changed = [
        replace(c, metrics={"own_return": spread[c.agent]}) if c.agent in spread else c
        for c in changed
    ]
    assert replace(headroom, cells=tuple(changed)).references("own_return") == {}


def test_a_normalised_summary_is_over_the_opponents_with_references() -> None:
    cells = tuple(
        Cell("x", o, "homologue", "heldout", 4, {"own_return": v})
        for o, v in (("a", 1.9), ("b", 5.0))
    )
    table = Crossplay(
        format=1,
        env="foraging",
        agents=(Agent("x", "X", 1),),
        opponents=(),
        cells=normalised(cells, found(), ["own_return"]),
    )
    (row,) = [r for r in table.summaries() if r.metric == "normalised_own_return"]
    assert (row.mean, row.opponents) == (pytest.approx(0.2), 1)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    headroom = found()
    write_headroom(headroom, tmp_path)
    assert read_headroom(tmp_path / "headroom.json").sides() == headroom.sides()
    with (tmp_path / "headroom.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(r["opponent"], r["side"], float(r["best_response"])) for r in rows] == [
        ("a", "unseen", 9.5),
        ("b", "unseen", 4.0),
    ]


# --- games ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two plain agents, and the best response to a script that is held out."""
    folder = tmp_path_factory.mktemp("study")
    pool = f"--opponent_pool={scripted(folder).path}"
    for seed in (1, 2):
        make_run(folder, f"plain-s{seed}", "--config=d3qn", pool, f"--seed={seed}", "--label=Plain")
    alone = "--opponent_members=['script-random-0']"
    make_run(folder, "best-s1", "--config=d3qn", pool, alone, "--label=Best response to random")
    return folder


def measured(study: Path, *runs: str, plain: str = "Plain", **more: Any) -> Headroom:
    folders = [study / r for r in runs]
    return measure_headroom(folders, study / "pool", names={"plain": plain}, episodes=8, **more)


@pytest.mark.long
def test_a_best_response_plays_its_own_opponent_and_nobody_else(study: Path) -> None:
    headroom = measured(study, "plain-s1", "best-s1")
    assert headroom.splits() == ["train", "validation", "heldout"]
    best = [c for c in headroom.cells if c.agent.startswith("best")]
    assert [(c.opponent, c.split) for c in best] == [("script-random-0", "heldout")]
    assert [r.opponent for r in headroom.rows() if r.best_response is not None] == [
        "script-random-0"
    ]


@pytest.mark.long
def test_random_play_does_not_depend_on_anybodys_weights(study: Path) -> None:
    one, other = (measured(study, name) for name in ("plain-s1", "plain-s2"))

    def games(headroom: Headroom, who: str) -> list[dict[str, float | None]]:
        return [dict(c.metrics) for c in headroom.cells if c.agent.startswith(who)]

    assert games(one, RANDOM) == games(other, RANDOM)
    assert games(one, "plain") != games(other, "plain")
    assert len({c["ep_length"] for c in games(one, RANDOM)}) > 1


@pytest.mark.long
def test_agents_act_as_they_are_told_and_the_file_and_the_look_say_it(study: Path) -> None:
    usual = measured(study, "plain-s1")
    greedy = measured(study, "plain-s1", greedy=True)
    explored = measured(study, "plain-s1", sample=True)
    assert (usual.greedy, greedy.greedy, explored.greedy) == (None, True, False)
    assert dict(usual.acted) == dict(greedy.acted) == {"plain-s1": True}
    assert dict(explored.acted) == {"plain-s1": False}
    assert usual.cells == greedy.cells
    assert [c for c in explored.cells if c.agent == RANDOM] == [
        c for c in usual.cells if c.agent == RANDOM
    ]
    assert explored.cells != usual.cells
    looks = read_looks(looks_of(OpponentPool.open(study / "pool")))
    told = [look.options["greedy"] for look in looks if look.kind == "headroom"]
    assert told[-1] is False
    assert True in told
    with pytest.raises(OmgError, match="greedily or sample, not both"):
        measured(study, "plain-s1", sample=True, greedy=True)


@pytest.mark.long
def test_headroom_may_be_measured_with_other_weights_than_the_last(
    study: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(study / "plain-s1", tmp_path / "plain-s1")
    shutil.rmtree(run / "models/best")
    shutil.copytree(study / "plain-s2/models/last", run / "models/best")
    last, best = (measured(study, str(run), which=which) for which in ("last", "best"))
    other = measured(study, "plain-s2")
    assert [c.metrics for c in best.cells] == [c.metrics for c in other.cells]
    assert best.cells != last.cells
    assert (last.which, best.which) == ("last", "best")
    with pytest.raises(OmgError, match="no-such"):
        measured(study, "plain-s1", which="no-such")


@pytest.mark.long
def test_a_cross_play_beside_a_measured_pool_has_normalised_returns(
    study: Path, tmp_path: Path
) -> None:
    headroom = measured(study, "plain-s1", "best-s1")
    cells = [
        replace(c, metrics={**c.metrics, "own_return": 2.0}) if c.agent.startswith("best") else c
        for c in headroom.cells
    ]
    write_headroom(replace(headroom, cells=tuple(cells)), study)
    try:
        table = crossplay([study / "plain-s1"], split="all", episodes=8, out=tmp_path)
        explored = crossplay([study / "plain-s1"], split="train", episodes=2, sample=True)
    finally:
        (study / "headroom.json").unlink()
    assert table.remarks == ()
    assert "best responses acted greedily, these agents as in" in explored.remarks[0]
    random = next(c for c in cells if (c.agent, c.split) == (RANDOM, "heldout")).metrics
    for cell in table.cells:
        if cell.split == "heldout":
            low = random["own_return"] or 0.0
            value = cell.metrics["own_return"] or 0.0
            share = (value - low) / (2.0 - low)
            assert cell.metrics["normalised_own_return"] == pytest.approx(share)
        else:
            assert "normalised_own_return" not in cell.metrics
    content = json.loads((tmp_path / "crossplay.json").read_text())
    assert "normalised_own_return" in {row["metric"] for row in content["summary"]}


@pytest.mark.long
def test_what_cannot_be_measured_is_refused(study: Path) -> None:
    with pytest.raises(OmgError, match="is called 'Plain', which is neither plain, control nor"):
        measured(study, "plain-s1", plain="D3QN")
    with pytest.raises(OmgError, match="no run of the plain agent 'Plain'"):
        measured(study, "best-s1")
    assert OpponentPool.open(study / "pool").members("heldout")
