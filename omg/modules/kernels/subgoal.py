"""OMG's inference of subgoals in one call, its loss with all gradients in another, and the encoder
of the frozen prior."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

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
    say_once,
    switched,
)

Dims = tuple[int, int, int, int, int]  # seen, embedding, condition, hidden, subgoal


class Drawn(NamedTuple):
    """What a forward pass made of P rows, and what the loss needs of it."""

    mean: Tensor  # [P, G]
    log_var: Tensor  # [P, G]
    subgoal: Tensor  # [P, G]
    noise: Tensor | None  # [P, G], that it was drawn with; None: it is the mean
    kept: Tensor  # [P, E + C + H]


class Lessons(NamedTuple):
    """Rows `now` [K] learn towards rows `chosen` [K] of a table of the prior's means and
    log-variances [V, G]. No row learns twice."""

    now: Tensor
    chosen: Tensor
    prior_mean: Tensor
    prior_log_var: Tensor

    def fit(self, drawn: Drawn) -> bool:
        """Whether the shapes are those of what was drawn, and the kernel can read them."""
        lists = (self.now, self.chosen)
        return (
            plain(self.prior_mean, self.prior_log_var)
            and self.prior_mean.shape == self.prior_log_var.shape
            and self.prior_mean.shape[1:] == drawn.mean.shape[1:]
            and self.now.shape == self.chosen.shape
            and all(t.dtype == torch.int64 and t.is_contiguous() for t in lists)
        )


class _Fit(ctypes.Structure):
    """`fit_t` of the library."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("now", "chosen", "own", "noise", "kept", "mean")),
        *((name, ctypes.c_void_p) for name in ("log_var", "drawn", "prior_mean")),
        *((name, ctypes.c_void_p) for name in ("prior_log_var", "dcondition", "terms")),
        *(("weight", ctypes.c_float), ("K", ctypes.c_int)),
        *((name, ctypes.c_int) for name in "OECHG"),
    )


LIMIT = 1024  # of a width: blocks of rows lie on the stack


