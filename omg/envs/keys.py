"""Counter-based randomness: what episode e of copy b draws is a pure function of (seed, b, e)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from omg.types import IntArray

Keys = NDArray[np.uint64]

GOLDEN = np.array(0x9E3779B97F4A7C15, np.uint64)
WORD = (1 << 64) - 1


def mix(keys: Keys) -> Keys:
    """The finaliser of splitmix64: neighbouring keys give unrelated words."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Keys = keys ^ (keys >> np.uint64(31))
    return mixed


def copy_keys(seed: int, copies: IntArray) -> Keys:
    """One key per copy, [B]."""
    root = mix(np.array([seed & WORD], np.uint64) + GOLDEN)
    return mix(root + (copies.astype(np.uint64) + np.uint64(1)) * GOLDEN)


def episode_keys(keys: Keys, episodes: IntArray) -> Keys:
    """One key per copy and episode, [B]."""
    return mix(keys ^ mix((episodes.astype(np.uint64) + np.uint64(1)) * GOLDEN))


def draw_words(keys: Keys, n_draws: int) -> Keys:
    """Independent words of 64 random bits, [B, n_draws]."""
    return mix(keys[:, None] + np.arange(1, n_draws + 1).astype(np.uint64) * GOLDEN)
