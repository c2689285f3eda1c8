"""Which stored steps are transitions to learn from."""

from __future__ import annotations

import torch
from torch import Tensor


def transition_mask(filled_BT: Tensor, terminated_BT: Tensor) -> Tensor:
    """1 where slot t and its successor are filled and the step before did not terminate, [B, T-1].

    The last filled slot of an episode holds only the last observation: it is a successor, never
    a transition, whether the episode terminated or was cut.
    """
    usable = filled_BT[:, :-1] & filled_BT[:, 1:]
    usable[:, 1:] &= ~terminated_BT[:, :-2]
    return usable.to(torch.float32)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Σ mask·values / Σ mask (0 where nothing counts); the mask broadcasts over values."""
    weights = mask.expand_as(values)
    return (values * weights).sum() / weights.sum().clamp(min=1.0)
