"""The recurrent core: a GRU over whole sequences, with the layers before and after it if wanted,
in our kernel as one differentiable function, or in torch."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from omg.modules.device import (
    Found,
    agreed,
    difference_with_gradients,
    kernel_threads,
    load_kernel,
    plain,
    pointer,
    pointers,
    say_once,
    switched,
)
from omg.modules.kernels.given import GivenLoss

# Input layer, w_ih, w_hh, b_ih, b_hh, output layer, each layer a weight and a bias; None: no layer.
Weights = Sequence[Tensor | None]


class Passed(NamedTuple):
    """What a forward pass made of P rows, and what a backward pass needs of it."""

    hidden: Tensor  # [P, H]
    outputs: Tensor  # [P, A]
    inner: Tensor | None  # [P, F], the input layer's
    gates: Tensor | None  # [P, 4H]
    products: Tensor | None = None  # [P, 3H], for `branches.Branches`


class Aims(NamedTuple):
    """A second network of the same widths, and where its outputs [P, A] are to be written."""

    weights: Weights
    outputs: Tensor


class BlockLoss(Protocol):
    """A loss of a network's outputs that another kernel computes, block by block."""

    function: Any  # of the compiled library, a `loss_t`
    outputs: int  # how many a row has
    group: int  # how many rows belong together

    def place(self, parts: int) -> Any:
        """A pointer to what the function is told; `parts` may call it at once."""

    def value(self) -> Tensor:
        """The loss, when all blocks are done."""


