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

from omg import compiled
from omg.modules import device
from omg.modules.device import load_library
from omg.modules.kernels import gru, optimiser, ppo, qmix, stacked
from omg.modules.kernels import gru as recurrent
from omg.modules.kernels.gru import GRUCore, gru_kernel

from .small_runs import Runs, saved

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


@pytest.mark.long
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


@pytest.mark.long
@needs_compiler
@pytest.mark.parametrize("threads", [2, 3, 5])
def test_threads_change_nothing_but_the_order_of_sums(threads: int) -> None:
    sizes = [70, 70, 66, 40, 3]
    one = both(64, sizes, 16)
    torch.set_num_threads(threads)
    try:
        several, again = (both(64, sizes, 16) for _ in range(2))
    finally:
        torch.set_num_threads(1)
    for (found, theirs), (repeated, _), (alone, _) in zip(several, again, one, strict=True):
        assert torch.equal(found, repeated)
        torch.testing.assert_close(found, alone, atol=2e-5, rtol=1e-4)
        torch.testing.assert_close(found, theirs, atol=2e-5, rtol=1e-4)


@needs_compiler
def test_inputs_without_gradient_get_none_and_the_weights_the_same() -> None:
    core, sizes = GRUCore(11, 32), torch.tensor([6, 4])
    x, h0 = torch.randn(10, 11), torch.zeros(6, 32)
    core.unroll_packed(x, sizes, h0).sum().backward()
    plain = [parameter.grad for parameter in core.parameters()]
    core.zero_grad()
    core.unroll_packed(x.requires_grad_(), sizes, h0).sum().backward()
    assert x.grad is not None
    for without, parameter in zip(plain, core.parameters(), strict=True):
        assert without is not None
        assert parameter.grad is not None
        assert torch.equal(without, parameter.grad)


