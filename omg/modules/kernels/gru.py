"""The GRU kernel as a differentiable function; equal to torch's own GRU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from omg.modules.kernels.build import Found, load_kernel, pointer, switched

Weights = Sequence[Tensor]  # w_ih, w_hh, b_ih, b_hh


class GRUKernel:
    """Calls into the compiled library. Sequences are packed: `sizes` [T] (int64, CPU) says how
    many rows each step has, never more than the step before; tensors hold all steps' rows."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.lanes: int = library.gru_lanes()
        for name in ("gru_packed_size", "gru_packed_back_size", "gru_scratch_size"):
            getattr(library, name).restype = ctypes.c_int64

    def fits(self, inputs: Tensor, hidden_size: int) -> bool:
        """Whether the kernel computes this; everything else is torch's."""
        return (
            inputs.device.type == "cpu"
            and inputs.dtype == torch.float32
            and hidden_size % 16 == 0
            and inputs.numel() > 0
        )

    def forward(
        self, x: Tensor, sizes: Tensor, h0: Tensor, weights: Weights, *, keep: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Hidden states [P, H], and the gates [P, 4H] when they are to be kept."""
        if int(sizes.sum()) != len(x) or int(sizes[0]) != len(h0):
            raise ValueError("the steps' sizes do not add up to the rows")
        library, width, hidden = self._library, x.shape[-1], h0.shape[-1]
        out = torch.empty(len(x), hidden)
        saved = torch.empty(len(x), 4 * hidden) if keep else None
        packed = torch.empty(library.gru_packed_size(width, hidden))
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
        packed = torch.empty(library.gru_packed_back_size(width, hidden))
        library.gru_pack_back(width, hidden, *map(pointer, (*weights[:2], packed)))
        scratch = torch.empty(library.gru_scratch_size(width, hidden, parts))
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
    """Largest difference to torch's GRU in values and gradients on a small case."""
    hidden = 64
    sizes = torch.tensor([5, 5, 3, 3, 1])
    generator = torch.Generator().manual_seed(0)
    shapes = ((3 * hidden, 3), (3 * hidden, hidden), (3 * hidden,), (3 * hidden,))
    weights = [torch.randn(shape, generator=generator) / 8 for shape in shapes]
    inputs = torch.randn(int(sizes.sum()), 3, generator=generator)
    h0 = torch.randn(5, hidden, generator=generator)
    with torch.enable_grad():
        for weight in weights:
            weight.requires_grad_()
        expected, _ = torch.gru(inputs, sizes, h0.unsqueeze(0), weights, True, 1, 0.0, True, False)
        found = run_gru(kernel, inputs, sizes, h0, weights)
        theirs = torch.autograd.grad(expected.square().sum(), weights)
        mine = torch.autograd.grad(found.square().sum(), weights)
    pairs = [(found, expected), *zip(mine, theirs, strict=True)]
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


@switched
def gru_kernel() -> Found[GRUKernel]:
    """The kernel after its self-test, or None and the reason."""
    return load_kernel("gru.c", GRUKernel, _self_test)
