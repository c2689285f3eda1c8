"""Learning where agents leave early: nobody learns from an absent seat, leaving ends its game, a
mixer leaves it out; for every algorithm, and small cases by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from omg.components.episodes import EpisodeBatch
from omg.components.trajectories import SEAT, Trajectories
from omg.functional import Packing, generalised_advantages, td_lambda_targets
from omg.learners.leaving import acting, of_acting, outcomes, without_absent
from omg.learners.ppo_learner import PPOLearner
from omg.learners.q_learner import QLearner, Update
from omg.learners.qtran_learner import QtranLearner
from omg.modules.opponent_models.base import ModelRows, action_loss, mean_over_present
from omg.modules.opponent_models.base_am import NaiveModel
from omg.modules.opponent_models.liam_am import LiamModel

from .every_algorithm import AGENTS, TABLE
from .small_learners import RANDOM, Bench, join, random_batch

LEAVING = replace(RANDOM, leavers=True)
PROVED = [name for name, row in TABLE.items() if not row.twin]
SURE = [name for name in PROVED if TABLE[name].sure is not None]


def leaving_batch(bench: Bench, rng: np.random.Generator, count: int = 6) -> EpisodeBatch:
    """Random episodes of 4 steps in which seats leave, at the second step at the earliest; one of
    them stays."""
    batch = random_batch(bench, rng, count, steps=4)
    alive = torch.ones(count, batch.max_seq_length, AGENTS, dtype=torch.bool)
    for episode in range(count):
        stays = int(rng.integers(AGENTS))
        for seat in range(AGENTS):
            if seat != stays:
                alive[episode, int(rng.integers(1, 6)) :, seat] = False
    return with_alive(bench, batch, alive)


def with_alive(bench: Bench, batch: EpisodeBatch, alive: Tensor) -> EpisodeBatch:
    """The batch with absent seats as the contract wants them."""
    data = {name: batch.raw(name).clone() for name in batch.scheme.fields}
    data["alive"] = alive & batch.filled.unsqueeze(-1)
    data["obs"][~alive] = 0
    data["actions"][~alive] = 0
    data["avail_actions"][~alive] = torch.arange(bench.spec.n_actions) == 0
    if data["reward"].shape[-1] == AGENTS:
        data["reward"][~alive] = 0
    return EpisodeBatch.from_data(batch.scheme, data, batch.filled)


def spoiled(batch: EpisodeBatch, rng: np.random.Generator) -> EpisodeBatch:
    """The same with nonsense wherever a seat is absent."""
    absent = ~batch.raw("alive") & batch.filled.unsqueeze(-1)
    data = {name: batch.raw(name).clone() for name in batch.scheme.fields}
    for name in ("obs", "actions", "avail_actions"):
        noise: Any = 5 * rng.normal(size=data[name].shape)
        if name != "obs":
            noise = rng.integers(0, 2, data[name].shape)
        data[name][absent] = torch.from_numpy(noise).to(data[name].dtype)[absent]
    data["avail_actions"][absent] |= torch.arange(data["avail_actions"].shape[-1]) == 0
    return EpisodeBatch.from_data(batch.scheme, data, batch.filled)


def trained(name: str, batches: list[EpisodeBatch], *words: str) -> tuple[Any, Any]:
    bench = Bench(name, *words, spec=LEAVING)
    told = [bench.train(batch) for batch in batches]
    return bench.weights(), told


@pytest.mark.parametrize("name", PROVED)
def test_nothing_of_an_absent_seat_is_learned_from(name: str) -> None:
    bench = Bench(name, spec=LEAVING)
    rng = np.random.default_rng(5)
    batches = [leaving_batch(bench, rng) for _ in range(2)]
    noise = np.random.default_rng(6)
    weights, told = trained(name, batches)
    others, as_told = trained(name, [spoiled(batch, noise) for batch in batches])
    assert told == as_told
    assert all(np.isfinite(value) for metrics in told for value in metrics.values())
    for key, value in weights.items():
        assert torch.equal(value, others[key]), key
    before = Bench(name, spec=LEAVING).weights()
    assert any(not torch.equal(before[key], value) for key, value in weights.items())


@pytest.mark.parametrize(
    "name", [n for n in SURE if SEAT in Bench(n).scheme.fields and TABLE[n].values != "none"]
)
def test_the_game_of_one_agent_ends_where_it_leaves(name: str) -> None:
    """An episode that goes on without the learning agent teaches what one that terminates there
    does."""
    words = TABLE[name].sure_words
    bench = Bench(name, *words, spec=LEAVING)
    batch = random_batch(bench, np.random.default_rng(3), 4, ending="truncated", steps=4)
    alive = torch.ones(4, 5, AGENTS, dtype=torch.bool)
    left = [1, 2, 3, 2]  # slots at which the learning seat is absent first
    for episode, slot in enumerate(left):
        alive[episode, slot:, int(batch[SEAT][episode])] = False
    goes_on = with_alive(bench, batch, alive)
    cut = []
    for episode, slot in enumerate(left):
        one = {
            field: goes_on.raw(field)[episode].numpy()
            if spec.episode_const
            else goes_on.raw(field)[episode, : slot + 1].numpy().copy()
            for field, spec in batch.scheme.fields.items()
        }
        one["terminated"][:] = np.arange(slot + 1) == slot - 1
        cut.append(one)
    weights, told = trained(name, [goes_on], *words)
    others, as_told = trained(name, [join(batch.scheme, cut)], *words)
    for metric, value in told[0].items():
        assert value == pytest.approx(as_told[0][metric], rel=1e-4, abs=1e-5), metric
    for key, value in weights.items():
        torch.testing.assert_close(value, others[key], rtol=1e-4, atol=1e-6)


def by_hand(rewards: list[list[float]], alive: list[list[int]]) -> Trajectories:
    """One cut episode of two seats, as much of it as outcomes need."""
    bench = Bench("iql" if len(rewards[0]) > 1 else "vdn", spec=replace(LEAVING, n_agents=2))
    steps = len(rewards)
    zero = np.zeros((steps + 1, 2), np.int64)
    episode = {
        "reward": np.array([*rewards, rewards[0]], np.float32),
        "alive": np.array(alive, bool),
        "actions": zero,
        "terminated": np.zeros(steps + 1, bool),
    }
    return Trajectories.of(join(bench.scheme, [episode]))


def test_leaving_ends_a_seats_rewards_and_brings_what_the_team_still_earns() -> None:
    alive = [[1, 1], [0, 1], [0, 1], [0, 1]]
    own = by_hand([[3, 1], [0, 2], [0, 4]], alive)
    reward, terminated = outcomes(own, gamma=0.5)
    assert reward.tolist() == [[3, 1], [0, 2], [0, 4]]
    assert terminated.tolist() == [[True, False], [False, False], [False, False]]
    acts = acting(own)
    assert acts is not None
    assert acts.tolist() == [[True, True], [False, True], [False, True]]
    assert of_acting(reward, acts).flatten().tolist() == [3, 1, 2, 4]
    common = by_hand([[1], [2], [4]], alive)
    reward, terminated = outcomes(common, gamma=0.5)
    assert reward.tolist() == [[1 + 0.5 * 2 + 0.25 * 4, 1], [2, 2], [4, 4]]
    assert terminated[:, 0].tolist() == [True, False, False]
    reward, terminated = outcomes(common, gamma=0.5, team=True)
    assert reward.tolist() == [[1], [2], [4]]
    assert not terminated.any()
    both = by_hand([[1], [2], [4]], [[1, 1], [0, 1], [0, 0], [0, 0]])
    reward, terminated = outcomes(both, gamma=0.5, team=True)
    assert reward.tolist() == [[1], [2 + 0.5 * 4], [4]]  # nobody decides anything any more
    assert terminated.tolist() == [[False], [True], [False]]
    acts = acting(both, team=True)
    assert acts is not None
    assert acts.flatten().tolist() == [True, True, False]


def slow_episode(rng: np.random.Generator) -> Any:
    """Packed numbers of three episodes and two seats that end one by one."""
    lengths = [5, 3, 6]
    filled = torch.arange(6) < torch.tensor(lengths).unsqueeze(1)
    packing = Packing.of(filled, torch.zeros(3, 6, dtype=torch.bool))
    ends = np.zeros((3, 6, 2), bool)
    for b, length in enumerate(lengths):
        for n in range(2):
            ends[b, int(rng.integers(0, length)), n] = True
    reward, values = rng.normal(size=(2, 3, 6, 2)).astype(np.float32)
    return lengths, packing, ends, reward, values


def test_advantages_stop_at_a_seats_own_end() -> None:
    lengths, packing, ends, reward, values = slow_episode(np.random.default_rng(0))
    gamma, lam = 0.9, 0.7
    found = packing.unpack(
        generalised_advantages(
            packing.pack(torch.tensor(reward)),
            packing.pack(torch.tensor(ends)),
            packing.pack(torch.tensor(values)),
            packing,
            gamma=gamma,
            lam=lam,
        )
    )
    for b, length in enumerate(lengths):
        for n in range(2):
            after = 0.0
            for t in reversed(range(length - 1)):
                goes_on = 0.0 if ends[b, t, n] else 1.0
                error = reward[b, t, n] + gamma * goes_on * values[b, t + 1, n] - values[b, t, n]
                after = error + gamma * lam * goes_on * after
                assert found[b, t, n] == pytest.approx(after, abs=1e-5)


def test_lambda_returns_stop_at_a_seats_own_end() -> None:
    lengths, packing, ends, reward, values = slow_episode(np.random.default_rng(1))
    gamma, lam = 0.9, 0.6
    now, following = packing.now, packing.next
    rows = packing.pack(torch.tensor(reward)), packing.pack(torch.tensor(ends))
    found = td_lambda_targets(
        rows[0][now],
        rows[1][now],
        packing.pack(torch.tensor(values))[following],
        packing,
        gamma=gamma,
        td_lambda=lam,
    )
    slots = {(int(packing.episode[p]), int(packing.time[p])): k for k, p in enumerate(now)}
    for b, length in enumerate(lengths):
        for n in range(2):
            after = values[b, length - 1, n]
            for t in reversed(range(length - 1)):
                value = values[b, t + 1, n]
                ahead = 0.0 if ends[b, t, n] else (1 - lam) * value + lam * after
                after = reward[b, t, n] + gamma * ahead
                assert found[slots[b, t], n] == pytest.approx(float(after), abs=1e-5)


def test_qmix_leaves_an_absent_seat_out_and_bootstraps_from_the_team() -> None:
    bench = Bench("qmix", spec=LEAVING)
    learner = bench.learner
    assert isinstance(learner, QLearner)
    assert learner.mixer is not None
    batch = random_batch(bench, np.random.default_rng(2), 1, ending="truncated", steps=2)
    alive = torch.ones(1, 3, AGENTS, dtype=torch.bool)
    alive[0, 1:, 0] = False
    batch = with_alive(bench, batch, alive)
    played = bench.mac.trajectories(batch)
    policy = bench.mac.policy  # type: ignore[attr-defined]
    update = Update(policy, played)
    online = update.unroll(None)
    lesson = learner._model.prepare(played, None, None)  # type: ignore[arg-type]
    targets = learner.targets(update, online, lesson)
    q = online.q  # slot by slot: one episode
    for t in range(2):
        best = [q[t + 1, n].masked_fill(~batch["avail_actions"][0, t + 1, n], -1e9).max()
                for n in range(AGENTS)]  # fmt: skip
        best[0] = torch.zeros(())  # seat 0 is absent after the first step
        total = learner.mixer(torch.stack(best).unsqueeze(0), batch["state"][0, t + 1].unsqueeze(0))
        expected = batch["reward"][0, t, 0] + bench.config.gamma * total.squeeze()
        assert float(targets[t]) == pytest.approx(float(expected.detach()), abs=1e-5)
    values = without_absent(torch.ones(2, AGENTS), alive[0, :2])
    assert values.tolist() == [[1, 1, 1], [0, 1, 1]]


def test_qtrans_joint_value_does_not_see_absent_agents() -> None:
    for arch in ("qtran_paper", "coma_critic"):
        bench = Bench("qtran", f"--qtran_arch={arch}", spec=LEAVING)
        assert isinstance(bench.learner, QtranLearner)
        mixer = bench.learner.mixer
        rng = torch.Generator().manual_seed(0)
        state = torch.randn(4, bench.spec.state_dim, generator=rng)
        width = bench.config.rnn_hidden_dim
        features = torch.randn(4, AGENTS, width, generator=rng)
        actions = torch.randint(0, 4, (4, AGENTS), generator=rng)
        alive = torch.tensor([[True, False, True]]).expand(4, -1)
        changed_features, changed = features.clone(), actions.clone()
        changed_features[:, 1] += 3
        changed[:, 1] = (actions[:, 1] + 1) % 4
        one = mixer.joint(state, features, actions, alive)
        torch.testing.assert_close(one, mixer.joint(state, changed_features, changed, alive))
        assert not torch.equal(one, mixer.joint(state, features, actions))


def test_ppos_advantage_of_leaving_is_the_reward_minus_the_value() -> None:
    bench = Bench("ippo", spec=LEAVING)
    learner = bench.learner
    assert isinstance(learner, PPOLearner)
    batch = random_batch(bench, np.random.default_rng(4), 1, ending="truncated", steps=3)
    alive = torch.ones(1, 4, AGENTS, dtype=torch.bool)
    alive[0, 2:, 1] = False
    batch = with_alive(bench, batch, alive)
    played = bench.mac.trajectories(batch)
    reward, terminated = learner._outcomes(played)
    assert terminated.tolist() == [
        [False, False, False], [False, True, False], [False] * 3, [False] * 3
    ]  # fmt: skip
    values = torch.tensor([[1.0, 2.0, 3.0]]).expand(4, -1)
    found = generalised_advantages(reward, terminated, values, played.packing, gamma=0.5, lam=1.0)
    r = batch["reward"][0]
    assert float(found[1, 1]) == pytest.approx(float(r[1, 1] - 2.0), abs=1e-5)
    expected = r[0, 1] + 0.5 * r[1, 1] - 2.0  # λ = 1: the discounted rewards until it left
    assert float(found[0, 1]) == pytest.approx(float(expected), abs=1e-5)


def test_no_subgoal_lies_after_ones_own_leaving() -> None:
    filled = torch.ones(2, 6, dtype=torch.bool)
    packing = Packing.of(filled, torch.zeros(2, 6, dtype=torch.bool)).per_seat(2)
    left = torch.tensor([[6, 2], [3, 6]])  # slots at which seats are absent first
    alive = packing.time < left.flatten()[packing.episode]
    rows = packing.living(alive)
    assert bool(alive[rows.now].all())
    assert len(rows.now) == 5 + 2 + 3 + 5
    slots, exists = rows.future(rows.now, 5)
    for row, ahead, there in zip(rows.now.tolist(), slots.tolist(), exists.tolist(), strict=True):
        last = min(int(left.flatten()[packing.episode[row]]), 5)
        for step, (slot, real) in enumerate(zip(ahead, there, strict=True), 1):
            assert packing.episode[slot] == packing.episode[row]
            assert int(packing.time[slot]) == min(int(packing.time[row]) + step, last)
            assert real == (int(packing.time[row]) + step <= last)


def rows_of(alive: list[list[bool]], bench: Bench) -> ModelRows:
    """Random rows with these others alive."""
    rng, count = torch.Generator().manual_seed(0), len(alive)
    spec = bench.spec
    return ModelRows(
        own=torch.randn(count, spec.obs_dim, generator=rng),
        last_action=torch.zeros(count, dtype=torch.int64),
        others_last=torch.zeros(count, AGENTS - 1, dtype=torch.int64),
        seats=torch.arange(count) % AGENTS,
        state=torch.randn(count, spec.state_dim, generator=rng),
        others_actions=torch.randint(0, 4, (count, AGENTS - 1), generator=rng),
        others_obs=torch.randn(count, AGENTS - 1, spec.obs_dim, generator=rng),
        others_alive=torch.tensor(alive),
    )


def test_absent_others_count_in_no_loss_and_no_accuracy() -> None:
    logits = torch.tensor([[[0.0, 1.0], [2.0, 0.0]], [[0.0, 3.0], [0.0, 1.0]]])
    actions = torch.tensor([[1, 1], [0, 1]])
    alive = torch.tensor([[True, False], [True, True]])
    loss, hits = action_loss(logits, actions, alive)
    chances = logits.softmax(-1)
    expected = -(chances[0, 0, 1].log() + chances[1, 0, 0].log() + chances[1, 1, 1].log()) / 3
    assert float(loss) == pytest.approx(float(expected), abs=1e-6)
    assert float(hits) == pytest.approx(2 / 3)
    errors = torch.tensor([[[1.0, 3.0], [9.0, 9.0]], [[2.0, 2.0], [5.0, 7.0]]])
    assert float(mean_over_present(errors, alive)) == pytest.approx((2 + 2 + 6) / 3)
    nobody = torch.zeros_like(alive)
    assert float(action_loss(logits, actions, nobody)[0]) == 0.0


@pytest.mark.parametrize("words", [(), ("--am_feature=both",), ("--am_feature=decoded",)])
def test_liams_loss_and_features_say_nothing_of_absent_others(words: tuple[str, ...]) -> None:
    bench = Bench("d3qn_liam", *words, spec=LEAVING)
    model = bench.mac.model  # type: ignore[attr-defined]
    assert isinstance(model, LiamModel)
    rows = rows_of([[True, False], [False, True], [True, True]], bench)
    filled = torch.ones(3, 2, dtype=torch.bool)
    packing = Packing.of(filled, torch.zeros(3, 2, dtype=torch.bool))
    both = ModelRows(**{
        name: torch.cat([getattr(rows, name)] * 2) if getattr(rows, name) is not None else None
        for name in ModelRows.__slots__})  # fmt: skip
    assert both.others_obs is not None
    assert both.others_actions is not None
    loss = model.episode_loss(both, packing)
    absent = ~both.others_alive if both.others_alive is not None else torch.zeros(0)
    other_obs, other_actions = both.others_obs.clone(), both.others_actions.clone()
    other_obs[absent] += 7
    other_actions[absent] = (other_actions[absent] + 1) % 4
    changed = replace(both, others_obs=other_obs, others_actions=other_actions)
    for name, value in model.episode_loss(changed, packing).items():
        assert torch.equal(value, loss[name]), name
    if words:
        features = model.unroll(both, packing, torch.Generator())
        latent = model._embed_dim if words == ("--am_feature=both",) else 0
        does = features[:, latent : latent + 8].view(-1, 2, 4)
        where = features[:, latent + 8 :].view(-1, 2, 2)
        assert not does[absent].any()
        assert not where[absent].any()
        assert does[~absent].sum(-1).allclose(torch.ones(()))


def test_the_naive_model_feeds_zeros_for_absent_others() -> None:
    bench = Bench("d3qn_am", spec=LEAVING)
    model = bench.mac.model  # type: ignore[attr-defined]
    assert isinstance(model, NaiveModel)
    rows = rows_of([[True, False], [False, False]], bench)
    told = model.infer(rows, torch.zeros(2, 0), torch.Generator()).feature.view(2, 2, 4)
    assert told.sum(-1).allclose(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))


@pytest.mark.parametrize("name", ["d3qn_control", "d3qn_oracle"])
def test_diagnostic_models_feed_zeros_for_absent_others(name: str) -> None:
    bench = Bench("d3qn_control", spec=LEAVING)
    model = bench.mac.model  # type: ignore[attr-defined]
    rows = rows_of([[True, False]], bench)
    if name == "d3qn_oracle":
        from omg.modules.opponent_models.control_am import OracleModel

        model = OracleModel(spec=LEAVING, own_dim=5, config=bench.config)
        rows = replace(rows, foresight=torch.randn(1, 2, 2))
    feature = model.feature(rows).view(2, 2)
    assert feature[0].all()
    assert not feature[1].any()
