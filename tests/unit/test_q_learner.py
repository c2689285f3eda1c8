"""The Q-learner against games solved by hand and against a slow reference."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from omg.components.episodes import EpisodeBatch
from omg.config.loader import load_command_line
from omg.config.schema import Config
from omg.controllers.team import BasicMAC
from omg.learners.base import Progress
from omg.learners.model_training import Lesson
from omg.learners.q_learner import QLearner, Update
from omg.types import OmgError

from . import mdps

CPU = torch.device("cpu")


def make(*words: str, alg: str = "qmix") -> tuple[Config, BasicMAC, QLearner]:
    torch.manual_seed(0)
    config = load_command_line(
        [f"--config={alg}", "--env-config=foraging", f"--gamma={mdps.GAMMA}", *words]
    ).config
    mac = BasicMAC(config=config, spec=mdps.SPEC, device=CPU)
    return config, mac, QLearner(config=config, spec=mdps.SPEC, mac=mac, device=CPU)


def unrolled(mac: BasicMAC, batch: EpisodeBatch) -> torch.Tensor:
    """Values of whole episodes, [B, T, N, A]; zeros in the padding."""
    played = mac.trajectories(batch)
    return played.packing.unpack(mac.policy.unroll(mac.policy.inputs.packed(played), played))


def learned_values(mac: BasicMAC, learner: QLearner) -> np.ndarray:
    """Q[state, a_1, a_2] (mixed) or Q[agent, state, a] (independent) of the trained networks."""
    views = torch.eye(2)
    batch = EpisodeBatch(
        mdps.episodes(
            np.random.default_rng(0), 1, ending="truncated", common=True, padded=False
        ).scheme,
        batch_size=2,
        max_seq_length=1,
    )
    batch.update({"state": views[:, None], "obs": views[:, None, None].expand(2, 1, 2, 2)})
    assert batch.filled.all()
    with torch.no_grad():
        q = unrolled(mac, batch)[:, 0, :, :2]  # [state, agent, action]
        if learner.mixer is None:
            return q.transpose(0, 1).numpy()
        joint = [
            learner.mixer(torch.stack([q[:, 0, i], q[:, 1, j]], -1), views).squeeze(-1)
            for i in range(2)
            for j in range(2)
        ]
        return torch.stack(joint, -1).reshape(2, 2, 2).numpy()


@pytest.mark.long
@pytest.mark.parametrize("padded", [False, True], ids=["even", "padded"])
@pytest.mark.parametrize("ending", ["terminated", "truncated"])
@pytest.mark.parametrize("alg", ["iql", "vdn", "qmix"])
def test_values_of_the_two_state_game_are_those_solved_by_hand(
    alg: str, ending: str, padded: bool
) -> None:
    _, mac, learner = make(
        "--policy_model=mlp",
        "--optimizer=adam",
        "--lr=0.01",
        "--target_update_interval=10",
        "--obs_last_action=False",
        alg=alg,
    )
    rng = np.random.default_rng(1)
    for update in range(400):
        batch = mdps.episodes(rng, 16, ending=ending, common=alg != "iql", padded=padded)
        if update == 300:
            for group in learner._optimiser.param_groups:
                group["lr"] = 0.001
        learner.train(batch, Progress(update, update, update))
    values = learned_values(mac, learner)
    if alg == "iql":
        expected = np.broadcast_to(mdps.own_values(ending), (2, 2, 2))
    else:
        expected = mdps.team_values(ending)
    np.testing.assert_allclose(values, expected, atol=0.06)


@pytest.mark.long
@pytest.mark.parametrize(
    "words", [["--dueling"], ["--double_q=False"], ["--target_update_tau=0.1"]]
)
def test_variants_reach_the_values_solved_by_hand(words: list[str]) -> None:
    _, mac, learner = make(
        *("--policy_model=mlp", "--optimizer=adam", "--lr=0.01", "--target_update_interval=10"),
        *("--obs_last_action=False", *words),
        alg="vdn",
    )
    rng = np.random.default_rng(1)
    for update in range(400):
        batch = mdps.episodes(rng, 16, ending="truncated", common=True, padded=True)
        learner.train(batch, Progress(update, update, update))
    np.testing.assert_allclose(
        learned_values(mac, learner), mdps.team_values("truncated"), atol=0.1
    )


@pytest.mark.long
def test_recurrent_agent_with_rmsprop_reaches_the_values_solved_by_hand() -> None:
    _, mac, learner = make("--lr=0.003", "--target_update_interval=10", alg="vdn")
    rng = np.random.default_rng(1)
    for update in range(300):
        batch = mdps.episodes(rng, 16, ending="truncated", common=True, padded=True)
        learner.train(batch, Progress(update, update, update))
    batch = mdps.episodes(rng, 64, ending="truncated", common=True, padded=False)
    with torch.no_grad():
        q = unrolled(mac, batch).gather(-1, batch["actions"].unsqueeze(-1)).squeeze(-1).sum(-1)
    state = batch["state"].argmax(-1)
    expected = torch.from_numpy(mdps.team_values("truncated"))
    a = batch["actions"]
    wanted = expected[state, a[..., 0], a[..., 1]].float()
    assert (q - wanted)[:, :-1].abs().mean() < 0.1


def slow_targets(
    config: Config, mac: BasicMAC, learner: QLearner, batch: EpisodeBatch
) -> tuple[torch.Tensor, torch.Tensor]:
    """Targets and loss by loops over episodes and steps, one network call per step."""
    policy, target_network = mac.policy, learner._target_network
    n_agents = mdps.SPEC.n_agents
    total, count = torch.zeros(()), 0
    targets = torch.full((len(batch), batch.max_seq_length - 1, n_agents), torch.nan)
    if learner.mixer is not None:
        targets = targets[..., :1].clone()
    for b in range(len(batch)):
        online_h = torch.zeros(n_agents, policy.network.carry_dim)
        target_h = torch.zeros(n_agents, target_network.carry_dim)
        online, target = [], []
        for t in range(batch.max_seq_length):
            last = torch.zeros(n_agents, mdps.SPEC.n_actions)
            if t > 0:
                last[torch.arange(n_agents), batch["actions"][b, t - 1]] = 1
            x = torch.cat([batch["obs"][b, t], last, torch.eye(n_agents)], -1)
            q, online_h = policy.network.step(x, online_h)
            online.append(q)
            q, target_h = target_network.step(x, target_h)
            target.append(q)
        length = int(batch.filled[b].sum()) - 1
        later = None  # the target one step after
        for t in reversed(range(length)):
            following = []
            for n in range(n_agents):
                allowed = [a for a in range(3) if batch["avail_actions"][b, t + 1, n, a]]
                choose = online if config.double_q else target
                best = max(allowed, key=lambda a: choose[t + 1][n, a].item())
                following.append(target[t + 1][n, best])
            value = torch.stack(following)
            chosen = online[t][torch.arange(n_agents), batch["actions"][b, t]]
            if learner.mixer is not None:
                value = learner._target_mixer(value, batch["state"][b, t + 1])
                chosen = learner.mixer(chosen, batch["state"][b, t])
            if later is not None:
                value = (1 - config.q_lambda) * value + config.q_lambda * later
            goes_on = 0.0 if batch["terminated"][b, t] else config.gamma
            later = targets[b, t] = (batch["reward"][b, t] + goes_on * value).detach()
            total = total + ((chosen - targets[b, t]) ** 2).sum()
            count += len(chosen)
    return targets, total / count


@pytest.mark.parametrize("td_lambda", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("ending", ["terminated", "truncated"])
@pytest.mark.parametrize("alg", ["iql", "vdn", "qmix"])
def test_whole_sequence_targets_loss_and_gradient_equal_a_slow_per_step_reference(
    alg: str, ending: str, double: bool, td_lambda: float
) -> None:
    words = (f"--double_q={double}", f"--q_lambda={td_lambda}", "--grad_norm_clip=1e9")
    config, mac, learner = make(*words, alg=alg)
    with torch.no_grad():
        for parameter in learner._target_network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    batch = mdps.episodes(
        np.random.default_rng(2), 5, ending=ending, common=alg != "iql", padded=True
    )
    slow, slow_loss = slow_targets(config, mac, learner, batch)
    slow_grads = torch.autograd.grad(slow_loss, learner._parameters)
    played = mac.trajectories(batch)
    update, packing = Update(mac.policy, played), played.packing
    fast = learner.targets(update, update.unroll(None), Lesson(played))
    assert len(packing.now) == int((~slow[..., 0].isnan()).sum())
    expected = slow[packing.episode[packing.now], packing.time[packing.now]]
    torch.testing.assert_close(fast, expected, atol=1e-5, rtol=1e-5)
    metrics = learner.train(batch, Progress(0, 0, 0))
    torch.testing.assert_close(metrics["loss"], slow_loss.detach(), atol=1e-5, rtol=1e-5)
    for parameter, expected in zip(learner._parameters, slow_grads, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.long
@given(extra=st.integers(1, 5), garbage=st.booleans(), seed=st.integers(0, 100))
def test_padding_changes_neither_loss_nor_gradient(extra: int, garbage: bool, seed: int) -> None:
    batch = mdps.episodes(
        np.random.default_rng(seed), 4, ending="truncated", common=True, padded=True
    )
    longer = EpisodeBatch(batch.scheme, batch_size=4, max_seq_length=batch.max_seq_length + extra)
    for name in batch.scheme.fields:
        longer.raw(name)[:, : batch.max_seq_length] = batch.raw(name)
    longer.filled[:, : batch.max_seq_length] = batch.filled
    if garbage:
        longer.raw("obs")[:, batch.max_seq_length :] = 50.0
        longer.raw("reward")[:, batch.max_seq_length :] = 1000.0
    outcomes = []
    for given_batch in (batch, longer):
        _, _, learner = make("--grad_norm_clip=1e9")
        metrics = learner.train(given_batch, Progress(0, 0, 0))
        grads = torch.cat([p.grad.flatten() for p in learner._parameters if p.grad is not None])
        outcomes.append((metrics["loss"], grads))
    torch.testing.assert_close(outcomes[0][0], outcomes[1][0])
    torch.testing.assert_close(outcomes[0][1], outcomes[1][1], atol=1e-6, rtol=1e-4)


def test_hard_target_follows_every_interval_of_episodes_and_not_before() -> None:
    _, mac, learner = make("--target_update_interval=5")
    batch = mdps.episodes(
        np.random.default_rng(0), 4, ending="truncated", common=True, padded=False
    )
    for episodes, follows in ((1, False), (4, False), (5, True), (9, False), (10, True)):
        learner.train(batch, Progress(0, episodes, 0))
        same = torch.equal(mac.policy.network.fc1.weight, learner._target_network.fc1.weight)
        assert same is follows, episodes


def test_soft_target_moves_by_tau_at_every_update() -> None:
    _, mac, learner = make("--target_update_tau=0.25")
    batch = mdps.episodes(
        np.random.default_rng(0), 4, ending="truncated", common=True, padded=False
    )
    before = learner._target_network.fc1.weight.clone()
    learner.train(batch, Progress(0, 0, 0))
    expected = 0.75 * before + 0.25 * mac.policy.network.fc1.weight
    torch.testing.assert_close(learner._target_network.fc1.weight, expected)


def test_state_dict_restores_targets_and_optimiser_so_that_the_next_update_is_the_same() -> None:
    rng = np.random.default_rng(0)
    batches = [
        mdps.episodes(rng, 4, ending="truncated", common=True, padded=False) for _ in range(4)
    ]
    _, _, learner = make()
    for number, batch in enumerate(batches[:3]):
        learner.train(batch, Progress(0, number, 0))
    state = torch.utils._pytree.tree_map(
        lambda x: x.clone() if isinstance(x, torch.Tensor) else x, learner.state_dict()
    )
    _, _, other = make()
    other.load_state_dict(state)
    first = learner.train(batches[3], Progress(0, 3, 0))
    second = other.train(batches[3], Progress(0, 3, 0))
    for name in first:
        assert torch.equal(first[name], second[name]), name
    for mine, theirs in zip(learner._parameters, other._parameters, strict=True):
        assert torch.equal(mine, theirs)


def test_a_mixer_with_individual_rewards_is_refused() -> None:
    with pytest.raises(OmgError, match="common_reward"):
        make("--common_reward=False", alg="qmix")


def test_a_value_learner_refuses_policy_outputs() -> None:
    with pytest.raises(OmgError, match="agent_output_type"):
        make("--agent_output_type=pi_logits", alg="iql")
