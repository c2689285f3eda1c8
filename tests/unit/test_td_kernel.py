"""QMIX's loss of temporal differences in one call, of values and of a whole recurrent network:
against the chain of torch operations that defines it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from omg.functional import Packing, gather_actions, next_action_values, td_targets
from omg.modules.agents.networks import RNNAgent
from omg.modules.device import use_kernels
from omg.modules.kernels.qmix import QMixKernel, TDLoss, TDTerms, Transitions, qmix_kernel
from omg.modules.mixers import QMixer

pytestmark = pytest.mark.skipif(qmix_kernel()[0] is None, reason="no C compiler on this machine")
GAMMA = 0.9


def kernel() -> QMixKernel:
    found, _ = qmix_kernel()
    assert found is not None
    return found


class Case:
    """Random episodes of a team, its networks and mixers."""

    def __init__(
        self, lengths: list[int], agents: int, actions: int, seed: int, *, leavers: bool = False
    ) -> None:
        torch.manual_seed(seed)
        filled = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
        over = torch.rand(len(lengths)) < 0.5
        terminated = torch.zeros_like(filled)
        for episode, length in enumerate(lengths):
            terminated[episode, max(length - 2, 0)] = over[episode]
        self.packing = packing = Packing.of(filled, terminated)
        slots, count = len(packing.time), len(packing.now)
        avail = torch.rand(slots, agents, actions) < 0.6
        avail[..., 0] |= torch.rand(slots, agents) < 0.9  # else nothing can be done
        alive = torch.rand(slots, agents) < 0.7 if leavers else None
        self.of = Transitions(
            now=packing.now,
            next=packing.next,
            actions=torch.randint(actions, (count, agents)),
            reward=torch.randn(count),
            over=packing.pack(terminated)[packing.now],
            state=torch.randn(slots, 6),
            avail=avail,
            alive=alive,
            counts=None if alive is None else torch.rand(count) < 0.8,
        )
        if self.of.counts is not None:
            self.of.counts[0] = True
        self.mixer, self.target = (
            QMixer(n_agents=agents, state_dim=6, embed_dim=16, hypernet_embed=32) for _ in range(2)
        )
        self.network = RNNAgent(input_dim=5, n_actions=actions, hidden_dim=16)
        self.inputs = torch.randn(slots * agents, 5)
        self.sizes = packing.sizes * agents
        self.q, self.target_q = torch.randn(2, slots, agents, actions)

    def loss(self, *, double: bool) -> TDLoss:
        weights = self.mixer.weights(), self.target.weights()
        return TDLoss(kernel(), self.target_q, self.of, weights, gamma=GAMMA, double=double)

    def in_torch(self, q: Tensor, *, double: bool) -> TDTerms:
        """The definition."""
        of = self.of

        def mixed(mixer: QMixer, values: Tensor, slots: Tensor) -> Tensor:
            here = values if of.alive is None else values * of.alive[slots]
            return mixer(here, of.state[slots]).squeeze(1)

        use_kernels(False)
        try:
            taken = mixed(self.mixer, gather_actions(q[of.now], of.actions), of.now)
            with torch.no_grad():
                best = next_action_values(
                    q[of.next], self.target_q[of.next], of.avail[of.next], double=double
                )
                targets = td_targets(
                    of.reward, of.over, mixed(self.target, best, of.next), gamma=GAMMA
                )
        finally:
            use_kernels(True)
        if of.counts is not None:
            taken, targets = taken[of.counts], targets[of.counts]
        error = taken - targets
        return TDTerms(error.square().mean(), error.abs().mean(), taken.mean(), targets.mean())

    def outputs(self, network: RNNAgent | None = None) -> Tensor:
        """The network's values, or those of another, by torch."""
        use_kernels(False)
        try:
            carry = torch.zeros(int(self.sizes[0]), 16)
            found, _ = (network or self.network).unroll_packed(self.inputs, self.sizes, carry)
        finally:
            use_kernels(True)
        return found.view_as(self.q)


def same(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=2e-4)


