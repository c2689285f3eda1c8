"""Clipping, Adam and RMSprop in one call against torch's own, step by step."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from omg.modules.device import load_library
from omg.modules.kernels import optimiser as module
from omg.modules.kernels.optimiser import FastAdam, FastRMSprop, clip_gradients

needs_compiler = pytest.mark.skipif(
    load_library("optimiser.c")[0] is None, reason="no C compiler on this machine"
)
KINDS = [(FastAdam, torch.optim.Adam), (FastRMSprop, torch.optim.RMSprop)]


def parameters(seed: int = 0) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(7, 5), (33,), (1,), (64, 64)]
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def give_gradients(target: list[nn.Parameter], step: int) -> None:
    generator = torch.Generator().manual_seed(100 + step)
    for number, parameter in enumerate(target):
        gradient = torch.randn(parameter.shape, generator=generator) * 10.0 ** (step % 3)
        parameter.grad = None if number == 1 and step < 2 else gradient  # one joins in later


@needs_compiler
@pytest.mark.parametrize(("ours", "theirs"), KINDS)
def test_steps_equal_torchs(
    ours: type[torch.optim.Optimizer], theirs: type[torch.optim.Optimizer]
) -> None:
    settings = {"lr": 0.003, "eps": 1e-5}
    mine, other = parameters(), parameters()
    fast, slow = ours(mine, **settings), theirs(other, **settings)  # type: ignore[call-arg]
    for step in range(6):
        give_gradients(mine, step)
        give_gradients(other, step)
        fast.step()
        slow.step()
    for a, b in zip(mine, other, strict=True):
        torch.testing.assert_close(a, b, atol=2e-6, rtol=2e-5)
        for name, value in slow.state[b].items():
            torch.testing.assert_close(fast.state[a][name], value, atol=1e-6, rtol=1e-5)


@needs_compiler
@pytest.mark.parametrize(("ours", "theirs"), KINDS)
def test_a_state_goes_to_torchs_optimiser_and_back(
    ours: type[torch.optim.Optimizer], theirs: type[torch.optim.Optimizer]
) -> None:
    mine, other = parameters(), parameters()
    fast, slow = ours(mine), theirs(other)  # type: ignore[call-arg]
    give_gradients(mine, 3)
    give_gradients(other, 3)
    fast.step()
    slow.step()
    back = ours(other)  # type: ignore[call-arg]
    back.load_state_dict(slow.state_dict())
    slow.load_state_dict(fast.state_dict())
    give_gradients(mine, 4)
    give_gradients(other, 4)
    fast.step()
    back.step()
    for a, b in zip(mine, other, strict=True):
        torch.testing.assert_close(a, b, atol=2e-6, rtol=2e-5)


@needs_compiler
def test_a_loaded_state_of_other_types_is_made_readable() -> None:
    mine, other = parameters(), parameters()
    fast, slow = FastAdam(mine), torch.optim.Adam(other)
    for optimiser, owned in ((fast, mine), (slow, other)):
        give_gradients(owned, 3)
        optimiser.step()
    saved = fast.state_dict()
    for state in saved["state"].values():
        state["step"] = state["step"].to(torch.int64)
    fast.load_state_dict(saved)
    for optimiser, owned in ((fast, mine), (slow, other)):
        give_gradients(owned, 4)
        optimiser.step()
    for a, b in zip(mine, other, strict=True):
        torch.testing.assert_close(a, b, atol=2e-6, rtol=2e-5)


@needs_compiler
def test_the_kernel_is_used_and_says_that_parameters_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("torch's own step was used")

    monkeypatch.setattr(torch.optim.Adam, "step", refuse)
    mine = parameters()
    fast = FastAdam(mine)
    give_gradients(mine, 3)
    versions = [parameter._version for parameter in mine]
    fast.step()
    assert all(p._version > before for p, before in zip(mine, versions, strict=True))


@needs_compiler
@pytest.mark.parametrize("options", [{"weight_decay": 0.1}, {"amsgrad": True}, {"maximize": True}])
def test_settings_the_kernel_does_not_have_are_torchs(options: dict[str, object]) -> None:
    mine, other = parameters(), parameters()
    fast, slow = FastAdam(mine, **options), torch.optim.Adam(other, **options)  # type: ignore[arg-type]
    for step in range(2, 4):
        give_gradients(mine, step)
        give_gradients(other, step)
        fast.step()
        slow.step()
    for a, b in zip(mine, other, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("limit", [0.5, 1e6])
@pytest.mark.parametrize("step", [1, 3])
def test_clipping_equals_torchs(limit: float, step: int) -> None:
    mine, other = parameters(), parameters()
    give_gradients(mine, step)
    give_gradients(other, step)
    norm = clip_gradients(mine, limit)
    torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(other, limit))
    for a, b in zip(mine, other, strict=True):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None and b.grad is not None:
            torch.testing.assert_close(a.grad, b.grad)


def test_a_gradient_that_is_not_a_number_is_not_hidden() -> None:
    mine = parameters()
    give_gradients(mine, 3)
    assert mine[0].grad is not None
    mine[0].grad[0, 0] = float("nan")
    assert clip_gradients(mine, 1.0).isnan()
    assert mine[3].grad is not None
    assert mine[3].grad.isnan().all()


@pytest.mark.parametrize(("ours", "theirs"), KINDS)
def test_without_a_compiler_and_in_double_precision_torch_does_the_work(
    ours: type[torch.optim.Optimizer],
    theirs: type[torch.optim.Optimizer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for double in (True, False):
        if not double:
            monkeypatch.setattr(module, "optimiser_kernel", lambda: (None, "none"))
        pairs = [
            [
                nn.Parameter(p.detach().to(torch.float64 if double else torch.float32))
                for p in parameters()
            ]
            for _ in range(2)
        ]
        fast, slow = ours(pairs[0]), theirs(pairs[1])  # type: ignore[call-arg]
        for one in pairs:
            for parameter in one:
                parameter.grad = torch.ones_like(parameter)
            clip_gradients(one, 1.0)
        fast.step()
        slow.step()
        for a, b in zip(*pairs, strict=True):
            assert torch.equal(a, b)
