"""The recurrent core: one GRU layer, in our kernel as a differentiable function, or in torch."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from omg.modules.kernels.build import (
    Found,
    agreed,
    largest_difference,
    load_kernel,
    plain,
    pointer,
    say_once,
    switched,
)

Weights = Sequence[Tensor]  # w_ih, w_hh, b_ih, b_hh


class GRUKernel:
    """Calls into the compiled library. Sequences are packed: `sizes` [T] (int64, CPU) says how
    many rows each step has, never more than the step before; tensors hold all steps' rows."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.lanes: int = library.gru_lanes()
        for name in ("gru_packed_size", "gru_packed_back_size", "gru_scratch_size"):
            getattr(library, name).restype = ctypes.c_int64

    def fits(self, inputs: Tensor, hidden_size: int, weights: Weights = ()) -> bool:
        """Whether the kernel computes this; everything else is torch's. Widths it does not take
        are said in the log."""
        if inputs.device.type != "cpu" or not plain(*weights) or not inputs.numel():
            return False
        if hidden_size % 16:
            say_once(f"a GRU of width {hidden_size}, which is no multiple of 16")
        return inputs.dtype == torch.float32 and hidden_size % 16 == 0

    def forward(
        self, x: Tensor, sizes: Tensor, h0: Tensor, weights: Weights, *, keep: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Hidden states [P, H], and the gates [P, 4H] when they are to be kept."""
        if int(sizes.sum()) != len(x) or int(sizes[0]) != len(h0):
            raise ValueError("the steps' sizes do not add up to the rows")
        library, width, hidden = self._library, x.shape[-1], h0.shape[-1]
        agreed(
            *(plain(x, h0, *weights), sizes.dtype == torch.int64, sizes.is_contiguous()),
            *(x.ndim == 2, h0.ndim == 2, bool((sizes[1:] <= sizes[:-1]).all())),
            [w.shape for w in weights]
            == [(3 * hidden, width), (3 * hidden, hidden), (3 * hidden,), (3 * hidden,)],
        )
        out = x.new_empty(len(x), hidden)
        saved = x.new_empty(len(x), 4 * hidden) if keep else None
        packed = x.new_empty(library.gru_packed_size(width, hidden))
        library.gru_pack(width, hidden, *map(pointer, (*weights, packed)))
        offsets = torch.cumsum(sizes, 0) - sizes
        library.gru_forward(
            *(len(sizes), pointer(sizes), pointer(offsets)),
            *(width, hidden, torch.get_num_threads()),
            *map(pointer, (x, h0, packed, out, saved)),
        )
        return out, saved

    def backward(
        self,
        dout: Tensor,
        x: Tensor,
        sizes: Tensor,
        h0: Tensor,
        weights: Weights,
        out: Tensor,
        saved: Tensor,
        *,
        inputs: bool,
    ) -> tuple[Tensor | None, Tensor, list[Tensor]]:
        """Gradients of x (where `inputs` says so), h0 and the four weights."""
        library, width, hidden = self._library, x.shape[-1], h0.shape[-1]
        parts = torch.get_num_threads()
        dx = torch.empty_like(x) if inputs else None
        dh0 = torch.empty_like(h0)
        found = [torch.empty_like(weight) for weight in weights]
        packed = x.new_empty(library.gru_packed_back_size(width, hidden))
        library.gru_pack_back(width, hidden, *map(pointer, (*weights[:2], packed)))
        scratch = x.new_empty(library.gru_scratch_size(width, hidden, parts))
        offsets = torch.cumsum(sizes, 0) - sizes
        library.gru_backward(
            *(len(sizes), pointer(sizes), pointer(offsets)),
            *(width, hidden, parts),
            *map(pointer, (dout, x, h0, packed, out, saved, dx, dh0, *found, scratch)),
        )
        return dx, dh0, found


class _GRUFunction(torch.autograd.Function):
    """h_t for all t."""

    @staticmethod
    def forward(
        ctx: Any, kernel: GRUKernel, x: Tensor, sizes: Tensor, h0: Tensor, *weights: Tensor
    ) -> Tensor:
        out, saved = kernel.forward(x, sizes, h0, weights, keep=True)
        ctx.kernel, ctx.sizes = kernel, sizes
        ctx.save_for_backward(x, h0, out, saved, *weights)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        x, h0, out, saved, *weights = ctx.saved_tensors
        dout = grads[0].contiguous()
        dx, dh0, found = ctx.kernel.backward(
            *(dout, x, ctx.sizes, h0, weights, out, saved), inputs=ctx.needs_input_grad[1]
        )
        return None, dx, None, dh0, *found


def run_gru(kernel: GRUKernel, x: Tensor, sizes: Tensor, h0: Tensor, weights: Weights) -> Tensor:
    """Hidden states of all packed rows, differentiable where gradients are on; `weights` are
    w_ih, w_hh, b_ih, b_hh."""
    x, h0 = x.contiguous(), h0.contiguous()
    needs = torch.is_grad_enabled() and any(t.requires_grad for t in (x, h0, *weights))
    if needs:
        result: Tensor = _GRUFunction.apply(  # type: ignore[no-untyped-call]
            kernel, x, sizes, h0, *weights
        )
        return result
    return kernel.forward(x, sizes, h0, weights, keep=False)[0]


def _self_test(kernel: GRUKernel) -> float:
    """Largest differences to torch's GRU in values and gradients on two small cases, added."""
    return sum(_difference(kernel, width) for width in (3, 16))


def _difference(kernel: GRUKernel, width: int) -> float:
    hidden = 64
    sizes = torch.tensor([5, 5, 3, 3, 1])
    generator = torch.Generator().manual_seed(0)
    shapes = ((3 * hidden, width), (3 * hidden, hidden), (3 * hidden,), (3 * hidden,))
    weights = [torch.randn(shape, generator=generator) / 8 for shape in shapes]
    inputs = torch.randn(int(sizes.sum()), width, generator=generator)
    h0 = torch.randn(5, hidden, generator=generator)
    with torch.enable_grad():
        leaves = [tensor.requires_grad_() for tensor in (inputs, h0, *weights)]
        expected, _ = torch.gru(inputs, sizes, h0.unsqueeze(0), weights, True, 1, 0.0, True, False)
        found = run_gru(kernel, inputs, sizes, h0, weights)
        theirs = torch.autograd.grad(expected.square().mean(), leaves)
        mine = torch.autograd.grad(found.square().mean(), leaves)
    return largest_difference([(found, expected), *zip(mine, theirs, strict=True)])


@switched
def gru_kernel() -> Found[GRUKernel]:
    """The kernel after its self-test, or None and the reason."""
    return load_kernel("gru.c", GRUKernel, _self_test)


class GRUCore(nn.Module):
    """A GRU with `nn.GRUCell`'s parameter names, so PyMARL's checkpoints load, and with a
    whole-sequence call, so that no Python loop over time is needed. On a CPU with a C compiler
    the sequence runs in our own kernel; elsewhere in torch's."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.weight_ih = nn.Parameter(torch.empty(3 * hidden_size, input_size))
        self.weight_hh = nn.Parameter(torch.empty(3 * hidden_size, hidden_size))
        self.bias_ih = nn.Parameter(torch.empty(3 * hidden_size))
        self.bias_hh = nn.Parameter(torch.empty(3 * hidden_size))
        bound = 1 / math.sqrt(hidden_size)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, inputs: Tensor, hidden: Tensor) -> Tensor:
        """One step: inputs [R, I], hidden [R, H] -> hidden [R, H]."""
        return torch.gru_cell(
            inputs, hidden, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh
        )

    def unroll_packed(self, inputs_PI: Tensor, sizes: Tensor, hidden: Tensor) -> Tensor:
        """All steps of packed rows (see `functional.packing`): step t has sizes[t] rows (int64 on
        the CPU, never increasing); hidden before the first step [sizes[0], H] -> [P, H]."""
        kernel, _ = gru_kernel()
        weights: list[Tensor] = [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh]
        if kernel is not None and kernel.fits(inputs_PI, self.hidden_size, weights):
            return run_gru(kernel, inputs_PI, sizes, hidden, weights)
        out, _ = torch.gru(
            inputs_PI, sizes, hidden.unsqueeze(0), weights, True, 1, 0.0, self.training, False
        )
        return out

    def unroll(self, inputs_TRI: Tensor, hidden: Tensor) -> Tensor:
        """All steps: inputs [T, R, I], hidden before the first [R, H] -> hiddens [T, R, H]."""
        steps, rows, _ = inputs_TRI.shape
        sizes = torch.full((steps,), rows, dtype=torch.int64)
        return self.unroll_packed(inputs_TRI.flatten(0, 1), sizes, hidden).view(steps, rows, -1)
