"""Episodes of a two-state game whose values are known by hand, as stored batches.

States X and Y alternate: X → Y → X …; an agent that plays action 0 earns R(state)/2, with
R(X) = 1 and R(Y) = 2, and nothing otherwise. Played well by both agents, with γ = 1/2:

- never ending (episodes are merely cut):  V(X) = 1 + ½·V(Y), V(Y) = 2 + ½·V(X)
  ⇒ V(X) = 8/3, V(Y) = 10/3;
- ending after Y:                          V(Y) = 2, V(X) = 1 + ½·2 = 2.

The value of any joint action is Σ_n r_n + ½·V(next), one agent's own share is half of V.
"""

from __future__ import annotations

import numpy as np
import torch

from omg.components.episode_batch import EpisodeBatch
from omg.components.scheme import environment_scheme
from omg.types import EnvSpec

GAMMA = 0.5
SPEC = EnvSpec(name="two-state", n_agents=2, n_actions=3, obs_dim=2, state_dim=2, episode_limit=7)
REWARD = np.array([1.0, 2.0])
VALUES = {"terminated": np.array([2.0, 2.0]), "truncated": np.array([8 / 3, 10 / 3])}
# Action 2 would be the best by far if it were available.
AVAILABLE = np.array([True, True, False])


def next_value(ending: str) -> np.ndarray:
    """½·V(next state) for X and Y; nothing follows Y when the game ends there."""
    values = VALUES[ending][::-1] * GAMMA
    return values * np.array([1.0, 0.0]) if ending == "terminated" else values


def team_values(ending: str) -> np.ndarray:
    """Q_tot[state, a_1, a_2] for the available actions, solved by hand."""
    plays_zero = np.array([1.0, 0.0])
    share = (plays_zero[:, None] + plays_zero[None, :]) / 2
    return REWARD[:, None, None] * share + next_value(ending)[:, None, None]


def own_values(ending: str) -> np.ndarray:
    """Q_n[state, a] of one agent that earns its own half."""
    plays_zero = np.array([1.0, 0.0])
    return (REWARD[:, None] * plays_zero + next_value(ending)[:, None]) / 2


def episodes(
    rng: np.random.Generator, count: int, *, ending: str, common: bool, padded: bool
) -> EpisodeBatch:
    """Random play from random start states; lengths differ when `padded`."""
    longest = 6
    slots = longest + 1 + 2 * padded
    start = rng.integers(0, 2, count)
    if ending == "terminated":
        length = 2 - start
    else:
        length = rng.integers(1, longest + 1, count) if padded else np.full(count, longest)
    time = np.arange(slots)
    acts = (time < length[:, None])[..., None]  # [B, T, 1]
    seen = time <= length[:, None]
    where = (start[:, None] + time) % 2
    view = np.eye(2, dtype=np.float32)[where] * seen[..., None]
    actions = rng.integers(0, 2, (count, slots, 2)) * acts
    earned = (REWARD[where][..., None] / 2 * (actions == 0) * acts).astype(np.float32)
    batch = EpisodeBatch(
        environment_scheme(SPEC, common_reward=common), batch_size=count, max_seq_length=slots
    )
    batch.update(
        {
            "state": view,
            "obs": np.repeat(view[:, :, None], 2, 2),
            "avail_actions": np.broadcast_to(
                AVAILABLE & seen[..., None, None], (count, slots, 2, 3)
            ).copy(),
            "actions": actions,
            "reward": earned.sum(-1, keepdims=True) if common else earned,
            "terminated": (time == length[:, None] - 1) & (ending == "terminated"),
        },
        mark_filled=False,
    )
    batch.filled[:] = torch.from_numpy(seen)
    return batch
