"""Value decomposition: Q_tot = Σ_n Q_n."""

from __future__ import annotations

from torch import Tensor, nn

from omg.modules.mixers.base import Mixer


class VDNMixer(Mixer):
    """The sum over agents; the state is not used."""

    def __init__(
        self,
        *,
        n_agents: int,
        state_dim: int = 0,
        embed_dim: int = 0,
        hypernet_layers: int = 0,
        hypernet_embed: int = 0,
    ) -> None:
        nn.Module.__init__(self)

    def forward(self, values: Tensor, state: Tensor) -> Tensor:
        return values.sum(-1, keepdim=True)
