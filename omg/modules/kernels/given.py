"""Losses whose gradients a kernel computed together with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


class _Given(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, loss: Tensor, slopes: Sequence[Tensor | None], *of: Tensor | None
    ) -> Tensor:
        ctx.slopes = slopes
        return loss.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        scale, slopes = float(grads[0]), ctx.slopes
        if scale != 1.0:
            slopes = [None if slope is None else slope * scale for slope in slopes]
        return None, None, *slopes


@dataclass(frozen=True, slots=True)
class GivenLoss:
    """A loss, of what, and its derivatives by that."""

    value: Callable[[], Tensor]
    of: Sequence[Tensor | None]
    slopes: Sequence[Tensor | None]

    def as_tensor(self) -> Tensor:
        """For autograd, which then knows the derivatives."""
        result: Tensor = _Given.apply(  # type: ignore[no-untyped-call]
            self.value(), self.slopes, *self.of
        )
        return result

    def backward(self) -> None:
        """As a tensor's. Parameters are given their derivatives as they are: for small networks
        autograd costs more than the kernel."""
        if any(tensor is not None and not tensor.is_leaf for tensor in self.of):
            self.as_tensor().backward()  # type: ignore[no-untyped-call]
            return
        for tensor, slope in zip(self.of, self.slopes, strict=True):
            if tensor is not None and slope is not None and tensor.requires_grad:
                tensor.grad = slope if tensor.grad is None else tensor.grad + slope


def with_gradient(
    loss: Tensor, of: Sequence[Tensor | None], slopes: Sequence[Tensor | None]
) -> Tensor:
    """The loss as a function of some tensors, of which the kernel found these derivatives."""
    return GivenLoss(lambda: loss, of, slopes).as_tensor()
