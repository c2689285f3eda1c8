"""The GRU kernel as a differentiable function; equal to torch's own GRU."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch
from torch import Tensor

from omg.modules.kernels.build import load_library, log


def _pointer(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


class GRUKernel:
    """Calls into the compiled library. Sequences are packed: `sizes` [T] (int64, CPU) says how
    many rows each step has, never more than the step before; tensors hold all steps' rows."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.lanes: int = library.gru_lanes()

    def fits(self, inputs: Tensor, hidden_size: int) -> bool:
        """Whether the kernel computes this; everything else is torch's."""
        return (
            inputs.device.type == "cpu"
            and inputs.dtype == torch.float32
            and hidden_size % (2 * self.lanes) == 0
            and inputs.numel() > 0
        )

    def forward(
        self, gi: Tensor, sizes: Tensor, h0: Tensor, w_hh: Tensor, b_hh: Tensor, *, keep: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Hidden states [P, H], and the gates [P, 4H] when they are to be kept."""
        hidden, lanes = h0.shape[-1], self.lanes
        if int(sizes.sum()) != len(gi) or int(sizes[0]) != len(h0):
            raise ValueError("the steps' sizes do not add up to the rows")
        out = torch.empty(len(gi), hidden)
        saved = torch.empty(len(gi), 4 * hidden) if keep else None
        offsets = torch.cumsum(sizes, 0) - sizes
        panels = w_hh.view(3, hidden // lanes, lanes, hidden).permute(1, 3, 0, 2).contiguous()
        self._library.gru_forward(
            *(len(sizes), _pointer(sizes), _pointer(offsets), hidden, torch.get_num_threads()),
            *map(_pointer, (gi, h0, panels, b_hh, out, saved)),
        )
        return out, saved

    def backward(
        self, dout: Tensor, sizes: Tensor, h0: Tensor, w_hh: Tensor, out: Tensor, saved: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of gi [P, 3H], of a = h W_n + b_n [P, H] and of h0."""
        hidden, width = out.shape[-1], 2 * self.lanes
        dgi = torch.empty(len(out), 3 * hidden)
        da = torch.empty(len(out), hidden)
        dh0 = torch.empty_like(h0)
        scratch = torch.empty(len(h0), 3 * hidden)
        offsets = torch.cumsum(sizes, 0) - sizes
        panels = w_hh.view(3 * hidden, hidden // width, width).permute(1, 0, 2).contiguous()
        self._library.gru_backward(
            *(len(sizes), _pointer(sizes), _pointer(offsets), hidden, torch.get_num_threads()),
            *map(_pointer, (dout, h0, panels, out, saved, dgi, da, dh0, scratch)),
        )
        return dgi, da, dh0


def _hidden_before(out: Tensor, sizes: Tensor, h0: Tensor) -> Tensor:
    """The hidden state each packed row started its step from, [P, H]."""
    if len(sizes) == 1:
        return h0
    if sizes[0] == sizes[-1]:
        return torch.cat([h0, out[: -int(sizes[0])]])
    ends = torch.cumsum(sizes, 0)
    later = torch.arange(int(sizes[0]), int(ends[-1]))
    shift = torch.repeat_interleave(sizes[:-1], sizes[1:])
    return torch.cat([h0, out[later - shift]])


class _GRUFunction(torch.autograd.Function):
    """h_t for all t from gi = x W_ih + b_ih; the large products of the backward pass are BLAS's."""

    @staticmethod
    def forward(
        ctx: Any,
        kernel: GRUKernel,
        gi: Tensor,
        sizes: Tensor,
        h0: Tensor,
        w_hh: Tensor,
        b_hh: Tensor,
    ) -> Tensor:
        gi, h0 = gi.contiguous(), h0.contiguous()
        out, saved = kernel.forward(gi, sizes, h0, w_hh, b_hh, keep=True)
        ctx.kernel, ctx.sizes = kernel, sizes
        ctx.save_for_backward(h0, w_hh, out, saved)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        h0, w_hh, out, saved = ctx.saved_tensors
        hidden = out.shape[-1]
        dout = grads[0].contiguous()
        dgi, da, dh0 = ctx.kernel.backward(dout, ctx.sizes, h0, w_hh, out, saved)
        before = _hidden_before(out, ctx.sizes, h0)
        dw = torch.empty_like(w_hh)
        torch.mm(dgi[:, : 2 * hidden].t(), before, out=dw[: 2 * hidden])
        torch.mm(da.t(), before, out=dw[2 * hidden :])
        db = torch.cat([dgi[:, : 2 * hidden].sum(0), da.sum(0)])
        return None, dgi, None, dh0, dw, db


def run_gru(
    kernel: GRUKernel, gi: Tensor, sizes: Tensor, h0: Tensor, w_hh: Tensor, b_hh: Tensor
) -> Tensor:
    """Hidden states of all packed rows, differentiable where gradients are on."""
    needs = torch.is_grad_enabled() and any(t.requires_grad for t in (gi, h0, w_hh, b_hh))
    if needs:
        result: Tensor = _GRUFunction.apply(  # type: ignore[no-untyped-call]
            kernel, gi, sizes, h0, w_hh, b_hh
        )
        return result
    out, _ = kernel.forward(gi.contiguous(), sizes, h0.contiguous(), w_hh, b_hh, keep=False)
    return out


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
        w_ih, w_hh, b_ih, b_hh = (w.requires_grad_() for w in weights)
        expected, _ = torch.gru(inputs, sizes, h0.unsqueeze(0), weights, True, 1, 0.0, True, False)
        gi = torch.nn.functional.linear(inputs, w_ih, b_ih)
        found = run_gru(kernel, gi, sizes, h0, w_hh, b_hh)
        theirs = torch.autograd.grad(expected.square().sum(), weights)
        mine = torch.autograd.grad(found.square().sum(), weights)
    pairs = [(found, expected), *zip(mine, theirs, strict=True)]
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


@functools.cache
def gru_kernel() -> tuple[GRUKernel | None, str]:
    """The kernel after its self-test, or None and the reason; decided once per process."""
    library, reason = load_library("gru.c")
    if library is None:
        log.warning("The fast GRU is not used (%s); torch's own does the same, slower.", reason)
        return None, reason
    kernel = GRUKernel(library)
    with torch.inference_mode(False):
        error = _self_test(kernel)
    if error > 1e-3:
        reason = f"its self-test was off by {error:.2g}"
        log.warning("The fast GRU is not used (%s); torch's own does the same, slower.", reason)
        return None, reason
    return kernel, reason
