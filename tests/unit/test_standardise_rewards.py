"""`standardise_rewards`: what is learned from is (reward - mean) / deviation of all rewards that
updates have seen, padding left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from omg.components.episodes import ALIVE, EpisodeBatch, Field, environment_scheme
from omg.components.trajectories import SEAT
from omg.config.loader import load_command_line
from omg.experiment.learning import Learning
from omg.learners.base import Progress, check_supported
from omg.learners.q_learner import QLearner
from omg.learners.reward_unit import RewardUnit
from omg.types import EnvSpec, OmgError

from .small_learners import Bench, distance, random_batch
from .small_runs import Runs, assert_same, assert_sound, saved

SPEC = EnvSpec(name="toy", n_agents=2, n_actions=3, obs_dim=4, state_dim=5, episode_limit=4)


def episodes(rewards: Sequence[Sequence[float]], spec: EnvSpec = SPEC) -> EpisodeBatch:
    """Episodes with these common rewards; behind each comes the slot of its last observation."""
    scheme = environment_scheme(spec, common_reward=True)
    batch = EpisodeBatch(scheme, batch_size=len(rewards), max_seq_length=6)
    for row, earned in enumerate(rewards):
        steps = slice(0, len(earned) + 1)
        told = torch.tensor([*earned, 99.0]).unsqueeze(-1)  # nothing is earned in the last slot
        batch.update({"reward": told}, rows=slice(row, row + 1), steps=steps)
    return batch


def test_rewards_are_measured_by_mean_and_deviation_of_all_seen_so_far() -> None:
    unit, first, second = RewardUnit(None), [[1.0, 0.0], [0.0, 0.0, 3.0]], [[2.0, -1.0]]
    unit.standardised(episodes(first))
    found = unit.standardised(episodes(second))
    seen = np.array([1.0, 0, 0, 0, 3, 2, -1])  # the slots of last observations are not among them
    wanted = (np.array(second[0]) - seen.mean()) / seen.std()
    assert found["reward"][0, :2, 0].numpy() == pytest.approx(wanted, rel=1e-5)
    assert float(unit.count) == len(seen)


def test_the_episodes_themselves_keep_their_rewards() -> None:
    given = episodes([[1.0, 0.5]])
    RewardUnit(None).standardised(given)
    assert given["reward"][0, :2, 0].tolist() == [1.0, 0.5]


def of_each(rewards: Sequence[Sequence[float]], **fields: torch.Tensor) -> EpisodeBatch:
    """One episode with rewards of their own for two agents; its last slot pays nothing."""
    spec = replace(SPEC, leavers=ALIVE in fields)
    scheme = environment_scheme(spec, common_reward=False)
    if SEAT in fields:
        scheme = scheme.extend({SEAT: Field(dtype=torch.int64, episode_const=True)})
    batch = EpisodeBatch(scheme, batch_size=1, max_seq_length=4)
    told = torch.tensor([*rewards, [99.0, 99.0]])
    batch.update({"reward": told, **fields}, steps=slice(0, len(told)))
    return batch


def test_seats_that_have_left_shift_nothing_and_are_not_shifted() -> None:
    alive = torch.tensor([[True, True], [True, False], [False, False]])
    unit = RewardUnit(None)
    found = unit.standardised(of_each([[1.0, 3.0], [5.0, 2.0]], alive=alive))["reward"][0]
    assert float(unit.mean) == pytest.approx(3.0)  # of 1, 3 and 5
    deviation = np.sqrt(8 / 3)
    assert found[1].tolist() == pytest.approx([2.0 / deviation, 2.0 / deviation])  # 5 - 3, and 2


def test_what_others_earn_is_not_in_the_unit_of_a_seat_that_learns_among_them() -> None:
    rewards = [[1.0, -50.0], [3.0, -90.0]]
    for batch, unit in (
        (of_each(rewards, **{SEAT: torch.tensor([0])}), RewardUnit(None)),
        (of_each(rewards), RewardUnit([0])),
    ):
        found = unit.standardised(batch)["reward"][0, :2, 0]
        assert (float(unit.mean), float(unit.count)) == (2.0, 2.0)
        assert found.tolist() == pytest.approx([-1.0, 1.0])


def test_a_view_stays_one_that_cannot_be_written_to() -> None:
    view = RewardUnit(None).standardised(episodes([[1.0], [0.0]])[0:1])
    with pytest.raises(OmgError, match="view of another"):
        view.update({"reward": 1.0})


@pytest.mark.parametrize("name", ["iql", "qmix", "qtran", "coma", "mappo", "d3qn_am"])
def test_an_update_equals_one_on_rewards_that_were_transformed_by_hand(name: str) -> None:
    mine, plain = Bench(name, "--standardise_rewards"), Bench(name)
    batch = random_batch(plain, np.random.default_rng(3))
    reward = batch["reward"].double()
    done = torch.zeros_like(batch.filled)
    for row, slots in enumerate(batch.lengths.tolist()):
        done[row, : slots - 1] = True
    seats = batch[SEAT].tolist() if plain.mixed else [slice(None)] * len(batch)
    seen = torch.cat([reward[row][done[row]][:, seat].flatten() for row, seat in enumerate(seats)])
    deviation, mean = torch.std_mean(seen, correction=0)
    by_hand = batch.with_field("reward", (reward - mean) / deviation)
    progress = Progress(100, len(batch), 1)
    mine.learner.update(batch, progress)
    plain.learner.update(by_hand, progress)
    for key, value in plain.weights().items():
        torch.testing.assert_close(mine.weights()[key], value, rtol=1e-4, atol=1e-5)
    untouched = Bench(name)
    untouched.learner.update(batch, progress)
    assert distance(untouched.weights(), plain.weights()) > 1e-4


@pytest.mark.parametrize("name", ["qmix", "d3qn_liam", "ippo", "coma", "qtran"])
def test_every_learner_learns_from_them_and_resumes_with_their_unit(
    tmp_path: Path, name: str
) -> None:
    runs = Runs(tmp_path)
    whole = runs.run(name, "--run_name=whole", "--standardise_rewards")
    assert_sound(whole, updates=1)
    assert float(saved(whole)["rewards.th/count"]) > 0
    assert_same(whole, runs.stopped_and_resumed(name, "--standardise_rewards"))
    assert "rewards.th/count" not in saved(runs.run(name, "--run_name=plain"))


def test_a_training_that_begins_with_saved_weights_takes_their_unit(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    first = runs.run("iql", "--run_name=first", "--standardise_rewards")
    counted = float(saved(first)["rewards.th/count"])
    found: list[float] = []
    update = Learning._update

    def watch(learning, batch, counters):  # type: ignore[no-untyped-def]
        found.append(float(learning.learner.reward_unit.count))
        return update(learning, batch, counters)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learning, "_update", watch)
        runs.run("iql", "--run_name=more", "--standardise_rewards", f"--checkpoint_path={first}")
    assert found[0] == counted


@pytest.mark.parametrize("first", [True, False])
def test_weights_in_another_unit_are_refused(tmp_path: Path, first: bool) -> None:
    runs = Runs(tmp_path)
    run = runs.run("iql", "--run_name=first", f"--standardise_rewards={first}")
    with pytest.raises(OmgError, match=rf"trained with standardise_rewards={first}.*Set "):
        runs.run("iql", f"--standardise_rewards={not first}", f"--checkpoint_path={run}")


def test_a_prior_has_no_unit_of_rewards(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    words = ("--learner=am_learner", "--t_max=20", "--run_name=prior", "--standardise_rewards")
    assert "rewards.th/count" not in saved(runs._train("d3qn_omg", *words))


def test_subgoals_at_events_are_refused_where_rewards_tell_them() -> None:
    words = ["--config=d3qn_omg_event", "--env-config=foraging", "--standardise_rewards"]
    config = load_command_line(words).config
    with pytest.raises(OmgError, match=r"subgoal_mode=event .*standardise_rewards=false"):
        check_supported(config, QLearner.able, SPEC)
    check_supported(config, QLearner.able, replace(SPEC, event_actions=(5,)))
