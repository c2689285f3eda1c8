"""COMA against games solved by hand, enumeration and a slow reference."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import linear, one_hot

from omg.cli.train import train
from omg.components.action_selectors import Multinomial
from omg.components.episodes import EpisodeBatch, environment_scheme
from omg.components.trajectories import Sequences, Trajectories
from omg.config.loader import load_command_line
from omg.config.schema import Config
from omg.controllers.team import BasicMAC
from omg.envs.registry import make_batched
from omg.functional import Packing, td_lambda_targets
from omg.learners.base import Progress
from omg.learners.coma_learner import ComaLearner, counterfactual_advantage
from omg.modules.critics import ComaCritic, Critic
from omg.opponents.building import agent_lineup
from omg.opponents.players import SeatRows
from omg.opponents.pool import OpponentPool
from omg.policies.inputs import StepView
from omg.storage.files import load_tensors
from omg.types import OmgError, RunFailedError

from . import mdps

CPU = torch.device("cpu")
HALFWAY = Progress(50_000, 0, 0)
EPSILON = 0.255  # 0.5 → 0.01 over 100,000 steps, at 50,000
EXACT = ("--grad_norm_clip=1e9", "--optimizer=adam")


def make(*words: str) -> tuple[Config, BasicMAC, ComaLearner]:
    torch.manual_seed(0)
    config = load_command_line(
        ["--config=coma", "--env-config=foraging", f"--gamma={mdps.GAMMA}", *words]
    ).config
    mac = BasicMAC(config=config, spec=mdps.SPEC, device=CPU)
    return config, mac, ComaLearner(config=config, spec=mdps.SPEC, mac=mac, device=CPU)


def games(
    seed: int = 0,
    count: int = 5,
    *,
    ending: str = "truncated",
    common: bool = True,
    one_end: bool = False,
) -> EpisodeBatch:
    """Episodes of the two-state game whose agents see something of their own. `one_end` leaves a
    single action at the last slot, so that nothing is left to chance there."""
    rng = np.random.default_rng(seed)
    batch = mdps.episodes(rng, count, ending=ending, common=common, padded=True)
    noise = torch.from_numpy(rng.normal(size=batch.raw("obs").shape).astype(np.float32))
    batch.raw("obs").add_(noise)
    if one_end:
        last = batch.lengths - 1
        batch.raw("avail_actions")[torch.arange(count), last, :, 1] = False
    return batch


def critic_inputs(learner: ComaLearner, batch: EpisodeBatch) -> Tensor:
    """What the critic is fed at every slot, with the actions as they were taken."""
    return joint_inputs(learner.critic, batch)


def joint_inputs(critic: ComaCritic, batch: EpisodeBatch) -> Tensor:
    played = Trajectories.of(batch)
    return critic.joint_inputs(played, played.pack("actions"))


def policy_outputs(mac: BasicMAC, batch: EpisodeBatch) -> Tensor:
    """The logits of all slots, [P, N, A]."""
    played = mac.trajectories(batch)
    return mac.policy.unroll(mac.policy.inputs.packed(played), played)


def copied(module: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in module.parameters()]


# --- λ-returns --------------------------------------------------------------------------------


def slow_returns(
    reward: list[float], values: list[float], *, terminated: bool, gamma: float, lam: float
) -> list[float]:
    """The λ-return as a mean of n-step returns, weights (1 - λ) λ^(n-1), the rest on the longest
    one; `values` are those of slots 0 … T."""
    steps, found = len(reward), []
    for t in range(steps):
        total = 0.0
        for n in range(1, steps - t + 1):
            ends = t + n == steps
            tail = 0.0 if ends and terminated else gamma**n * values[t + n]
            several = sum(gamma**i * reward[t + i] for i in range(n)) + tail
            total += several * (lam ** (n - 1) if ends else (1 - lam) * lam ** (n - 1))
        found.append(total)
    return found


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    padding=st.integers(0, 3),
    lam=st.sampled_from([0.0, 0.3, 0.8, 1.0]),
    seed=st.integers(0, 1000),
)
def test_lambda_returns_are_the_weighted_mean_of_n_step_returns(
    lengths: list[int], padding: int, lam: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    count, slots = len(lengths), max(lengths) + 1 + padding
    dies = rng.random(count) < 0.5
    filled = torch.arange(slots) <= torch.tensor(lengths)[:, None]
    terminated = torch.zeros(count, slots, dtype=torch.bool)
    terminated[torch.arange(count), torch.tensor(lengths) - 1] = torch.from_numpy(dies)
    reward = torch.from_numpy(rng.normal(size=(count, slots, 2)))
    values = torch.from_numpy(rng.normal(size=(count, slots, 2)))
    for row, length in enumerate(lengths):  # nothing there may be looked at
        if dies[row]:
            values[row, length] = torch.nan
        reward[row, length:] = torch.nan
    packing = Packing.of(filled, terminated)
    found = td_lambda_targets(
        packing.take(reward, packing.now),
        packing.take(terminated, packing.now),
        packing.take(values, packing.next),
        packing,
        gamma=0.9,
        td_lambda=lam,
    )
    assert len(found) == sum(lengths)
    for row, length in enumerate(lengths):
        for agent in range(2):
            expected = slow_returns(
                reward[row, :length, agent].tolist(),
                values[row, : length + 1, agent].tolist(),
                terminated=bool(dies[row]),
                gamma=0.9,
                lam=lam,
            )
            own = found[packing.episode[packing.now] == row, agent]
            np.testing.assert_allclose(own, expected, atol=1e-9)


def test_a_slot_behind_a_termination_changes_no_return_before_it() -> None:
    filled = torch.ones(1, 5, dtype=torch.bool)
    terminated = torch.tensor([[False, True, False, False, False]])
    packing = Packing.of(filled, terminated)
    reward = torch.tensor([[1.0], [2.0], [50.0], [50.0], [50.0]])[packing.now]
    values = torch.full((len(packing.now), 1), 10.0)
    found = td_lambda_targets(
        reward, terminated[0, packing.now], values, packing, gamma=0.5, td_lambda=0.5
    )
    # G_1 = 2; G_0 = 1 + ½ (½·10 + ½·2)
    torch.testing.assert_close(found[:2, 0], torch.tensor([4.0, 2.0]))


# --- the critic -------------------------------------------------------------------------------


def uniform_values(ending: str) -> np.ndarray:
    """½·V(next) when both play 0 or 1 by the toss of a coin: V(X) = ½ + ½V(Y), V(Y) = 1 + ½V(X)
    ⇒ V(X) = 4/3, V(Y) = 5/3; ending after Y: V(Y) = 1, V(X) = ½ + ½·1 = 1."""
    if ending == "terminated":
        return np.array([0.5 * 1.0, 0.0])
    return np.array([0.5 * 5 / 3, 0.5 * 4 / 3])


def learned_q(learner: ComaLearner) -> np.ndarray:
    """Q[agent, state, own action, other's action] by the critic."""
    scheme = environment_scheme(mdps.SPEC, common_reward=True)
    batch = EpisodeBatch(scheme, batch_size=4, max_seq_length=1)
    state = torch.tensor([0, 0, 1, 1])
    view = torch.eye(2)[state]
    batch.update({"state": view[:, None], "obs": view[:, None, None].expand(4, 1, 2, 2)})
    found = np.zeros((2, 2, 2, 2))
    for other in range(2):
        batch.raw("actions")[:] = other
        packing = Packing.of(batch.filled, batch.raw("terminated"))
        with torch.no_grad():
            q = packing.unpack(learner.critic(critic_inputs(learner, batch)))[:, 0]
        found[..., other] = q[[0, 2]][..., :2].transpose(0, 1).numpy()
    return found


@pytest.mark.long
@pytest.mark.parametrize(
    ("ending", "common", "mode", "td_lambda"),
    [
        ("terminated", True, "batch", 0.8),
        ("terminated", True, "seq", 0.8),
        ("truncated", True, "batch", 0.8),
        ("truncated", True, "seq", 0.8),
        ("truncated", True, "batch", 0.0),
        ("terminated", False, "batch", 0.8),
        ("truncated", False, "batch", 0.8),
    ],
)
def test_the_critic_learns_the_values_of_the_policy_that_played(
    ending: str, common: bool, mode: str, td_lambda: float
) -> None:
    _, mac, learner = make(
        *("--policy_model=mlp", "--optimizer=adam", "--lr=1e-12", "--critic_lr=0.02"),
        *("--target_update_interval=10", "--obs_last_action=False", "--critic_hidden_dims=[32]"),
        *(f"--critic_train_mode={mode}", f"--td_lambda={td_lambda}", f"--common_reward={common}"),
    )
    with torch.no_grad():  # every logit 0: the toss of a coin
        for parameter in mac.policy.network.parameters():
            parameter.zero_()
    rng = np.random.default_rng(1)
    updates = 200
    for update in range(updates):
        batch = mdps.episodes(rng, 24, ending=ending, common=common, padded=True)
        learner.train(batch, Progress(0, update, update))
        if update == updates // 2:
            learner._critic_optimiser.param_groups[0]["lr"] = 0.002
    earned = mdps.REWARD[:, None, None] * 0.5
    mine, theirs = np.array([1.0, 0.0])[:, None], np.array([1.0, 0.0])[None, :]
    following = uniform_values(ending)[:, None, None]
    if common:
        expected = earned * (mine + theirs) + following
    else:  # half of everything, and the other's action does not matter
        expected = np.broadcast_to(earned * mine + following / 2, (2, 2, 2))
    np.testing.assert_allclose(learned_q(learner), np.stack([expected] * 2), atol=0.1)


def test_an_own_action_is_never_in_the_own_input_and_the_others_always_are() -> None:
    _, _, learner = make()
    batch = games()
    packing = Packing.of(batch.filled, batch.raw("terminated"))
    before = critic_inputs(learner, batch)
    assert before.shape[-1] == learner.critic.input_dim
    for agent in range(2):
        changed = batch.copy()
        step = 0  # so that it is nobody's last action at the same slot
        changed.raw("actions")[:, step, agent] = 1 - changed.raw("actions")[:, step, agent]
        differs = (critic_inputs(learner, changed) != before).any(-1)
        here = packing.time == step
        assert not differs[here, agent].any()
        assert differs[here, 1 - agent].all()
        behind = packing.time == step + 1
        assert differs[behind].all()  # the last joint action, own one included
        assert not differs[packing.time > step + 1].any()


def test_the_last_joint_action_is_fed_as_obs_last_action_says() -> None:
    with_last, without = make()[2].critic, make("--obs_last_action=False")[2].critic
    assert with_last.input_dim == without.input_dim + 2 * 3
    batch = games()
    packing = Packing.of(batch.filled, batch.raw("terminated"))
    changed = batch.copy()
    changed.raw("actions")[:, 0] = 1 - changed.raw("actions")[:, 0]
    behind = packing.time == 1
    same = joint_inputs(without, changed)[behind] == joint_inputs(without, batch)[behind]
    assert same.all()


def test_a_critic_of_pymarl_has_the_same_layers() -> None:
    shapes = {name: tuple(p.shape) for name, p in make()[2].critic.state_dict().items()}
    width = 2 + 2 + 2 * 3 + 2 * 3 + 2
    assert shapes == {
        "fc1.weight": (128, width),
        "fc1.bias": (128,),
        "fc2.weight": (128, 128),
        "fc2.bias": (128,),
        "fc3.weight": (3, 128),
        "fc3.bias": (3,),
    }


def test_a_cut_episode_is_valued_by_the_own_policy_beside_drawn_others() -> None:
    _, mac, learner = make("--td_lambda=0.8", "--policy_model=mlp")
    with torch.no_grad():
        for parameter in mac.policy.network.parameters():
            parameter.add_(0.7 * torch.randn_like(parameter))
    one = games(3, 1)
    length = int(one.lengths[0])
    many: EpisodeBatch = one[[0] * 4000]
    packing = Packing.of(many.filled, many.raw("terminated"))
    logits = policy_outputs(mac, many).detach()
    _, found = learner.targets(mac.trajectories(many), logits, HALFWAY)
    last = packing.time[packing.now] == length - 2
    values = (found[last] - one["reward"][0, length - 2]) / mdps.GAMMA  # [4000, N]
    policy = mac.policy.selector.probabilities(  # type: ignore[attr-defined]
        logits[-1], one["avail_actions"][0, length - 1], env_steps=50_000
    )
    end = one.copy()
    for agent in range(2):
        given_other = []
        for other in range(2):
            end.raw("actions")[0, length - 1] = other
            q = learner._target_critic(critic_inputs(learner, end))[-1, agent].detach()
            given_other.append(float((policy[agent] * q).sum()))
        gaps = (values[:, agent, None] - torch.tensor(given_other)).abs()
        assert gaps.amin(-1).max() < 1e-5  # never the own action's value, one other's at a time
        share = float((gaps[:, 1] < gaps[:, 0]).float().mean())
        assert share == pytest.approx(float(policy[1 - agent, 1]), abs=0.03)


def test_no_available_action_behind_a_termination_breaks_nothing() -> None:
    outcomes = []
    for clear in (False, True):
        _, mac, learner = make(*EXACT)
        batch = games(ending="terminated")
        if clear:
            last = batch.lengths - 1
            batch.raw("avail_actions")[torch.arange(len(batch)), last] = False
        metrics = learner.train(batch, HALFWAY)
        assert all(torch.isfinite(value) for value in metrics.values())
        outcomes.append(copied(mac.policy.network))
    for mine, theirs in zip(*outcomes, strict=True):
        assert torch.equal(mine, theirs)


def test_a_policy_that_is_no_number_any_more_is_told() -> None:
    _, mac, learner = make(*EXACT)
    with torch.no_grad():
        next(mac.policy.network.parameters()).fill_(float("nan"))
    with pytest.raises(RunFailedError, match="no numbers any more"):
        learner.train(games(), HALFWAY)


# --- the actor --------------------------------------------------------------------------------


def test_the_advantage_equals_enumeration_of_the_own_actions() -> None:
    """One pass of the critic values all alternatives; here every alternative is played instead."""
    _, mac, learner = make(*EXACT, "--critic_lr=1e-12")
    batch = games(4)
    packing = Packing.of(batch.filled, batch.raw("terminated"))
    now = packing.now
    with torch.no_grad():
        q = learner.critic(critic_inputs(learner, batch))[now]
        logits = policy_outputs(mac, batch)[now]
    avail = packing.take(batch["avail_actions"], now)
    policy = mac.policy.selector.probabilities(  # type: ignore[attr-defined]
        logits, avail, env_steps=50_000
    )
    taken = packing.take(batch["actions"], now)
    found = counterfactual_advantage(q, policy, taken)
    surrogate = 0.0
    for row, slot in enumerate(now.tolist()):
        b, t = int(packing.episode[slot]), int(packing.time[slot])
        for agent in range(2):
            worth = []
            for action in range(3):
                played = batch.copy()
                played.raw("actions")[b, t, agent] = action
                with torch.no_grad():
                    x = critic_inputs(learner, played)[slot, agent]
                    worth.append(float(learner.critic(x)[action]))
            mean = sum(float(policy[row, agent, a]) * worth[a] for a in range(3))
            chosen = int(taken[row, agent])
            assert float(found[row, agent]) == pytest.approx(worth[chosen] - mean, abs=1e-5)
            surrogate -= (worth[chosen] - mean) * math.log(float(policy[row, agent, chosen]))
    metrics = learner.train(batch, HALFWAY)
    assert float(metrics["pg_loss"]) == pytest.approx(surrogate / (2 * len(now)), abs=1e-5)
    assert float(metrics["advantage_mean"]) == pytest.approx(float(found.mean()), abs=1e-5)


def test_the_gradient_of_a_policy_with_a_floor_is_the_one_worked_out_on_paper() -> None:
    """π = (1-ε) p + ε/2, so ∂ log π(a) / ∂ z_b = (1-ε) p_a (1[a=b] - p_b) / π(a)."""
    _, mac, learner = make(*EXACT)
    p = torch.tensor([0.8, 0.2])
    z = p.log().view(1, 1, 2).requires_grad_()
    selector = mac.policy.selector
    assert isinstance(selector, Multinomial)
    policy = selector.probabilities(z, torch.ones(1, 1, 2, dtype=torch.bool), env_steps=50_000)
    q = torch.tensor([[[3.0, -1.0]]])
    metrics = learner._learn_policy(policy, torch.tensor([[1]]), q)
    floor = (1 - EPSILON) * p + EPSILON / 2
    advantage = -1.0 - float((floor * q.flatten()).sum())
    score = (1 - EPSILON) * p[1] * (torch.tensor([0.0, 1.0]) - p) / floor[1]
    assert z.grad is not None
    torch.testing.assert_close(z.grad.flatten(), -advantage * score)
    entropy = -float((floor * floor.log()).sum())
    assert float(metrics["entropy"]) == pytest.approx(entropy, abs=1e-6)
    assert float(metrics["pi_max"]) == pytest.approx(float(floor.max()), abs=1e-6)


def slow_policy(logits: Tensor, avail: Tensor, *, first: bool) -> Tensor:
    """What one agent acts with, by the definition."""
    odds = logits.exp()
    if first:
        odds = odds * avail
        return (1 - EPSILON) * odds / odds.sum() + EPSILON * avail / avail.sum()
    floored = ((1 - EPSILON) * odds / odds.sum() + EPSILON / len(avail)) * avail
    return floored / floored.sum()


def slow_update(
    config: Config, mac: BasicMAC, learner: ComaLearner, batch: EpisodeBatch
) -> tuple[Tensor, list[Tensor], Tensor, list[Tensor]]:
    """Critic loss and gradients, actor loss and gradients of a first update, by loops over
    episodes, steps and agents; the critic does not move in between (critic_lr → 0)."""
    critic = dict(learner.critic.named_parameters())
    target = dict(learner._target_critic.named_parameters())

    def value(weights: dict[str, nn.Parameter], b: int, t: int, n: int, other: int) -> Tensor:
        acts = torch.zeros(2, 3)
        acts[1 - n, other] = 1
        last = torch.zeros(2, 3)
        if t > 0:
            last[torch.arange(2), batch["actions"][b, t - 1]] = 1
        seat = torch.eye(2)[n]
        parts = [batch["state"][b, t], batch["obs"][b, t, n], acts.flatten(), last.flatten(), seat]
        x = torch.cat(parts)
        for layer in ("fc1", "fc2"):
            x = linear(x, weights[f"{layer}.weight"], weights[f"{layer}.bias"]).relu()
        return linear(x, weights["fc3.weight"], weights["fc3.bias"])

    errors, gains = [], []
    for b in range(len(batch)):
        length = int(batch.lengths[b]) - 1
        dies = bool(batch["terminated"][b].any())
        hidden = torch.zeros(2, mac.policy.network.carry_dim)
        policies = []
        for t in range(length + 1):
            last = torch.zeros(2, 3)
            if t > 0:
                last[torch.arange(2), batch["actions"][b, t - 1]] = 1
            x = torch.cat([batch["obs"][b, t], last, torch.eye(2)], -1)
            logits, hidden = mac.policy.network.step(x, hidden)
            policies.append(
                [
                    slow_policy(
                        logits[n],
                        batch["avail_actions"][b, t, n].float(),
                        first=config.mask_before_softmax,
                    )
                    for n in range(2)
                ]
            )
        for n in range(2):
            acts = [batch["actions"][b, t].tolist() for t in range(length)] + [[0, 0]]
            ahead = [value(target, b, t, n, a[1 - n])[a[n]].item() for t, a in enumerate(acts)]
            column = 0 if config.common_reward else n
            returns = slow_returns(
                batch["reward"][b, :length, column].tolist(),
                ahead,
                terminated=dies,
                gamma=config.gamma,
                lam=config.td_lambda,
            )
            for t in range(length):
                q = value(critic, b, t, n, acts[t][1 - n])
                errors.append(q[acts[t][n]] - returns[t])
                pi = policies[t][n]
                advantage = (q[acts[t][n]] - (pi * q).sum()).detach()
                gains.append(advantage * pi[acts[t][n]].log())
    critic_loss, actor_loss = torch.stack(errors).square().mean(), -torch.stack(gains).mean()
    return (
        critic_loss.detach(),
        list(torch.autograd.grad(critic_loss, list(critic.values()))),
        actor_loss.detach(),
        list(torch.autograd.grad(actor_loss, learner._actor_parameters)),
    )


@pytest.mark.long
@pytest.mark.parametrize("first", [True, False], ids=["mask-first", "mask-last"])
@pytest.mark.parametrize("common", [True, False], ids=["team", "own"])
@pytest.mark.parametrize("ending", ["terminated", "truncated"])
def test_losses_and_gradients_equal_a_slow_reference(
    ending: str, common: bool, first: bool
) -> None:
    config, mac, learner = make(
        *(*EXACT, "--critic_lr=1e-12", f"--common_reward={common}", "--rnn_hidden_dim=16"),
        *(f"--mask_before_softmax={first}", "--critic_train_mode=batch"),
    )
    with torch.no_grad():
        for parameter in learner._target_critic.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    batch = games(2, ending=ending, common=common, one_end=True)
    critic_loss, critic_grads, actor_loss, actor_grads = slow_update(config, mac, learner, batch)
    metrics = learner.train(batch, HALFWAY)
    torch.testing.assert_close(metrics["critic_loss"], critic_loss, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(metrics["pg_loss"], actor_loss, atol=1e-5, rtol=1e-5)
    mine = [p.grad for p in (*learner._critic_parameters, *learner._actor_parameters)]
    for found, expected in zip(mine, [*critic_grads, *actor_grads], strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    norm = torch.cat([grad.flatten() for grad in actor_grads]).norm()
    torch.testing.assert_close(metrics["agent_grad_norm"], norm, atol=1e-5, rtol=1e-4)


def test_masking_before_and_behind_the_softmax_gives_other_policies() -> None:
    losses = [
        make(f"--mask_before_softmax={first}")[2].train(games(), HALFWAY)["entropy"]
        for first in (True, False)
    ]
    assert not torch.isclose(*losses)


def test_the_actor_learns_from_the_critic_after_its_step() -> None:
    _, mac, learner = make(*EXACT, "--critic_lr=0.05")
    batch = games(ending="terminated")
    packing = Packing.of(batch.filled, batch.raw("terminated"))
    with torch.no_grad():
        logits = policy_outputs(mac, batch)[packing.now]
        avail = packing.take(batch["avail_actions"], packing.now)
        policy = mac.policy.selector.probabilities(  # type: ignore[attr-defined]
            logits, avail, env_steps=50_000
        )
    taken = packing.take(batch["actions"], packing.now)
    metrics = learner.train(batch, HALFWAY)
    with torch.no_grad():
        q = learner.critic(critic_inputs(learner, batch))[packing.now]
    expected = counterfactual_advantage(q, policy, taken).mean()
    torch.testing.assert_close(metrics["advantage_mean"], expected, atol=1e-5, rtol=1e-4)


# --- one step or one per time -----------------------------------------------------------------


def one_step_games(count: int = 6) -> EpisodeBatch:
    batch: EpisodeBatch = games(7, count, one_end=True)[:, :2]
    batch = batch.copy()
    batch.raw("avail_actions")[:, 1, :, 1] = False
    return batch


def test_both_ways_are_the_same_step_where_every_episode_has_one_transition() -> None:
    batch = one_step_games()
    outcomes = []
    for mode in ("batch", "seq"):
        _, mac, learner = make(f"--critic_train_mode={mode}")
        metrics = learner.train(batch, HALFWAY)
        outcomes.append([*metrics.values(), *copied(mac.policy.network), *copied(learner.critic)])
    for mine, theirs in zip(*outcomes, strict=True):
        assert torch.equal(mine, theirs)


def test_seq_makes_one_step_per_time_the_last_first_and_batch_makes_one() -> None:
    batch = games(9, 6, one_end=True)
    outcomes, losses = [], []
    for mode in ("seq", "by hand", "batch"):
        _, mac, learner = make(f"--critic_train_mode={'batch' if mode == 'batch' else 'seq'}")
        before = copied(learner.critic)
        if mode == "by hand":
            packing = Packing.of(batch.filled, batch.raw("terminated"))
            logits = policy_outputs(mac, batch)
            inputs, targets = learner.targets(mac.trajectories(batch), logits.detach(), HALFWAY)
            times = packing.time[packing.now]
            taken = packing.take(batch["actions"], packing.now)
            optimiser = torch.optim.Adam(learner.critic.parameters(), lr=5e-4, eps=1e-5)
            for t in range(int(times.max()), -1, -1):
                q = learner.critic(inputs[times == t]).gather(-1, taken[times == t, :, None])
                optimiser.zero_grad()
                (q[..., 0] - targets[times == t]).square().mean().backward()
                nn.utils.clip_grad_norm_(learner.critic.parameters(), 10)
                optimiser.step()
        else:
            losses.append(learner.train(batch, HALFWAY)["critic_loss"])
        after = copied(learner.critic)
        steps = [state["step"] for state in learner._critic_optimiser.state.values()]
        expected = {"batch": 1, "seq": int(batch.lengths.max()) - 1}.get(mode)
        assert expected is None or all(int(step) == expected for step in steps)
        assert any(not torch.equal(x, y) for x, y in zip(before, after, strict=True))
        outcomes.append(after)
    for mine, theirs in zip(outcomes[0], outcomes[1], strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=1e-5)
    assert not torch.equal(outcomes[0][0], outcomes[2][0])


def test_the_two_learning_rates_and_optimisers_are_apart() -> None:
    _, _, learner = make("--lr=0.003", "--critic_lr=0.007")
    rates = [o.param_groups[0]["lr"] for o in (learner._optimiser, learner._critic_optimiser)]
    assert rates == [0.003, 0.007]


# --- invariance -------------------------------------------------------------------------------


@pytest.mark.long
@settings(max_examples=10)
@given(extra=st.integers(1, 5), mode=st.sampled_from(["batch", "seq"]), seed=st.integers(0, 100))
def test_padding_changes_nothing(extra: int, mode: str, seed: int) -> None:
    batch = games(seed, 4)
    longer = EpisodeBatch(batch.scheme, batch_size=4, max_seq_length=batch.max_seq_length + extra)
    for name in batch.scheme.fields:
        longer.raw(name)[:, : batch.max_seq_length] = batch.raw(name)
    longer.filled[:, : batch.max_seq_length] = batch.filled
    for garbage in ("obs", "state", "reward"):
        longer.raw(garbage)[~longer.filled] = 1000.0
    outcomes = []
    for given_batch in (batch, longer):
        _, mac, learner = make(f"--critic_train_mode={mode}")
        metrics = learner.train(given_batch, HALFWAY)
        outcomes.append([*metrics.values(), *copied(mac.policy.network), *copied(learner.critic)])
    for mine, theirs in zip(*outcomes, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=1e-4)


def swap_columns(layer: nn.Module, first: slice, second: slice) -> None:
    weight = layer.weight
    assert isinstance(weight, Tensor)
    with torch.no_grad():
        one, two = weight[:, first].clone(), weight[:, second].clone()
        weight[:, first], weight[:, second] = two, one


def swap_seats(mac: BasicMAC, learner: ComaLearner) -> None:
    """Weights that do in seat 1 what the others did in seat 0, and vice versa."""
    body = mac.policy.network.get_submodule("fc1")
    swap_columns(body, slice(5, 6), slice(6, 7))  # [obs 2 | last action 3 | seat 2]
    for critic in (learner.critic, learner._target_critic):
        fc1 = critic.get_submodule("fc1")  # [state 2 | obs 2 | joint 6 | last 6 | seat 2]
        for start, width in ((4, 3), (10, 3), (16, 1)):
            middle = start + width
            swap_columns(fc1, slice(start, middle), slice(middle, middle + width))


@pytest.mark.long
@settings(max_examples=10)
@given(seed=st.integers(0, 100), common=st.booleans())
def test_exchanging_the_agents_exchanges_what_is_learned(seed: int, common: bool) -> None:
    batch = games(seed, 4, common=common, one_end=True)
    swapped = batch.copy()
    for name in ("obs", "actions", "avail_actions", *(() if common else ("reward",))):
        swapped.raw(name)[:] = batch.raw(name).flip(2)
    outcomes = []
    for exchanged in (False, True):
        # The step of an adaptive optimiser is no smooth function of tiny gradients: a large eps.
        _, mac, learner = make(f"--common_reward={common}", "--optim_eps=0.1", "--lr=0.1")
        if exchanged:
            swap_seats(mac, learner)
        metrics = learner.train(swapped if exchanged else batch, HALFWAY)
        if exchanged:
            swap_seats(mac, learner)
        outcomes.append([*metrics.values(), *copied(mac.policy.network), *copied(learner.critic)])
    for mine, theirs in zip(*outcomes, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


# --- targets, state, refusals -----------------------------------------------------------------


def test_the_target_critic_follows_every_interval_of_episodes_and_not_before() -> None:
    _, _, learner = make("--target_update_interval=5")
    for episodes, follows in ((1, False), (4, False), (5, True), (9, False), (10, True)):
        learner.train(games(), Progress(0, episodes, 0))
        mine, theirs = copied(learner.critic), copied(learner._target_critic)
        assert torch.equal(mine[0], theirs[0]) is follows, episodes


def test_a_soft_target_moves_by_tau() -> None:
    _, _, learner = make("--target_update_tau=0.25")
    before = copied(learner._target_critic)
    learner.train(games(), HALFWAY)
    pairs = zip(before, copied(learner.critic), copied(learner._target_critic), strict=True)
    for old, online, new in pairs:
        torch.testing.assert_close(new, 0.75 * old + 0.25 * online)


@pytest.mark.parametrize("model", ["rnn", "mlp", "idv_rnn"])
def test_a_restored_learner_makes_the_same_next_update(model: str) -> None:
    words = (f"--policy_model={model}", "--target_update_interval=2")
    _, mac, learner = make(*words)
    for number in range(3):
        learner.train(games(number), Progress(0, number, 0))
    state = torch.utils._pytree.tree_map(
        lambda x: x.clone() if isinstance(x, Tensor) else x, learner.state_dict()
    )
    _, other_mac, other = make(*words, "--seed=5")
    other.load_state_dict(state)
    first = learner.train(games(3), Progress(0, 3, 0))
    second = other.train(games(3), Progress(0, 3, 0))
    for name in first:
        assert torch.equal(first[name], second[name]), name
    mine = [*copied(mac.policy.network), *copied(learner.critic), *copied(learner._target_critic)]
    theirs = [*copied(other_mac.policy.network), *copied(other.critic)]
    theirs += copied(other._target_critic)
    assert all(torch.equal(x, y) for x, y in zip(mine, theirs, strict=True))


def test_saved_networks_and_optimisers_come_back_with_the_configured_rates() -> None:
    _, _, learner = make()
    learner.train(games(), HALFWAY)
    assert set(learner.networks()) == {"agent", "critic"}
    _, _, other = make("--lr=0.01", "--critic_lr=0.02")
    for name, network in other.networks().items():
        network.load_state_dict(learner.networks()[name].state_dict())
    other.after_load()
    other.load_optimiser_state(learner.optimiser_state())
    assert torch.equal(copied(other._target_critic)[0], copied(learner.critic)[0])
    for mine, rate in ((other._optimiser, 0.01), (other._critic_optimiser, 0.02)):
        assert mine.param_groups[0]["lr"] == rate
        assert len(mine.state) > 0


class StateValue(Critic):
    """A critic that values no actions."""

    def inputs(self, played: Trajectories, fed: Tensor, feature: Tensor | None = None) -> Tensor:
        return played.pack("state")

    def forward(self, inputs_PNI: Tensor, arranged: Sequences) -> Tensor:
        return inputs_PNI


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("--agent_output_type=q", "agent_output_type=pi_logits"),
        ("--action_selector=epsilon_greedy", "multinomial"),
        ("--critic=None", "critic=coma"),
        ("--critic=cv", "critic=coma"),
        (f"--critic={__name__}:StateValue", "ComaCritic"),
        ("--mixer=vdn", "mixer=null"),
        ("--updates_per_episode=2", "Leave it at 1"),
    ],
)
def test_what_it_cannot_do_is_refused(word: str, sentence: str) -> None:
    with pytest.raises(OmgError, match=sentence):
        make(word)


# --- whole runs -------------------------------------------------------------------------------

QUIET = ("--quiet", "--use_sacred=False", "--use_tensorboard=False")


@pytest.mark.long
def test_it_learns_to_bring_both_counters_to_zero(tmp_path: Path) -> None:
    """The best return is 2; the untrained policy gets about 1."""
    result = train(
        [
            *(
                "--config=coma",
                "--env=tests.unit.counter_game:CounterEnv",
                "--t_max=7000",
                "--lr=0.001",
            ),
            *("--critic_lr=0.002", "--optimizer=adam", "--epsilon_anneal_time=6000"),
            *("--test_interval=100000", "--test_nepisode=64", f"--local_results_path={tmp_path}"),
            *QUIET,
        ]
    )
    assert result.metrics["test_return_mean"] >= 1.95


SMALL = [
    *("--env-config=foraging", "--t_max=400", "--test_nepisode=4", "--test_interval=100000"),
    *("--rnn_hidden_dim=16", "--resume_interval=600", *QUIET),
]
TASK = ["with", "env_args.key=Foraging-5x5-2p-1f-v3", "env_args.max_episode_steps=10"]


@pytest.mark.long
@pytest.mark.parametrize("mode", ["batch", "seq"])
def test_a_run_that_was_stopped_equals_one_that_was_not(tmp_path: Path, mode: str) -> None:
    words = ["--config=coma", *SMALL, f"--local_results_path={tmp_path}"]
    words += [f"--critic_train_mode={mode}", "--target_update_interval=20"]
    whole = train([*words, "--run_name=whole", *TASK]).folder
    half = train([*words, "--run_name=half", "--t_max=230", *TASK]).folder
    train([*words, "--run_name=half", "--resume", *TASK])
    for network in ("agent", "critic"):
        mine, theirs = (
            load_tensors(run / "models" / "last" / f"{network}.th") for run in (whole, half)
        )
        assert all(torch.equal(mine[key], theirs[key]) for key in mine)


@pytest.mark.long
@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_a_pool_member_samples_its_policy_and_one_with_values_is_greedy(
    tmp_path: Path, temperature: float
) -> None:
    pool = OpponentPool.create(tmp_path / "pool")
    for alg in ("coma", "iql"):
        words = [f"--config={alg}", f"--run_name={alg}", f"--local_results_path={tmp_path}"]
        words.append(f"--temperature={temperature}")
        pool.add_run(train([*words, "--batch_size_run=4", *SMALL, *TASK]).folder)
    words = ["--config=iql_am", f"--opponent_pool={tmp_path / 'pool'}", *SMALL, *TASK]
    config = load_command_line(words).config
    spec = make_batched("foraging", dict(config.env_args), n_copies=1).spec
    players = agent_lineup(config, spec, CPU).players
    assert players is not None
    assert len(players.groups) == 1  # one architecture: they act in one call
    group, count = players.groups[0], 20_000
    torch.manual_seed(1)
    avail = torch.tensor([True, True, False, True, True, True])
    obs = torch.randint(0, 5, (1, 9)).float().squeeze(0)
    copies = 2 * count
    view = StepView(
        obs=obs.expand(copies, 2, -1),
        state=torch.zeros(copies, 9),
        avail=avail.expand(copies, 2, -1),
        last_actions=torch.full((copies, 2), 3),
    )
    rows = SeatRows(view, torch.arange(copies), torch.zeros(copies, dtype=torch.int64))
    members = torch.arange(2).repeat_interleave(count)
    carry = group.initial_carry((1, copies))[0]
    actions, _ = group.act(rows, members, carry, generator=torch.Generator().manual_seed(3))
    for number, name in enumerate(players.names):
        alg = name.rsplit("-", 1)[0]
        one = load_command_line([f"--config={alg}", *SMALL, *TASK]).config
        mac = BasicMAC(config=one, spec=spec, device=CPU)
        mac.policy.network.load_state_dict(
            load_tensors(tmp_path / alg / "models" / "last" / "agent.th")
        )
        seen = obs * mac.policy.inputs.settings.scale
        x = torch.cat([seen, one_hot(torch.tensor(3), 6), torch.tensor([1.0, 0.0])])
        with torch.no_grad():
            outputs = mac.policy.network.step(x[None], torch.zeros(1, 16))[0][0]
        outputs = outputs.masked_fill(~avail, -torch.inf)
        played = torch.bincount(actions[number * count : (number + 1) * count], minlength=6)
        if alg == "coma":
            wanted = (outputs / temperature).softmax(-1)
            torch.testing.assert_close(played / count, wanted, atol=0.015, rtol=0)
        else:
            assert played[outputs.argmax()] == count
