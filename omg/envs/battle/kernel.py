"""Battles in C: the same interface and the same results as the NumPy reference, many times faster.
A batch may be split over threads, because a call into C frees the interpreter."""

from __future__ import annotations

import ctypes
import functools
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omg import compiled
from omg.compiled import Found, switched
from omg.envs.battle.args import BattleArgs
from omg.envs.battle.field import KEPT, Field, Outcome, Seen
from omg.envs.battle.reference import ReferenceBattles
from omg.envs.battle.rules import Rules
from omg.types import IntArray

FLAGS = compiled.GAME_FLAGS

# Members of the struct in battle.c, in its order: constants, the field, what a step tells.
CONSTANTS = (
    *("full_health", "full_shield", "armour", "radius", "speed", "regrowth", "start_energy"),
    *("cooldown_scale", "damage", "reach", "touch", "view_radius", "place", "heights"),
    *("full_cooldown", "hits", "weapon", "walks", "bit_own", "bit_other", "block"),
    *("grid", "routes"),
)
COUNTERS = ("steps", "episodes", "keys")
TOLD = (
    *("actions", "obs", "state", "avail", "final_obs", "final_state", "final_avail"),
    *("reward", "terminated", "truncated", "won", "dead"),
)
INTS = (
    *("n_allies", "n_enemies", "n_seats", "n_actions", "obs_dim", "state_dim", "limit", "period"),
    *("orders", "step_mul", "has_routes", "type_bits", "obs_all_health", "obs_own_health"),
    *("obs_last_action", "obs_pathing_grid", "obs_terrain_height", "obs_instead_of_state"),
    *("obs_timestep_number", "state_last_action", "state_timestep_number", "reward_sparse"),
    *("reward_only_positive", "shield_ally", "shield_enemy", "state_shield_ally"),
    "state_shield_enemy",
)
FLOATS = (
    *("acquire", "move_amount", "spawn_x", "spawn_y", "extent_x", "extent_y"),
    *("reward_death_value", "reward_win", "reward_defeat", "reward_negative_scale"),
    *("divisor_ally", "divisor_enemy"),
)


class _Struct(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in (*CONSTANTS, *KEPT, *COUNTERS, *TOLD)),
        *((name, ctypes.c_int64) for name in INTS),
        *((name, ctypes.c_double) for name in FLOATS),
    )


class BattleKernel:
    """The compiled functions, told their argument types."""

    def __init__(self, library: ctypes.CDLL) -> None:
        library.battle_struct_size.restype = ctypes.c_int64
        if library.battle_struct_size() != ctypes.sizeof(_Struct):
            raise RuntimeError("battle.c and kernel.py differ in their struct")
        for function in (library.battle_step, library.battle_view):
            function.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
        library.battle_begin.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
        for name in ("battle_step", "battle_view", "battle_begin"):
            getattr(library, name).restype = None
        self.step, self.view = library.battle_step, library.battle_view
        self.begin = library.battle_begin


