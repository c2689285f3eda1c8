"""One-step temporal-difference targets. Any leading axes; values [..., N], per action [..., A]."""

from __future__ import annotations

import torch
from torch import Tensor

# Large enough to lose against any value, finite so that padding cannot make NaN.
UNAVAILABLE = -9999999.0


def gather_actions(values_A: Tensor, actions: Tensor) -> Tensor:
    """values[..., a] for the actions taken."""
    return values_A.gather(-1, actions.unsqueeze(-1)).squeeze(-1)


def next_action_values(
    online_A: Tensor, target_A: Tensor, avail: Tensor, *, double: bool
) -> Tensor:
    """max_a Q'(s, a) over available actions; with `double` the action is chosen by the online
    network and valued by the target network."""
    if not double:
        return target_A.masked_fill(~avail, UNAVAILABLE).amax(-1)
    best = online_A.detach().masked_fill(~avail, UNAVAILABLE).argmax(-1)
    return gather_actions(target_A, best)


def td_targets(reward: Tensor, terminated: Tensor, next_values: Tensor, *, gamma: float) -> Tensor:
    """r + γ (1 - terminated) V(s'). A cut (truncated) episode is not terminated: it bootstraps."""
    continues = (~terminated).to(torch.float32).unsqueeze(-1)
    return reward + gamma * continues * next_values
