"""QMIX's mixer as one call: values and gradients against the torch version."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from omg.modules.device import use_kernels
from omg.modules.kernels.qmix import qmix_kernel
from omg.modules.mixers import QMixer

pytestmark = pytest.mark.skipif(qmix_kernel()[0] is None, reason="no C compiler on this machine")


def results(mixer: QMixer, values: torch.Tensor, state: torch.Tensor) -> list[torch.Tensor]:
    """Mixed values and the gradients of values and weights."""
    leaves = [values, *mixer.parameters()]
    mixed = mixer(values, state)
    weigh = torch.linspace(-1.0, 2.0, mixed.numel()).view_as(mixed)
    return [mixed.detach(), *torch.autograd.grad((mixed * weigh).sum(), leaves)]


def both(
    agents: int, state_dim: int, rows: int, embed: int, hidden: int, seed: int = 0
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(seed)
    mixer = QMixer(n_agents=agents, state_dim=state_dim, embed_dim=embed, hypernet_embed=hidden)
    values, state = torch.randn(rows, agents, requires_grad=True), torch.randn(rows, state_dim)
    ours = results(mixer, values, state)
    use_kernels(False)
    try:
        theirs = results(mixer, values, state)
    finally:
        use_kernels(True)
    return list(zip(ours, theirs, strict=True))


@pytest.mark.long
@given(
    agents=st.integers(1, 9),
    state_dim=st.integers(1, 50),
    rows=st.integers(1, 150),
    embed=st.sampled_from([16, 32, 48, 20]),
    hidden=st.sampled_from([16, 64, 24]),
    seed=st.integers(0, 99),
)
def test_values_and_gradients_equal_torchs(
    agents: int, state_dim: int, rows: int, embed: int, hidden: int, seed: int
) -> None:
    for ours, theirs in both(agents, state_dim, rows, embed, hidden, seed):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_threads_change_nothing_but_the_order_of_sums() -> None:
    torch.set_num_threads(3)
    try:
        first, second = (both(3, 10, 500, 32, 64) for _ in range(2))
    finally:
        torch.set_num_threads(1)
    for (ours, theirs), (again, _) in zip(first, second, strict=True):
        assert torch.equal(ours, again)
        torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-4)


def test_without_gradients_the_values_are_the_same() -> None:
    mixer = QMixer(n_agents=2, state_dim=6, embed_dim=32)
    values, state = torch.randn(77, 2), torch.randn(77, 6)
    with torch.no_grad():
        plain = mixer(values, state)
    assert not plain.requires_grad
    assert torch.equal(plain, mixer(values, state).detach())


def test_a_weight_that_is_not_a_number_is_not_hidden() -> None:
    mixer = QMixer(n_agents=2, state_dim=6, embed_dim=16, hypernet_embed=16)
    with torch.no_grad():
        mixer.get_parameter("hyper_w_1.0.weight")[3, 2] = float("nan")
    assert mixer(torch.ones(4, 2), torch.ones(4, 6)).isnan().all()


def test_zero_weights_get_torchs_gradients() -> None:
    """At a mixing weight of exactly 0 the absolute value has the slope 0."""
    mixer = QMixer(n_agents=2, state_dim=6, embed_dim=16, hypernet_embed=16)
    for parameter in mixer.parameters():
        torch.nn.init.zeros_(parameter)
    values, state = torch.randn(5, 2, requires_grad=True), torch.randn(5, 6)
    ours = results(mixer, values, state)
    use_kernels(False)
    try:
        theirs = results(mixer, values, state)
    finally:
        use_kernels(True)
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.equal(mine, other)


def test_a_state_that_wants_a_gradient_and_other_layouts_are_torchs() -> None:
    kernel, _ = qmix_kernel()
    assert kernel is not None
    values, state = torch.zeros(3, 2), torch.zeros(3, 4)
    assert kernel.fits(values, state, embed=32, hidden=64)
    assert not kernel.fits(values.double(), state.double(), embed=32, hidden=64)
    assert not kernel.fits(values, state, embed=20, hidden=64)
    mixer = QMixer(n_agents=2, state_dim=4, embed_dim=32)
    assert mixer(torch.zeros(5, 2), torch.zeros(1, 4)).shape == (5, 1)  # one state for all
    with pytest.raises(RuntimeError):
        mixer(torch.zeros(5, 3), torch.zeros(5, 4))  # another number of agents
    assert mixer(torch.zeros(5, 3, 2), torch.zeros(5, 3, 4)).shape == (5, 3, 1)
    wanted = torch.ones(3, 4, requires_grad=True)
    mixer(values, wanted).sum().backward()
    assert wanted.grad is not None
