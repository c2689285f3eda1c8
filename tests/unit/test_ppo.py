"""PPO against slow references, formulas and a game solved by hand; alone and in mixed teams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from omg.cli.train import train
from omg.components.episodes import EpisodeBatch
from omg.components.trajectories import Trajectories
from omg.config.loader import load_command_line
from omg.config.schema import Config
from omg.controllers.team import BasicMAC, MultiModuleMAC
from omg.functional import Packing, generalised_advantages
from omg.learners.base import Progress
from omg.learners.ppo_learner import PPOLearner, explained_variance
from omg.modules.critics import RunningStats, ValueCritic, build_critic
from omg.modules.kernels.ppo import clipped_surrogate, value_error
from omg.storage.files import load_tensors
from omg.types import OmgError

from . import mdps
from .test_mixed_teams import SMALL, TASK, collect, make_rollout

CPU = torch.device("cpu")
START = Progress(0, 0, 0)


def make(*words: str, alg: str = "ippo") -> tuple[Config, BasicMAC, PPOLearner]:
    torch.manual_seed(0)
    config = load_command_line(
        [f"--config={alg}", "--env-config=foraging", f"--gamma={mdps.GAMMA}", *words]
    ).config
    mac = BasicMAC(config=config, spec=mdps.SPEC, device=CPU)
    return config, mac, PPOLearner(config=config, spec=mdps.SPEC, mac=mac, device=CPU)


def some_episodes(
    seed: int = 0, count: int = 5, *, ending: str = "truncated", alg: str = "ippo"
) -> EpisodeBatch:
    return mdps.episodes(
        np.random.default_rng(seed), count, ending=ending, common=alg == "mappo", padded=True
    )


@torch.no_grad()
def valued(learner: PPOLearner, played: Trajectories) -> Tensor:
    """The critic's outputs, [P, n]."""
    fed = learner._policy.inputs.packed(played)
    return learner.values(learner.values.critic.inputs(played, fed), played)


def weights(learner: PPOLearner) -> Tensor:
    """All parameters of policy and critic in one vector."""
    parts = [*learner._policy.network.parameters(), *learner.values.parameters()]
    return torch.cat([part.detach().flatten() for part in parts])


def learned(learner: PPOLearner, batch: EpisodeBatch) -> dict[str, Tensor]:
    return dict(learner.train(batch, START))


# --- advantages ------------------------------------------------------------------------------


def slow_advantages(
    reward: np.ndarray, values: np.ndarray, ends: bool, gamma: float, lam: float
) -> np.ndarray:
    """GAE of one episode as the sum of its definition, Σ_k (γλ)^k δ_{t+k}."""
    steps = len(reward)
    follows = np.concatenate([values[1:-1], values[-1:] * (not ends)])
    delta = reward + gamma * follows - values[:-1]
    powers = (gamma * lam) ** np.arange(steps)
    return np.array([powers[: steps - t] @ delta[t:] for t in range(steps)])


@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    agents=st.integers(1, 3),
    common=st.booleans(),
    gamma=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    lam=st.sampled_from([0.0, 0.7, 1.0]),
    seed=st.integers(0, 1000),
)
def test_advantages_equal_a_slow_sum_over_every_episode(
    lengths: list[int], agents: int, common: bool, gamma: float, lam: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    count, slots = len(lengths), max(lengths) + 2
    reward = rng.normal(size=(count, slots, 1 if common else agents)).astype(np.float32)
    values = rng.normal(size=(count, slots, agents)).astype(np.float32)  # in the padding too
    ends = rng.random(count) < 0.5
    filled = np.arange(slots) <= np.array(lengths)[:, None]
    terminated = (np.arange(slots) == np.array(lengths)[:, None] - 1) & ends[:, None]
    packing = Packing.of(torch.from_numpy(filled), torch.from_numpy(terminated))
    found = packing.unpack(
        generalised_advantages(
            packing.pack(torch.from_numpy(reward)),
            packing.pack(torch.from_numpy(terminated)),
            packing.pack(torch.from_numpy(values)),
            packing,
            gamma=gamma,
            lam=lam,
        )
    ).numpy()
    expected = np.zeros_like(values)
    for b, length in enumerate(lengths):
        for n in range(agents):
            expected[b, :length, n] = slow_advantages(
                reward[b, :length, 0 if common else n],
                values[b, : length + 1, n],
                bool(ends[b]),
                gamma,
                lam,
            )
    np.testing.assert_allclose(found, expected, atol=1e-4)


# --- losses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected", "slope"),
    [
        (1.1, 2.0, 2.2, 2.0),  # inside: ρ A
        (1.5, 2.0, 2.4, 0.0),  # better and far enough: clipped, nothing to gain
        (0.5, 2.0, 1.0, 2.0),  # a good action became rarer: the full gradient brings it back
        (1.5, -2.0, -3.0, -2.0),  # a bad action became more likely: the full gradient
        (0.5, -2.0, -1.6, 0.0),  # a bad action is rare enough
    ],
)
def test_the_surrogate_is_clipped_only_where_that_lowers_it(
    ratio: float, advantage: float, expected: float, slope: float
) -> None:
    rho = torch.tensor(ratio, requires_grad=True)
    found = clipped_surrogate(rho, torch.tensor(advantage), 0.2)
    found.backward()
    torch.testing.assert_close(found.detach(), torch.tensor(expected))
    assert rho.grad is not None
    torch.testing.assert_close(rho.grad, torch.tensor(slope))