@pytest.mark.long
@given(
    lengths=st.lists(st.integers(2, 9), min_size=1, max_size=40),
    agents=st.integers(1, 5),
    actions=st.integers(1, 7),
    double=st.booleans(),
    leavers=st.booleans(),
    seed=st.integers(0, 999),
)
def test_the_loss_of_values_and_of_a_network_equal_torchs(
    lengths: list[int], agents: int, actions: int, double: bool, leavers: bool, seed: int
) -> None:
    case = Case(lengths, agents, actions, seed, leavers=leavers)
    q, weights = case.q.clone().requires_grad_(), case.mixer.weights()
    loss, theirs = case.loss(double=double), case.in_torch(q, double=double)
    mine = loss.of_values(q)
    for one, other in zip(loss.terms(), theirs, strict=True):
        same(one, other.detach())
    expected = torch.autograd.grad(theirs.loss, [q, *weights])
    for one, other in zip(torch.autograd.grad(mine, [q, *weights]), expected, strict=True):
        same(one, other)
    leaves = [*case.network.parameters(), *weights]
    theirs = case.in_torch(case.outputs(), double=double)
    slopes = torch.autograd.grad(theirs.loss, leaves)
    whole = case.loss(double=double)
    found = whole.of_network(case.network, case.inputs, case.sizes)
    assert found is not None
    same(found.value(), theirs.loss.detach())
    found.backward()
    for leaf, other in zip(leaves, slopes, strict=True):
        assert leaf.grad is not None
        same(leaf.grad, other)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_nothing_but_the_order_of_sums(threads: int) -> None:
    case = Case([9] * 30 + [4] * 11, 3, 5, 0)
    expected = case.in_torch(case.outputs(), double=True).loss.detach()
    torch.set_num_threads(threads)
    try:
        found = []
        for _ in range(2):
            loss = case.loss(double=True).of_network(case.network, case.inputs, case.sizes)
            assert loss is not None
            found.append([loss.value(), *(s for s in loss.slopes if s is not None)])
    finally:
        torch.set_num_threads(1)
    same(found[0][0], expected)
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.long
@given(
    lengths=st.lists(st.integers(2, 9), min_size=1, max_size=30),
    agents=st.sampled_from([1, 2, 3, 5, 31]),
    dueling=st.booleans(),
    leavers=st.booleans(),
    threads=st.sampled_from([1, 2, 3]),
)
def test_the_target_networks_values_are_made_in_the_same_call(
    lengths: list[int], agents: int, dueling: bool, leavers: bool, threads: int
) -> None:
    case = Case(lengths, agents, 4, 0, leavers=leavers)
    case.network, target = (
        RNNAgent(input_dim=5, n_actions=4, hidden_dim=16, dueling=dueling) for _ in range(2)
    )
    carry = torch.zeros(int(case.sizes[0]), 16)
    torch.set_num_threads(threads)
    try:
        for _ in range(2):
            with torch.no_grad():
                made, _ = target.unroll_packed(case.inputs, case.sizes, carry)
            case.target_q = made.view_as(case.q).clone()
            apart = case.loss(double=True).of_network(case.network, case.inputs, case.sizes)
            case.target_q = torch.full_like(case.q, torch.nan)
            loss = case.loss(double=True)
            found = loss.of_network(case.network, case.inputs, case.sizes, target)
            assert found is not None
            assert apart is not None
            assert torch.equal(loss.target_q, made.view_as(case.q))
            assert torch.equal(found.value(), apart.value())
            for one, other in zip(found.slopes, apart.slopes, strict=True):
                assert one is other is None or torch.equal(one, other)  # type: ignore[arg-type]
            for weight in [*target.parameters(), *case.target.parameters()]:
                weight.data.mul_(0.5)  # as some learners move their targets
    finally:
        torch.set_num_threads(1)


def test_a_target_of_other_widths_is_refused() -> None:
    case = Case([5, 4, 4], 2, 3, 1)
    wider = RNNAgent(input_dim=5, n_actions=3, hidden_dim=32)
    with pytest.raises(ValueError, match="do not fit together"):
        case.loss(double=True).of_network(case.network, case.inputs, case.sizes, wider)


def test_a_loss_that_is_scaled_scales_its_gradients() -> None:
    case = Case([5, 4, 4], 2, 3, 1)
    loss = case.loss(double=True).of_network(case.network, case.inputs, case.sizes)
    assert loss is not None
    leaves = list(case.network.parameters())
    once = torch.autograd.grad(loss.as_tensor(), leaves)
    thrice = torch.autograd.grad(3 * loss.as_tensor(), leaves)
    for one, other in zip(once, thrice, strict=True):
        torch.testing.assert_close(3 * one, other)


@pytest.mark.parametrize("agents", [32, 33, 70])
def test_a_team_of_any_size_learns_as_by_torch(agents: int) -> None:
    """More agents than a block has rows are not for the kernel of a whole network."""
    case = Case([5, 4], agents, 3, 0)
    leaves = list(case.network.parameters())
    slopes = torch.autograd.grad(case.in_torch(case.outputs(), double=True).loss, leaves)
    loss = case.loss(double=True)
    found = loss.of_network(case.network, case.inputs, case.sizes)
    assert (found is None) == (agents > 32)
    whole = loss.of_values(case.outputs()) if found is None else found.as_tensor()
    for one, other in zip(torch.autograd.grad(whole, leaves), slopes, strict=True):
        same(one, other)


def test_transitions_that_do_not_exist_never_reach_the_kernel() -> None:
    case = Case([5, 4], 2, 3, 2)
    for wrong in (
        {"actions": case.of.actions + 3},
        {"actions": case.of.actions - 9},
        {"next": case.of.next + len(case.q)},
    ):
        case.of = replace(case.of, **wrong)
        with pytest.raises(ValueError, match="no slot or no action"):
            case.loss(double=True).of_values(case.q)
    case.of = replace(case.of, reward=case.of.reward[:1])
    with pytest.raises(ValueError, match="do not fit together"):
        case.loss(double=True)


def test_a_network_that_unrolls_otherwise_and_a_mixer_that_is_watched_are_not_bypassed() -> None:
    class Other(RNNAgent):
        def unroll_packed(self, *args: Tensor | None) -> tuple[Tensor, Tensor]:  # type: ignore[override]
            return super().unroll_packed(*args)  # type: ignore[arg-type]

    case = Case([5, 4], 2, 3, 3)
    other = Other(input_dim=5, n_actions=3, hidden_dim=16)
    loss = case.loss(double=True)
    assert loss.of_network(other, case.inputs, case.sizes) is None
    assert case.mixer.usual
    case.mixer.register_forward_hook(lambda *_: None)
    assert not case.mixer.usual
