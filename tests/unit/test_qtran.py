"""QTRAN: its losses against numbers worked out by hand and against a slow reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from omg.cli.train import train
from omg.components.episodes import EpisodeBatch, environment_scheme
from omg.config.loader import load_command_line
from omg.config.schema import Config
from omg.controllers.team import BasicMAC
from omg.experiment.output import read_metrics
from omg.functional import Packing
from omg.learners import LEARNERS
from omg.learners.base import Progress
from omg.learners.qtran_learner import QtranLearner
from omg.modules.mixers import QtranBase
from omg.storage.files import load_tensors
from omg.types import OmgError

from . import mdps

CPU = torch.device("cpu")
ARCHITECTURES = ["qtran_paper", "coma_critic"]


def make(*words: str) -> tuple[Config, BasicMAC, QtranLearner]:
    torch.manual_seed(0)
    config = load_command_line(
        [
            *("--config=qtran", "--env-config=foraging", f"--gamma={mdps.GAMMA}"),
            *("--rnn_hidden_dim=16", "--mixing_embed_dim=16", *words),
        ]
    ).config
    mac = BasicMAC(config=config, spec=mdps.SPEC, device=CPU)
    learner = LEARNERS[config.learner](config=config, spec=mdps.SPEC, mac=mac, device=CPU)
    assert isinstance(learner, QtranLearner)
    return config, mac, learner


def some_episodes(seed: int = 2, count: int = 5, ending: str = "truncated") -> EpisodeBatch:
    return mdps.episodes(
        np.random.default_rng(seed), count, ending=ending, common=True, padded=True
    )


@torch.no_grad()
def put_the_sum_between(learner: QtranLearner, batch: EpisodeBatch) -> None:
    """Shift V so that the sum lies above the joint value for some transitions, below for others."""
    bias = learner.mixer.V[4].bias
    bias -= 100.0
    bias -= learner.errors(batch).nopt.median()
    found = learner.errors(batch).nopt
    assert (found < 0).any()
    assert (found == 0).any()


# --- by hand --------------------------------------------------------------------------------


def two_transitions() -> EpisodeBatch:
    """Episode 0 plays (0, 1), earns 5 and terminates; episode 1 plays (1, 1), earns 1, is cut."""
    batch = EpisodeBatch(
        environment_scheme(mdps.SPEC, common_reward=True), batch_size=2, max_seq_length=2
    )
    batch.update(
        {
            "actions": torch.tensor([[[0, 1], [0, 0]], [[1, 1], [0, 0]]]),
            "avail_actions": torch.tensor([True, True, False]),
            "reward": torch.tensor([[[5.0], [0.0]], [[1.0], [0.0]]]),
            "terminated": torch.tensor([[True, False], [False, False]]),
        }
    )
    return batch


@torch.no_grad()
def set_by_hand(learner: QtranLearner, mac: BasicMAC, arch: str) -> None:
    """Q_n = (1, 3, 100) (the last action is unavailable), V = -1, and
    coma_critic: Q_jt = 2·[a_0 = 0] + 3·[a_1 = 1] + ½; qtran_paper: 2·#{a_n = 0} + 3·#{a_n = 1} + ½.
    Target networks: Q_n = (3, 1, 100), Q_jt greater by 10."""
    networks = (mac.policy.network, learner._target_network, learner.mixer, learner._target_mixer)
    for network in networks:
        for parameter in network.parameters():
            parameter.zero_()
    mac.policy.network.fc2.bias.copy_(torch.tensor([1.0, 3.0, 100.0]))
    learner._target_network.fc2.bias.copy_(torch.tensor([3.0, 1.0, 100.0]))
    for mixer, more in ((learner.mixer, 0.0), (learner._target_mixer, 10.0)):
        encoding = mixer.action_encoding
        assert (encoding is None) == (arch == "coma_critic")
        weights = mixer.Q[0].weight[0]
        if encoding is None:
            weights[2:] = torch.tensor([2.0, 0.0, 0.0, 0.0, 3.0, 0.0])  # behind the state
        else:
            for layer in (encoding[0], encoding[2]):
                layer.weight.copy_(torch.eye(16 + 3))
            weights[-3:] = torch.tensor([2.0, 3.0, 0.0])
        mixer.Q[2].weight[0, 0] = mixer.Q[4].weight[0, 0] = 1.0
        mixer.Q[4].bias.fill_(0.5 + more)
        mixer.V[4].bias.fill_(-1.0)


@pytest.mark.parametrize(
    ("arch", "double", "td", "opt", "nopt"),
    [
        # Q_jt(0,1) = 5.5, Q_jt(ā) = Q_jt(1,1) = 3.5, Σ Q_n + V = 3 and 5;
        # y = 5 and 1 + ½·13.5 (double: the online agents choose (1,1)) or 1 + ½·12.5 (they don't)
        ("coma_critic", True, [0.5, -4.25], [1.5, 1.5], [-2.5, 0.0]),
        ("coma_critic", False, [0.5, -3.75], [1.5, 1.5], [-2.5, 0.0]),
        # Q_jt(0,1) = 5.5, Q_jt(1,1) = 6.5; y = 5 and 1 + ½·16.5 or 1 + ½·14.5
        ("qtran_paper", True, [0.5, -2.75], [-1.5, -1.5], [-2.5, -1.5]),
        ("qtran_paper", False, [0.5, -1.75], [-1.5, -1.5], [-2.5, -1.5]),
    ],
)
def test_the_three_errors_and_the_loss_are_those_worked_out_by_hand(
    arch: str, double: bool, td: list[float], opt: list[float], nopt: list[float]
) -> None:
    _, mac, learner = make(
        f"--qtran_arch={arch}", f"--double_q={double}", "--opt_loss=2", "--nopt_min_loss=0.5"
    )
    set_by_hand(learner, mac, arch)
    batch = two_transitions()
    errors = learner.errors(batch)
    for found, expected in ((errors.td, td), (errors.opt, opt), (errors.nopt, nopt)):
        assert found.detach().squeeze(-1).tolist() == pytest.approx(expected)
    metrics = learner.train(batch, Progress(0, 0, 0))
    squares = [float(np.square(error).mean()) for error in (td, opt, nopt)]
    expected = {
        "td_loss": squares[0],
        "opt_loss": squares[1],
        "nopt_loss": squares[2],
        "loss": squares[0] + 2 * squares[1] + 0.5 * squares[2],
        "td_error_abs": float(np.abs(td).mean()),
        "q_taken_mean": (5.5 + (3.5 if arch == "coma_critic" else 6.5)) / 2,
        "target_mean": float(np.mean(errors.targets.numpy())),
    }
    assert {name: value.item() for name, value in metrics.items() if name != "grad_norm"} == (
        pytest.approx(expected)
    )
    assert metrics["grad_norm"] > 0


@pytest.mark.parametrize(("v", "moves"), [(-9.0, True), (9.0, False)])
def test_the_sum_is_pulled_up_where_it_lies_below_the_joint_value_and_never_down(
    v: float, moves: bool
) -> None:
    _, mac, learner = make("--opt_loss=0", "--qtran_arch=coma_critic")
    set_by_hand(learner, mac, "coma_critic")
    with torch.no_grad():
        learner.mixer.V[4].bias.fill_(v)
    learner.train(two_transitions(), Progress(0, 0, 0))
    after = [*mac.policy.network.fc2.bias[:2].tolist(), learner.mixer.V[4].bias.item()]
    if moves:
        assert all(new > old for new, old in zip(after, (1.0, 3.0, v), strict=True))
    else:
        assert after == [1.0, 3.0, v]


# --- against a slow reference ---------------------------------------------------------------


def slow_losses(
    config: Config, mac: BasicMAC, learner: QtranLearner, batch: EpisodeBatch
) -> tuple[list[torch.Tensor], dict[tuple[int, int], float]]:
    """The three losses and the targets by loops over episodes and steps, one call per step."""
    n_agents, n_actions = mdps.SPEC.n_agents, mdps.SPEC.n_actions
    totals, count = [torch.zeros(()) for _ in range(3)], 0
    targets: dict[tuple[int, int], float] = {}

    def joint(mixer: QtranBase, state: torch.Tensor, seen: torch.Tensor, acts: list[int]):
        one_hot = torch.eye(n_actions)[acts]
        if config.qtran_arch == "coma_critic":
            return mixer.Q(torch.cat([state, *one_hot]))
        assert mixer.action_encoding is not None
        parts = [mixer.action_encoding(torch.cat([seen[n], one_hot[n]])) for n in range(n_agents)]
        return mixer.Q(torch.cat([state, torch.stack(parts).sum(0)]))

    def unrolled(network, b):
        hidden, outputs, seen = torch.zeros(n_agents, network.carry_dim), [], []
        for t in range(batch.max_seq_length):
            last = torch.zeros(n_agents, n_actions)
            if t > 0:
                last[torch.arange(n_agents), batch["actions"][b, t - 1]] = 1
            x = torch.cat([batch["obs"][b, t], last, torch.eye(n_agents)], -1)
            q, hidden = network.step(x, hidden)
            outputs.append(q)
            seen.append(hidden if network.carry_dim else x)
        return outputs, seen

    for b in range(len(batch)):
        q, seen = unrolled(mac.policy.network, b)
        with torch.no_grad():
            target_q, target_seen = unrolled(learner._target_network, b)

        def best(values, t, b=b):
            allowed = batch["avail_actions"][b, t].nonzero().tolist()
            return [
                max((a for m, a in allowed if m == n), key=lambda a: values[t][n, a].item())
                for n in range(n_agents)
            ]

        for t in range(int(batch.filled[b].sum()) - 1):
            state, acts = batch["state"][b, t], batch["actions"][b, t].tolist()
            choice = best(q if config.double_q else target_q, t + 1)
            after = joint(
                learner._target_mixer, batch["state"][b, t + 1], target_seen[t + 1], choice
            ).item()
            goes_on = 0.0 if batch["terminated"][b, t] else config.gamma
            targets[b, t] = batch["reward"][b, t].item() + goes_on * after
            greedy = best(q, t)
            value = learner.mixer.V(state)
            taken = joint(learner.mixer, state, seen[t], acts)
            top = joint(learner.mixer, state, seen[t], greedy).item()
            optimal = sum(q[t][n, a] for n, a in enumerate(greedy)) - top + value
            lacking = sum(q[t][n, a] for n, a in enumerate(acts)) - taken.item() + value
            totals[0] = totals[0] + (taken - targets[b, t]).square().sum()
            totals[1] = totals[1] + optimal.square().sum()
            if lacking.item() < 0:
                totals[2] = totals[2] + lacking.square().sum()
            count += 1
    return [total / count for total in totals], targets


@pytest.mark.parametrize("ending", ["terminated", "truncated"])
@pytest.mark.parametrize(("double", "policy_model"), [(True, "rnn"), (False, "rnn"), (True, "mlp")])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_losses_targets_and_gradient_equal_a_slow_per_step_reference(
    arch: str, double: bool, policy_model: str, ending: str
) -> None:
    config, mac, learner = make(
        *(f"--qtran_arch={arch}", f"--double_q={double}", f"--policy_model={policy_model}"),
        *("--grad_norm_clip=1e9", "--opt_loss=0.7", "--nopt_min_loss=0.3"),
    )
    with torch.no_grad():
        for network in (learner._target_network, learner._target_mixer):
            for parameter in network.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    batch = some_episodes(ending=ending)
    put_the_sum_between(learner, batch)
    (td, opt, nopt), targets = slow_losses(config, mac, learner, batch)
    slow = torch.autograd.grad(
        td + 0.7 * opt + 0.3 * nopt, learner._parameters, materialize_grads=True
    )
    packing = Packing.of(batch.filled, batch["terminated"])
    fast = learner.errors(batch).targets.squeeze(-1).tolist()
    places = zip(
        packing.episode[packing.now].tolist(), packing.time[packing.now].tolist(), strict=True
    )
    assert dict(zip(places, fast, strict=True)) == pytest.approx(targets, abs=1e-5)
    metrics = learner.train(batch, Progress(0, 0, 0))
    for name, expected in (("td_loss", td), ("opt_loss", opt), ("nopt_loss", nopt)):
        torch.testing.assert_close(metrics[name], expected.detach(), atol=1e-5, rtol=1e-4)
    for parameter, gradient in zip(learner._parameters, slow, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, gradient, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_termination_ends_the_target_and_a_cut_does_not(arch: str) -> None:
    _, _, learner = make(f"--qtran_arch={arch}")
    with torch.no_grad():
        learner._target_mixer.Q[4].bias.fill_(1000.0)
    ended, cut = learner.errors(two_transitions()).targets.squeeze(-1).tolist()
    assert ended == 5.0
    assert cut == pytest.approx(1.0 + mdps.GAMMA * 1000.0, abs=5.0)


# --- who learns from what -------------------------------------------------------------------


def reached(loss: torch.Tensor, network: torch.nn.Module) -> set[str]:
    """The parts of a network (names up to the first dot) that a loss changes."""
    names, parameters = zip(*network.named_parameters(), strict=True)
    gradients = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    return {
        name.partition(".")[0]
        for name, gradient in zip(names, gradients, strict=True)
        if gradient is not None and gradient.any()
    }


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("policy_model", ["rnn", "mlp"])
def test_each_loss_reaches_only_what_it_is_for(arch: str, policy_model: str) -> None:
    _, mac, learner = make(f"--qtran_arch={arch}", f"--policy_model={policy_model}")
    batch = some_episodes()
    put_the_sum_between(learner, batch)
    losses = learner.errors(batch).losses()
    joint = {"Q", "action_encoding"} if arch == "qtran_paper" else {"Q"}
    assert reached(losses["td_loss"], learner.mixer) == joint
    # The joint value shares the recurrent layers of the agents, never their action values.
    shared = {"fc1", "rnn"} if (arch, policy_model) == ("qtran_paper", "rnn") else set()
    agent = {"fc1", "rnn", "fc2"} if policy_model == "rnn" else {"body", "head"}
    assert reached(losses["td_loss"], mac.policy.network) == shared
    for name in ("opt_loss", "nopt_loss"):
        assert reached(losses[name], learner.mixer) == {"V"}, name
        assert reached(losses[name], mac.policy.network) == agent, name


# --- invariances ----------------------------------------------------------------------------


@pytest.mark.long
@settings(max_examples=12)
@given(
    extra=st.integers(1, 5),
    garbage=st.booleans(),
    seed=st.integers(0, 100),
    arch=st.sampled_from(ARCHITECTURES),
)
def test_padding_changes_neither_loss_nor_gradient(
    extra: int, garbage: bool, seed: int, arch: str
) -> None:
    batch = some_episodes(seed, 4)
    slots = batch.max_seq_length
    longer = EpisodeBatch(batch.scheme, batch_size=4, max_seq_length=slots + extra)
    for name in batch.scheme.fields:
        longer.raw(name)[:, :slots] = batch.raw(name)
    longer.filled[:, :slots] = batch.filled
    if garbage:
        for name in ("obs", "state", "reward"):
            longer.raw(name)[:, slots:] = 50.0
    outcomes = []
    for given_batch in (batch, longer):
        _, _, learner = make("--grad_norm_clip=1e9", f"--qtran_arch={arch}")
        metrics = learner.train(given_batch, Progress(0, 0, 0))
        grads = torch.cat([p.grad.flatten() for p in learner._parameters if p.grad is not None])
        outcomes.append((metrics["loss"], grads))
    torch.testing.assert_close(outcomes[0][0], outcomes[1][0])
    torch.testing.assert_close(outcomes[0][1], outcomes[1][1], atol=1e-6, rtol=1e-4)


@given(order=st.permutations(range(4)), seed=st.integers(0, 1000))
def test_the_joint_value_of_the_paper_does_not_depend_on_the_order_of_agents(
    order: list[int], seed: int
) -> None:
    torch.manual_seed(seed)  # the weights, too; so many that not all paths of an action are dead
    generator = torch.Generator().manual_seed(seed)
    shape = {"n_agents": 4, "state_dim": 3, "embed_dim": 32, "n_actions": 5, "feature_dim": 6}
    state = torch.randn(7, 3, generator=generator)
    features = torch.randn(7, 4, 6, generator=generator)
    actions = torch.randint(5, (7, 4), generator=generator)
    with torch.no_grad():
        mixer = QtranBase(**shape)
        torch.testing.assert_close(
            mixer.joint(state, features[:, order], actions[:, order]),
            mixer.joint(state, features, actions),
        )
        by_seat = QtranBase(**shape, arch="coma_critic")
        swapped = actions[:, order]
        same = (swapped == actions).all(-1)
        found = by_seat.joint(state, features, swapped) == by_seat.joint(state, features, actions)
        assert torch.equal(found.squeeze(-1), same)


def test_the_update_does_not_depend_on_the_order_of_alike_agents() -> None:
    batch = some_episodes()
    swapped = batch[torch.arange(len(batch))]
    for name in ("obs", "actions", "avail_actions"):
        swapped.raw(name)[:] = batch.raw(name).flip(2)
    assert not torch.equal(batch["actions"], swapped["actions"])
    losses = []
    for given_batch in (batch, swapped):
        _, _, learner = make("--obs_agent_id=False")
        losses.append(learner.train(given_batch, Progress(0, 0, 0))["loss"])
    torch.testing.assert_close(*losses)


# --- values, checkpoints, refusals ----------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("arch", "ending"), [("qtran_paper", "truncated"), ("coma_critic", "terminated")]
)
def test_joint_values_of_the_two_state_game_are_those_solved_by_hand(
    arch: str, ending: str
) -> None:
    _, _, learner = make(
        *(f"--qtran_arch={arch}", "--policy_model=mlp", "--mlp_hidden_dims=[16]"),
        *("--optimizer=adam", "--lr=0.01", "--target_update_interval=10"),
        "--obs_last_action=False",
    )
    rng = np.random.default_rng(1)
    for update in range(350):
        if update == 250:
            for group in learner._optimiser.param_groups:
                group["lr"] = 0.001
        batch = mdps.episodes(rng, 16, ending=ending, common=True, padded=True)
        learner.train(batch, Progress(update, update, update))
    batch = mdps.episodes(rng, 32, ending=ending, common=True, padded=True)
    packing = Packing.of(batch.filled, batch["terminated"])
    now = packing.now
    state, actions = (packing.take(batch[name], now) for name in ("state", "actions"))
    wanted = torch.from_numpy(mdps.team_values(ending)).float()
    expected = wanted[state.argmax(-1), actions[:, 0], actions[:, 1]]
    errors = learner.errors(batch)
    torch.testing.assert_close(errors.taken.detach().squeeze(-1), expected, atol=0.1, rtol=0)
    assert errors.opt.abs().max() < 0.1
    assert errors.nopt.abs().max() < 0.15


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_state_dict_restores_all_so_that_the_next_update_is_the_same(arch: str) -> None:
    batches = [some_episodes(seed) for seed in range(4)]
    _, _, learner = make(f"--qtran_arch={arch}", "--target_update_interval=2")
    for number, batch in enumerate(batches[:3]):
        learner.train(batch, Progress(0, number, 0))
    state = torch.utils._pytree.tree_map(
        lambda x: x.clone() if isinstance(x, torch.Tensor) else x, learner.state_dict()
    )
    _, _, other = make(f"--qtran_arch={arch}", "--target_update_interval=2", "--seed=9")
    other.load_state_dict(state)
    first = learner.train(batches[3], Progress(0, 3, 0))
    second = other.train(batches[3], Progress(0, 3, 0))
    assert all(torch.equal(first[name], second[name]) for name in first)
    for mine, theirs in zip(learner._parameters, other._parameters, strict=True):
        assert torch.equal(mine, theirs)


def test_a_mixer_of_pymarl_fits() -> None:
    """Names and sizes of mixer.th as PyMARL's qtran_base writes it (arch qtran_paper)."""
    _, _, learner = make("--rnn_hidden_dim=64", "--mixing_embed_dim=64")
    assert set(learner.networks()) == {"agent", "mixer"}
    hidden = 64 + 3
    layers = {
        "Q.0": (2 + hidden, 64),
        "Q.2": (64, 64),
        "Q.4": (64, 1),
        "V.0": (2, 64),
        "V.2": (64, 64),
        "V.4": (64, 1),
        "action_encoding.0": (hidden, hidden),
        "action_encoding.2": (hidden, hidden),
    }
    theirs = {f"{name}.weight": torch.randn(out, size) for name, (size, out) in layers.items()}
    theirs |= {f"{name}.bias": torch.randn(out) for name, (_, out) in layers.items()}
    learner.networks()["mixer"].load_state_dict(theirs)