@pytest.mark.parametrize(
    ("value", "clip", "expected"),
    [(2.0, 0.0, 1.0), (2.0, 0.5, 6.25), (3.5, 0.5, 6.25), (0.2, 0.5, 7.84), (4.0, 5.0, 1.0)],
)
def test_a_value_that_leaves_its_old_one_is_charged_the_larger_error(
    value: float, clip: float, expected: float
) -> None:
    """Old value 0, target 3: with clip 0.5 the nearest allowed value is 0.5, (0.5 - 3)² = 6.25."""
    one = torch.ones(())
    found = value_error(value * one, 0 * one, 3 * one, clip)
    torch.testing.assert_close(found, torch.tensor(expected))


def test_explained_variance_is_one_for_a_perfect_critic_and_zero_for_a_constant() -> None:
    returns = torch.tensor([1.0, 2.0, 4.0])
    assert explained_variance(returns + 1, returns) == 1.0
    assert explained_variance(torch.full((3,), 9.0), returns).abs() < 1e-6
    assert explained_variance(returns, torch.ones(3)) == 0.0


def slow_gradient(
    config: Config, mac: BasicMAC, learner: PPOLearner, batch: EpisodeBatch
) -> Tensor:
    """∇ of mean(-A log π - c H) by steps of one episode at a time; A from critic values that are
    stepped likewise and summed by `slow_advantages`."""
    n_agents, network = mdps.SPEC.n_agents, mac.policy.network
    logs, entropies, advantages = [], [], []
    for b in range(len(batch)):
        length = int(batch.filled[b].sum()) - 1
        hidden = torch.zeros(n_agents, network.carry_dim)
        for t in range(length):
            last = torch.zeros(n_agents, mdps.SPEC.n_actions)
            if t > 0:
                last[torch.arange(n_agents), batch["actions"][b, t - 1]] = 1
            x = torch.cat([batch["obs"][b, t], last, torch.eye(n_agents)], -1)
            outputs, hidden = network.step(x, hidden)
            policy = outputs[:, :2].softmax(-1)  # the third action is not available
            chosen = policy[torch.arange(n_agents), batch["actions"][b, t]]
            logs.append(chosen.log())
            entropies.append(-(policy * policy.log()).sum(-1))
        values = valued(learner, mac.trajectories(batch[[b]]))
        for n in range(n_agents):
            advantages.append(
                slow_advantages(
                    batch["reward"][b, :length, n if config.critic == "ac" else 0].numpy(),
                    values[:, n].numpy(),
                    bool(batch["terminated"][b].any()),
                    config.gamma,
                    config.gae_lambda,
                )
            )
    columns = [np.stack(advantages[i : i + n_agents], -1) for i in range(0, len(advantages), 2)]
    advantage = torch.from_numpy(np.concatenate(columns)).float()
    advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-5)
    loss = -(advantage * torch.stack(logs)).mean()
    loss = loss - config.entropy_coef * torch.stack(entropies).mean()
    grads = torch.autograd.grad(loss, list(network.parameters()))
    return torch.cat([grad.flatten() for grad in grads])


