"""PPO's losses as one call each: values and gradients against the torch version."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from omg.components.action_selectors import Mixture
from omg.modules.device import use_kernels
from omg.modules.kernels.ppo import (
    Aims,
    PolicyTerms,
    Taken,
    evaluated,
    policy_loss,
    ppo_kernel,
    value_loss,
)

pytestmark = pytest.mark.skipif(ppo_kernel()[0] is None, reason="no C compiler on this machine")


def choices(rows: int, actions: int, seed: int, *, all_count: bool) -> tuple[Tensor, Taken]:
    """Outputs and what was done; a row that does not count may have nothing to choose from."""
    torch.manual_seed(seed)
    avail = torch.rand(rows, actions) < 0.7
    counts = avail.any(-1) & (torch.rand(rows) < 0.8)
    if all_count or not counts.any():
        avail[:, 0], counts = True, torch.ones(rows, dtype=torch.bool)
    keys = torch.rand(rows, actions).masked_fill(~avail, -1.0)
    outputs = 3 * torch.randn(rows, actions, requires_grad=True)
    old = outputs.detach().log_softmax(-1).gather(1, keys.argmax(-1, keepdim=True)).squeeze(1)
    taken = Taken(
        avail,
        keys.argmax(-1),
        old + 0.3 * torch.randn(rows),
        torch.randn(rows),
        None if all_count else counts,
    )
    return outputs.detach().requires_grad_(), taken


def both(
    outputs: Tensor, taken: Taken, mixture: Mixture, clip: float
) -> list[tuple[Tensor, PolicyTerms, Tensor]]:
    """(loss, terms, gradient) of the kernel and of torch."""
    found = []
    for on in (True, False):
        use_kernels(on)
        try:
            loss, terms = policy_loss(outputs, taken, mixture, clip=clip, entropy_coef=0.3)
        finally:
            use_kernels(True)
        found.append((loss, terms, *torch.autograd.grad(loss, outputs)))
    return found


@pytest.mark.long
@given(
    rows=st.integers(1, 70),
    actions=st.integers(1, 20),
    temperature=st.sampled_from([1.0, 0.5, 2.0]),
    share=st.sampled_from([0.0, 0.1, 0.5]),
    mask_after=st.booleans(),
    all_count=st.booleans(),
    clip=st.sampled_from([0.05, 0.2, 0.9]),
    seed=st.integers(0, 999),
)
def test_the_policys_loss_and_gradient_equal_torchs(
    rows: int,
    actions: int,
    temperature: float,
    share: float,
    mask_after: bool,
    all_count: bool,
    clip: float,
    seed: int,
) -> None:
    outputs, taken = choices(rows, actions, seed, all_count=all_count)
    ours, theirs = both(outputs, taken, Mixture(temperature, share, mask_after), clip)
    torch.testing.assert_close(ours[0], theirs[0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(ours[2], theirs[2], atol=1e-5, rtol=1e-3)
    for name, one, other in zip(PolicyTerms._fields, ours[1], theirs[1], strict=True):
        if name != "clip_fraction":  # a ratio on the border may fall on either side
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    assert abs(float(ours[1].clip_fraction - theirs[1].clip_fraction)) <= 1.5 / rows


@pytest.mark.parametrize("mixture", [Mixture(), Mixture(2.0, 0.2), Mixture(1.0, 0.2, True)])
def test_log_probabilities_and_entropies_equal_torchs(mixture: Mixture) -> None:
    outputs, taken = choices(50, 7, 1, all_count=True)
    kernel, _ = ppo_kernel()
    assert kernel is not None
    found = kernel.evaluate(outputs.detach(), taken.avail, taken.actions, mixture)
    expected = evaluated(mixture(outputs.detach(), taken.avail), taken.actions)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_far_apart_outputs_stay_finite_and_right() -> None:
    outputs, taken = choices(40, 5, 2, all_count=True)
    outputs = (20 * outputs.detach()).requires_grad_()
    best = outputs.masked_fill(~taken.avail, -torch.inf).argmax(-1)
    taken = taken._replace(actions=best, log_probs=torch.zeros(40))
    ours, theirs = both(outputs, taken, Mixture(), 0.2)
    assert ours[2].isfinite().all()
    torch.testing.assert_close(ours[2], theirs[2], atol=1e-5, rtol=1e-3)


@given(
    rows=st.integers(1, 60),
    clip=st.sampled_from([0.0, 0.1, 1.0]),
    all_count=st.booleans(),
    seed=st.integers(0, 99),
)
def test_the_values_loss_and_gradient_equal_torchs(
    rows: int, clip: float, all_count: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    values = torch.randn(rows, requires_grad=True)
    old, targets = torch.randn(2, rows)
    counts = torch.rand(rows) < 0.6
    counts[0] = True
    found = []
    for on in (True, False):
        use_kernels(on)
        try:
            aims = Aims(old, targets, None if all_count else counts)
            loss = value_loss(values, aims, clip=clip)
        finally:
            use_kernels(True)
        found.append((loss, *torch.autograd.grad(loss, values)))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-4)


def test_an_output_that_is_not_a_number_is_not_hidden() -> None:
    outputs, taken = choices(20, 4, 3, all_count=True)
    with torch.no_grad():
        outputs[7, 0] = float("nan")
    loss, _ = policy_loss(outputs, taken, Mixture(), clip=0.2, entropy_coef=0.1)
    assert loss.isnan()
    assert torch.autograd.grad(loss, outputs)[0][7].isnan().all()


def test_a_loss_is_scaled_by_what_follows_it() -> None:
    outputs, taken = choices(20, 4, 4, all_count=True)
    loss, _ = policy_loss(outputs, taken, Mixture(), clip=0.2, entropy_coef=0.1)
    (once,) = torch.autograd.grad(loss, outputs, retain_graph=True)
    (twice,) = torch.autograd.grad(2 * loss, outputs)
    torch.testing.assert_close(twice, 2 * once)


def test_shapes_that_do_not_fit_never_reach_the_kernel() -> None:
    outputs, taken = choices(20, 4, 5, all_count=True)
    for wrong in (
        taken._replace(actions=taken.actions[:3]),
        taken._replace(avail=taken.avail[:, :2]),
        taken._replace(counts=torch.ones(3, dtype=torch.bool)),
    ):
        with pytest.raises(ValueError, match="do not fit together"):
            policy_loss(outputs, wrong, Mixture(), clip=0.2, entropy_coef=0.1)