@pytest.mark.long
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_run_is_resumed_exactly_and_its_model_is_loaded(arch: str, tmp_path: Path) -> None:
    words = [
        *("--config=qtran", "--env-config=foraging", "--batch_size=4", "--batch_size_run=4"),
        *(f"--qtran_arch={arch}", "--rnn_hidden_dim=16", "--mixing_embed_dim=16", "--quiet"),
        *("--test_interval=1000", "--test_nepisode=2", "--learner_log_interval=100"),
        *("--use_sacred=False", "--use_tensorboard=False", f"--local_results_path={tmp_path}"),
        *("with", "env_args.key=Foraging-5x5-2p-1f-v3", "env_args.max_episode_steps=10"),
    ]
    whole = Path(train([*words, "--run_name=whole", "--t_max=400"]).folder)
    train([*words, "--run_name=half", "--t_max=200"])
    half = Path(train([*words, "--run_name=half", "--t_max=400", "--resume"]).folder)
    for name in ("agent.th", "mixer.th"):
        mine, theirs = (load_tensors(path / "models" / "last" / name) for path in (half, whole))
        assert all(torch.equal(mine[key], theirs[key]) for key in theirs), name
    losses = [record for record in read_metrics(whole / "metrics.jsonl") if "loss" in record]
    assert {"td_loss", "opt_loss", "nopt_loss", "td_error_abs", "target_mean"} <= set(losses[-1])
    more = ["--t_max=100", f"--checkpoint_path={whole}", "--run_name=more"]
    assert Path(train([*words, *more]).folder).is_dir()
    other = "coma_critic" if arch == "qtran_paper" else "qtran_paper"
    with pytest.raises(OmgError, match=r"mixer\.th"):
        train([*words, *more, f"--qtran_arch={other}", "--run_name=unfit"])


def test_agents_with_weights_of_their_own_are_trained_too() -> None:
    _, mac, learner = make("--policy_model=idv_rnn")
    before = {name: value.clone() for name, value in mac.policy.network.named_parameters()}
    learner.train(some_episodes(), Progress(0, 0, 0))
    after = dict(mac.policy.network.named_parameters())
    for seat in range(2):
        name = f"agents.{seat}.fc1.weight"
        assert (after[name] != before[name]).any()


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["--mixer=qmix"], "mixer=qtran_base"),
        (["--mixer=null"], "needs a mixer"),
        (["--learner=q_learner"], "learner=qtran_learner"),
        (["--common_reward=False"], "common_reward"),
        (["--agent_output_type=pi_logits"], "agent_output_type"),
    ],
)
def test_what_cannot_be_trained_is_refused_with_a_sentence(words: list[str], match: str) -> None:
    config = load_command_line(["--config=qtran", "--env-config=two_step", *words]).config
    with pytest.raises(OmgError, match=match):
        LEARNERS[config.learner].check(config)
