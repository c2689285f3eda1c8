"""Value decomposition: Q_tot = Σ_n Q_n."""

from __future__ import annotations

from torch import Tensor

from omg.modules.mixers.base import Mixer


class VDNMixer(Mixer):
    """The sum over agents; the state is not used."""

    def forward(self, values: Tensor, state: Tensor) -> Tensor:
        return values.sum(-1, keepdim=True)
