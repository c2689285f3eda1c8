"""LIAM's loss for any embedding: what every other agent sees and does can be told from it."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from omg.modules.opponent_models.base import ModelRows, action_loss, mean_over_present
from omg.types import EnvSpec


class OthersDecoder(nn.Module):
    """Decoders of an embedding [R, E] to the others' observations and actions."""

    def __init__(self, spec: EnvSpec, *, embed_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self._others, self._actions = spec.n_agents - 1, spec.n_actions
        self.obs_decoder = decoder(embed_dim, hidden_dim, self._others * spec.obs_dim)
        self.action_decoder = decoder(embed_dim, hidden_dim, self._others * spec.n_actions)

    def seen(self, embedding: Tensor) -> Tensor:
        """What the others see, [R, N-1, O]."""
        out: Tensor = self.obs_decoder(embedding)
        return out.view(len(embedding), self._others, -1)

    def logits(self, embedding: Tensor) -> Tensor:
        """Unnormalised log-probabilities of the others' actions, [R, N-1, A]."""
        out: Tensor = self.action_decoder(embedding)
        return out.view(-1, self._others, self._actions)

    def loss(self, embedding: Tensor, acted: ModelRows, *, weight: float) -> Mapping[str, Tensor]:
        """Means over rows and others: the square error of what they see + weight · cross-entropy
        of what they do."""
        assert acted.others_obs is not None
        assert acted.others_actions is not None
        alive = acted.others_alive
        missed = (self.seen(embedding) - acted.others_obs).square()
        obs_loss = mean_over_present(missed, alive)
        cross_entropy, accuracy = action_loss(self.logits(embedding), acted.others_actions, alive)
        return {
            "am_loss": obs_loss + weight * cross_entropy,
            "am_obs_loss": obs_loss,
            "am_action_loss": cross_entropy,
            "am_accuracy": accuracy,
        }


def decoder(embed_dim: int, hidden_dim: int, out_dim: int) -> nn.Sequential:
    """One hidden layer."""
    return nn.Sequential(
        nn.Linear(embed_dim, hidden_dim), nn.ReLU(), nn.Linear(hidden_dim, out_dim)
    )
