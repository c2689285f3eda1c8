"""Foraging in C: moves, loads and views of all copies, the same as in NumPy. The games' arrays stay
where they are, so that everything else knows nothing of it."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omg import compiled
from omg.compiled import Found, switched
from omg.envs.contract import address
from omg.types import BoolArray, FloatArray, IntArray

FLAGS = compiled.GAME_FLAGS

# Members of the struct in foraging.c, in its order.
POINTERS = (
    *("moves", "food_offset", "columns", "loads", "avail", "empty", "rows_f", "cols_f"),
    *("pos", "levels", "foods", "spawned", "score", "collected", "state", "code", "here"),
    "field",
)
INTS = (
    *("n_copies", "n_players", "n_foods", "n_cells", "cols", "state_dim", "obs_dim"),
    "normalize",
)


class _Struct(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in POINTERS),
        *((name, ctypes.c_int64) for name in INTS),
        ("penalty", ctypes.c_double),
    )


class ForagingKernel:
    """The compiled functions, told their argument types."""

    def __init__(self, library: ctypes.CDLL) -> None:
        for name in ("foraging_struct_size", "foraging_max_players"):
            getattr(library, name).restype = ctypes.c_int64
        if library.foraging_struct_size() != ctypes.sizeof(_Struct):
            raise RuntimeError("foraging.c and kernel.py differ in their struct")
        self.max_players: int = library.foraging_max_players()
        self.act, self.view = library.foraging_act, library.foraging_view
        self.act.argtypes = self.view.argtypes = [ctypes.c_void_p] * 3
        self.view.restype = None


class KernelGames:
    """Acts and looks in games whose arrays are kept by somebody else, who never replaces them."""

    def __init__(
        self, kernel: ForagingKernel, arrays: Mapping[str, NDArray[Any]], numbers: Mapping[str, Any]
    ) -> None:
        self._kernel, self._arrays = kernel, dict(arrays)  # they live as long as the struct
        self._struct = _Struct()
        for name, array in arrays.items():
            assert array.flags.c_contiguous
            setattr(self._struct, name, array.ctypes.data)
        for name, value in numbers.items():
            setattr(self._struct, name, value)
        self._at = ctypes.addressof(self._struct)
        players = (numbers["n_copies"], numbers["n_players"])
        self._obs, self._avail = (
            (*players, numbers["obs_dim"]),
            (*players, arrays["avail"].shape[1]),
        )
        self._players = players

    def act(self, actions: IntArray) -> FloatArray:
        """Move and load in every copy; rewards [B, N]."""
        reward = np.empty(self._players, np.float32)
        if self._kernel.act(self._at, address(actions), address(reward)):
            raise IndexError("there is no such action")
        return reward

    def view(self) -> tuple[FloatArray, BoolArray]:
        """What players see who see everything, and what they may do."""
        obs, avail = np.empty(self._obs, np.float32), np.empty(self._avail, np.bool_)
        self._kernel.view(self._at, address(obs), address(avail))
        return obs, avail


def _self_test(kernel: ForagingKernel) -> float:
    """How many numbers differ from NumPy's in some steps of small games."""
    from omg.envs.foraging.env import ForagingEnv  # it is made of what is tested here

    rng, wrong = np.random.default_rng(0), 0
    for key in ("Foraging-6x6-3p-3f-v3", "Foraging-2s-5x5-2p-1f-coop-v3"):
        games = [ForagingEnv(args={"key": key, "penalty": 0.1}, n_copies=7) for _ in range(2)]
        for game, used in zip(games, (kernel, None), strict=True):
            game.use(used)
            game.reset(5)
        seen = games[0].observe()
        for _ in range(40):
            actions = np.where(seen.avail, rng.random(seen.avail.shape), -1.0).argmax(-1)
            first, second = (game.step(actions) for game in games)
            for name in ("obs", "state", "avail", "reward", "terminated", "truncated"):
                wrong += int((getattr(first, name) != getattr(second, name)).sum())
            seen = games[0].observe()
    return float(wrong)


@functools.cache
def _library() -> tuple[ctypes.CDLL | None, str]:
    return compiled.load_library(Path(__file__).with_name("foraging.c"), FLAGS)


@switched
def foraging_kernel() -> Found[ForagingKernel]:
    """The kernel after its self-test, or None and the reason."""
    library, reason = _library()
    return compiled.checked(
        *(library, reason),
        make=ForagingKernel,
        self_test=_self_test,
        tolerance=0.0,
        name="foraging.c",
        instead="NumPy",
    )