class GRUKernel:
    """Calls into the compiled library. Sequences are packed: `sizes` [T] (int64, CPU) says how
    many rows each step has, never more than the step before; tensors hold all steps' rows."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.lanes: int = library.gru_lanes()
        self._most_together: int = library.gru_most_together()
        for name in ("packed", "packed_back", "scratch", "fit_scratch"):
            getattr(library, f"gru_{name}_size").restype = ctypes.c_int64

    def fits(self, inputs: Tensor, hidden_size: int, weights: Weights = ()) -> bool:
        """Whether the kernel computes this; everything else is torch's. Widths it does not take
        are said in the log."""
        given = [weight for weight in weights if weight is not None]
        if inputs.device.type != "cpu" or not plain(*given) or not inputs.numel():
            return False
        first = weights[0] if weights else None
        widths = [hidden_size, *([] if first is None else [first.shape[0]])]
        odd = [width for width in widths if width % 16]
        if odd:
            say_once(f"a GRU of width {odd[0]}, which is no multiple of 16")
        return inputs.dtype == torch.float32 and not odd

    def fits_together(self, loss: BlockLoss) -> bool:
        """Whether `fit` takes rows that belong together: a block of rows holds them all."""
        return loss.group <= self._most_together

    @staticmethod
    def _dims(x: Tensor, weights: Weights) -> tuple[int, int, int, int]:
        first, core, last = weights[0], weights[3], weights[6]
        assert core is not None
        inner, outputs = (0 if layer is None else layer.shape[0] for layer in (first, last))
        return x.shape[-1], inner, core.shape[-1], outputs

    @staticmethod
    def _shapes(dims: tuple[int, int, int, int]) -> list[tuple[int, ...] | None]:
        width, inner, hidden, outputs = dims
        core = [(3 * hidden, inner or width), (3 * hidden, hidden), (3 * hidden,), (3 * hidden,)]
        first = [(inner, width), (inner,)] if inner else [None, None]
        return [*first, *core, *([(outputs, hidden), (outputs,)] if outputs else [None, None])]

    def _check(self, x: Tensor, sizes: Tensor, sequences: int, weights: Weights) -> None:
        dims = self._dims(x, weights)
        agreed(
            *(plain(x, *(w for w in weights if w is not None)), sizes.dtype == torch.int64),
            *(sizes.is_contiguous(), x.ndim == 2, dims[1] % 16 == 0, dims[2] % 16 == 0),
            [None if w is None else tuple(w.shape) for w in weights] == self._shapes(dims),
        )
        rows = ctypes.c_int64(x.shape[0]), ctypes.c_int64(sequences)
        if not self._library.gru_packed_rows(len(sizes), pointer(sizes), *rows):
            raise ValueError("the steps' sizes grow or do not add up to the rows")

    def _packed(self, dims: tuple[int, ...], weights: Weights, *, back: bool = False) -> Tensor:
        """The weights as a pass reads them."""
        name = "gru_packed_back_size" if back else "gru_packed_size"
        packed = torch.empty(getattr(self._library, name)(*dims))
        pack = self._library.gru_pack_back if back else self._library.gru_pack
        pack(*dims, pointers(weights), pointer(packed))
        return packed

    def fit(
        self,
        x: Tensor,
        sizes: Tensor,
        weights: Weights,
        loss: BlockLoss,
        *,
        wanted: bool,
        aims: Aims | None = None,
    ) -> tuple[Tensor | None, list[Tensor | None]]:
        """A forward pass from zero states, a loss and the backward pass: the gradients of x, where
        it is `wanted`, and of all weights. The loss of a block is asked for when its `aims` are
        there."""
        library, dims, parts = self._library, self._dims(x, weights), kernel_threads()
        self._check(x, sizes, int(sizes[0]), weights)
        agreed(loss.outputs == dims[3], int(sizes[0]) % loss.group == 0, self.fits_together(loss))
        packed = [self._packed(dims, weights, back=back) for back in (False, True)]
        if aims is not None:
            given, target = [w for w in aims.weights if w is not None], aims.weights
            agreed(
                *(aims.outputs.numel() == len(x) * dims[3], plain(aims.outputs, *given)),
                all(_shape(a) == _shape(b) for a, b in zip(target, weights, strict=True)),
            )
            packed.append(self._packed(dims, target))
        dx = torch.empty_like(x) if wanted else None
        found = [None if weight is None else torch.empty_like(weight) for weight in weights]
        size = library.gru_fit_scratch_size(len(sizes), int(sizes[0]), *dims, parts, loss.group)
        scratch = x.new_empty(size)
        failed = library.gru_fit(
            *(len(sizes), pointer(sizes), *dims, parts, loss.group),
            *map(pointer, (x, *packed, *([None] if aims is None else []))),
            *(loss.function, loss.place(parts), pointer(dx)),
            *(pointer(None if aims is None else aims.outputs), pointers(found), pointer(scratch)),
        )
        _enough_memory(failed)
        return dx, found

    def forward(
        self,
        x: Tensor,
        sizes: Tensor,
        h0: Tensor,
        weights: Weights,
        *,
        keep: bool,
        branching: bool = False,
    ) -> Passed:
        """All steps; what only a backward pass needs where it is to be kept; where `branching`,
        what single steps from the rows' states can use, of the rows that others follow."""
        library, dims = self._library, self._dims(x, weights)
        _, inner, hidden, outputs = dims
        agreed(plain(h0), h0.ndim == 2, h0.shape[-1] == hidden)
        self._check(x, sizes, len(h0), weights)
        passed = Passed(
            x.new_empty(x.shape[0], hidden),
            x.new_empty(x.shape[0], outputs),
            x.new_empty(x.shape[0], inner) if keep and inner else None,
            x.new_empty(x.shape[0], 4 * hidden) if keep else None,
            x.new_empty(x.shape[0], 3 * hidden) if branching else None,
        )
        packed = self._packed(dims, weights)
        failed = library.gru_forward(
            *(len(sizes), pointer(sizes), *dims, kernel_threads()),
            *map(pointer, (x, h0, packed)),
            *map(pointer, (passed.inner, passed.hidden, passed.gates, passed.outputs)),
            pointer(passed.products),
        )
        _enough_memory(failed)
        return passed

    def backward(
        self,
        grads: tuple[Tensor | None, Tensor | None],
        x: Tensor,
        sizes: Tensor,
        h0: Tensor,
        weights: Weights,
        passed: Passed,
        *,
        wanted: tuple[bool, bool],
    ) -> tuple[Tensor | None, Tensor | None, list[Tensor | None]]:
        """From the gradients of hidden states and outputs (None: zeros) to those of x and h0, where
        `wanted` says so, and of all weights."""
        library, dims, parts = self._library, self._dims(x, weights), kernel_threads()
        dhidden, doutputs = grads
        if doutputs is None:
            doutputs = torch.zeros_like(passed.outputs)
        dx, dh0 = (
            torch.empty_like(t) if want else None for t, want in zip((x, h0), wanted, strict=True)
        )
        found = [None if weight is None else torch.empty_like(weight) for weight in weights]
        packed = self._packed(dims, weights, back=True)
        scratch = x.new_empty(library.gru_scratch_size(*dims, parts))
        failed = library.gru_backward(
            *(len(sizes), pointer(sizes), *dims, parts),
            *map(pointer, (doutputs, dhidden, x, h0, packed)),
            *map(pointer, (passed.inner, passed.hidden, passed.gates, dx, dh0)),
            *(pointers(found), pointer(scratch)),
        )
        _enough_memory(failed)
        return dx, dh0, found


