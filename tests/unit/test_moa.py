"""MOA: networks of every pair, beliefs about goals, and counts of those reached."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from omg.components.episodes import EpisodeBatch
from omg.learners.base import Progress
from omg.learners.moa_training import MoaTraining
from omg.learners.model_training import Alternatives, Lesson
from omg.modules.opponent_models.beliefs import GoalCounts, bayes, filtered, tally
from omg.modules.opponent_models.moa import MoaModel
from omg.modules.opponent_models.moa_nets import PairNets
from omg.policies.policy import build_model
from omg.types import OmgError

from .walkers import SPEC, config_of, episodes, random_walks, team, walk

PAIRS = [(0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (2, 1)]


def nets(goal_dim: int = 2) -> PairNets:
    torch.manual_seed(0)
    return PairNets(SPEC, goal_dim=goal_dim, hidden_dim=16)


def seen(rows: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Observations of the others, time, what they may do, own seats."""
    generator = torch.Generator().manual_seed(1)
    avail = torch.rand(rows, 2, 3, generator=generator) < 0.6
    avail[..., 0] |= ~avail.any(-1)
    obs = torch.randn(rows, 2, SPEC.obs_dim, generator=generator)
    seats = torch.randint(0, 3, (rows,), generator=generator)
    return obs, torch.rand(rows, generator=generator), avail, seats


def model_of(*words: str) -> MoaModel:
    model = build_model(config_of(*words), SPEC)
    assert isinstance(model, MoaModel)
    return model


# --- networks ----------------------------------------------------------------------------------


def test_every_ordered_pair_has_a_file_and_players_are_counted_from_one() -> None:
    assert nets().names() == [f"player_{me + 1}_to_{other + 1}.pth" for me, other in PAIRS]


def test_all_pairs_at_once_give_what_each_network_gives_by_itself() -> None:
    found, (obs, time, avail, seats) = nets(), seen(40)
    with torch.no_grad():
        together = found.each_goal(obs, time, avail, seats)
        for row, place, goal in np.ndindex(40, 2, 2):
            net = found.members([int(seats[row]) * 2 + place])[0]
            one = net(
                obs[row, place][None],
                time[row][None],
                torch.eye(2)[goal][None],
                avail[row, place][None],
            )
            torch.testing.assert_close(together[row, place, goal], one[0], atol=1e-5, rtol=1e-4)


def test_a_goal_vector_of_each_row_gives_what_each_network_gives_by_itself() -> None:
    found, (obs, time, avail, seats) = nets(5), seen(40)
    goal = torch.randn(40, 5)
    with torch.no_grad():
        together = found.given(obs, time, avail, seats, goal)
        for row, place in np.ndindex(40, 2):
            net = found.members([int(seats[row]) * 2 + place])[0]
            one = net(
                obs[row, place][None], time[row][None], goal[row][None], avail[row, place][None]
            )
            torch.testing.assert_close(together[row, place], one[0], atol=1e-5, rtol=1e-4)


def test_what_is_not_available_has_no_chance() -> None:
    found, (obs, time, avail, seats) = nets(), seen(60)
    chances = found.each_goal(obs, time, avail, seats).detach()
    assert (chances[~avail.unsqueeze(2).expand_as(chances)] == 0).all()
    torch.testing.assert_close(chances.sum(-1), torch.ones(60, 2, 2))


def test_changed_weights_are_noticed() -> None:
    found, shown = nets(), seen(10)
    before = found.each_goal(*shown).clone()
    with torch.no_grad():
        found.members([0])[0].fc3.bias += torch.tensor([5.0, 0.0, 0.0])
    after = found.each_goal(*shown)
    own = shown[3] == 0
    assert not torch.equal(before[own, 0], after[own, 0])
    assert torch.equal(before[~own], after[~own])
    assert torch.equal(before[own, 1], after[own, 1])


# --- beliefs -----------------------------------------------------------------------------------


