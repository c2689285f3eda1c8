"""Rewards as agents learn from them: one for a team, or other weights (`reward_weights`), which
make players of another character."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from omg.config.schema import RewardWeights
from omg.types import BoolArray, EnvSpec, FloatArray, IntArray


def team_reward(
    reward_BN: FloatArray, *, shared: bool, how: str, seats: Sequence[int] | None = None
) -> FloatArray:
    """One reward per copy [B] from the agents' rewards, or from those in some seats."""
    if shared:
        return reward_BN[:, 0]
    if seats is not None and len(seats) < reward_BN.shape[1]:
        reward_BN = reward_BN[:, list(seats)]
    reduced: FloatArray = reward_BN.mean(1) if how == "mean" else reward_BN.sum(1)
    return reduced


class Reweighting:
    """Turns the game's rewards into those that agents learn from."""

    def __init__(self, weights: RewardWeights, spec: EnvSpec) -> None:
        roles = np.array(spec.roles or [""] * spec.n_agents)
        alike = (roles[:, None] == roles) & ~np.eye(spec.n_agents, dtype=bool)
        mean = alike / np.maximum(alike.sum(1, keepdims=True), 1)
        mixture = weights.own * np.eye(spec.n_agents) + weights.others * mean
        self._mixture_NN = mixture.astype(np.float32)
        self._power = weights.power
        self._paid_A = np.zeros(spec.n_actions, np.float32)
        for action, reward in weights.actions.items():
            self._paid_A[action] = reward

    def __call__(
        self, reward_BN: FloatArray, actions_BN: IntArray, alive_BN: BoolArray
    ) -> FloatArray:
        """[B, N]; who has left the game is paid for no action."""
        if self._power != 1.0:
            reward_BN = np.sign(reward_BN) * np.abs(reward_BN) ** np.float32(self._power)
        paid = self._paid_A[actions_BN] * alive_BN
        weighted: FloatArray = reward_BN @ self._mixture_NN.T + paid
        return weighted


def reweighting_of(weights: Mapping[str, Any], spec: EnvSpec) -> Reweighting | None:
    """What `reward_weights` asks for; None: the game's rewards as they are."""
    return Reweighting(RewardWeights.model_validate(weights), spec) if weights else None