def _shape(weight: Tensor | None) -> torch.Size | None:
    return None if weight is None else weight.shape


def _enough_memory(failed: int) -> None:
    if failed:
        raise MemoryError("no memory to cut the rows into blocks")


class _GRUFunction(torch.autograd.Function):
    """h_t for all t, what the output layer makes of them, and products for branches."""

    @staticmethod
    def forward(
        ctx: Any,
        kernel: GRUKernel,
        branching: bool,
        x: Tensor,
        sizes: Tensor,
        h0: Tensor,
        *weights: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        passed = kernel.forward(x, sizes, h0, weights, keep=True, branching=branching)
        ctx.kernel, ctx.sizes = kernel, sizes
        ctx.set_materialize_grads(False)
        if passed.products is not None:
            ctx.mark_non_differentiable(passed.products)
        ctx.save_for_backward(x, h0, *passed[:4], *weights)
        return passed.hidden, passed.outputs, passed.products

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        x, h0, *others = ctx.saved_tensors
        passed, weights = Passed(*others[:4]), others[4:]
        given = tuple(None if grad is None else grad.contiguous() for grad in grads[:2])
        wanted = (ctx.needs_input_grad[2], ctx.needs_input_grad[4])
        dx, dh0, found = ctx.kernel.backward(
            given, x, ctx.sizes, h0, weights, passed, wanted=wanted
        )
        return None, None, dx, None, dh0, *found


def run_gru(
    kernel: GRUKernel,
    x: Tensor,
    sizes: Tensor,
    h0: Tensor,
    weights: Weights,
    *,
    branching: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Hidden states and outputs of all packed rows, differentiable where gradients are on, and
    products where `branching`."""
    x, h0 = x.contiguous(), h0.contiguous()
    leaves = (t for t in (x, h0, *weights) if t is not None)
    if torch.is_grad_enabled() and any(t.requires_grad for t in leaves):
        result: tuple[Tensor, Tensor, Tensor | None] = _GRUFunction.apply(  # type: ignore[no-untyped-call]
            kernel, branching, x, sizes, h0, *weights
        )
        return result
    passed = kernel.forward(x, sizes, h0, weights, keep=False, branching=branching)
    return passed.hidden, passed.outputs, passed.products


def _in_torch(
    x: Tensor, sizes: Tensor, h0: Tensor, weights: Weights, *, training: bool = True
) -> tuple[Tensor, Tensor]:
    """The same by torch's own layers."""
    first, first_bias, *core, last, last_bias = weights
    linear = nn.functional.linear
    seen = x if first is None else torch.relu(linear(x, first, first_bias))
    hidden, _ = torch.gru(
        *(seen, sizes, h0.unsqueeze(0), [w for w in core if w is not None], True),
        *(1, 0.0, training, False),
    )
    return hidden, hidden[:, :0] if last is None else linear(hidden, last, last_bias)


def _gru_self_test(kernel: GRUKernel) -> float:
    """Largest differences to torch in values and gradients on small cases, added."""
    return sum(
        _difference(kernel, width, layers=layers) for width in (3, 16) for layers in (False, True)
    )


def _difference(kernel: GRUKernel, width: int, *, layers: bool) -> float:
    hidden, inner, outputs = 64, 32 if layers else width, 5
    sizes = torch.tensor([5, 5, 3, 3, 1])
    generator = torch.Generator().manual_seed(0)
    shapes = [(3 * hidden, inner), (3 * hidden, hidden), (3 * hidden,), (3 * hidden,)]
    if layers:
        shapes = [(inner, width), (inner,), *shapes, (outputs, hidden), (outputs,)]
    leaves = [torch.randn(shape, generator=generator) / 8 for shape in shapes]
    weights = leaves if layers else [None, None, *leaves, None, None]
    inputs = torch.randn(int(sizes.sum()), width, generator=generator)
    h0 = torch.randn(5, hidden, generator=generator)
    with torch.enable_grad():
        leaves = [tensor.requires_grad_() for tensor in (inputs, h0, *leaves)]
        found, expected = (
            torch.cat(run, -1)
            for run in (
                run_gru(kernel, inputs, sizes, h0, weights)[:2],
                _in_torch(inputs, sizes, h0, weights),
            )
        )
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
        return self.unroll_between(None, None, inputs_PI, sizes, hidden)[0]

    def unroll_between(
        self,
        first: nn.Linear | None,
        last: tuple[Tensor, Tensor] | None,
        inputs_PI: Tensor,
        sizes: Tensor,
        hidden: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The same between an input layer with ReLU and an output layer (weight and bias), all
        of it in one call: hidden states [P, H] and outputs [P, A]."""
        return self.unroll_branching(first, last, inputs_PI, sizes, hidden, branching=False)[:2]

    def unroll_branching(
        self,
        first: nn.Linear | None,
        last: tuple[Tensor, Tensor] | None,
        inputs_PI: Tensor,
        sizes: Tensor,
        hidden: Tensor,
        *,
        branching: bool = True,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The same, and products for `branches.Branches` where the kernel makes them."""
        weights = self.between(first, last)
        kernel, _ = gru_kernel()
        if kernel is not None and kernel.fits(inputs_PI, self.hidden_size, weights):
            return run_gru(kernel, inputs_PI, sizes, hidden, weights, branching=branching)
        return *_in_torch(inputs_PI, sizes, hidden, weights, training=self.training), None

    def between(self, first: nn.Linear | None, last: tuple[Tensor, Tensor] | None) -> Weights:
        """All weights, as the kernel wants them."""
        return [
            *((None, None) if first is None else (first.weight, first.bias)),
            *(self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh),
            *((None, None) if last is None else last),
        ]

    def fit_between(
        self,
        first: nn.Linear | None,
        last: tuple[Tensor, Tensor],
        inputs_PI: Tensor,
        sizes: Tensor,
        loss: BlockLoss,
        aims: Aims | None = None,
    ) -> GivenLoss | None:
        """The loss of the outputs of `unroll_between` from zero states, with its gradients in the
        same call, while a block of rows is in the cache; None: the kernel does not take this."""
        weights, (kernel, _) = self.between(first, last), gru_kernel()
        if kernel is None or not kernel.fits(inputs_PI, self.hidden_size, weights):
            return None
        if not kernel.fits_together(loss):
            return None
        wanted = inputs_PI.requires_grad
        slopes = kernel.fit(inputs_PI.contiguous(), sizes, weights, loss, wanted=wanted, aims=aims)
        return GivenLoss(loss.value, [inputs_PI, *weights], [slopes[0], *slopes[1]])
