"""The recurrent core: one GRU layer, in our kernel as a differentiable function, or in torch; and
the kernel that steps rows of recurrent agents, one or several with weights of their own."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from omg.modules.device import (
    Found,
    agreed,
    difference_with_gradients,
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


def _gru_self_test(kernel: GRUKernel) -> float:
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
        return difference_with_gradients(found, expected, leaves)


@switched
def gru_kernel() -> Found[GRUKernel]:
    """The kernel after its self-test, or None and the reason."""
    return load_kernel("gru.c", GRUKernel, _gru_self_test)


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
        """All steps of packed rows (see `functional.Packing`): step t has sizes[t] rows (int64 on
        the CPU, never increasing); hidden before the first step [sizes[0], H] -> [P, H]."""
        kernel, _ = gru_kernel()
        weights: list[Tensor] = [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh]
        if kernel is not None and kernel.fits(inputs_PI, self.hidden_size, weights):
            return run_gru(kernel, inputs_PI, sizes, hidden, weights)
        out, _ = torch.gru(
            inputs_PI, sizes, hidden.unsqueeze(0), weights, True, 1, 0.0, self.training, False
        )
        return out


class StackedKernel:
    """Calls into the compiled library: `pack` once, then `step` as often as wanted."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.lanes: int = library.stacked_lanes()
        self._max_hidden: int = library.stacked_max_hidden()

    def fits(self, inputs: Tensor, hidden_size: int) -> bool:
        """Whether the kernel computes this; everything else is torch's."""
        return (
            inputs.device.type == "cpu"
            and inputs.dtype == torch.float32
            and hidden_size % (2 * self.lanes) == 0
            and hidden_size <= self._max_hidden
        )

    def pack(self, weights: Mapping[str, Tensor]) -> Tensor:
        """Weights of `RNNAgent`s stacked by member, matrices as [K, in, out], in the order in
        which the kernel reads them, [K, size]. A dueling head is linear, too: it becomes one."""
        lanes = self.lanes
        members, _, hidden = weights["fc1.weight"].shape
        fc1 = torch.cat([weights["fc1.bias"].unsqueeze(1), weights["fc1.weight"]], 1)
        fc2 = torch.cat([weights["fc2.bias"].unsqueeze(1), weights["fc2.weight"]], 1)
        if "fc2.value.weight" in weights:
            bias, weight = weights["fc2.value.bias"], weights["fc2.value.weight"]
            fc2 = fc2 - fc2.mean(-1, keepdim=True) + torch.cat([bias.unsqueeze(1), weight], 1)
        fc2 = torch.nn.functional.pad(fc2, (0, -fc2.shape[-1] % lanes))
        b_i, b_h = (weights[f"rnn.bias_{k}"].view(members, 3, hidden) for k in ("ih", "hh"))
        both = b_i[:, :2] + b_h[:, :2]
        biases = torch.cat([both, b_i[:, 2:], b_h[:, 2:]], 1)  # [K, 4, H]
        gates = [
            self._panels(weights[f"rnn.weight_{k}"].view(members, hidden, 3, hidden), lanes)
            for k in ("ih", "hh")
        ]
        gru = torch.cat([self._panels(biases.unsqueeze(1), lanes).flatten(2), *gates], -1)
        parts = self._panels(fc1, 2 * lanes), gru, self._panels(fc2, lanes)
        return torch.cat([part.flatten(1) for part in parts], 1).contiguous()

    @staticmethod
    def _panels(weight: Tensor, width: int) -> Tensor:
        """[K, rows, …, out] -> [K, out / width, rows · … · width]."""
        pieces = weight.reshape(*weight.shape[:-1], -1, width)
        return pieces.movedim(-2, 1).flatten(2)

    def _size(self, inputs: int, hidden: int, n_actions: int) -> int:
        """Numbers per member in `pack`."""
        padded = n_actions + -n_actions % self.lanes
        return (1 + inputs + 4 + 6 * hidden) * hidden + (1 + hidden) * padded

    def step(
        self, packed: Tensor, inputs: Tensor, members: Tensor | None, carry: Tensor, n_actions: int
    ) -> tuple[Tensor, Tensor]:
        """inputs [R, I], members [R] (int64; None: all are the first), carry [R, H] -> outputs
        [R, A], carry. Without gradients."""
        inputs, carry = inputs.contiguous(), carry.contiguous()
        members = None if members is None else members.contiguous()
        (rows, width), hidden = inputs.shape, carry.shape[-1]
        if (
            packed.shape[1] != self._size(width, hidden, n_actions)
            or (members is not None and members.shape != (rows,))
            or (members is not None and members.dtype != torch.int64)
            or carry.shape != (rows, hidden)
        ):
            raise ValueError("inputs, members and carry do not fit the stacked weights")
        outputs, after = inputs.new_empty(rows, n_actions), inputs.new_empty(rows, hidden)
        found = self._library.stacked_step(
            *(rows, len(packed), width, hidden, n_actions, ctypes.c_int64(packed.shape[1])),
            torch.get_num_threads(),
            *map(pointer, (members, inputs, carry, packed, outputs, after)),
        )
        if found == -1:
            raise IndexError(f"a row is for none of the {len(packed)} members")
        if found:
            raise MemoryError("no memory to sort the rows by member")
        return outputs, after

    def variants(
        self,
        packed: Tensor,
        shared_RH: Tensor,
        own_REH: Tensor,
        product_RG: Tensor,
        carry_RH: Tensor,
        n_actions: int,
    ) -> Tensor:
        """One member's outputs [R, E, A] of E alternative steps from each carry: fc1 gave
        shared + own, and carry W_h (without bias) is already known."""
        rows, kinds, hidden = own_REH.shape
        skipped = packed.shape[1] - self._size(-1, hidden, n_actions)  # fc1
        if (
            len(packed) != 1
            or skipped <= 0
            or skipped % hidden
            or shared_RH.shape != (rows, hidden)
            or carry_RH.shape != (rows, hidden)
            or product_RG.shape != (rows, 3 * hidden)
        ):
            raise ValueError("inputs and carry do not fit the weights")
        outputs = own_REH.new_empty(rows, kinds, n_actions)
        parts = [
            value.contiguous()
            for value in (shared_RH, own_REH, product_RG, carry_RH, packed[0, skipped:])
        ]
        self._library.stacked_variants(
            *(rows, kinds, hidden, n_actions, torch.get_num_threads()),
            *map(pointer, parts),
            pointer(outputs),
        )
        return outputs


