"""The others' predicted actions: the loss and how often the likeliest one was right."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def action_loss(logits_RJA: Tensor, actions_RJ: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy over moments and others, and the share of right guesses."""
    logits, actions = logits_RJA.flatten(0, 1), actions_RJ.flatten()
    hits = (logits.argmax(-1) == actions).to(torch.float32).mean()
    return functional.cross_entropy(logits, actions), hits.detach()