def by_hand(prior: list[float], likelihoods: list[list[float]], floor: float) -> list[float]:
    belief = prior
    for likelihood in likelihoods:
        joint = [b * p for b, p in zip(belief, likelihood, strict=True)]
        total = sum(joint)
        belief = [(1 - floor) * j / total + floor / len(prior) for j in joint]
    return belief


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 5), st.integers(1, 8), st.integers(0, 10_000))
def test_beliefs_equal_a_slow_hand_loop(goals: int, steps: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = sorted(rng.integers(1, steps + 1, 3).tolist(), reverse=True)
    prior = rng.dirichlet(np.ones(goals), 3)
    likelihood = rng.random((3, steps, goals)) + 0.01
    sizes = torch.tensor([sum(length > t for length in lengths) for t in range(lengths[0])])
    packed = np.concatenate([likelihood[: int(size), t] for t, size in enumerate(sizes)])
    found = filtered(torch.tensor(prior), torch.tensor(packed), sizes, 0.05)
    offsets = [0, *torch.cumsum(sizes, 0).tolist()]
    for episode, length in enumerate(lengths):
        for t in range(length):
            wanted = by_hand(prior[episode].tolist(), likelihood[episode, 1 : t + 1].tolist(), 0.05)
            torch.testing.assert_close(
                found[offsets[t] + episode], torch.tensor(wanted, dtype=torch.float64)
            )


def test_no_goal_is_believed_less_than_the_floor() -> None:
    belief = torch.tensor([0.5, 0.5])
    for _ in range(200):
        belief = bayes(belief, torch.tensor([1.0, 1e-6]), 0.1)
    assert float(belief[1]) == pytest.approx(0.05, rel=1e-3)
    changed = [bayes(belief, torch.tensor([0.1, 0.9]), 0.1)]
    changed += [bayes(changed[0], torch.tensor([0.1, 0.9]), 0.1)]
    assert float(changed[-1][1]) > 0.5


def test_an_action_that_no_goal_explains_leaves_the_belief() -> None:
    belief = torch.tensor([0.3, 0.7])
    torch.testing.assert_close(bayes(belief, torch.zeros(2), 0.0), belief)


# --- between episodes --------------------------------------------------------------------------


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=20))
def test_counts_equal_counting_one_by_one(events: list[tuple[int, int]]) -> None:
    table, wanted = torch.zeros(3, 4), np.zeros((3, 4))
    pairs = torch.tensor(events, dtype=torch.int64).view(-1, 2)
    for part in (pairs[:7], pairs[7:]):
        tally(table, part[:, 0], part[:, 1], 0.9)
    for key, goal in events:
        wanted[key] *= 0.9
        wanted[key, goal] += 1
    np.testing.assert_allclose(table.numpy(), wanted, rtol=1e-5, atol=1e-6)


def counts(*names: str) -> GoalCounts:
    found = GoalCounts(3, 2, discount=0.995)
    found.meet(names)
    return found


def test_the_prior_is_the_players_own_where_it_is_known_and_else_its_seats() -> None:
    found = counts("anna", "bert", "carl")
    anna, bert = found.rows_of(["anna", "bert"]).tolist()
    seat = torch.tensor([1, 1, 1])
    found.add(seat, torch.tensor([anna, bert, bert]), torch.tensor([0, 1, 1]))
    prior = found.prior(torch.tensor([1, 1, 1, 0]), found.rows_of(["anna", "bert", "carl", "dora"]))
    assert float(prior[0, 0]) == pytest.approx(2 / 3)  # anna reached 0 once
    assert float(prior[1, 1]) > 0.7  # bert reached 1 twice
    torch.testing.assert_close(
        prior[2], found.prior(torch.tensor([1]))[0]
    )  # never seen: the seat's
    torch.testing.assert_close(prior[3], torch.tensor([0.5, 0.5]))  # nothing known at all


def test_counts_go_to_players_of_the_same_name_and_a_run_keeps_only_its_own() -> None:
    old = counts("anna", "bert")
    old.add(torch.tensor([0, 0, 0]), torch.tensor([0, 1, 1]), torch.tensor([0, 1, 1]))
    other, everyone = counts("carl", "bert"), GoalCounts(3, 2, discount=0.995)
    for table in (other, everyone):
        table.load_state_dict(old.state_dict())
        assert torch.equal(table.players[table.rows_of(["bert"])[0]], old.players[1])
        assert torch.equal(table.seats, old.seats)
    assert other.rows_of(["anna"]).tolist() == [-1]
    assert not other.players[other.rows_of(["carl"])[0]].any()
    assert everyone.rows_of(["anna"]).tolist() == [0]


# --- the model ---------------------------------------------------------------------------------


def acted_features(batch: EpisodeBatch, words: tuple[str, ...] = ()) -> tuple[Tensor, Tensor]:
    """Features of every slot, step by step with the carry, and all at once from storage."""
    mac = team(config_of(*words))
    model = mac.model
    assert model is not None
    played = mac.trajectories(batch)
    rows = mac.model_rows(played)
    at_once = model.unroll(rows, played.rows, torch.Generator())
    found, start = [], 0
    carry = torch.zeros(int(played.rows.sizes[0]), model.carry_dim)
    for size in played.rows.sizes.tolist():
        part = rows.take(torch.arange(start, start + size))
        inferred = model.infer(replace(part, time=None), carry[:size], torch.Generator())
        carry = inferred.carry
        found.append(inferred.feature)
        start += size
    return torch.cat(found), at_once


