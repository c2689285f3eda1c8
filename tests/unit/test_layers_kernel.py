"""Input layer, GRU and output layer in one call: values and gradients against torch's layers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from omg.components.trajectories import Sequences
from omg.functional import Packing
from omg.modules import device
from omg.modules.agents.networks import RNNAgent
from omg.modules.critics import OwnCritic
from omg.modules.device import load_library, use_kernels
from omg.modules.kernels import gru
from omg.modules.kernels.gru import GRUCore, gru_kernel

from . import mdps
from .test_ppo import make

pytestmark = pytest.mark.skipif(gru_kernel()[0] is None, reason="no C compiler on this machine")


def in_torch(
    first: nn.Linear, core: GRUCore, last: nn.Linear, x: Tensor, sizes: list[int], h0: Tensor
) -> tuple[Tensor, Tensor]:
    """Step by step, by torch's cell: hidden states and outputs of packed rows."""
    hidden, found, start = h0, [], 0
    for size in sizes:
        seen = torch.relu(first(x[start : start + size]))
        hidden = core(seen, hidden[:size])
        found.append(hidden)
        start += size
    states = torch.cat(found)
    return states, last(states)


def both(
    sizes: list[int],
    *,
    inputs: int = 7,
    inner: int = 32,
    hidden: int = 32,
    outputs: int = 5,
    seed: int = 0,
    weigh_hidden: bool = True,
    idle: int = 0,
    zeros: bool = False,
) -> list[tuple[Tensor, Tensor]]:
    """(ours, torch's): hidden states, outputs and all gradients. The last `idle` steps of every
    sequence get no gradient."""
    torch.manual_seed(seed)
    first, core, last = (
        nn.Linear(inputs, inner),
        GRUCore(inner, hidden),
        nn.Linear(hidden, outputs),
    )
    x = torch.randn(sum(sizes), inputs, requires_grad=True)
    h0 = (torch.zeros if zeros else torch.randn)(sizes[0], hidden).requires_grad_()
    lengths = [sum(size > row for size in sizes) for row in range(sizes[0])]
    counts = [float(t + idle < lengths[row]) for t, size in enumerate(sizes) for row in range(size)]
    counted = torch.tensor(counts).unsqueeze(1)
    weigh = torch.randn(sum(sizes), outputs) * counted
    weigh_states = torch.randn(sum(sizes), hidden) * counted * float(weigh_hidden)
    leaves = [x, h0, *first.parameters(), *core.parameters(), *last.parameters()]
    results = []
    for states, outcome in (
        core.unroll_between(first, (last.weight, last.bias), x, torch.tensor(sizes), h0),
        in_torch(first, core, last, x, sizes, h0),
    ):
        loss = (outcome * weigh).sum()
        if weigh_hidden:
            loss = loss + (states * weigh_states).sum()
        results.append([states, outcome, *torch.autograd.grad(loss, leaves)])
    return list(zip(*results, strict=True))


@pytest.mark.long
@given(
    sizes=st.lists(st.integers(1, 70), min_size=1, max_size=10),
    inputs=st.integers(1, 40),
    inner=st.sampled_from([16, 32, 48, 64, 20]),
    hidden=st.sampled_from([16, 48, 64, 128, 20]),
    outputs=st.integers(1, 37),
    seed=st.integers(0, 1000),
    weigh_hidden=st.booleans(),
    idle=st.integers(0, 2),
    zeros=st.booleans(),
)
def test_values_and_gradients_equal_torchs_for_any_packed_shape(
    sizes: list[int],
    inputs: int,
    inner: int,
    hidden: int,
    outputs: int,
    seed: int,
    weigh_hidden: bool,
    idle: int,
    zeros: bool,
) -> None:
    found = both(
        sorted(sizes, reverse=True),
        inputs=inputs,
        inner=inner,
        hidden=hidden,
        outputs=outputs,
        seed=seed,
        weigh_hidden=weigh_hidden,
        idle=idle,
        zeros=zeros,
    )
    for ours, theirs in found:
        torch.testing.assert_close(ours, theirs, atol=5e-5, rtol=1e-4)