@pytest.mark.parametrize("ending", ["terminated", "truncated"])
@pytest.mark.parametrize("alg", ["ippo", "mappo"])
def test_the_first_step_follows_the_policy_gradient_of_a_slow_reference(
    alg: str, ending: str
) -> None:
    words = ("--ppo_epochs=1", "--grad_norm_clip=1e9", "--entropy_coef=0.3")
    config, mac, learner = make("--ppo_minibatches=1", *words, alg=alg)
    batch = some_episodes(2, ending=ending, alg=alg)
    expected = slow_gradient(config, mac, learner, batch)
    learner.train(batch, START)
    grads = [p.grad for p in mac.policy.network.parameters() if p.grad is not None]
    found = torch.cat([grad.flatten() for grad in grads])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize(
    "words",
    [
        ("--policy_model=rnn",),
        ("--policy_model=mlp",),
        ("--policy_model=idv_rnn",),
        ("--action_selector=multinomial", "--mask_before_softmax=False", "--temperature=2"),
    ],
    ids=["rnn", "mlp", "idv_rnn", "multinomial"],
)
def test_old_log_probabilities_are_those_of_the_distribution_that_acted(
    words: tuple[str, ...],
) -> None:
    """Acting steps through each episode; the learner unrolls all of them, in minibatches too."""
    _, mac, learner = make(*words)
    batch = some_episodes(3)
    progress = Progress(30_000, 0, 0)
    experience, _ = learner.experience(mac.trajectories(batch), progress)
    chosen = torch.tensor([3, 1])
    part = experience.part(chosen)
    agents = torch.arange(2)
    old, old_part = (some.arranged.packing.unpack(some.log_probs) for some in (experience, part))
    outputs, _ = learner.losses.outputs(part.inputs, part.critic_inputs, part.arranged)
    again, _ = learner.losses.evaluate(outputs, part.avail, part.actions, progress)
    torch.testing.assert_close(part.counted(part.log_probs), part.counted(again))
    for b in range(len(batch)):
        hidden = torch.zeros(2, mac.policy.network.carry_dim)
        for t in range(int(batch.filled[b].sum()) - 1):
            inputs = mac.policy.inputs.packed(mac.trajectories(batch[[b]]))[t]
            outputs, hidden = mac.policy.network.step(inputs, hidden, agents)
            chances = mac.policy.selector.probabilities(  # type: ignore[attr-defined]
                outputs, batch["avail_actions"][b, t].bool(), env_steps=30_000
            )
            expected = chances[agents, batch["actions"][b, t]].log()
            torch.testing.assert_close(old[b, t], expected, atol=1e-5, rtol=1e-4)
            for row in (chosen == b).nonzero().flatten().tolist():
                assert torch.equal(old_part[row, t], old[b, t])


def test_nothing_has_moved_at_the_first_step_and_something_has_at_the_second() -> None:
    batch = some_episodes(3)
    first = learned(make("--ppo_epochs=1", "--ppo_minibatches=1")[2], batch)
    assert first["approx_kl"].abs() < 1e-6
    assert first["clip_fraction"] == 0.0
    torch.testing.assert_close(first["ratio_max"], torch.ones(()))
    more = learned(make("--ppo_epochs=6", "--lr=0.02")[2], batch)
    assert more["approx_kl"] > 1e-3
    assert more["ratio_max"] > 1.2
    assert 0.0 < more["clip_fraction"] < 1.0


@pytest.mark.long
def test_the_clip_holds_the_policy_back() -> None:
    """Many epochs on one batch: the tighter the clip, the nearer the policy stays."""
    batch = some_episodes(3)
    words = ("--ppo_epochs=40", "--lr=0.01", "--entropy_coef=0")
    tight = learned(make("--eps_clip=0.05", *words)[2], batch)["approx_kl"]
    loose = learned(make("--eps_clip=0.8", *words)[2], batch)["approx_kl"]
    assert tight * 4 < loose


# --- statistics ------------------------------------------------------------------------------