@pytest.mark.parametrize("words", [(), ("--moa_goal=none",)])
def test_features_step_by_step_are_those_of_whole_episodes(words: tuple[str, ...]) -> None:
    mac = team(config_of())
    batch = episodes(mac, random_walks(6))
    assert len(set(batch.lengths.tolist())) > 1
    step_by_step, at_once = acted_features(batch, words)
    torch.testing.assert_close(step_by_step, at_once)


def test_nothing_is_said_about_those_who_have_left() -> None:
    mac = team(config_of())
    assert isinstance(mac.model, MoaModel)
    batch = episodes(mac, random_walks(4))
    played = mac.trajectories(batch)
    rows = mac.model_rows(played)
    feature = mac.model.unroll(rows, played.rows, torch.Generator())
    belief, prediction = feature.split([2 * 2, 2 * 3], -1)
    assert rows.others_alive is not None
    gone = ~rows.others_alive
    assert gone.any()
    assert not belief.view(-1, 2, 2)[gone].any()
    assert not prediction.view(-1, 2, 3)[gone].any()
    torch.testing.assert_close(belief.view(-1, 2, 2)[~gone].sum(-1), torch.ones(int((~gone).sum())))


def no_values(alternatives: Alternatives) -> Tensor:
    raise AssertionError("MOA chooses nothing")


def taught(count: int, *, wait: float) -> MoaTraining:
    """MOA of walkers who each want one end and wait now and then."""
    config = config_of("--moa_update_time=20", "--moa_batch_size=64")
    mac = team(config)
    training = MoaTraining(config=config, mac=mac, on_policy=False)
    training.receive(mac.trajectories(episodes(mac, random_walks(count, wait=wait))))
    training.finish(Lesson(mac.trajectories(episodes(mac, random_walks(1)))))
    return training


@pytest.fixture(scope="module")
def trained() -> MoaTraining:
    return taught(150, wait=0.15)


@pytest.mark.long
def test_a_scripted_player_is_predicted() -> None:
    """Its loss falls, and more than nine in ten guesses are right."""
    training = taught(60, wait=0.02)
    config = config_of("--moa_update_time=1", "--moa_batch_size=64")
    mac = team(config)
    fresh = MoaTraining(config=config, mac=mac, on_policy=False)
    unseen = mac.trajectories(episodes(mac, random_walks(40, seed=5, wait=0.02)))
    found = []
    for each in (fresh, training):
        each.receive(unseen)
        found.append(each.finish(Lesson(unseen)))
    first, later = found
    assert float(first["moa_loss"]) > 2 * float(later["moa_loss"])
    assert float(later["moa_accuracy"]) > 0.9


def beliefs_in(trained: MoaTraining, walks: list[dict[str, np.ndarray]]) -> Tensor:
    """[episode, time, walker seen by the one before it, goal], without what was counted."""
    mac = trained._mac
    assert isinstance(mac.model, MoaModel)
    mac.model.counts.seats.zero_()
    played = mac.trajectories(episodes(mac, walks))
    feature = mac.model.unroll(mac.model_rows(played), played.rows, torch.Generator())
    belief = feature[:, :4].view(len(played.packing.time), 3, 2, 2)  # [P, me, other, goal]
    return played.packing.unpack(belief[:, :, 0])[:, :, [2, 0, 1]]


@pytest.mark.long
def test_the_belief_converges_to_the_true_goal(trained: MoaTraining) -> None:
    rng = np.random.default_rng(7)
    wants = [rng.integers(0, 2, (3, 1)).tolist() for _ in range(20)]
    walks = [walk(w, rng, wait=0.15) for w in wants]
    belief = beliefs_in(trained, walks)
    for episode, goals in enumerate(wants):
        for walker, (goal,) in enumerate(goals):
            told = belief[episode, :, walker, goal]
            assert float(told[0]) == pytest.approx(0.5)
            assert float(told[walks[episode]["alive"][:, walker].sum() - 1]) > 0.9


@pytest.mark.long
def test_the_belief_follows_one_that_changes_its_mind(trained: MoaTraining) -> None:
    rng = np.random.default_rng(8)
    wants = [[0] * 3 + [1] * 9, [0], [1]]  # the first turns round after three steps
    belief = beliefs_in(trained, [walk(wants, rng, wait=0.0)])[0, :, 0]
    assert float(belief[3, 0]) > 0.9
    assert float(belief[7, 1]) > 0.9


