"""Single steps of a recurrent agent from states that a pass over its sequences left, many with the
same state and each with features of its own."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from omg.modules.device import (
    Found,
    agreed,
    kernel_threads,
    largest_difference,
    load_kernel,
    plain,
    pointer,
    pointers,
    switched,
)
from omg.modules.kernels.gru import GRUKernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Branches:
    """R steps with E alternatives each, from the states of P rows of sequences."""

    inputs: Tensor  # [P, I], without features
    hidden: Tensor  # [P, H], the state after every row
    products: Tensor | None  # [P, 3H], what the kernel's pass found of them; None: nothing
    seats: Tensor  # [P]
    table: Tensor  # [V, F], features
    at: Tensor  # [R], the row whose inputs a step has
    before: Tensor  # [R], the row after which it is made; -1: none, the state is zero
    places: Tensor  # [R, E], the features of its alternatives, rows of the table; -1: not wanted

    def features(self) -> Tensor:
        """Of every alternative, [R, E, F]; those of one that is not wanted are any."""
        rows = self.places.clamp(min=0).flatten()
        return self.table.index_select(0, rows).view(*self.places.shape, -1)

    def states(self) -> Tensor:
        """Before every step, [R, H]."""
        states = self.hidden.index_select(0, self.before.clamp(min=0))
        return states.masked_fill((self.before < 0).unsqueeze(1), 0.0)


class _Branches(ctypes.Structure):
    """`branches_t` of the library."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("at", "state", "places", "x", "table", "states")),
        *((name, ctypes.c_void_p) for name in ("products", "own", "y")),
        *((name, ctypes.c_int64) for name in "PVS"),
        *((name, ctypes.c_int) for name in "REIJFHA"),
    )


class BranchKernel:
    """Calls into the compiled library of the recurrent kernel. `weights` are those of its agents:
    input layer, w_ih, w_hh, b_ih, b_hh, output layer."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        for name in ("packed", "branches_scratch"):
            getattr(library, f"gru_{name}_size").restype = ctypes.c_int64

    @staticmethod
    def fits(of: Branches, weights: list[Tensor]) -> bool:
        """Whether the kernel computes this; everything else is torch's."""
        widths = (len(weights[0]), weights[3].shape[-1])
        given = [of.inputs, of.hidden, of.table]
        given += [] if of.products is None else [of.products]
        return plain(*given, *weights) and not any(w % 16 for w in widths) and of.places.numel() > 0

    def outputs(self, of: Branches, weights: list[Tensor]) -> Tensor:
        """[R, E, A], zeros of alternatives that are not wanted. Without gradients."""
        (count, width), (places, features) = of.inputs.shape, of.table.shape
        (rows, kinds), hidden = of.places.shape, of.hidden.shape[-1]
        inner, actions = len(weights[0]), len(weights[6])
        core = [(3 * hidden, inner), (3 * hidden, hidden), (3 * hidden,), (3 * hidden,)]
        shapes = [(inner, width + features), (inner,), *core, (actions, hidden), (actions,)]
        lists = [value.contiguous() for value in (of.at, of.before, of.places)]
        agreed(
            *(self.fits(of, weights), [w.shape for w in weights] == shapes),
            *(of.at.shape == of.before.shape == (rows,), of.hidden.ndim == 2),
            of.products is None or of.products.shape == (len(of.hidden), 3 * hidden),
            *(value.dtype == torch.int64 and value.is_cpu for value in lists),
        )
        library, parts = self._library, kernel_threads()
        dims = width + features, inner, hidden, actions
        packed = torch.empty(library.gru_packed_size(*dims))
        library.gru_pack(*dims, pointers(weights), pointer(packed))
        found = of.inputs.new_zeros(rows, kinds, actions)
        place = _Branches(
            *map(pointer, (*lists, of.inputs, of.table, of.hidden, of.products, None, found)),
            *(count, places, len(of.hidden), rows, kinds, width, features, *dims[1:]),
        )
        size = library.gru_branches_scratch_size(ctypes.byref(place), parts)
        scratch = torch.empty(size)
        if library.gru_branches(ctypes.byref(place), parts, pointer(packed), pointer(scratch)):
            raise IndexError("a step is of a row that is not there")
        return found


def in_torch(of: Branches, weights: list[Tensor]) -> Tensor:
    """The same by torch's own layers."""
    linear, features = torch.nn.functional.linear, of.features()
    rows, kinds, _ = features.shape
    shared = of.inputs.index_select(0, of.at).unsqueeze(1).expand(rows, kinds, -1)
    seen = torch.relu(linear(torch.cat([shared, features], -1).flatten(0, 1), *weights[:2]))
    hidden = torch.gru_cell(seen, of.states().repeat_interleave(kinds, 0), *weights[2:6])
    return linear(hidden, *weights[6:]).view(rows, kinds, -1)


def _self_test(kernel: BranchKernel) -> float:
    """Largest difference to torch on a small case: after a pass that kept the states' products, and
    without them."""
    width, features, inner, hidden, actions = 3, 5, 32, 48, 7
    generator = torch.Generator().manual_seed(0)
    core = [(3 * hidden, inner), (3 * hidden, hidden), (3 * hidden,), (3 * hidden,)]
    shapes = [(inner, width + features), (inner,), *core, (actions, hidden), (actions,)]
    weights = [torch.randn(shape, generator=generator) / 4 for shape in shapes]
    inputs, start = torch.randn(9, width + features, generator=generator), torch.zeros(4, hidden)
    passed = GRUKernel(kernel._library).forward(
        inputs, torch.tensor([4, 3, 2]), start, weights, keep=False, branching=True
    )
    of = Branches(
        inputs=inputs[:, :width].contiguous(),
        hidden=passed.hidden,
        products=passed.products,
        seats=torch.zeros(9, dtype=torch.int64),
        table=torch.randn(4, features, generator=generator),
        at=torch.tensor([0, 3, 8, 8, 5, 5]),
        before=torch.tensor([-1, 0, 1, 2, 4, 5]),
        places=torch.tensor([[0, 1], [3, 0], [2, 1], [0, 3], [1, 1], [2, 0]]),
    )
    expected, cases = in_torch(of, weights), (of, replace(of, products=None))
    return largest_difference([(kernel.outputs(case, weights), expected) for case in cases])


@switched
def branch_kernel() -> Found[BranchKernel]:
    """The kernel after its self-test, or None and the reason."""
    return load_kernel("gru.c", BranchKernel, _self_test)