@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(lambda s: sum(s) > 0),
    centre=st.floats(-50, 50),
    spread=st.floats(0.1, 20),
    seed=st.integers(0, 100),
)
def test_running_statistics_are_those_of_all_numbers_at_once(
    sizes: list[int], centre: float, spread: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    pieces = [(centre + spread * rng.normal(size=(n, 2))).astype(np.float32) for n in sizes]
    stats = RunningStats()
    for piece in pieces:
        stats.update(torch.from_numpy(piece))
    seen = np.concatenate(pieces).astype(np.float64)
    assert stats.count == seen.size
    np.testing.assert_allclose(float(stats.mean), seen.mean(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(float(stats.deviation), seen.std(), rtol=1e-3, atol=1e-4)
    back = stats.restored(stats.normalised(torch.from_numpy(pieces[0])))
    np.testing.assert_allclose(back.numpy(), pieces[0], rtol=1e-4, atol=1e-4)
    other = RunningStats()
    other.load_state_dict(stats.state_dict())
    assert torch.equal(other.deviation, stats.deviation)


def test_the_returns_statistics_count_transitions_and_no_padding() -> None:
    _, mac, learner = make()
    batch = some_episodes(4, count=7)
    played = mac.trajectories(batch)
    table = played.packing.unpack(valued(learner, played)).numpy()
    returns = []
    for b in range(7):
        length = int(batch.filled[b].sum()) - 1
        for n in range(2):
            seen = table[b, : length + 1, n]
            reward = batch["reward"][b, :length, n].numpy()
            returns.append(slow_advantages(reward, seen, False, 0.5, 0.95) + seen[:-1])
    learner.train(batch, START)
    stats = learner.values.returns
    assert stats is not None
    every = np.concatenate(returns)
    assert stats.count == every.size
    np.testing.assert_allclose(float(stats.mean), every.mean(), rtol=1e-4)
    np.testing.assert_allclose(float(stats.deviation), every.std(), rtol=1e-4)


def test_standardised_advantages_have_mean_zero_and_deviation_one_over_transitions() -> None:
    played = Trajectories.of(some_episodes(4))
    experience, found = make()[2].experience(played, START)
    valid = experience.counted(experience.advantages)
    assert valid.mean().abs() < 1e-5
    torch.testing.assert_close(valid.std(correction=0), torch.ones(()), atol=1e-3, rtol=0)
    raw, _ = make("--standardise_advantages=False")[2].experience(played, START)
    deviation = raw.counted(raw.advantages).std(correction=0)
    torch.testing.assert_close(deviation, found["advantage_std"])


# --- invariances -----------------------------------------------------------------------------


@pytest.mark.long
@settings(max_examples=12)
@given(extra=st.integers(1, 5), garbage=st.booleans(), seed=st.integers(0, 50))
def test_padding_changes_neither_metrics_nor_weights(extra: int, garbage: bool, seed: int) -> None:
    batch = some_episodes(seed, count=4)
    longer = EpisodeBatch(batch.scheme, batch_size=4, max_seq_length=batch.max_seq_length + extra)
    for name in batch.scheme.fields:
        longer.raw(name)[:, : batch.max_seq_length] = batch.raw(name)
    longer.filled[:, : batch.max_seq_length] = batch.filled
    if garbage:
        longer.raw("obs")[~longer.filled] = 50.0
        longer.raw("reward")[~longer.filled] = 1000.0
        longer.raw("terminated")[:, batch.max_seq_length :] = True
    learners = [make("--ppo_epochs=2", "--ppo_minibatches=2")[2] for _ in range(2)]
    short, long = (learned(who, b) for who, b in zip(learners, (batch, longer), strict=True))
    for name in short:
        torch.testing.assert_close(short[name], long[name], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(weights(learners[0]), weights(learners[1]), atol=1e-5, rtol=1e-4)


@pytest.mark.long
@settings(max_examples=8)
@given(seed=st.integers(0, 30))
def test_agents_that_change_places_teach_the_same(seed: int) -> None:
    """Without the seat among the inputs; with it in the critic (mappo) its columns change too."""
    for alg in ("ippo", "mappo"):
        batch = some_episodes(seed, alg=alg)
        swapped = batch.copy()
        for name, field in batch.scheme.fields.items():
            if field.group == "agents" or (name == "reward" and alg == "ippo"):
                swapped.raw(name)[:] = batch.raw(name).flip(2)
        learners = [make("--obs_agent_id=False", "--ppo_epochs=2", alg=alg)[2] for _ in range(2)]
        if alg == "mappo":
            first = learners[1].values.critic.body[0]  # type: ignore[union-attr,index]
            with torch.no_grad():
                first.weight[:, -2:] = first.weight[:, -2:].flip(1)
        one, other = (learned(who, b) for who, b in zip(learners, (batch, swapped), strict=True))
        for name in one:
            torch.testing.assert_close(one[name], other[name], atol=1e-5, rtol=1e-4)
        policies = [who._policy.network.fc1.weight for who in learners]
        torch.testing.assert_close(policies[0], policies[1], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("policy", ["rnn", "mlp"])
@pytest.mark.parametrize("critic", ["ac", "cv"])
def test_minibatches_hold_every_episode_once_and_nothing_else(critic: str, policy: str) -> None:
    words = (f"--critic={critic}", f"--policy_model={policy}", "--ppo_minibatches=3")
    _, _, learner = make(*words)
    experience, _ = learner.experience(Trajectories.of(some_episodes(5, count=8)), START)
    parts = list(learner._minibatches(experience))[:3]
    assert sorted(part.episodes for part in parts) == [2, 3, 3]
    seen = torch.cat([part.counted(part.targets) for part in parts]).sort().values
    whole = experience.counted(experience.targets).sort().values
    assert torch.equal(seen, whole)
    for part in parts:  # an episode's values do not depend on its company
        with torch.no_grad():
            alone = learner.values(part.critic_inputs, part.arranged)
        torch.testing.assert_close(alone, part.predicted, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--obs_is_state=True",),
        ("--obs_last_action=False", "--scale_inputs=False"),
        ("--obs_agent_id=False",),
    ],
    ids=["all", "state", "no-last-action", "no-seat"],
)
def test_the_own_critic_is_fed_what_the_policy_is_fed(words: tuple[str, ...]) -> None:
    config = load_command_line(["--config=ippo", "--env-config=foraging", *words]).config
    spec = replace(mdps.SPEC, obs_scale=0.5, state_scale=0.25)
    mac = BasicMAC(config=config, spec=spec, device=CPU)
    learner = PPOLearner(config=config, spec=spec, mac=mac, device=CPU)
    played = mac.trajectories(some_episodes(6))
    found = learner.experience(played, START)[0].critic_inputs
    assert torch.equal(found, mac.policy.inputs.packed(played))


def test_the_central_critic_is_fed_the_scaled_state_and_the_seat() -> None:
    config = load_command_line(["--config=mappo", "--env-config=foraging"]).config
    spec = replace(mdps.SPEC, obs_scale=0.5, state_scale=0.25)
    played = Trajectories.of(some_episodes(6, alg="mappo"))
    state = played.pack("state") * 0.25
    fed = torch.zeros(len(state), 2, 7)  # what the policy sees is not what it is fed
    found = build_critic(config, spec, input_dim=7).inputs(played, fed)
    for seat in range(2):
        assert torch.equal(found[:, seat, :2], state)
        assert torch.equal(found[:, seat, 2:], torch.eye(2)[seat].expand(len(state), 2))


@pytest.mark.parametrize("policy", ["rnn", "mlp"])
def test_alternative_features_are_valued_as_if_they_had_been_there(policy: str) -> None:
    """V of E features at every moment equals V of whole episodes with that feature there."""
    torch.manual_seed(0)
    words = ["--config=mappo", "--env-config=foraging", f"--policy_model={policy}"]
    config = load_command_line(words).config
    critic = build_critic(config, mdps.SPEC, input_dim=7, feature_dim=3)
    assert isinstance(critic, ValueCritic)
    played = Trajectories.of(some_episodes(6, alg="mappo"))
    packing = played.packing
    slots = len(packing.episode)
    base, other = torch.randn(2, slots, 2, 3)
    plain = critic.inputs(played, torch.zeros(slots, 2, 7))
    with torch.no_grad():
        _, hidden = critic.unroll_states(torch.cat([plain, base], -1), played)
        before = packing.previous(hidden).flatten(0, 1)
        both = torch.stack([base, other], 2).flatten(0, 1)
        found = critic.variants(plain.flatten(0, 1), both, before).view(slots, 2, 2)
        for step in (0, 2):
            there = (packing.time == step).view(-1, 1, 1)
            feature = torch.where(there, other, base)
            expected = critic(torch.cat([plain, feature], -1), played)
            at = packing.time == step
            torch.testing.assert_close(found[at][..., 1], expected[at], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(
            found[..., 0], critic(torch.cat([plain, base], -1), played), atol=1e-5, rtol=1e-4
        )


# --- a game solved by hand -------------------------------------------------------------------


def play(mac: BasicMAC, rng: np.random.Generator, *, ending: str, common: bool) -> EpisodeBatch:
    """Episodes of the two-state game, played by the (memoryless) policy."""
    batch = mdps.episodes(rng, 16, ending=ending, common=common, padded=True)
    played = mac.trajectories(batch)
    with torch.no_grad():
        outputs = mac.policy.unroll(mac.policy.inputs.packed(played), played)
    chances = played.packing.unpack(outputs)[..., :2].softmax(-1).numpy()
    acts = batch.filled.clone()
    acts[:, :-1] &= batch.filled[:, 1:]
    acts[:, -1] = False
    actions = (rng.random(chances.shape[:-1]) >= chances[..., 0]) & acts.numpy()[..., None]
    where = batch["state"].argmax(-1).numpy()
    earned = mdps.REWARD[where][..., None] / 2 * (actions == 0) * acts.numpy()[..., None]
    reward = earned.sum(-1, keepdims=True) if common else earned
    batch.update(
        {"actions": actions.astype(np.int64), "reward": reward.astype(np.float32)},
        mark_filled=False,
    )
    return batch


@pytest.mark.long
@pytest.mark.parametrize("ending", ["terminated", "truncated"])
@pytest.mark.parametrize(
    ("alg", "words"),
    [
        ("ippo", ()),
        ("mappo", ()),
        ("mappo", ("--ppo_minibatches=1", "--value_clip=0.2")),
        ("mappo", ("--standardise_values=False",)),
        ("ippo", ("--policy_model=rnn",)),
    ],
    ids=["ippo", "mappo", "clipped-values", "raw-values", "recurrent"],
)
def test_critic_and_policy_reach_what_was_solved_by_hand(
    alg: str, words: tuple[str, ...], ending: str
) -> None:
    network = ("--policy_model=mlp", "--obs_last_action=False", "--entropy_coef=0.001")
    speed = ("--lr=0.02", "--critic_lr=0.01", "--ppo_epochs=4", "--rnn_hidden_dim=16")
    _, mac, learner = make(*network, *speed, *words, alg=alg)
    rng, common = np.random.default_rng(1), alg == "mappo"
    for update in range(40):
        batch = play(mac, rng, ending=ending, common=common)
        learner.train(batch, Progress(update, update, update))
    played = mac.trajectories(play(mac, rng, ending=ending, common=common))
    values = learner.values.restored(valued(learner, played))
    with torch.no_grad():
        outputs = mac.policy.unroll(mac.policy.inputs.packed(played), played)
    now = played.packing.now
    assert outputs[now][..., :2].softmax(-1)[..., 0].min() > 0.99
    state = played.now("state").argmax(-1)
    expected = torch.from_numpy(mdps.VALUES[ending]).float()[state] * (1.0 if common else 0.5)
    error = (values[now] - expected.unsqueeze(1)).abs()
    assert error.max() < 0.05


# --- continuing ------------------------------------------------------------------------------


def copied(state: dict[str, Any]) -> dict[str, Any]:
    return torch.utils._pytree.tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, state)


@pytest.mark.long
def test_a_continued_learner_makes_the_same_next_update() -> None:
    """Networks, statistics, both optimisers and the shuffling are in the state."""
    words = ("--ppo_minibatches=2", "--batch_size=8")
    batches = [some_episodes(seed, count=8) for seed in range(4)]
    _, _, learner = make(*words)
    for batch in batches[:3]:
        learner.train(batch, START)
    state = copied(learner.state_dict())
    _, _, other = make(*words)
    other.load_state_dict(state)
    first, second = learned(learner, batches[3]), learned(other, batches[3])
    for name in first:
        assert torch.equal(first[name], second[name]), name
    assert torch.equal(weights(learner), weights(other))


def test_loaded_moments_keep_the_learning_rates_of_the_configuration() -> None:
    _, _, learner = make()
    learner.train(some_episodes(), START)
    _, _, other = make("--lr=0.07", "--critic_lr=0.03")
    other.load_optimiser_state(copied(learner.optimiser_state()))
    assert other._optimiser.param_groups[0]["lr"] == 0.07
    assert other._critic_optimiser.param_groups[0]["lr"] == 0.03
    assert len(other._critic_optimiser.state) == len(list(other.values.parameters()))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--action_selector=epsilon_greedy",), "epsilon_greedy"),
        (("--agent_output_type=q",), "agent_output_type=pi_logits"),
        (("--critic=None",), "needs a critic"),
        (("--critic=omg.modules.critics:ComaCritic",), "values each action. Set critic=ac"),
        (("--ppo_minibatches=9", "--batch_size=8"), "ppo_minibatches=9"),
        (("--mixer=vdn", "--common_reward=True"), "no mixer"),
        (("--updates_per_episode=2",), "updates_per_episode"),
    ],
)
def test_what_ppo_cannot_do_is_refused(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(OmgError, match=said):
        make(*words)


# --- one learning agent among others -----------------------------------------------------------


@pytest.fixture(scope="module")
def pool(scripted_pool: Callable[..., Path]) -> Path:
    return scripted_pool("nearest_food", "highest_level", "top_left")


def seated(
    pool: Path, alg: str, *words: str
) -> tuple[PPOLearner, MultiModuleMAC, list[EpisodeBatch]]:
    """A learning agent and some episodes it played."""
    given_words = [*SMALL, f"--config={alg}", f"--opponent_pool={pool}", *words]
    rollout = make_rollout([*given_words, *TASK])
    mac = rollout.mac
    assert isinstance(mac, MultiModuleMAC)
    config = load_command_line([*given_words, *TASK]).config
    torch.manual_seed(1)
    learner = PPOLearner(config=config, spec=rollout.env.spec, mac=mac, device=CPU)
    return learner, mac, [f.episodes for f in collect(rollout, 30)]


@pytest.mark.long
@pytest.mark.parametrize("critic", ["ac", "cv"])
@pytest.mark.parametrize("policy", ["rnn", "mlp", "idv_rnn"])
def test_the_learning_agent_learns_its_own_seat_only(pool: Path, policy: str, critic: str) -> None:
    """What the others saw, did and earned in their seats does not change the update (they have no
    model of them here)."""
    outcomes = []
    for garbled in (False, True):
        words = (f"--policy_model={policy}", f"--critic={critic}")
        learner, _, batches = seated(pool, "ppo", *words)
        batch = batches[0].copy()
        rows = torch.arange(len(batch))
        others = torch.ones(len(batch), 3, dtype=torch.bool)
        others[rows, batch["agent_idx"]] = False
        if garbled:
            for name in ("obs", "reward", "actions"):
                field = batch.raw(name)
                noise = torch.randint(0, 5, field.shape).to(field.dtype)
                hidden = others.view(len(batch), 1, 3, *[1] * (field.dim() - 3))
                batch.raw(name)[:] = torch.where(hidden, noise, field)
        metrics = learned(learner, batch)
        outcomes.append((metrics, weights(learner)))
    for name, value in outcomes[0][0].items():
        assert torch.equal(value, outcomes[1][0][name]), name
    assert torch.equal(outcomes[0][1], outcomes[1][1])


def test_the_critic_is_told_the_seat_of_the_learning_agent(pool: Path) -> None:
    learner, mac, batches = seated(pool, "ppo", "--critic=cv")
    batch = batches[0]
    played = mac.trajectories(batch)
    inputs = learner.experience(played, START)[0].critic_inputs
    assert len(set(batch["agent_idx"].tolist())) > 1
    told = inputs[:, 0, -3:].argmax(-1)
    assert torch.equal(told, batch["agent_idx"][played.packing.episode])
    assert (inputs[:, 0, -3:].sum(-1) == 1).all()


def test_a_minibatch_keeps_the_seats_of_its_episodes(pool: Path) -> None:
    """With weights per seat the old probabilities come out again only in the right seats."""
    learner, mac, batches = seated(pool, "ppo", "--policy_model=idv_rnn")
    played = mac.trajectories(batches[0])
    experience, _ = learner.experience(played, START)
    seats = played.seats
    assert seats is not None
    chosen = torch.arange(len(seats)).flip(0)[:3]
    assert not torch.equal(seats[chosen], seats[:3])
    some = experience.part(chosen)
    outputs, _ = learner.losses.outputs(some.inputs, some.critic_inputs, some.arranged)
    again, _ = learner.losses.evaluate(outputs, some.avail, some.actions, START)
    torch.testing.assert_close(some.counted(some.log_probs), some.counted(again))


def test_all_epochs_see_the_features_from_before_the_model_learned(
    pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, mac, batches = seated(pool, "ppo_am")
    played, width = mac.trajectories(batches[0]), mac.policy.feature_dim

    def told() -> Tensor:
        lesson = learner._model.prepare(played, START, lambda alternatives: alternatives.fed)
        assert lesson.feature is not None
        return lesson.feature.squeeze(1)

    expected = told()
    fed: list[Tensor] = []
    unroll = mac.policy.unroll
    monkeypatch.setattr(
        mac.policy,
        "unroll",
        lambda x, *a, **k: (fed.append(x[:, 0, -width:]), unroll(x, *a, **k))[1],
    )
    metrics = learned(learner, batches[0])
    assert len(fed) == 1 + 10  # once for the old probabilities, then every epoch
    _, slots = played.packing.without_last(torch.arange(len(batches[0])))
    assert torch.equal(fed[0], expected)
    assert all(torch.equal(feature, expected[slots]) for feature in fed[1:])
    assert not torch.equal(told(), expected)
    assert "am_loss" in metrics


@pytest.mark.long
@pytest.mark.parametrize(
    ("alg", "words"),
    [
        ("ppo", ()),
        ("ppo_am", ()),
        ("ppo_am", ("--am_history=True", "--policy_model=rnn")),
        ("ppo_control", ()),
        ("ppo_oracle", ("--critic=cv",)),
        ("ppo", ("--am_model=liam_am",)),
    ],
    ids=["none", "naive", "naive-history", "control", "oracle", "liam"],
)
def test_a_learning_agent_continues_exactly_and_its_files_fit(
    pool: Path, alg: str, words: tuple[str, ...]
) -> None:
    learner, _, batches = seated(pool, alg, *words)
    assert len(batches) >= 2
    learner.train(batches[0], START)
    assert {f"{alg}/agent", f"{alg}/critic"} <= set(learner.networks())
    state, moments = copied(learner.state_dict()), copied(learner.optimiser_state())
    other, _, _ = seated(pool, alg, *words)
    other.load_state_dict(state)
    other.load_optimiser_state(moments)
    first, second = learned(learner, batches[1]), learned(other, batches[1])
    for name in first:
        assert torch.equal(first[name], second[name]), name
    for mine, theirs in zip(learner.networks().values(), other.networks().values(), strict=True):
        for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
            assert torch.equal(a, b)


@pytest.mark.long
@pytest.mark.parametrize("alg", ["ppo", "ppo_am"])
def test_a_run_among_scripted_others_that_was_resumed_equals_one_that_was_not(
    pool: Path, tmp_path: Path, alg: str
) -> None:
    def run(name: str, *words: str) -> Path:
        places = (f"--local_results_path={tmp_path}", f"--run_name={name}")
        given_words = (f"--config={alg}", f"--opponent_pool={pool}", *words)
        train([*SMALL, "--resume_interval=100", *places, *given_words, *TASK])
        return tmp_path / name / "models" / "last" / alg

    straight = run("straight", "--t_max=300")
    run("broken", "--t_max=150")
    resumed = run("broken", "--t_max=300", "--resume=True")
    for file in ("agent.th", "critic.th"):
        one, other = load_tensors(straight / file), load_tensors(resumed / file)
        assert all(torch.equal(one[key], other[key]) for key in one)
    fresh, _, _ = seated(pool, alg)
    saved = load_tensors(straight / "critic.th")
    fresh.networks()[f"{alg}/critic"].load_state_dict(saved)
    assert float(saved["returns.count"]) > 0
