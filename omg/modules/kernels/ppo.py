"""PPO's losses in one call each, with their gradients; equal to the torch version of them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from omg.components.action_selectors import Mixture
from omg.modules.device import Found, agreed, largest_difference, load_kernel, pointer, switched

# Probabilities below are as good as zero; their logarithm stays finite.
TINY = 1e-30


class Taken(NamedTuple):
    """The choices of R rows: what could be done, what was, how likely it was when it was, and how
    much better than expected it turned out. Rows that do not count have no part in a mean."""

    avail: Tensor  # [R, A], bool
    actions: Tensor  # [R], int64
    log_probs: Tensor  # [R]
    advantages: Tensor  # [R]
    counts: Tensor | None = None  # [R], bool; None: all do


class PPOKernel:
    """Calls into the compiled library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        places, numbers = [ctypes.c_void_p] * 6, [ctypes.c_float] * 2
        library.ppo_work_size.restype = ctypes.c_int64
        library.ppo_values.restype = ctypes.c_float
        library.ppo_policy.argtypes = [
            *[ctypes.c_int64, ctypes.c_int],
            *places,
            *numbers,
            *[ctypes.c_int],
            *numbers,
            *places[1:],
        ]
        library.ppo_values.argtypes = [
            *[ctypes.c_int64],
            *places[2:],
            *numbers[1:],
            *places[5:],
        ]
        self._library = library

    @staticmethod
    def fits(*values: Tensor) -> bool:
        """Whether the kernel computes this; everything else is torch's."""
        return all(v.device.type == "cpu" and v.dtype == torch.float32 for v in values)

    def _policy(
        self,
        outputs: Tensor,
        taken: Taken,
        mixture: Mixture,
        clip: float,
        entropy_coef: float,
        results: Sequence[Tensor | None],
    ) -> None:
        rows, actions = outputs.shape
        agreed(
            taken.avail.shape == outputs.shape and taken.avail.dtype == torch.bool,
            taken.actions.shape == (rows,) and taken.actions.dtype == torch.int64,
            *(t.shape == (rows,) and self.fits(t) for t in (taken.log_probs, taken.advantages)),
            taken.counts is None or taken.counts.shape == (rows,),
            taken.counts is None or taken.counts.dtype == torch.bool,
            all(t.is_contiguous() for t in (outputs, *taken) if t is not None),
        )
        work = outputs.new_empty(self._library.ppo_work_size(actions))
        avail, chosen, old, gains, counts = taken
        self._library.ppo_policy(
            *(rows, actions, *map(pointer, (outputs, avail, chosen, counts, old, gains))),
            *(mixture.temperature, mixture.share, int(mixture.mask_after), clip, entropy_coef),
            *map(pointer, (*results, work)),
        )

    def evaluate(
        self, outputs: Tensor, avail: Tensor, actions: Tensor, mixture: Mixture
    ) -> tuple[Tensor, Tensor]:
        """log π of the actions taken, and the entropy of π, [R] each; without gradients."""
        found = outputs.new_empty(len(outputs)), outputs.new_empty(len(outputs))
        taken = Taken(avail, actions, *found)
        self._policy(outputs, taken, mixture, 0.0, 0.0, (*found, None, None))
        return found

    def policy_loss(
        self, outputs: Tensor, taken: Taken, mixture: Mixture, clip: float, entropy_coef: float
    ) -> tuple[Tensor, Tensor]:
        """The gradient of the loss [R, A], and the means that `PolicyTerms` names."""
        slope, sums = torch.empty_like(outputs), outputs.new_empty(5)
        self._policy(outputs, taken, mixture, clip, entropy_coef, (None, None, slope, sums))
        return slope, sums

    def value_loss(
        self, values: Tensor, old: Tensor, targets: Tensor, counts: Tensor | None, clip: float
    ) -> tuple[float, Tensor]:
        """The mean square error and its gradient [R]."""
        tensors = (values, old, targets)
        agreed(
            *(t.shape == values.shape and t.is_contiguous() for t in tensors),
            values.ndim == 1 and self.fits(*tensors),
            counts is None or (counts.shape == values.shape and counts.dtype == torch.bool),
            counts is None or counts.is_contiguous(),
        )
        slope = torch.empty_like(values)
        loss = self._library.ppo_values(
            len(values), *map(pointer, (*tensors, counts)), clip, pointer(slope)
        )
        return loss, slope


class PolicyTerms(NamedTuple):
    """What the policy's loss is made of, and how far the policy has moved; means."""

    surrogate: Tensor
    entropy: Tensor
    approx_kl: Tensor
    clip_fraction: Tensor
    ratio_max: Tensor  # the largest


class _Given(torch.autograd.Function):
    """A loss whose gradient was computed with it."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, loss: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        return loss.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        (slope,) = ctx.saved_tensors
        return slope * grads[0], None, None


def with_gradient(values: Tensor, loss: Tensor, slope: Tensor) -> Tensor:
    """The loss as a function of `values` whose derivative is `slope`."""
    result: Tensor = _Given.apply(values, loss, slope)  # type: ignore[no-untyped-call]
    return result


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
    slope, sums = kernel.policy_loss(
        outputs.detach().contiguous(), taken, mixture, clip, entropy_coef
    )
    terms = PolicyTerms(*sums.unbind())
    loss = -terms.surrogate - entropy_coef * terms.entropy
    return with_gradient(outputs, loss, slope), terms


def value_loss(
    values: Tensor, old: Tensor, targets: Tensor, counts: Tensor | None, *, clip: float
) -> Tensor:
    """Mean of `value_error` over the rows [R] that count."""
    kernel, _ = ppo_kernel()
    if kernel is None or not kernel.fits(values):
        errors = value_error(values, old, targets, clip)
        return (errors if counts is None else errors[counts]).mean()
    loss, slope = kernel.value_loss(values.detach().contiguous(), old, targets, counts, clip)
    return with_gradient(values, values.new_tensor(loss), slope)


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
        slope, sums = kernel.policy_loss(outputs, taken, mixture, 0.2, 0.1)
        pairs += [(slope, expected), (sums, torch.stack(terms))]
    with torch.enable_grad():
        leaf = old.clone().requires_grad_()
        loss = value_error(leaf, gains, outputs[:, 0], 0.3).mean()
        (expected,) = torch.autograd.grad(loss, leaf)
    found, slope = kernel.value_loss(old, gains, outputs[:, 0].contiguous(), None, 0.3)
    return largest_difference([*pairs, (slope, expected), (torch.tensor(found), loss)])


@switched
def ppo_kernel() -> Found[PPOKernel]:
    """The kernel after its self-test, or None and the reason."""
    return load_kernel("ppo.c", PPOKernel, _self_test)
