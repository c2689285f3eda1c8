"""The recurrent core: one GRU layer, stepped once or unrolled over a whole sequence."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from omg.modules.kernels.gru import gru_kernel, run_gru


class GRUCore(nn.Module):
    """A GRU with `nn.GRUCell`'s parameter names, so PyMARL's checkpoints load, and with a
    whole-sequence call, so that no Python loop over time is needed. On a CPU with a C compiler
    the sequence runs in our own kernel; elsewhere in torch's."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.weight_ih = nn.Parameter(torch.empty(3 * hidden_size, input_size))
        self.weight_hh = nn.Parameter(torch.empty(3 * hidden_size, hidden_size))
        self.bias_ih = nn.Parameter(torch.empty(3 * hidden_size))
        self.bias_hh = nn.Parameter(torch.empty(3 * hidden_size))
        bound = 1 / math.sqrt(hidden_size)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, inputs: Tensor, hidden: Tensor) -> Tensor:
        """One step: inputs [R, I], hidden [R, H] -> hidden [R, H]."""
        return torch.gru_cell(
            inputs, hidden, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh
        )

    def unroll_packed(self, inputs_PI: Tensor, sizes: Tensor, hidden: Tensor) -> Tensor:
        """All steps of packed rows (see `functional.packing`): step t has sizes[t] rows (int64 on
        the CPU, never increasing); hidden before the first step [sizes[0], H] -> [P, H]."""
        kernel, _ = gru_kernel()
        weights: list[Tensor] = [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh]
        if kernel is not None and kernel.fits(inputs_PI, self.hidden_size, weights):
            return run_gru(kernel, inputs_PI, sizes, hidden, weights)
        out, _ = torch.gru(
            inputs_PI, sizes, hidden.unsqueeze(0), weights, True, 1, 0.0, self.training, False
        )
        return out

    def unroll(self, inputs_TRI: Tensor, hidden: Tensor) -> Tensor:
        """All steps: inputs [T, R, I], hidden before the first [R, H] -> hiddens [T, R, H]."""
        steps, rows, _ = inputs_TRI.shape
        sizes = torch.full((steps,), rows, dtype=torch.int64)
        return self.unroll_packed(inputs_TRI.flatten(0, 1), sizes, hidden).view(steps, rows, -1)
