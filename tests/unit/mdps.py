"""Episodes of a two-state game whose values are known by hand, as stored batches.

States X and Y alternate: X → Y → X …; an agent that plays action 0 earns R(state)/2, with
R(X) = 1 and R(Y) = 2, and nothing otherwise. Played well by both agents, with γ = 1/2:

- never ending (episodes are merely cut):  V(X) = 1 + ½·V(Y), V(Y) = 2 + ½·V(X)
  ⇒ V(X) = 8/3, V(Y) = 10/3;
- ending after Y:                          V(Y) = 2, V(X) = 1 + ½·2 = 2.

The value of any joint action is Σ_n r_n + ½·V(next), one agent's own share is half of V.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch

from omg.components.episodes import EpisodeBatch, Scheme, environment_scheme
from omg.components.trajectories import SEAT
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
    rng: np.random.Generator,
    count: int,
    *,
    ending: str,
    common: bool,
    padded: bool,
    scheme: Scheme | None = None,
) -> EpisodeBatch:
    """Random play from random start states; lengths differ when `padded`. Where the scheme tells
    which seat learns, seats are drawn."""
    scheme = scheme or environment_scheme(SPEC, common_reward=common)
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
    batch = EpisodeBatch(scheme, batch_size=count, max_seq_length=slots)
    if SEAT in scheme.fields:
        batch.update({SEAT: rng.integers(0, SPEC.n_agents, count)}, mark_filled=False)
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


# How often action 0 is played in `all_plays`: twice as often as action 1.
CHANCE = 2 / 3
_DRAWN = (0, 0, 1)


def solve(ending: str, chance: float | None = None) -> np.ndarray:
    """Q_n[state, a_1, a_2, agent] by dynamic programming: of agents that play action 0 with this
    chance, or the best action each for itself (None). An agent earns R(state)/2 by action 0."""
    plays_zero = np.array([1.0, 0.0])
    own = REWARD[:, None] * plays_zero / 2  # [state, a]
    values = np.zeros(2)
    goes_on = np.array([1.0, 0.0 if ending == "terminated" else 1.0])
    for _ in range(60):
        q = own + GAMMA * (goes_on * values[::-1])[:, None]
        values = q.max(1) if chance is None else q @ np.array([chance, 1 - chance])
    return np.stack([np.repeat(q[:, :, None], 2, 2), np.repeat(q[:, None], 2, 1)], -1)


def play(start: int, actions: Sequence[tuple[int, int]], *, ending: str) -> dict[str, np.ndarray]:
    """One episode: the fields of an `EpisodeBatch` with len(actions) + 1 slots, rewards per agent.
    Where the game does not end with its last step, it is cut there."""
    steps = len(actions)
    where = (start + np.arange(steps + 1)) % 2
    view = np.eye(2, dtype=np.float32)[where]
    taken = np.array([*actions, (0, 0)])
    reward = (REWARD[where][:, None] / 2 * (taken == 0)).astype(np.float32)
    reward[-1] = 0.0
    ends = ending == "terminated" and where[steps - 1] == 1
    return {
        "state": view,
        "obs": np.repeat(view[:, None], 2, 1),
        "avail_actions": np.tile(AVAILABLE, (steps + 1, 2, 1)),
        "actions": taken,
        "reward": reward,
        "terminated": (np.arange(steps + 1) == steps - 1) & ends,
    }


def all_plays(steps: int) -> list[list[tuple[int, int]]]:
    """Every sequence of joint actions, as often as agents that play action 0 with `CHANCE` would:
    means over these are expectations, without any noise."""
    joint = list(itertools.product(_DRAWN, _DRAWN))
    return [list(sequence) for sequence in itertools.product(joint, repeat=steps)]
