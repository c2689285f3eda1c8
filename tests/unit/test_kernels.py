"""The compiled kernels: the GRU against torch's own, values and gradients; how they are built.

The kernel of stacked networks is compared with torch in `test_stacked_agents`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from omg.modules.kernels import build
from omg.modules.kernels.build import load_library
from omg.modules.kernels.gru import gru_kernel
from omg.modules.recurrent import GRUCore

needs_compiler = pytest.mark.skipif(
    load_library("gru.c")[0] is None, reason="no C compiler on this machine"
)


def both(
    hidden: int, sizes: list[int], inputs: int, *, seed: int = 0, scale: float = 1.0
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """(ours, torch's): outputs and gradients of inputs, first hidden state and all weights."""
    torch.manual_seed(seed)
    core = GRUCore(inputs, hidden)
    x = (scale * torch.randn(sum(sizes), inputs)).requires_grad_()
    h0 = torch.randn(sizes[0], hidden, requires_grad=True)
    weigh = torch.randn(sum(sizes), hidden)
    steps = torch.tensor(sizes)
    weights = [core.weight_ih, core.weight_hh, core.bias_ih, core.bias_hh]
    leaves = [x, h0, *weights]
    ours = core.unroll_packed(x, steps, h0)
    theirs, _ = torch.gru(x, steps, h0.unsqueeze(0), weights, True, 1, 0.0, True, False)
    mine = torch.autograd.grad((ours * weigh).sum(), leaves)
    other = torch.autograd.grad((theirs * weigh).sum(), leaves)
    return [(ours, theirs), *zip(mine, other, strict=True)]


@needs_compiler
@given(
    hidden=st.sampled_from([16, 32, 48, 64, 96, 128, 20]),
    sizes=st.lists(st.integers(1, 70), min_size=1, max_size=12),
    inputs=st.integers(1, 40),
    seed=st.integers(0, 1000),
)
def test_values_and_gradients_equal_torchs_for_any_packed_shape(
    hidden: int, sizes: list[int], inputs: int, seed: int
) -> None:
    for ours, theirs in both(hidden, sorted(sizes, reverse=True), inputs, seed=seed):
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)


@needs_compiler
def test_saturated_gates_stay_finite_and_right() -> None:
    for ours, theirs in both(32, [9, 9, 4], 8, scale=300.0):
        assert ours.isfinite().all()
        torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-3)


@needs_compiler
def test_two_threads_give_the_same_bits_as_one() -> None:
    one = both(64, [70] * 5, 16)[0][0]
    torch.set_num_threads(2)
    try:
        two = both(64, [70] * 5, 16)[0][0]
        again = both(64, [70] * 5, 16)[0][0]
    finally:
        torch.set_num_threads(1)
    assert torch.equal(two, again)
    torch.testing.assert_close(one, two, atol=1e-6, rtol=1e-5)


@needs_compiler
def test_the_kernel_is_really_used_for_usual_sizes_and_not_for_others() -> None:
    kernel, _ = gru_kernel()
    assert kernel is not None
    assert kernel.fits(torch.zeros(3, 4), 64)
    assert not kernel.fits(torch.zeros(3, 4), 20)
    assert not kernel.fits(torch.zeros(3, 4, dtype=torch.float64), 64)


@needs_compiler
@pytest.mark.parametrize("sizes", [[3, 3], [3, 1], [2, 2, 1]])
def test_sizes_that_do_not_add_up_never_reach_the_kernel(sizes: list[int]) -> None:
    core = GRUCore(4, 64)
    with pytest.raises(ValueError, match="add up"):
        core.unroll_packed(torch.zeros(5, 4), torch.tensor(sizes), torch.zeros(3, 64))


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"OMG_KERNELS": "0"}, "switched off"),
        ({"CC": "no-such-compiler", "PATH": "/nonexistent"}, "no C compiler"),
        ({"OMG_CACHE": "/dev/null/cache"}, "could not be built"),
    ],
)
def test_without_the_kernel_torch_does_the_work_and_says_why(
    variables: dict[str, str], reason: str
) -> None:
    code = (
        "import torch; from omg.modules.recurrent import GRUCore\n"
        "from omg.modules.agents.rnn import RNNAgent\n"
        "from omg.modules.agents.stacked import StackedAgents\n"
        "print(GRUCore(3, 64).unroll(torch.zeros(4, 2, 3), torch.zeros(2, 64)).shape)\n"
        "stack = StackedAgents.from_networks("
        "[RNNAgent(input_dim=3, n_actions=5, hidden_dim=64) for _ in range(2)])\n"
        "rows = torch.zeros(7, 3), torch.arange(7) % 2, torch.zeros(7, 64)\n"
        "print(stack.step_rows(*rows)[0].shape)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "torch.Size([4, 2, 64])" in done.stdout
    assert "torch.Size([7, 5])" in done.stdout
    assert done.stderr.count(reason) == 2


@needs_compiler
def test_a_changed_header_compiles_the_kernel_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "__file__", str(tmp_path / "build.py"))
    monkeypatch.setenv("OMG_CACHE", str(tmp_path / "cache"))
    (tmp_path / "tiny.c").write_text('#include "tiny.h"\nint number(void) { return NUMBER; }\n')
    for number in (3, 4):
        (tmp_path / "tiny.h").write_text(f"#define NUMBER {number}\n")
        library, _ = load_library.__wrapped__("tiny.c")
        assert library is not None
        assert library.number() == number
