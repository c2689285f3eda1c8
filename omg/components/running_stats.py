"""Mean and deviation of all numbers seen so far."""

from __future__ import annotations

import torch
from torch import Tensor, nn

# Numbers that never vary are not blown up.
SMALLEST = 1e-4


class RunningStats(nn.Module):
    """Merges each batch's mean and variance into those of everything before (Chan et al. 1979).
    It counts what it is given: hand it packed values, which hold no padding. Saved with the
    network whose unit it is."""

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("variance", torch.ones(()))
        self.register_buffer("count", torch.zeros(()))

    @torch.no_grad()
    def update(self, values: Tensor) -> None:
        """Take in all numbers of a tensor of any shape."""
        if not values.numel():
            return
        variance, mean = torch.var_mean(values, correction=0)
        total = self.count + values.numel()
        share = values.numel() / total
        gap = mean - self.mean
        spread = (1 - share) * self.variance + share * variance
        self.variance.copy_(spread + share * (1 - share) * gap.square())
        self.mean.add_(share * gap)
        self.count.copy_(total)

    @property
    def deviation(self) -> Tensor:
        return self.variance.sqrt().clamp(min=SMALLEST)

    def normalised(self, values: Tensor) -> Tensor:
        """(values - mean) / deviation."""
        return (values - self.mean) / self.deviation

    def restored(self, normalised: Tensor) -> Tensor:
        """The inverse of `normalised`."""
        return normalised * self.deviation + self.mean
