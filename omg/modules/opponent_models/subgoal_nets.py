"""The networks of `omg_am`: the prior VAE over states, the inference CVAE over histories."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from omg.functional import gaussian_kl, sample_gaussian


class PriorVAE(nn.Module):
    """p_ψ(g | s): encodes a state into a Gaussian over subgoals and decodes it back."""

    def __init__(self, state_dim: int, hidden_dim: int, subgoal_dim: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(state_dim, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, 2 * subgoal_dim),
        )
        self.decoder = nn.Sequential(
            nn.Linear(subgoal_dim, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, state_dim),
        )

    def encode(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance."""
        mean, log_var = self.encoder(state).chunk(2, -1)
        return mean, log_var.clamp(-10.0, 4.0)

    def decode(self, subgoal: Tensor) -> Tensor:
        out: Tensor = self.decoder(subgoal)
        return out

    def loss(
        self,
        state: Tensor,
        kl_weight: float,
        generator: torch.Generator,
        variance: Tensor | None = None,
    ) -> Mapping[str, Tensor]:
        """Reconstruction (mean square, as shares of `variance` where it is given, [C]) + weight ·
        KL to N(0, 1)."""
        mean, log_var = self.encode(state)
        decoded = self.decode(sample_gaussian(mean, log_var, generator))
        zeros = torch.zeros_like(mean)
        kl = gaussian_kl(mean, log_var, zeros, zeros).mean()
        error = (decoded - state).square()
        recon = (error if variance is None else error / variance).mean()
        return {"am_loss": recon + kl_weight * kl, "prior_recon": recon, "prior_kl": kl}


class InferenceCVAE(nn.Module):
    """q_φ(g | τ, s): encoder of (embedding of s_t, condition) and decoder of (g, condition)."""

    def __init__(self, embed_dim: int, cond_dim: int, hidden_dim: int, subgoal_dim: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(embed_dim + cond_dim, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, 2 * subgoal_dim),
        )
        self.decoder = nn.Sequential(
            nn.Linear(subgoal_dim + cond_dim, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, embed_dim),
        )

    def encode(self, embedding: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_var = self.encoder(torch.cat([embedding, condition], -1)).chunk(2, -1)
        return mean, log_var.clamp(-10.0, 4.0)

    def decode(self, subgoal: Tensor, condition: Tensor) -> Tensor:
        out: Tensor = self.decoder(torch.cat([subgoal, condition], -1))
        return out


class InferenceMLP(nn.Module):
    """The supervised ablation: (embedding of s_t, condition) to one subgoal, no distribution."""

    def __init__(self, embed_dim: int, cond_dim: int, hidden_dim: int, subgoal_dim: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(embed_dim + cond_dim, hidden_dim),
            nn.ReLU(),
            nn.Linear(hidden_dim, subgoal_dim),
        )

    def encode(self, embedding: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        """The subgoal, and a log-variance of zero."""
        mean: Tensor = self.body(torch.cat([embedding, condition], -1))
        return mean, torch.zeros_like(mean)