def test_goals_that_are_reached_become_the_prior_of_the_next_episode() -> None:
    config = config_of()
    mac = team(config)
    assert isinstance(mac.model, MoaModel)
    training = MoaTraining(config=config, mac=mac, on_policy=False)
    rng = np.random.default_rng(0)
    walks = [walk([[0], [1], [1]], rng) for _ in range(5)]
    training.receive(mac.trajectories(episodes(mac, walks)))
    before = mac.model.counts.prior(torch.arange(3))
    torch.testing.assert_close(before, torch.full((3, 2), 0.5))  # until an update is made
    training.finish(Lesson(mac.trajectories(episodes(mac, walks))))
    after = mac.model.counts.prior(torch.arange(3))
    counted = sum(0.995**k for k in range(5))
    torch.testing.assert_close(after[0, 0], torch.tensor((counted + 1) / (counted + 2)))
    assert float(after[1, 1]) == pytest.approx(float(after[0, 0]))


def test_features_and_counts_stay_while_an_update_is_prepared() -> None:
    config = config_of()
    mac = team(config)
    training = MoaTraining(config=config, mac=mac, on_policy=True)
    played = mac.trajectories(episodes(mac, random_walks(3)))
    fed = [training.prepare(played, Progress(0, 0, 0), no_values).feature]
    training.receive(played)
    fed += [training.prepare(played, Progress(0, 0, 0), no_values).feature]
    assert fed[0] is not None
    assert fed[1] is not None
    assert torch.equal(fed[0], fed[1])


def test_an_exchanged_belief_is_the_donors_in_ones_own_game() -> None:
    mac = team(config_of())
    assert isinstance(mac.model, MoaModel)
    played = mac.trajectories(episodes(mac, random_walks(4)))
    rows = mac.model_rows(played).take(torch.arange(12))
    carry = torch.rand(12, mac.model.carry_dim)
    inferred = mac.model.infer(rows, carry, torch.Generator())
    donor = torch.arange(12).roll(3)
    found = mac.model.exchanged(inferred, donor, rows, torch.Generator())
    torch.testing.assert_close(found[:, :4], inferred.record["am_belief"][donor])
    chances = mac.model.chances(rows, carry[:, 0])
    mixed = (found[:, :4].view(12, 2, 2, 1) * chances).sum(2)
    torch.testing.assert_close(found[:, 4:], mixed.flatten(1))


def test_episodes_are_judged_by_goals_and_actions() -> None:
    mac = team(config_of()).recording()
    model = mac.model
    assert isinstance(model, MoaModel)
    rng = np.random.default_rng(0)
    batch = episodes(mac, [walk([[0], [1], [0]], rng), walk([[0], [0], [1]], rng)])
    belief = torch.zeros(*batch.raw("am_belief").shape[:-1], 2, 2)
    belief[..., 0] = 1.0  # everybody is believed to want the left end
    prediction = torch.zeros(*batch.raw("am_prediction").shape[:-1], 2, 3)
    prediction[..., 1] = 1.0  # and to go there
    batch.raw("am_belief").copy_(belief.flatten(-2))
    batch.raw("am_prediction").copy_(prediction.flatten(-2))
    found = mac.judge(batch)
    alive, actions = batch["alive"], batch["actions"]
    for episode in range(2):
        steps = int(batch.lengths[episode]) - 1
        told = {"belief": [[0, 0] for _ in range(3)], "action": [[0, 0] for _ in range(3)]}
        for me in range(3):
            for other in range(3):
                ends = batch["reached"][episode, :, other].max()
                for t in range(steps):
                    if other == me or not alive[episode, t, [me, other]].all():
                        continue
                    told["action"][me][0] += int(actions[episode, t, other] == 1)
                    told["action"][me][1] += 1
                    if ends >= 0:
                        told["belief"][me][0] += int(ends == 0)
                        told["belief"][me][1] += 1
        for name, key in (("belief", "belief_accuracy"), ("action", "prediction_accuracy")):
            wanted = np.mean([hits / of for hits, of in told[name]])
            assert float(found[key][episode]) == pytest.approx(wanted, rel=1e-5)


def test_discrete_goals_need_an_environment_that_declares_some() -> None:
    with pytest.raises(OmgError, match="moa_goal=none"):
        build_model(config_of(), replace(SPEC, goals=()))
    build_model(config_of("--moa_goal=none"), replace(SPEC, goals=()))


def test_a_game_of_one_has_nobody_to_model() -> None:
    with pytest.raises(OmgError, match="only one"):
        build_model(config_of(), replace(SPEC, n_agents=1, agent_features=()))
