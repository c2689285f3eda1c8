"""Every algorithm on one bench: what must hold of all of them, whatever they learn.

`every_algorithm.TABLE` says what each must satisfy; a new algorithm is one line there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from omg.components.trajectories import SEAT
from omg.config.loader import available
from omg.learners import LEARNERS
from omg.storage.files import load_tensors
from omg.storage.models import load_networks, save_models

from . import mdps
from .every_algorithm import AGENTS, TABLE
from .small_learners import (
    Bench,
    distance,
    forget_seats,
    random_batch,
    reordered,
    reseated,
    shipped,
    with_padding,
)
from .small_runs import Runs, assert_same, assert_sound
from .solved_values import learned, told

PROVED = [name for name, row in TABLE.items() if not row.twin]
TWINS = [name for name, row in TABLE.items() if row.twin]
ENDINGS = ["terminated", "truncated"]
# How far a learned value may lie off. The solutions of the two endings differ by 1/3 at least.
TOLERANCE = 0.1
# What rounding may change, as a share of what an update changes.
ROUNDING = 0.01

VALUED = [name for name in PROVED if TABLE[name].values != "none"]
SURE = [name for name in PROVED if TABLE[name].sure is not None]

every = pytest.mark.parametrize("name", PROVED)
every_sure = pytest.mark.parametrize("name", SURE)
few = settings(max_examples=2, phases=[Phase.generate])
seeds = st.integers(0, 10**6)


def value_cases() -> list[object]:
    """All endings and paddings of the first algorithm of every learner, one of the four for its
    other opponent models, mixers, critics and options; the rest if slow tests are asked for (such
    as iql_am: on this bench it differs from d3qn_am by its dueling heads only)."""
    cases: list[object] = []
    learners: set[str] = set()
    kinds: set[tuple[object, ...]] = set()
    for name in VALUED:
        c = shipped(name)
        kind = (c.learner, c.am_model, c.mixer, c.critic, c.subgoal_feature, TABLE[name].words)
        for ending in ENDINGS:
            for padded in (False, True):
                one = padded and ending == "truncated" and kind not in kinds
                marks = [] if one or c.learner not in learners else [pytest.mark.slow]
                label = f"{name}-{ending}-{'padded' if padded else 'even'}"
                cases.append(pytest.param(name, ending, padded, id=label, marks=marks))
        learners.add(c.learner)
        kinds.add(kind)
    return cases


# --- the table ---------------------------------------------------------------------------------


def test_every_shipped_algorithm_and_every_learner_is_in_the_table() -> None:
    configs = {row.config or name for name, row in TABLE.items()}
    assert configs == set(available("algs"))
    assert {shipped(name).learner for name in TABLE} == set(LEARNERS)


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_differs_from_its_algorithm_only_in_how_games_are_run(name: str) -> None:
    one, other = shipped(name).as_dict(), shipped(TABLE[name].twin).as_dict()
    different = {key for key in one if one[key] != other[key]}
    assert different <= {"name", "runner", "batch_size_run"}


# --- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ENDINGS)
def test_dynamic_programming_agrees_with_the_values_solved_by_hand(ending: str) -> None:
    greedy = mdps.solve(ending)
    np.testing.assert_allclose(greedy.sum(-1), mdps.team_values(ending), atol=1e-9)
    played = mdps.solve(ending, mdps.CHANCE)
    # Twice in three times an agent earns its half of 1 in X and of 2 in Y.
    values = np.einsum("sijn,i,j->sn", played, *[np.array([2, 1]) / 3] * 2)
    by_hand = {"terminated": [1 / 3 + 1 / 3, 2 / 3], "truncated": [8 / 9, 10 / 9]}[ending]
    np.testing.assert_allclose(values, np.repeat(by_hand, 2).reshape(2, 2), atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize(("name", "ending", "padded"), value_cases())
def test_learned_values_and_targets_are_those_of_dynamic_programming(
    name: str, ending: str, padded: bool
) -> None:
    bench = learned(name, ending=ending, padded=padded)
    for what, found, expected in told(bench, ending):
        assert found == pytest.approx(expected, abs=TOLERANCE), what


@pytest.mark.parametrize("name", VALUED)
def test_the_target_of_a_step_is_its_reward_if_it_terminates_and_only_then(name: str) -> None:
    bench = Bench(name)
    rng = np.random.default_rng(0)
    for ending in ENDINGS:
        batch = random_batch(bench, rng, 1, ending=ending, steps=1)
        reward = batch["reward"][0, 0]
        if bench.mixed:
            reward = reward[batch[SEAT]]
        bootstrap = bench.train(batch)["target_mean"] - reward.mean().item()
        if ending == "terminated":
            assert bootstrap == pytest.approx(0, abs=1e-6)
        else:
            assert abs(bootstrap) > 1e-3


# --- what must not matter ------------------------------------------------------------------------


@every
@few
@given(extra=st.integers(0, 5), seed=seeds)
def test_padding_and_what_stands_in_it_change_nothing(name: str, extra: int, seed: int) -> None:
    one, other = Bench(name), Bench(name)
    rng = np.random.default_rng(seed)
    for _ in range(2):
        batch = random_batch(one, rng)
        told_one, told_other = one.train(batch), other.train(with_padding(batch, extra, rng))
        assert told_one == told_other
    assert distance(one.weights(), other.weights()) == 0.0


@every_sure
@few
@given(seed=seeds)
def test_the_order_of_episodes_does_not_matter(name: str, seed: int) -> None:
    row = TABLE[name]
    one, other = (Bench(name, *row.sure_words) for _ in range(2))
    start, rng = one.weights(), np.random.default_rng(seed)
    batch = random_batch(one, rng, ending=row.sure_ending)
    same = reordered(batch, rng.permutation(len(batch)).tolist())
    assert one.train(batch) == pytest.approx(other.train(same), rel=1e-3, abs=1e-5)
    step = distance(one.weights(), start)
    assert step > 0
    assert distance(one.weights(), other.weights()) < ROUNDING * step


@every
@few
@given(turn=st.integers(1, AGENTS - 1), swap=st.booleans(), seed=seeds)
def test_who_sits_where_does_not_matter(name: str, turn: int, swap: bool, seed: int) -> None:
    """Without the seat as an input, and with weights that know seats alike for all of them, two
    updates are the same for a team in any order, and for agents that model the others with these
    after them in the same order. Where no weights know seats, they are the same afterwards, too."""
    row = TABLE[name]
    one, other = (Bench(name, "--obs_agent_id=False", *row.sure_words) for _ in range(2))
    for bench in (one, other):
        forget_seats(bench)
    start, rng = one.weights(), np.random.default_rng(seed)
    seats = np.roll(np.arange(AGENTS), turn)
    if swap and not one.models_others:
        seats[:2] = seats[1::-1]
    for _ in range(2):
        batch = random_batch(one, rng, ending=row.sure_ending)
        moved = reseated(one, batch, seats.tolist())
        assert one.train(batch) == pytest.approx(other.train(moved), rel=2e-3, abs=1e-5)
    if not (row.seats or row.apart or row.pairs):
        step = distance(one.weights(), start)
        assert distance(one.weights(), other.weights()) < ROUNDING * step


# --- checkpoints ---------------------------------------------------------------------------------


@every_sure
def test_a_saved_model_goes_on_as_the_learner_that_saved_it(name: str, tmp_path: Path) -> None:
    """Networks and optimiser through files into a fresh learner. Targets and random streams are
    not among them, so the target is taken over at every update and nothing is left to chance."""
    row = TABLE[name]
    words = [*row.sure_words, "--target_update_interval=1"]
    one, other = Bench(name, *words), Bench(name, *words, seed=1)
    rng = np.random.default_rng(0)
    batches = [random_batch(one, rng, ending=row.sure_ending) for _ in range(4)]
    for batch in batches[:3]:
        one.train(batch)
    save_models(
        tmp_path / "model",
        networks=one.learner.networks(),
        optimiser=one.learner.optimiser_state(),
        meta={},
    )
    load_networks(tmp_path / "model", other.learner.networks())
    other.learner.load_optimiser_state(load_tensors(tmp_path / "model" / "opt.th"))
    other.learner.after_load()
    other.updates = one.updates
    assert one.train(batches[3]) == other.train(batches[3])
    assert distance(one.weights(), other.weights()) == 0.0


@every
def test_a_state_goes_on_exactly_in_a_fresh_learner(name: str) -> None:
    """As shipped, with random streams that have moved on, and targets that lag: those of 6 episodes
    per update were taken over at the third and are due again at the sixth."""
    words = ["--target_update_interval=13", "--ppo_minibatches=2"]
    one, other = Bench(name, *words), Bench(name, *words, seed=1)
    rng = np.random.default_rng(0)
    batches = [random_batch(one, rng) for _ in range(7)]
    for batch in batches[:4]:
        one.train(batch)
    other.learner.load_state_dict(one.state())
    other.updates = one.updates
    assert distance(one.weights(), other.weights()) == 0.0
    for batch in batches[4:]:
        assert one.train(batch) == other.train(batch)
        assert distance(one.weights(), other.weights()) == 0.0


# --- whole runs ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


def parallel_cases() -> list[object]:
    """A value learner as shipped, a team and an agent among others; the rest if slow tests are
    asked for, because starting worker processes takes a while."""
    able = [name for name, row in TABLE.items() if row.parallel]
    quick = {"qmix_beta", "mappo", "d3qn_am"}
    return [pytest.param(name, marks=[] if name in quick else [pytest.mark.slow]) for name in able]


@pytest.mark.long
@every
def test_a_run_of_one_copy_at_a_time_is_sound(name: str, runs: Runs) -> None:
    assert_sound(runs.run(name, "--runner=episode", steps=42), updates=1)


@pytest.mark.long
@every
def test_a_stopped_and_resumed_run_equals_one_that_never_stopped(name: str, runs: Runs) -> None:
    whole = runs.run(name, "--runner=batch")
    assert_sound(whole)
    assert_same(runs.stopped_and_resumed(name, "--runner=batch"), whole)


@pytest.mark.long
@pytest.mark.parametrize("name", parallel_cases())
def test_worker_processes_make_the_same_run_as_one_process(name: str, runs: Runs) -> None:
    one, other = (runs.run(name, f"--runner={runner}") for runner in ("parallel", "batch"))
    assert_sound(one)
    assert_same(one, other)
