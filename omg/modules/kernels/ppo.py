"""PPO's losses in one call each, with their gradients; equal to the torch version of them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from omg.components.action_selectors import Mixture
from omg.modules.device import (
    Found,
    agreed,
    largest_difference,
    load_kernel,
    plain,
    pointer,
    switched,
)
from omg.modules.kernels.given import with_gradient

# Probabilities below are as good as zero; their logarithm stays finite.
TINY = 1e-30


_NO_SUMS = torch.tensor([0.0, 0.0, 0.0, 0.0, -torch.inf])  # and no largest ratio


class Taken(NamedTuple):
    """The choices of R rows: what could be done, what was, how likely it was when it was, and how
    much better than expected it turned out. Rows that do not count have no part in a mean."""

    avail: Tensor  # [R, A], bool
    actions: Tensor  # [R], int64
    log_probs: Tensor  # [R]
    advantages: Tensor  # [R]
    counts: Tensor | None = None  # [R], bool; None: all do


class Aims(NamedTuple):
    """What the values of R rows should have been, and were before the first step."""

    old: Tensor  # [R]
    targets: Tensor  # [R]
    counts: Tensor | None = None  # [R], bool; None: all do


class PolicyTerms(NamedTuple):
    """What the policy's loss is made of, and how far the policy has moved; means."""

    surrogate: Tensor
    entropy: Tensor
    approx_kl: Tensor
    clip_fraction: Tensor
    ratio_max: Tensor  # the largest


class _Policy(ctypes.Structure):
    """`policy_t` of the library."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("avail", "counts", "actions", "old", "gains")),
        *((name, ctypes.c_float) for name in ("temperature", "share", "clip", "entropy_coef")),
        *(("A", ctypes.c_int), ("mask_after", ctypes.c_int), ("number", ctypes.c_int64)),
        *(("means", ctypes.c_void_p), ("work", ctypes.c_void_p)),
    )


class _Values(ctypes.Structure):
    """`values_t` of the library."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("old", "targets", "counts")),
        *(("clip", ctypes.c_float), ("weight", ctypes.c_float), ("number", ctypes.c_int64)),
        ("mean", ctypes.c_void_p),
    )


class _Both(ctypes.Structure):
    _fields_ = (("policy", ctypes.POINTER(_Policy)), ("values", ctypes.POINTER(_Values)))


class PolicyLoss:
    """-mean of the clipped surrogate - entropy_coef · mean entropy, as the kernel computes it."""

    group = 1

    def __init__(
        self, kernel: PPOKernel, taken: Taken, mixture: Mixture, clip: float, entropy_coef: float
    ) -> None:
        rows, self.outputs = taken.avail.shape
        agreed(
            taken.avail.dtype == torch.bool,
            taken.actions.shape == (rows,) and taken.actions.dtype == torch.int64,
            *(t.shape == (rows,) and kernel.fits(t) for t in (taken.log_probs, taken.advantages)),
            taken.counts is None or taken.counts.shape == (rows,),
            taken.counts is None or taken.counts.dtype == torch.bool,
            all(t.is_contiguous() for t in taken if t is not None),
        )
        self._kernel, self._taken, self._mixture = kernel, taken, mixture
        self._clip, self._entropy_coef = clip, entropy_coef
        self.function = kernel.library.ppo_policy_block

    def struct(self, parts: int) -> _Policy:
        """What the library is told; sums have a place per part."""
        library, taken, mixture = self._kernel.library, self._taken, self._mixture
        self._means = _NO_SUMS.repeat(parts, 1)
        self._work = torch.empty(parts * library.ppo_work_size(self.outputs))
        number = self._kernel.count(taken.actions, taken.counts)
        avail, actions, old, gains, counts = map(pointer, taken)
        return _Policy(
            *(avail, counts, actions, old, gains, mixture.temperature, mixture.share),
            *(self._clip, self._entropy_coef, self.outputs, int(mixture.mask_after), number),
            *map(pointer, (self._means, self._work)),
        )

    def place(self, parts: int) -> Any:
        self._struct = self.struct(parts)
        return ctypes.byref(self._struct)

    def terms(self) -> PolicyTerms:
        """When all rows are done."""
        if len(self._means) == 1:
            return PolicyTerms(*self._means[0].unbind())
        sums = self._means.sum(0)
        return PolicyTerms(*sums[:4].unbind(), self._means[:, 4].amax())  # type: ignore[call-arg]

    def value(self) -> Tensor:
        terms = self.terms()
        return -terms.surrogate - self._entropy_coef * terms.entropy


