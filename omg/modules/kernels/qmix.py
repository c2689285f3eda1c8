"""QMIX's mixer in one call, forwards and backwards; equal to the torch version of it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
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
from omg.modules.kernels.given import GivenLoss, with_gradient
from omg.modules.kernels.gru import BlockLoss


def _shapes(agents: int, size: int, hidden: int, embed: int) -> list[tuple[int, ...]]:
    """Of the mixer's weights, in their order."""
    layers = [(size, hidden), (hidden, agents * embed), (size, hidden), (hidden, embed)]
    layers += [(size, embed), (size, embed), (embed, 1)]
    return [shape for i, o in layers for shape in ((o, i), (o,))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transitions:
    """K transitions of a team among P slots. Absent seats contribute nothing; transitions that do
    not count have no part in the means."""

    now: Tensor  # [K], int64, their slots
    next: Tensor  # [K], int64, the slots that follow
    actions: Tensor  # [K, N], int64
    reward: Tensor  # [K]
    over: Tensor  # [K], bool: nothing is bootstrapped
    state: Tensor  # [P, S]
    avail: Tensor  # [P, N, A], bool
    alive: Tensor | None = None  # [P, N], bool; None: everybody
    counts: Tensor | None = None  # [K], bool; None: all

    def fit(self, q: Tensor) -> bool:
        """Whether the shapes are those of values q [P, N, A], and the kernel can read them."""
        (slots, agents, actions), count = q.shape, len(self.now)
        whole, flags = torch.int64, torch.bool
        expected = [
            *((self.now, (count,), whole), (self.next, (count,), whole)),
            *((self.actions, (count, agents), whole), (self.reward, (count,), torch.float32)),
            *((self.over, (count,), flags), (self.avail, (slots, agents, actions), flags)),
            (self.state, (slots, self.state.shape[-1]), torch.float32),
            *([] if self.alive is None else [(self.alive, (slots, agents), flags)]),
            *([] if self.counts is None else [(self.counts, (count,), flags)]),
        ]
        return all(
            t.shape == shape and t.dtype == kind and t.is_contiguous()
            for t, shape, kind in expected
        )


class _TD(ctypes.Structure):
    """`td_t` of the library."""

    _names = (
        *("now", "next", "actions", "number", "target_q", "state", "reward"),
        *("avail", "over", "alive", "counts", "packed", "packed_target", "means", "scratch"),
    )
    _fields_ = (
        *((name, ctypes.c_void_p) for name in _names),
        *(("counted", ctypes.c_int64), ("gamma", ctypes.c_float), ("twice", ctypes.c_int)),
        *((name, ctypes.c_int) for name in "NASED"),
    )


class TDTerms(NamedTuple):
    """Means over transitions."""

    loss: Tensor  # (Q - y)²
    error: Tensor  # |Q - y|
    taken: Tensor  # Q
    targets: Tensor  # y


class QMixKernel:
    """Calls into the compiled library. `weights` are the mixer's parameters in their order: two
    layers for the first mixing weights, two for the last, one for the bias, two for V."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        sizes = ("packed", "kept", "scratch", "td_scratch")
        for name in sizes:
            getattr(library, f"qmix_{name}_size").restype = ctypes.c_int64
        self._block = 32

    def fits(self, *tensors: Tensor, embed: int, hidden: int) -> bool:
        """Whether the kernel computes this of such values or states; everything else is torch's,
        and so is a state that wants a gradient."""
        if any(t.device.type != "cpu" or t.dtype != torch.float32 for t in tensors):
            return False
        if not all(t.numel() for t in tensors):
            return False
        if embed % 16 or hidden % 16:
            say_once(f"a mixer of widths {embed} and {hidden}, not both multiples of 16")
        return not (embed % 16 or hidden % 16)

    def _dims(self, values: Tensor, state: Tensor, weights: Sequence[Tensor]) -> tuple[int, ...]:
        return values.shape[-1], state.shape[-1], len(weights[0]), len(weights[8])

    def pack(self, dims: tuple[int, ...], weights: Sequence[Tensor]) -> Tensor:
        """The weights as the library reads them."""
        _, size, hidden, embed = dims
        packed = weights[0].new_empty(self.library.qmix_packed_size(*dims))
        work = weights[0].new_empty((2 * hidden + 2 * embed) * size)
        self.library.qmix_pack(*dims, pointers(weights), pointer(packed), pointer(work))
        return packed

    def forward(
        self, values: Tensor, state: Tensor, weights: Sequence[Tensor], *, keep: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Mixed values [K, 1], what the backward pass needs of them, and the packed weights."""
        dims, library = self._dims(values, state, weights), self.library
        parts = kernel_threads()
        agreed(
            *(plain(values, state, *weights), values.ndim == 2, state.ndim == 2),
            len(values) == len(state),
            [w.shape for w in weights] == _shapes(*dims),
        )
        packed = self.pack(dims, weights)
        rows = len(values) if keep else parts * self._block
        kept = values.new_empty(rows, library.qmix_kept_size(*dims))
        out = values.new_empty(len(values), 1)
        library.qmix_forward(
            *(len(values), *dims, parts, int(keep)),
            *map(pointer, (values, state, packed, out, kept)),
        )
        return out, kept, packed

    def backward(
        self,
        dout: Tensor,
        values: Tensor,
        state: Tensor,
        weights: Sequence[Tensor],
        kept: Tensor,
        packed: Tensor,
    ) -> tuple[Tensor, list[Tensor]]:
        """Gradients of the values and of the weights."""
        dims, library = self._dims(values, state, weights), self.library
        parts = kernel_threads()
        found = [torch.empty_like(weight) for weight in weights]
        dvalues = torch.empty_like(values)
        scratch = values.new_empty(library.qmix_scratch_size(*dims, parts))
        library.qmix_backward(
            *(len(values), *dims, parts),
            *map(pointer, (dout, values, state, packed, kept, dvalues)),
            *(pointers(found), pointer(scratch)),
        )
        return dvalues, found


class TDLoss:
    """mean (Q_tot(τ_t, a_t) - [r_t + γ (1-d_t) Q'_tot(τ_{t+1}, a*)])² as the kernel computes it;
    `weights` are the mixer's and its target's, target_q [P, N, A] the target network's values,
    which may still be made by `of_network`."""

    def __init__(
        self,
        kernel: QMixKernel,
        target_q: Tensor,
        of: Transitions,
        weights: tuple[Sequence[Tensor], Sequence[Tensor]],
        *,
        gamma: float,
        double: bool,
    ) -> None:
        slots, agents, actions = target_q.shape
        self._dims = agents, of.state.shape[-1], len(weights[0][0]), len(weights[0][8])
        agreed(
            *(plain(target_q, *weights[0], *weights[1]), of.fit(target_q)),
            *([w.shape for w in some] == _shapes(*self._dims) for some in weights),
        )
        self._kernel, self.target_q, self._of, self._weights = kernel, target_q, of, weights
        self._gamma, self._double = gamma, double
        self._number = torch.empty(slots, dtype=torch.int64)
        self.function, self.group, self.outputs = kernel.library.qmix_td_block, agents, actions

    def place(self, parts: int) -> Any:
        library, of = self._kernel.library, self._of
        held = {
            "number": self._number,
            "target_q": self.target_q,
            "packed": self._kernel.pack(self._dims, self._weights[0]),
            "packed_target": self._kernel.pack(self._dims, self._weights[1]),
            "means": torch.empty(parts, 4, dtype=torch.float64),
            "scratch": torch.empty(library.qmix_td_scratch_size(*self._dims, parts)),
        }
        counted = len(of.now) if of.counts is None else int(of.counts.sum())
        agents, size, hidden, embed = self._dims
        self._held, self._parts = held, parts
        self._struct = _TD(
            *(pointer(held[n] if n in held else getattr(of, n)) for n in _TD._names),
            *(counted, self._gamma, int(self._double)),
            *(agents, self.outputs, size, hidden, embed),
        )
        place = ctypes.byref(self._struct)
        if library.qmix_td_begin(place, len(self._number), len(of.now), parts):
            raise ValueError("a transition is for no slot or no action that there is")
        return place

    def end(self) -> list[Tensor]:
        """The gradients of the mixer's weights, when everything is done."""
        found = [torch.empty_like(weight) for weight in self._weights[0]]
        place = ctypes.byref(self._struct)
        self._kernel.library.qmix_td_end(place, self._parts, pointers(found))
        self._terms = TDTerms(*self._held["means"][0].float().unbind())
        return found

    def terms(self) -> TDTerms:
        """After `end`."""
        return self._terms

    def value(self) -> Tensor:
        return self._terms.loss

    def of_values(self, q: Tensor) -> Tensor:
        """Differentiable by online values q [P, N, A] and by the mixer's weights."""
        held, parts = q.detach().contiguous(), kernel_threads()
        slope = torch.empty_like(held)
        agreed(held.shape == self.target_q.shape, plain(held))
        self._kernel.library.qmix_td(
            *(self.place(parts), len(held), len(self._of.now), parts, pointer(held)),
            pointer(slope),
        )
        slopes = self.end()
        return with_gradient(self.value(), [q, *self._weights[0]], [slope, *slopes])

    def of_network(
        self, network: FitsPacked, inputs: Tensor, sizes: Tensor, target: nn.Module | None = None
    ) -> GivenLoss | None:
        """By the weights of a network that computes the online values, and of the mixer, with one
        call for all of it, the values of the `target` network included if it is given; None where
        the network's kernel does not take this."""
        aims = None if target is None else (target, self.target_q)
        found = network.fit_packed(inputs, sizes, self, aims)
        if found is None:
            return None
        slopes = self.end()
        return GivenLoss(self.value, [*found.of, *self._weights[0]], [*found.slopes, *slopes])


class FitsPacked(Protocol):
    """A recurrent network whose loss is computed with its gradients (`RNNAgent`)."""

    def fit_packed(
        self,
        inputs_PI: Tensor,
        sizes: Tensor,
        loss: BlockLoss,
        target: tuple[nn.Module, Tensor] | None = None,
    ) -> GivenLoss | None: ...


class _QMixFunction(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, kernel: QMixKernel, values: Tensor, state: Tensor, *weights: Tensor
    ) -> Tensor:
        out, kept, packed = kernel.forward(values, state, weights, keep=True)
        ctx.kernel = kernel
        ctx.save_for_backward(values, state, kept, packed, *weights)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        values, state, kept, packed, *weights = ctx.saved_tensors
        dvalues, found = ctx.kernel.backward(
            grads[0].contiguous(), values, state, weights, kept, packed
        )
        return None, dvalues, None, *found


def run_qmix(
    kernel: QMixKernel, values: Tensor, state: Tensor, weights: Sequence[Tensor]
) -> Tensor:
    """Mixed values [K, 1], differentiable where gradients are on."""
    values, state = values.contiguous(), state.contiguous()
    if torch.is_grad_enabled() and any(t.requires_grad for t in (values, *weights)):
        result: Tensor = _QMixFunction.apply(  # type: ignore[no-untyped-call]
            kernel, values, state, *weights
        )
        return result
    return kernel.forward(values, state, weights, keep=False)[0]


def mixed(values: Tensor, w_1: Tensor, bias: Tensor, w_final: Tensor, value: Tensor) -> Tensor:
    """|w_final|ᵀ elu(|w_1|ᵀ q + bias) + value, of what the hyper-networks made of the state:
    values [..., N], w_1 [..., N D], bias and w_final [..., D], value [..., 1] -> [..., 1]."""
    weights = torch.abs(w_1).view(*w_1.shape[:-1], values.shape[-1], -1)
    hidden = torch.nn.functional.elu((values.unsqueeze(-1) * weights).sum(-2) + bias)
    return (hidden * torch.abs(w_final)).sum(-1, keepdim=True) + value


def mix(values: Tensor, state: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """The same in torch: values [..., N], state [..., S] -> [..., 1]."""
    linear = torch.nn.functional.linear
    a1, b1, c1, d1, a2, b2, c2, d2, a3, b3, a4, b4, c4, d4 = weights
    return mixed(
        values,
        linear(torch.relu(linear(state, a1, b1)), c1, d1),
        linear(state, a3, b3),
        linear(torch.relu(linear(state, a2, b2)), c2, d2),
        linear(torch.relu(linear(state, a4, b4)), c4, d4),
    )


def _self_test(kernel: QMixKernel) -> float:
    """Largest difference to torch in values and gradients on a small case."""
    agents, size, hidden, embed = 3, 5, 32, 16
    generator = torch.Generator().manual_seed(0)
    shapes = _shapes(agents, size, hidden, embed)
    weights = [torch.randn(shape, generator=generator) / 4 for shape in shapes]
    values, state = (torch.randn(37, width, generator=generator) for width in (agents, size))
    with torch.enable_grad():
        leaves = [tensor.requires_grad_() for tensor in (values, *weights)]
        found = run_qmix(kernel, values, state, weights)
        expected = mix(values, state, weights)
        return difference_with_gradients(found, expected, leaves)


@switched
def qmix_kernel() -> Found[QMixKernel]:
    """The kernel after its self-test, or None and the reason."""
    return load_kernel("qmix.c", QMixKernel, _self_test)
