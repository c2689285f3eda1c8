"""Several subgoals that the others may have, each with its probability: a posterior with modes.

A Gaussian between two foods is no place that anybody goes to; two modes are.
"""

from __future__ import annotations

import torch
from torch import Tensor

SPARED = 0.05  # of every lesson is shared by all modes alike, so that none is forgotten


def likeliest_first(logits_RM: Tensor, *values_RG: Tensor, heads: int) -> tuple[Tensor, ...]:
    """Log-probabilities of the modes, falling, [R, M], and values of `heads` subgoals side by side
    [R, heads · G] in that order; heads beyond the modes stay where they are."""
    chances, order = logits_RM.log_softmax(-1).sort(-1, descending=True)
    rows, modes = order.shape
    further = torch.arange(modes, heads, device=order.device).expand(rows, -1)
    order = torch.cat([order, further], -1).unsqueeze(-1)
    return chances, *(
        value.view(rows, heads, -1)
        .gather(1, order.expand(-1, -1, value.shape[1] // heads))
        .flatten(1)
        for value in values_RG
    )


def loss_of_modes(cost_RM: Tensor, chances_RM: Tensor) -> tuple[Tensor, Tensor]:
    """-log Σ_m w_m exp(-cost_m), [R], by its gradient: a mode learns by its share in the sum and
    becomes likelier by it; and the shares, [R, M]. With one mode this is its cost."""
    share = (chances_RM - cost_RM).softmax(-1).detach()
    learns = (1 - SPARED) * share + SPARED / cost_RM.shape[-1]
    return (learns * cost_RM - share * chances_RM).sum(-1), share