def test_steps_without_a_gradient_are_skipped_and_change_nothing() -> None:
    for idle in (0, 1, 3):
        for ours, theirs in both([9, 9, 7, 2], idle=idle, weigh_hidden=False):
            torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize(("flag", "lanes"), [("-DWIDE", 16), ("-mno-avx512f", 8)])
def test_narrow_and_wide_vectors_compute_the_same(
    flag: str, lanes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMG_CACHE", str(tmp_path))
    monkeypatch.setattr(device, "FLAGS", (*device.FLAGS, flag))
    library, reason = load_library.__wrapped__("gru.c")
    assert library is not None, reason
    kernel = gru.GRUKernel(library)
    assert kernel.lanes == lanes
    monkeypatch.setattr(gru, "gru_kernel", lambda: (kernel, ""))
    for ours, theirs in both([37, 36, 9, 1], hidden=48, inner=16, outputs=18, inputs=23):
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_change_nothing_but_the_order_of_sums(threads: int) -> None:
    sizes = [70, 70, 66, 40, 3]
    torch.set_num_threads(threads)
    try:
        several, again = (both(sizes, hidden=64) for _ in range(2))
    finally:
        torch.set_num_threads(1)
    for (found, theirs), (repeated, _) in zip(several, again, strict=True):
        assert torch.equal(found, repeated)
        torch.testing.assert_close(found, theirs, atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize("dueling", [False, True])
def test_an_agent_unrolls_the_same_with_and_without_the_kernel(dueling: bool) -> None:
    torch.manual_seed(0)
    agent = RNNAgent(input_dim=9, n_actions=6, hidden_dim=32, dueling=dueling)
    inputs, carry = torch.randn(12, 9), torch.zeros(5, 32)
    found = []
    for on in (True, False):
        use_kernels(on)
        try:
            outputs, hidden = agent.unroll_packed(inputs, torch.tensor([5, 4, 3]), carry)
            slopes = torch.autograd.grad(outputs.square().mean(), list(agent.parameters()))
            found.append([outputs, hidden, *slopes])
        finally:
            use_kernels(True)
    by_step, _ = agent.step(inputs[:5], carry)
    torch.testing.assert_close(found[0][0][:5], by_step, atol=1e-5, rtol=1e-4)
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("widths", ["[32]", "[48,32]", "[20]"])
def test_a_recurrent_critic_values_the_same_with_and_without_the_kernel(widths: str) -> None:
    config, _, _ = make(f"--critic_hidden_dims={widths}", "--rnn_hidden_dim=32")
    torch.manual_seed(0)
    critic = OwnCritic(config=config, spec=mdps.SPEC, input_dim=6, feature_dim=0)
    filled = torch.tensor([[True, True, True], [True, True, False]])
    arranged = Sequences(packing=Packing.of(filled, torch.zeros(2, 3)), n_seats=2)
    inputs, found = torch.randn(5, 2, 6), []
    for on in (True, False):
        use_kernels(on)
        try:
            values = critic(inputs, arranged)
            slopes = torch.autograd.grad(values.square().mean(), list(critic.parameters()))
            found.append([values, *slopes])
        finally:
            use_kernels(True)
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_a_weight_that_is_not_a_number_is_not_hidden() -> None:
    agent = RNNAgent(input_dim=4, n_actions=3, hidden_dim=16)
    with torch.no_grad():
        agent.fc1.weight[3, 2] = float("nan")
    outputs, _ = agent.unroll_packed(torch.ones(4, 4), torch.tensor([2, 2]), torch.zeros(2, 16))
    assert outputs.isnan().all()


def test_layers_that_do_not_fit_never_reach_the_kernel() -> None:
    core, last = GRUCore(32, 32), nn.Linear(16, 3)
    x, sizes, h0 = torch.zeros(4, 5), torch.tensor([2, 2]), torch.zeros(2, 32)
    for first in (nn.Linear(6, 32), nn.Linear(5, 16)):
        with pytest.raises(ValueError, match="do not fit together"):
            core.unroll_between(first, None, x, sizes, h0)
    with pytest.raises(ValueError, match="do not fit together"):
        core.unroll_between(nn.Linear(5, 32), (last.weight, last.bias), x, sizes, h0)
