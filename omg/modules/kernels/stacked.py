"""One step of rows of recurrent agents without gradients: of one network, or of several, each with
its own weights."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

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

LOG2E = 1.44269504  # as in vector.h


def packed_size(inputs: int, hidden: int, n_actions: int, lanes: int) -> int:
    """Numbers of one network's packed weights."""
    padded = n_actions + -n_actions % lanes
    return (1 + inputs + 4 + 6 * hidden) * hidden + (1 + hidden) * padded


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
        # Sums of gates are exponents of 2: see vgates in vector.h.
        scale = torch.tensor([1.0, 1.0, 2.0, 2.0], device=fc1.device).unsqueeze(1) * -LOG2E
        biases = torch.cat([both, b_i[:, 2:], b_h[:, 2:]], 1) * scale  # [K, 4, H]
        gates = [
            self._panels(
                weights[f"rnn.weight_{k}"].view(members, hidden, 3, hidden) * scale[:3], lanes
            )
            for k in ("ih", "hh")
        ]
        gru = torch.cat([self._panels(biases.unsqueeze(1), lanes).flatten(2), *gates], -1)
        parts = self._panels(fc1, 2 * lanes), gru, self._panels(fc2, lanes)
        return torch.cat([part.flatten(1) for part in parts], 1).contiguous()

    def pack_one(self, weights: Sequence[Tensor]) -> Tensor:
        """The same of one network as torch keeps it: fc1, w_ih, w_hh, b_ih, b_hh and fc2, each
        layer a weight and a bias, [1, size]."""
        (hidden, width), actions = weights[0].shape, len(weights[6])
        shapes = [(hidden, width), (hidden,), *[(3 * hidden, hidden)] * 2, *[(3 * hidden,)] * 2]
        shapes += [(actions, hidden), (actions,)]
        agreed(plain(*weights), [tuple(weight.shape) for weight in weights] == shapes)
        packed = weights[0].new_empty(1, packed_size(width, hidden, actions, self.lanes))
        self._library.stacked_pack(
            *map(ctypes.c_int64, (width, hidden, actions)), pointers(weights), pointer(packed)
        )
        return packed

    @staticmethod
    def _panels(weight: Tensor, width: int) -> Tensor:
        """[K, rows, …, out] -> [K, out / width, rows · … · width]."""
        pieces = weight.reshape(*weight.shape[:-1], -1, width)
        return pieces.movedim(-2, 1).flatten(2)

    def step(
        self, packed: Tensor, inputs: Tensor, members: Tensor | None, carry: Tensor, n_actions: int
    ) -> tuple[Tensor, Tensor]:
        """inputs [R, I], members [R] (int64; None: all are the first), carry [R, H] -> outputs
        [R, A], carry. Without gradients."""
        inputs, carry = inputs.contiguous(), carry.contiguous()
        members = None if members is None else members.contiguous()
        (rows, width), hidden = inputs.shape, carry.shape[-1]
        if (
            packed.shape[1] != packed_size(width, hidden, n_actions, self.lanes)
            or (members is not None and members.shape != (rows,))
            or (members is not None and members.dtype != torch.int64)
            or carry.shape != (rows, hidden)
            or not plain(packed, inputs, carry)
        ):
            raise ValueError("inputs, members and carry do not fit the stacked weights")
        outputs, after = inputs.new_empty(rows, n_actions), inputs.new_empty(rows, hidden)
        found = self._library.stacked_step(
            *(rows, len(packed), width, hidden, n_actions, ctypes.c_int64(packed.shape[1])),
            kernel_threads(),
            *map(pointer, (members, inputs, carry, packed, outputs, after)),
        )
        if found == -1:
            raise IndexError(f"a row is for none of the {len(packed)} members")
        if found:
            raise MemoryError("no memory to sort the rows by member")
        return outputs, after


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
    for k in range(2):
        alone = [(w[k].mT if w[k].ndim == 2 else w[k]).contiguous() for w in weights.values()]
        pairs.append((kernel.pack_one(alone)[0], kernel.pack(weights)[k]))
    return largest_difference(pairs)


@switched
def stacked_kernel() -> Found[StackedKernel]:
    """The kernel after its self-test, or None and the reason."""
    return load_kernel("stacked.c", StackedKernel, _stacked_self_test)