@pytest.mark.long
@needs_compiler
def test_the_layout_of_wider_vectors_computes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machines with 16 lanes use other tiles; here the compiler makes two halves of them."""
    monkeypatch.setenv("OMG_CACHE", str(tmp_path))
    monkeypatch.setattr(device, "FLAGS", (*device.FLAGS, "-DWIDE"))
    for source, make, test in (
        ("gru.c", gru.GRUKernel, gru._gru_self_test),
        ("qmix.c", qmix.QMixKernel, qmix._self_test),
        ("ppo.c", ppo.PPOKernel, ppo._self_test),
    ):
        library, reason = load_library.__wrapped__(source)
        assert library is not None, reason
        assert test(make(library)) < 1e-5
    wide = gru.GRUKernel(load_library.__wrapped__("gru.c")[0])
    assert wide.lanes == 16
    monkeypatch.setattr(recurrent, "gru_kernel", lambda: (wide, ""))
    for ours, theirs in both(48, [37, 36, 9, 1], 23):
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)


def three_steps(core: GRUCore, x: torch.Tensor) -> torch.Tensor:
    """Of two sequences: x [6, 4]."""
    return core.unroll_packed(x, torch.full((3,), 2), x.new_zeros(2, core.hidden_size))


@needs_compiler
def test_a_child_that_was_forked_after_use_computes_too() -> None:
    """Threads do not survive a fork; with one thread, which is the default, none are needed."""
    core, x = GRUCore(4, 32), torch.ones(6, 4)
    expected = three_steps(core, x).detach()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - in the child
        try:
            same = torch.equal(three_steps(core, x).detach(), expected)
            os.write(writer, b"same" if same else b"other")
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    assert os.read(reader, 10) == b"same"


@needs_compiler
def test_the_switch_turns_every_kernel_off_and_on_again() -> None:
    loaders = (
        *(gru.gru_kernel, qmix.qmix_kernel, ppo.ppo_kernel),
        *(stacked.stacked_kernel, optimiser.optimiser_kernel),
    )
    device.use_kernels(False)
    try:
        for loader in loaders:
            assert loader() == (None, "switched off by use_kernels=False")
        both(32, [3, 2], 4)  # torch's own
    finally:
        device.use_kernels(True)
    for loader in loaders:
        assert loader()[0] is not None  # type: ignore[operator]


@pytest.mark.long
@needs_compiler
def test_a_run_with_the_switch_off_uses_none_and_learns_the_same(tmp_path: Path) -> None:
    used: list[bool] = []
    runs = Runs(tmp_path)
    seen = gru.GRUKernel.forward

    def forward(*args: object, **kwargs: object) -> object:
        used.append(True)
        return seen(*args, **kwargs)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gru.GRUKernel, "forward", forward)
        try:
            slow = runs.run("qmix", "--rnn_hidden_dim=32", "--use_kernels=False", "--run_name=a")
            assert not used
            fast = runs.run("qmix", "--rnn_hidden_dim=32", "--run_name=b")
            assert used
        finally:
            device.use_kernels(True)
    for name, value in saved(fast).items():
        torch.testing.assert_close(value, saved(slow)[name], atol=1e-4, rtol=1e-3)


@needs_compiler
@pytest.mark.parametrize(("error", "words"), [(0.5, "off by 0.5"), (float("nan"), "off by nan")])
def test_a_kernel_that_computes_nonsense_is_not_used(
    error: float, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    kernel, reason = device.load_kernel("gru.c", gru.GRUKernel, lambda _: error)
    assert kernel is None
    assert words in reason
    assert words in caplog.text


@needs_compiler
def test_a_self_test_that_fails_to_run_falls_back_to_torch() -> None:
    def broken(_: object) -> float:
        raise RuntimeError("no such function")

    kernel, reason = device.load_kernel("gru.c", gru.GRUKernel, broken)
    assert kernel is None
    assert "no such function" in reason


def test_the_largest_difference_does_not_hide_what_is_not_a_number() -> None:
    one, other = torch.zeros(3), torch.tensor([0.0, float("nan"), 0.0])
    assert device.largest_difference([(one, one), (one, other), (one, one)]) != 0.0
    assert device.largest_difference([(one, one + 2), (one, one)]) == 2.0


@needs_compiler
@pytest.mark.parametrize(
    ("inputs", "sizes", "hidden"),
    [
        (torch.zeros(5, 9), [3, 2], torch.zeros(3, 64)),  # other features
        (torch.zeros(5, 4), [2, 3], torch.zeros(2, 64)),  # growing
        (torch.zeros(5, 4), [3, 2], torch.zeros(3, 32)),  # another state
    ],
)
def test_shapes_that_do_not_fit_never_reach_the_kernel(
    inputs: torch.Tensor, sizes: list[int], hidden: torch.Tensor
) -> None:
    with pytest.raises(ValueError, match=r"do not fit together|grow or do not add up"):
        GRUCore(4, 64).unroll_packed(inputs, torch.tensor(sizes), hidden)


@needs_compiler
def test_weights_in_double_precision_are_torchs(caplog: pytest.LogCaptureFixture) -> None:
    core = GRUCore(4, 64).double()
    out = three_steps(core, torch.zeros(6, 4, dtype=torch.float64))
    assert out.dtype == torch.float64


@needs_compiler
def test_a_width_the_kernel_does_not_take_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    compiled._said.discard("a GRU of width 20, which is no multiple of 16")
    core = GRUCore(4, 20)
    for _ in range(2):
        three_steps(core, torch.zeros(6, 4))
    assert caplog.text.count("a GRU of width 20") == 1


@needs_compiler
def test_a_second_derivative_is_refused_and_not_wrong() -> None:
    core, x = GRUCore(4, 32), torch.ones(6, 4, requires_grad=True)
    out = three_steps(core, x)
    (slope,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


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


@pytest.mark.long
@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"OMG_KERNELS": "0"}, "switched off"),
        ({"CC": "no-such-compiler", "PATH": "/nonexistent"}, "no C compiler"),
        ({"CC": "false"}, "could not be built"),
    ],
)
def test_without_the_kernel_torch_does_the_work_and_says_why(
    variables: dict[str, str], reason: str
) -> None:
    code = (
        "import torch; from omg.modules.kernels.gru import GRUCore\n"
        "from omg.modules.agents.networks import RNNAgent\n"
        "from omg.modules.agents.stacked import StackedAgents\n"
        "sizes = torch.full((4,), 2)\n"
        "print(GRUCore(3, 64).unroll_packed(torch.zeros(8, 3), sizes, torch.zeros(2, 64)).shape)\n"
        "stack = StackedAgents.from_networks("
        "[RNNAgent(input_dim=3, n_actions=5, hidden_dim=64) for _ in range(2)])\n"
        "rows = torch.zeros(7, 3), torch.arange(7) % 2, torch.zeros(7, 64)\n"
        "print(stack.step_rows(*rows)[0].shape)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "OMG_KERNELS": "1", **variables},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "torch.Size([8, 64])" in done.stdout
    assert "torch.Size([7, 5])" in done.stdout
    assert done.stderr.count(reason) == 1  # for both kernels


@needs_compiler
def test_a_changed_header_compiles_the_kernel_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "__file__", str(tmp_path / "device.py"))
    monkeypatch.setenv("OMG_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "tiny.c").write_text('#include "tiny.h"\nint number(void) { return NUMBER; }\n')
    for number in (3, 4):
        (folder / "tiny.h").write_text(f"#define NUMBER {number}\n")
        library, _ = load_library.__wrapped__("tiny.c")
        assert library is not None
        assert library.number() == number


# --- what is kept ------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMG_CACHE", str(tmp_path))
    return tmp_path / "omg-marl"


def load_again() -> tuple[object, str]:
    return load_library.__wrapped__("optimiser.c")


def kept(cache: Path) -> Path:
    (found,) = cache.glob("optimiser-*.so")
    return found


@needs_compiler
def test_kept_libraries_are_this_users_alone(cache: Path) -> None:
    assert load_again()[0] is not None
    assert cache.stat().st_mode & 0o777 == 0o700
    assert not kept(cache).stat().st_mode & 0o022


@pytest.mark.long
@needs_compiler
@pytest.mark.parametrize("damage", ["cut", "empty", "foreign", "writable", "no sum", "link"])
def test_a_library_that_may_not_be_ours_is_compiled_again(cache: Path, damage: str) -> None:
    load_again()
    path = kept(cache)
    good = path.read_bytes()
    path.unlink()  # this process has it open
    path.write_bytes({"cut": good[:4096], "empty": b""}.get(damage, good))
    path.chmod(0o777 if damage == "writable" else 0o700)
    if damage == "foreign":
        path.write_bytes(good + b"x")
    elif damage == "no sum":
        path.with_suffix(".sha256").unlink()
    elif damage == "link":
        other = cache / "elsewhere"
        path.rename(other)
        path.symlink_to(other)
    assert load_again()[0] is not None
    assert not path.is_symlink()
    assert path.read_bytes() == good
    assert not path.stat().st_mode & 0o022


@needs_compiler
def test_a_folder_that_cannot_be_ours_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMG_CACHE", "/dev/null/cache")
    assert load_again()[0] is not None
