"""One seed tree feeds every random stream of a run."""

from __future__ import annotations

import zlib

import numpy as np
import torch


class SeedTree:
    """Independent streams by name: the same seed and name always give the same stream."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def sequence(self, name: str, *indices: int) -> np.random.SeedSequence:
        key = (zlib.crc32(name.encode()), *indices)
        return np.random.SeedSequence(entropy=self.seed, spawn_key=key)

    def integer(self, name: str, *indices: int) -> int:
        """A 62-bit seed for code that takes a plain number."""
        return int(self.sequence(name, *indices).generate_state(1, np.uint64)[0] >> 2)

    def numpy(self, name: str, *indices: int) -> np.random.Generator:
        return np.random.default_rng(self.sequence(name, *indices))

    def torch(self, name: str, *indices: int) -> torch.Generator:
        return torch.Generator().manual_seed(self.integer(name, *indices))