class ValueLoss:
    """Mean of `value_error`, as the kernel computes it; times `weight` in its gradient."""

    group, outputs = 1, 1

    def __init__(self, kernel: PPOKernel, aims: Aims, clip: float, weight: float = 1.0) -> None:
        old, targets, counts = aims
        agreed(
            *(t.shape == old.shape and t.is_contiguous() for t in (old, targets)),
            old.ndim == 1 and kernel.fits(old, targets),
            counts is None or (counts.shape == old.shape and counts.dtype == torch.bool),
            counts is None or counts.is_contiguous(),
        )
        self._kernel, self._aims, self._clip, self._weight = kernel, aims, clip, weight
        self.function = kernel.library.ppo_values_block

    def struct(self, parts: int) -> _Values:
        """As `PolicyLoss.struct`."""
        self._mean = torch.zeros(parts)
        number = self._kernel.count(self._aims.old, self._aims.counts)
        places = map(pointer, self._aims)
        return _Values(*places, self._clip, self._weight, number, pointer(self._mean))

    def place(self, parts: int) -> Any:
        self._struct = self.struct(parts)
        return ctypes.byref(self._struct)

    def value(self) -> Tensor:
        return self._mean[0] if len(self._mean) == 1 else self._mean.sum()


class BothLosses:
    """Of outputs that are the policy's and, last, a value: their sum, the second weighted."""

    group = 1

    def __init__(self, kernel: PPOKernel, policy: PolicyLoss, values: ValueLoss) -> None:
        self.policy, self.values, self.outputs = policy, values, policy.outputs + 1
        self.function = kernel.library.ppo_both_block

    def place(self, parts: int) -> Any:
        self._structs = self.policy.struct(parts), self.values.struct(parts)
        self._struct = _Both(*map(ctypes.pointer, self._structs))
        return ctypes.byref(self._struct)

    def value(self) -> Tensor:
        return self.policy.value() + self.values._weight * self.values.value()


class PPOKernel:
    """The compiled library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        library.ppo_work_size.restype = library.ppo_count.restype = ctypes.c_int64
        library.ppo_count.argtypes = [ctypes.c_int64, ctypes.c_void_p]
        self.library = library

    @staticmethod
    def fits(*values: Tensor) -> bool:
        """Whether the kernel computes this; everything else is torch's."""
        return all(v.is_cpu and v.dtype is torch.float32 for v in values)

    def count(self, rows: Tensor, counts: Tensor | None) -> int:
        """How many rows count."""
        if counts is None:
            return len(rows)
        return int(self.library.ppo_count(len(rows), pointer(counts)))

    def evaluate(
        self, outputs: Tensor, avail: Tensor, actions: Tensor, mixture: Mixture
    ) -> tuple[Tensor, Tensor]:
        """log π of the actions taken, and the entropy of π, [R] each; without gradients."""
        found = outputs.new_empty(len(outputs)), outputs.new_empty(len(outputs))
        loss = PolicyLoss(self, Taken(avail, actions, *found), mixture, 0.0, 0.0)
        self._policy(loss, outputs, (*found, None))
        return found

    def policy_loss(self, outputs: Tensor, loss: PolicyLoss) -> Tensor:
        """The gradient of the loss [R, A]."""
        slope = torch.empty_like(outputs)
        self._policy(loss, outputs, (None, None, slope))
        return slope

    def _policy(self, loss: PolicyLoss, outputs: Tensor, found: Sequence[Tensor | None]) -> None:
        agreed(outputs.shape == loss._taken.avail.shape, plain(outputs))
        rows = ctypes.c_int64(len(outputs))
        self.library.ppo_policy(loss.place(1), rows, *map(pointer, (outputs, *found)))

    def value_loss(self, values: Tensor, loss: ValueLoss) -> Tensor:
        """The gradient of the loss [R]."""
        agreed(values.shape == loss._aims.old.shape, plain(values))
        slope, rows = torch.empty_like(values), ctypes.c_int64(len(values))
        self.library.ppo_values(loss.place(1), rows, pointer(values), pointer(slope))
        return slope


def clipped_surrogate(ratio: Tensor, advantage: Tensor, eps_clip: float) -> Tensor:
    """min(ρ A, clip(ρ, 1 - ε, 1 + ε) A), to be raised."""
    clipped = ratio.clamp(1.0 - eps_clip, 1.0 + eps_clip)
    return torch.minimum(ratio * advantage, clipped * advantage)


def value_error(values: Tensor, old: Tensor, targets: Tensor, value_clip: float) -> Tensor:
    """Square error; with value_clip > 0 the larger one of V and of V kept within value_clip of
    its old value."""
    error = (values - targets).square()
    if value_clip == 0.0:
        return error
    near = old + (values - old).clamp(-value_clip, value_clip)
    return torch.maximum(error, (near - targets).square())


