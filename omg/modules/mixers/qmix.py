"""QMIX: Q_tot = w_2(s)ᵀ elu(W_1(s)ᵀ q + b_1(s)) + V(s), with W_1, w_2 ≥ 0."""

from __future__ import annotations

from torch import Tensor, nn

from omg.modules.kernels.qmix import mixed, qmix_kernel, run_qmix
from omg.modules.mixers.base import Mixer


def _hypernet(layers: int, state_dim: int, hidden: int, out: int) -> nn.Module:
    if layers == 1:
        return nn.Linear(state_dim, out)
    return nn.Sequential(nn.Linear(state_dim, hidden), nn.ReLU(), nn.Linear(hidden, out))


class QMixer(Mixer):
    """Monotone in every agent's value because the mixing weights are absolute values of
    hyper-network outputs. Parameter names are PyMARL's. On a CPU with a C compiler rows of values
    go through our own kernel."""

    def __init__(
        self,
        *,
        n_agents: int,
        state_dim: int,
        embed_dim: int,
        hypernet_layers: int = 2,
        hypernet_embed: int = 64,
    ) -> None:
        super().__init__()
        self.n_agents = n_agents
        self.embed_dim = embed_dim
        self._two_layers, self._hidden = hypernet_layers == 2, hypernet_embed
        self.hyper_w_1 = _hypernet(hypernet_layers, state_dim, hypernet_embed, n_agents * embed_dim)
        self.hyper_w_final = _hypernet(hypernet_layers, state_dim, hypernet_embed, embed_dim)
        self.hyper_b_1 = nn.Linear(state_dim, embed_dim)
        self.V = nn.Sequential(nn.Linear(state_dim, embed_dim), nn.ReLU(), nn.Linear(embed_dim, 1))

    def forward(self, values: Tensor, state: Tensor) -> Tensor:
        rows = values.shape == (len(state), self.n_agents) and state.ndim == 2
        kernel = qmix_kernel()[0] if self._two_layers and rows else None
        if kernel is not None and kernel.fits(values, state, self.embed_dim, self._hidden):
            return run_qmix(kernel, values, state, list(self.parameters()))
        nets = (self.hyper_w_1, self.hyper_b_1, self.hyper_w_final, self.V)
        return mixed(values, *(net(state) for net in nets))