class KernelBattles:
    """All copies, stepped together in C."""

    def __init__(self, kernel: BattleKernel, rules: Rules, n_copies: int) -> None:
        self._kernel, self.rules, self.field = kernel, rules, Field(rules, n_copies)
        self.steps = np.zeros(n_copies, np.int64)
        self.episodes = np.zeros(n_copies, np.int64)
        self.keys = np.zeros(n_copies, np.uint64)
        self._n = n_copies
        self._struct = _Struct()
        self._constants = {
            name: np.ascontiguousarray(getattr(rules, name)) for name in CONSTANTS
        }  # they must live as long as the struct
        self._point(**self._constants)
        self._point(**{name: getattr(self.field, name) for name in KEPT})
        self._point(steps=self.steps, episodes=self.episodes, keys=self.keys)
        for name, value in {**_integers(rules), **_numbers(rules)}.items():
            setattr(self._struct, name, value)
        self._final = self._empty()
        self._point(
            final_obs=self._final.obs,
            final_state=self._final.state,
            final_avail=self._final.avail,
        )
        threads = min(rules.args.threads, n_copies)
        edges = [n_copies * part // threads for part in range(threads + 1)]
        self._parts = list(pairwise(edges))
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def _point(self, **arrays: NDArray[Any]) -> None:
        for name, array in arrays.items():
            assert array.flags.c_contiguous
            setattr(self._struct, name, array.ctypes.data)

    def _empty(self) -> Seen:
        rules, n = self.rules, self._n
        return Seen(
            np.empty((n, rules.n_seats, rules.obs_dim), np.float32),
            np.empty((n, rules.state_dim), np.float32),
            np.empty((n, rules.n_seats, rules.n_actions), np.bool_),
        )

    def _call(self, function: Any) -> None:
        at = ctypes.addressof(self._struct)
        if self._pool is None:
            function(at, 0, self._n)
        else:
            list(self._pool.map(lambda part: function(at, *part), self._parts))

    def begin(self, copies: IntArray) -> None:
        """Start the next episode of some copies."""
        numbers = np.ascontiguousarray(copies, np.int64)
        self._kernel.begin(ctypes.addressof(self._struct), numbers.ctypes.data, len(numbers))

    def view(self, copies: IntArray | None = None) -> Seen:
        """What agents see and may do."""
        seen = self._empty()
        self._point(obs=seen.obs, state=seen.state, avail=seen.avail)
        self._call(self._kernel.view)
        if copies is None:
            return seen
        return Seen(seen.obs[copies], seen.state[copies], seen.avail[copies])

    def step(self, actions: IntArray) -> tuple[Outcome, Seen]:
        """One step of all copies; those that end begin their next episode."""
        n, seen = self._n, self._empty()
        actions = np.ascontiguousarray(actions, np.int64)
        reward, dead = np.empty((n, 2), np.float32), np.empty((n, 2), np.int64)
        terminated, truncated = np.empty(n, np.bool_), np.empty(n, np.bool_)
        won = np.empty(n, np.int8)
        self._point(actions=actions, obs=seen.obs, state=seen.state, avail=seen.avail)
        self._point(reward=reward, dead=dead, terminated=terminated, truncated=truncated, won=won)
        self._call(self._kernel.step)
        ended = (terminated | truncated).nonzero()[0]
        last = self._final
        final = Seen(last.obs[ended], last.state[ended], last.avail[ended]) if ended.size else None
        outcome = Outcome(
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            won=won,
            dead=dead,
            final=final,
        )
        return outcome, seen

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()


def _integers(rules: Rules) -> dict[str, int]:
    values: dict[str, Any] = {
        "step_mul": rules.args.step_mul,
        "has_routes": len(rules.routes) > 0,
        "type_bits": rules.map.info.type_bits,
        "shield_ally": rules.shields[0],
        "shield_enemy": rules.shields[1],
        "state_shield_ally": rules.state_shields[0],
        "state_shield_enemy": rules.state_shields[1],
    }
    for name in INTS:
        if name not in values:
            values[name] = getattr(rules if hasattr(rules, name) else rules.args, name)
    return {name: int(values[name]) for name in INTS}


def _numbers(rules: Rules) -> dict[str, float]:
    values: dict[str, Any] = {
        "acquire": rules.acquire,
        "spawn_x": rules.spawns[0][0],
        "spawn_y": rules.spawns[0][1],
        "extent_x": rules.extent[0],
        "extent_y": rules.extent[1],
        "divisor_ally": rules.reward_divisor[0],
        "divisor_enemy": rules.reward_divisor[1],
    }
    for name in FLOATS:
        if name not in values:
            values[name] = getattr(rules.args, name)
    return {name: float(values[name]) for name in FLOATS}


def _self_test(kernel: BattleKernel) -> float:
    """How many numbers differ from the reference's in some steps of a small battle."""
    rules = Rules(BattleArgs(map_name="2s3z"))
    battles = KernelBattles(kernel, rules, 3), ReferenceBattles(rules, 3)
    seen = []
    for each in battles:
        each.keys[:], each.episodes[:] = (11, 22, 33), -1
        each.begin(np.arange(3))
        seen.append(each.view())
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(12):
        chance = rng.random(seen[0].avail.shape)
        actions = np.where(seen[0].avail, chance, -1.0).argmax(-1)
        steps = [each.step(actions) for each in battles]
        seen = [step[1] for step in steps]
        for name in ("obs", "state", "avail"):
            wrong += int((getattr(seen[0], name) != getattr(seen[1], name)).sum())
        wrong += int((steps[0][0].reward != steps[1][0].reward).sum())
    return float(wrong)


@functools.cache
def _library() -> tuple[ctypes.CDLL | None, str]:
    return compiled.load_library(Path(__file__).with_name("battle.c"), FLAGS)


@switched
def battle_kernel() -> Found[BattleKernel]:
    """The kernel after its self-test, or None and the reason."""
    library, reason = _library()
    return compiled.checked(
        *(library, reason),
        make=BattleKernel,
        self_test=_self_test,
        tolerance=0.0,
        name="battle.c",
        instead="NumPy",
    )