def evaluated(chances: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """log π of the actions taken, and the entropy of π, from its probabilities [..., A]."""
    logs = chances.clamp(min=TINY).log()
    return logs.gather(-1, actions.unsqueeze(-1)).squeeze(-1), -(chances * logs).sum(-1)


def counted(outputs: Tensor, taken: Taken) -> tuple[Tensor, Taken]:
    """Only the rows that count: others may have no available action and no probabilities."""
    keep = taken.counts
    if keep is None:
        return outputs, taken
    return outputs[keep], Taken(*(part[keep] for part in taken[:4]))


def policy_loss_of(
    chances: Tensor, taken: Taken, clip: float, entropy_coef: float
) -> tuple[Tensor, PolicyTerms]:
    """The loss of probabilities [R, A] in torch; all rows count."""
    log_probs, entropies = evaluated(chances, taken.actions)
    log_ratio = log_probs - taken.log_probs
    ratio, entropy = log_ratio.exp(), entropies.mean()
    gain = clipped_surrogate(ratio, taken.advantages, clip).mean()
    with torch.no_grad():
        terms = PolicyTerms(
            surrogate=gain.detach(),
            entropy=entropy.detach(),
            approx_kl=(ratio - 1.0 - log_ratio).mean(),
            clip_fraction=((ratio - 1.0).abs() > clip).to(torch.float32).mean(),
            ratio_max=ratio.max(),
        )
    return -gain - entropy_coef * entropy, terms


def policy_loss(
    outputs: Tensor, taken: Taken, mixture: Mixture, *, clip: float, entropy_coef: float
) -> tuple[Tensor, PolicyTerms]:
    """-mean of the clipped surrogate - entropy_coef · mean entropy, of outputs [R, A]."""
    kernel, _ = ppo_kernel()
    if kernel is None or not kernel.fits(outputs):
        outputs, taken = counted(outputs, taken)
        return policy_loss_of(mixture(outputs, taken.avail), taken, clip, entropy_coef)
    loss = PolicyLoss(kernel, taken, mixture, clip, entropy_coef)
    slope = kernel.policy_loss(outputs.detach().contiguous(), loss)
    return with_gradient(loss.value(), [outputs], [slope]), loss.terms()


def value_loss(values: Tensor, aims: Aims, *, clip: float) -> Tensor:
    """Mean of `value_error` over the rows [R] that count."""
    kernel, _ = ppo_kernel()
    if kernel is None or not kernel.fits(values):
        errors = value_error(values, aims.old, aims.targets, clip)
        return (errors if aims.counts is None else errors[aims.counts]).mean()
    loss = ValueLoss(kernel, aims, clip)
    slope = kernel.value_loss(values.detach().contiguous(), loss)
    return with_gradient(loss.value(), [values], [slope])


def _self_test(kernel: PPOKernel) -> float:
    """Largest difference to torch in values and gradients on small cases."""
    generator = torch.Generator().manual_seed(0)
    rows, actions = 37, 5
    outputs = 3 * torch.randn(rows, actions, generator=generator)
    avail = torch.rand(rows, actions, generator=generator) < 0.7
    chosen = avail.int().argmax(-1)
    old, gains = torch.randn(2, rows, generator=generator)
    pairs = []
    for mixture in (Mixture(), Mixture(2.0, 0.1), Mixture(1.0, 0.1, True)):
        taken = Taken(avail, chosen, old, gains, avail.any(-1))
        with torch.enable_grad():
            leaf = outputs.clone().requires_grad_()
            some, kept = counted(leaf, taken)
            loss, terms = policy_loss_of(mixture(some, kept.avail), kept, 0.2, 0.1)
            (expected,) = torch.autograd.grad(loss, leaf)
        ours = PolicyLoss(kernel, taken, mixture, 0.2, 0.1)
        slope = kernel.policy_loss(outputs, ours)
        pairs += [(slope, expected), (torch.stack(ours.terms()), torch.stack(terms))]
    with torch.enable_grad():
        leaf = old.clone().requires_grad_()
        loss = value_error(leaf, gains, outputs[:, 0], 0.3).mean()
        (expected,) = torch.autograd.grad(loss, leaf)
    own = ValueLoss(kernel, Aims(gains, outputs[:, 0].contiguous()), 0.3)
    slope = kernel.value_loss(old, own)
    return largest_difference([*pairs, (slope, expected), (own.value(), loss)])


@switched
def ppo_kernel() -> Found[PPOKernel]:
    """The kernel after its self-test, or None and the reason."""
    return load_kernel("ppo.c", PPOKernel, _self_test)
