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
    """Calls into the compiled library."""

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
        self, gi: Tensor, h0: Tensor, w_hh: Tensor, b_hh: Tensor, *, keep: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Hidden states [T, R, H], and the gates [T, R, 4H] when they are to be kept."""
        steps, rows, _ = gi.shape
        hidden = h0.shape[-1]
        out = torch.empty(steps, rows, hidden)
        saved = torch.empty(steps, rows, 4 * hidden) if keep else None
        lanes = self.lanes
        panels = w_hh.view(3, hidden // lanes, lanes, hidden).permute(1, 3, 0, 2).contiguous()
        self._library.gru_forward(
            *(steps, rows, hidden, torch.get_num_threads()),
            *map(_pointer, (gi, h0, panels, b_hh, out, saved)),
        )
        return out, saved

    def backward(
        self, dout: Tensor, h0: Tensor, w_hh: Tensor, out: Tensor, saved: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of gi [T, R, 3H], of a = h W_n + b_n [T, R, H] and of h0."""
        steps, rows, hidden = out.shape
        dgi = torch.empty(steps, rows, 3 * hidden)
        da = torch.empty(steps, rows, hidden)
        dh0 = torch.empty(rows, hidden)
        scratch = torch.empty(rows, 3 * hidden)
        width = 2 * self.lanes
        panels = w_hh.view(3 * hidden, hidden // width, width).permute(1, 0, 2).contiguous()
        self._library.gru_backward(
            *(steps, rows, hidden, torch.get_num_threads()),
            *map(_pointer, (dout, h0, panels, out, saved, dgi, da, dh0, scratch)),
        )
        return dgi, da, dh0


class _GRUFunction(torch.autograd.Function):
    """h_t for all t from gi = x W_ih + b_ih; the large products of the backward pass are BLAS's."""

    @staticmethod
    def forward(
        ctx: Any, kernel: GRUKernel, gi: Tensor, h0: Tensor, w_hh: Tensor, b_hh: Tensor
    ) -> Tensor:
        gi, h0 = gi.contiguous(), h0.contiguous()
        out, saved = kernel.forward(gi, h0, w_hh, b_hh, keep=True)
        ctx.kernel = kernel
        ctx.save_for_backward(h0, w_hh, out, saved)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        h0, w_hh, out, saved = ctx.saved_tensors
        hidden = out.shape[-1]
        dgi, da, dh0 = ctx.kernel.backward(
            grads[0].contiguous(), h0, w_hh, out, saved
        )
        before = torch.cat([h0.unsqueeze(0), out[:-1]]).view(-1, hidden)
        flat, flat_a = dgi.view(-1, 3 * hidden), da.view(-1, hidden)
        dw = torch.empty_like(w_hh)
        torch.mm(flat[:, : 2 * hidden].t(), before, out=dw[: 2 * hidden])
        torch.mm(flat_a.t(), before, out=dw[2 * hidden :])
        db = torch.cat([flat[:, : 2 * hidden].sum(0), flat_a.sum(0)])
        return None, dgi, dh0, dw, db


def run_gru(kernel: GRUKernel, gi: Tensor, h0: Tensor, w_hh: Tensor, b_hh: Tensor) -> Tensor:
    """Hidden states of all steps, differentiable where gradients are on."""
    needs = torch.is_grad_enabled() and any(t.requires_grad for t in (gi, h0, w_hh, b_hh))
    if needs:
        result: Tensor = _GRUFunction.apply(kernel, gi, h0, w_hh, b_hh)
        return result
    out, _ = kernel.forward(gi.contiguous(), h0.contiguous(), w_hh, b_hh, keep=False)
    return out


def _self_test(kernel: GRUKernel) -> float:
    """Largest difference to torch's GRU in values and gradients on a small case."""
    hidden, rows, steps = 32, 5, 7
    generator = torch.Generator().manual_seed(0)
    cell = torch.nn.GRU(3, hidden)
    inputs = torch.randn(steps, rows, 3, generator=generator)
    h0 = torch.randn(rows, hidden, generator=generator)
    with torch.enable_grad():
        expected, _ = cell(inputs, h0.unsqueeze(0))
        gi = torch.nn.functional.linear(inputs, cell.weight_ih_l0, cell.bias_ih_l0)
        found = run_gru(kernel, gi, h0, cell.weight_hh_l0, cell.bias_hh_l0)
        weights = [p for _, p in sorted(cell.named_parameters())]
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
    state = torch.random.get_rng_state()
    with torch.inference_mode(False):
        error = _self_test(kernel)
    torch.random.set_rng_state(state)
    if error > 1e-3:
        reason = f"its self-test was off by {error:.2g}"
        log.warning("The fast GRU is not used (%s); torch's own does the same, slower.", reason)
        return None, reason
    return kernel, reason