def _stacked_self_test(kernel: StackedKernel) -> float:
    """Largest difference to torch's own layers on a small case."""
    hidden, width, actions = 2 * kernel.lanes, 3, kernel.lanes + 1
    generator = torch.Generator().manual_seed(0)
    shapes = {
        "fc1.weight": (width, hidden),
        "fc1.bias": (hidden,),
        "rnn.weight_ih": (hidden, 3 * hidden),
        "rnn.weight_hh": (hidden, 3 * hidden),
        "rnn.bias_ih": (3 * hidden,),
        "rnn.bias_hh": (3 * hidden,),
        "fc2.weight": (hidden, actions),
        "fc2.bias": (actions,),
    }
    weights = {k: torch.randn(2, *s, generator=generator) / 4 for k, s in shapes.items()}
    inputs, carry = (torch.randn(7, size, generator=generator) for size in (width, hidden))
    members = torch.tensor([1, 0, 1, 1, 1, 1, 1])
    with torch.no_grad():
        found = kernel.step(kernel.pack(weights), inputs, members, carry, actions)
    pairs = []
    for row, k in enumerate(members.tolist()):
        own = {name: value[k] for name, value in weights.items()}
        x = torch.relu(inputs[row : row + 1] @ own["fc1.weight"] + own["fc1.bias"])
        matrices = (own[f"rnn.weight_{part}"].mT for part in ("ih", "hh"))
        biases = (own[f"rnn.bias_{part}"] for part in ("ih", "hh"))
        h = torch.gru_cell(x, carry[row : row + 1], *matrices, *biases)
        q = h @ own["fc2.weight"] + own["fc2.bias"]
        pairs += [(found[0][row], q), (found[1][row], h)]
    return largest_difference(pairs)


@switched
def stacked_kernel() -> Found[StackedKernel]:
    """The kernel after its self-test, or None and the reason."""
    return load_kernel("stacked.c", StackedKernel, _stacked_self_test)