def _odd(weights: Sequence[Tensor]) -> list[int]:
    """Widths that the kernel does not take. Layers begin with what is seen, which may have any;
    the condition joins it in an inference's second layer."""
    widths = [weight.shape[0] for weight in weights[::2]]
    widths += [weights[4].shape[0] // 2]
    if len(weights) == 10:
        widths.append(weights[2].shape[1] - weights[0].shape[0])
    return [width for width in widths if width % 16 or not 0 < width <= LIMIT]


class SubgoalKernel:
    """Calls into the compiled library. `weights` are weight and bias of five layers: embedding,
    two of the encoder, two of the decoder; of the prior's encoder, of its three."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        for name in ("packed", "prior", "scratch"):
            getattr(library, f"subgoal_{name}_size").restype = ctypes.c_int64

    def fits(self, inputs: Tensor, weights: Sequence[Tensor]) -> bool:
        """Whether the kernel computes this; everything else is torch's. Widths it does not take
        are said in the log."""
        if not inputs.is_cpu or not plain(*weights) or not inputs.numel():
            return False
        odd = _odd(weights)
        if odd:
            limits = f"no multiple of 16 up to {LIMIT}"
            say_once(f"an inference of subgoals of width {odd[0]}, which is {limits}")
        return inputs.dtype == torch.float32 and not odd

    @staticmethod
    def _dims(own: Tensor, weights: Sequence[Tensor]) -> Dims:
        embed, hidden, subgoal = (len(weights[i]) for i in (0, 2, 4))
        return own.shape[-1], embed, weights[2].shape[-1] - embed, hidden, subgoal // 2

    @staticmethod
    def _shapes(dims: Dims) -> list[tuple[int, ...]]:
        seen, embed, condition, hidden, subgoal = dims
        layers = [(embed, seen), (hidden, embed + condition), (2 * subgoal, hidden)]
        layers += [(hidden, subgoal + condition), (embed, hidden)]
        return [shape for out, wide in layers for shape in ((out, wide), (out,))]

    def _packed(self, dims: Dims, weights: Sequence[Tensor]) -> Tensor:
        packed = torch.empty(self._library.subgoal_packed_size(*dims))
        self._library.subgoal_pack(*dims, pointers(weights), pointer(packed))
        return packed

    def prior(self, states: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Mean and log-variance [P, G] of states [P, S]; a row's do not depend on the others."""
        states, library = states.contiguous(), self._library
        dims = states.shape[-1], len(weights[0]), len(weights[4]) // 2
        size, hidden, subgoal = dims
        layers = [(hidden, size), (hidden, hidden), (2 * subgoal, hidden)]
        shapes = [shape for out, wide in layers for shape in ((out, wide), (out,))]
        agreed(
            *(plain(states, *weights), states.ndim == 2, [w.shape for w in weights] == shapes),
            not _odd(weights),
        )
        packed = torch.empty(library.subgoal_prior_size(*dims))
        library.subgoal_pack_prior(*dims, pointers(weights), pointer(packed))
        mean, log_var = (states.new_empty(len(states), subgoal) for _ in range(2))
        library.subgoal_prior(
            *(ctypes.c_int64(len(states)), *dims, kernel_threads()),
            *map(pointer, (states, packed, mean, log_var)),
        )
        return mean, log_var

    def forward(
        self, own: Tensor, condition: Tensor, noise: Tensor | None, weights: Sequence[Tensor]
    ) -> Drawn:
        """Of what was seen [P, O] and the condition [P, C]; without gradients, see `fit`."""
        own, condition = own.contiguous(), condition.detach().contiguous()
        dims = self._dims(own, weights)
        *_, width, hidden, subgoal = dims
        given = (own, condition, *weights) if noise is None else (own, condition, noise, *weights)
        agreed(
            *(plain(*given), own.ndim == 2, condition.shape == (len(own), width)),
            noise is None or noise.shape == (len(own), subgoal),
            *([w.shape for w in weights] == self._shapes(dims), not _odd(weights)),
        )
        packed = self._packed(dims, weights)
        kept = own.new_empty(len(own), dims[1] + width + hidden)
        mean, log_var, drawn = (own.new_empty(len(own), subgoal) for _ in range(3))
        self._library.subgoal_forward(
            *(ctypes.c_int64(len(own)), *dims, kernel_threads()),
            *map(pointer, (own, condition, noise, packed, kept, mean, log_var, drawn)),
        )
        return Drawn(mean, log_var, drawn, noise, kept)

    def fit(
        self,
        own: Tensor,
        drawn: Drawn,
        of: Lessons,
        weights: Sequence[Tensor],
        *,
        kl_weight: float,
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Means of reconstruction and KL [2], and the gradients of the reconstruction + weight ·
        KL: of the condition [P, C] and of all weights."""
        own, parts, count = own.contiguous(), kernel_threads(), len(of.now)
        dims = self._dims(own, weights)
        agreed(
            *(plain(own, *drawn[:3], *weights), of.fit(drawn), len(own) == len(drawn.mean)),
            *([w.shape for w in weights] == self._shapes(dims), not _odd(weights)),
        )
        dcondition = own.new_zeros(len(own), dims[2])
        terms = torch.empty(parts, 2, dtype=torch.float64)
        found = [torch.empty_like(weight) for weight in weights]
        scratch = own.new_empty(self._library.subgoal_scratch_size(*dims, parts))
        packed = self._packed(dims, weights)
        tensors = (of.now, of.chosen, own, drawn.noise, drawn.kept, *drawn[:3])
        place = _Fit(
            *map(pointer, (*tensors, of.prior_mean, of.prior_log_var, dcondition, terms)),
            *(kl_weight, count, *dims),
        )
        if self._library.subgoal_fit(
            *(ctypes.byref(place), ctypes.c_int64(len(own)), ctypes.c_int64(len(of.prior_mean))),
            *(parts, pointer(packed)),
            *(pointers(found), pointer(scratch)),
        ):
            raise ValueError("a transition is for no row that there is")
        return (terms[0] / max(count, 1)).float(), dcondition, found


def in_torch(
    own: Tensor, condition: Tensor, noise: Tensor | None, weights: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Mean, log-variance, subgoal, what it decodes to, and what that is compared with."""
    linear = torch.nn.functional.linear
    embedded = torch.relu(linear(own, *weights[:2]))
    hidden = torch.relu(linear(torch.cat([embedded, condition], -1), *weights[2:4]))
    mean, log_var = linear(hidden, *weights[4:6]).chunk(2, -1)
    log_var = log_var.clamp(-10.0, 4.0)
    drawn = mean if noise is None else mean + torch.exp(0.5 * log_var) * noise
    inner = torch.relu(linear(torch.cat([drawn, condition], -1), *weights[6:8]))
    return mean, log_var, drawn, linear(inner, *weights[8:]), embedded.detach()


def _self_test(kernel: SubgoalKernel) -> float:
    """Largest difference to torch in values and gradients on a small case."""
    dims, rows = (3, 16, 32, 48, 16), 61
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    weights = [random(*shape) / 4 for shape in kernel._shapes(dims)]
    own, condition, noise = random(rows, dims[0]), random(rows, dims[2]), random(rows, dims[4])
    prior = random(rows, dims[4]), random(rows, dims[4])
    now, chosen = torch.arange(2, rows), torch.arange(1, rows - 1)
    with torch.enable_grad():
        leaves = [tensor.requires_grad_() for tensor in (condition, *weights)]
        mean, log_var, subgoal, decoded, target = in_torch(own, condition, noise, weights)
        recon = (decoded - target)[now].square().mean()
        gap = (mean[now] - prior[0][chosen]).square() * torch.exp(-prior[1][chosen])
        apart = prior[1][chosen] - log_var[now]
        kl = 0.5 * (apart + torch.exp(-apart) + gap - 1.0).sum(-1).mean()
        expected = torch.autograd.grad(recon + 0.1 * kl, leaves)
    drawn = kernel.forward(own, condition, noise, weights)
    terms, dcondition, found = kernel.fit(
        own, drawn, Lessons(now, chosen, *prior), weights, kl_weight=0.1
    )
    pairs = [(drawn.mean, mean), (drawn.log_var, log_var), (drawn.subgoal, subgoal)]
    pairs += [(terms[0] / recon, torch.ones(())), (terms[1] / kl, torch.ones(()))]
    return largest_difference([*pairs, *zip([dcondition, *found], expected, strict=True)])


@switched
def subgoal_kernel() -> Found[SubgoalKernel]:
    """The kernel after its self-test, or None and the reason."""
    return load_kernel("subgoal.c", SubgoalKernel, _self_test)
