"""Derived fields, computed where they are used instead of being stored."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class Transform(Protocol):
    """Turns one stored field into another."""

    def __call__(self, value: Tensor) -> Tensor: ...


class OneHot:
    """Integers to one-hot float vectors on a new last axis; negative integers to zeros."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, value: Tensor) -> Tensor:
        codes = torch.arange(self.n, device=value.device, dtype=torch.int64)
        return (value.long().unsqueeze(-1) == codes).to(torch.float32)
