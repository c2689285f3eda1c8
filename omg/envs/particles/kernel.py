"""A step of moving discs in C: the same as in NumPy, many times faster for few copies. The games'
arrays stay where they are, so that snapshots, layouts and pictures know nothing of it."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omg import compiled
from omg.compiled import Found, switched
from omg.envs.contract import address
from omg.envs.particles import physics
from omg.types import BoolArray, FloatArray, IntArray

FLAGS = compiled.GAME_FLAGS

# Members of the struct in particles.c, in its order.
POINTERS = (
    *("accelerations", "max_speeds", "spread", "sizes", "obs_rows", "rows", "score"),
    *("steps", "episode", "keys", "covered", "collisions", "survival"),
    *("final_obs", "final_state"),
)
INTS = (
    *("game", "n_copies", "n_agents", "n_solid", "n_bodies", "obs_pairs", "limit"),
    *("n_predators", "shaped"),
)
FLOATS = (
    *("time_step", "kept", "contact_force", "contact_margin", "push_range"),
    *("cover_distance", "collision_distance", "collision_penalty", "local_ratio"),
    *("contact_distance", "contact_reward", "shape_weight"),
    *("border_begin", "border", "border_slope", "border_cap"),
)
SPREAD, PREDATOR_PREY = 0, 1


class _Struct(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in POINTERS),
        *((name, ctypes.c_int64) for name in INTS),
        *((name, ctypes.c_double) for name in FLOATS),
    )


class ParticleKernel:
    """The compiled function, told its argument types."""

    def __init__(self, library: ctypes.CDLL) -> None:
        for name in ("particles_struct_size", "particles_max_bodies", "particles_step"):
            getattr(library, name).restype = ctypes.c_int64
        if library.particles_struct_size() != ctypes.sizeof(_Struct):
            raise RuntimeError("particles.c and kernel.py differ in their struct")
        self.max_bodies: int = library.particles_max_bodies()
        self.step = library.particles_step
        self.step.argtypes = [ctypes.c_void_p] * 7


@dataclass(frozen=True, slots=True)
class Stepped:
    """What a step of all copies told."""

    obs: FloatArray
    state: FloatArray
    reward: FloatArray
    info: FloatArray  # [counters, B]
    truncated: BoolArray
    final: tuple[FloatArray, FloatArray] | None  # last observations and states of those that ended


class KernelSteps:
    """Steps games whose arrays are kept by somebody else, who never replaces them."""

    def __init__(
        self,
        kernel: ParticleKernel,
        world: physics.Particles,
        kept: Mapping[str, NDArray[Any]],
        rules: Mapping[str, float],
    ) -> None:
        """`kept`: the environment's arrays by their name in the struct; `rules`: the game's."""
        self._step = kernel.step
        copies, bodies = world.n_copies, world.bodies
        n, pairs = world.obs_rows.shape
        self._shapes = (copies, n, 2 * pairs), (copies, 2 * (bodies.n_bodies + n)), (copies, n)
        self._final = [np.empty(shape, np.float32) for shape in self._shapes[:2]]
        arrays: dict[str, NDArray[Any]] = {
            "accelerations": np.array(bodies.accelerations, np.float64),
            "max_speeds": np.array(bodies.max_speeds, np.float64),
            "sizes": np.array(bodies.sizes, np.float64),
            "obs_rows": np.ascontiguousarray(world.obs_rows, np.int64),
            "rows": world.rows,
            "final_obs": self._final[0],
            "final_state": self._final[1],
            **kept,
        }
        numbers: dict[str, float] = {
            "n_copies": copies,
            "n_agents": n,
            "n_solid": bodies.n_solid,
            "n_bodies": bodies.n_bodies,
            "obs_pairs": pairs,
            "time_step": physics.TIME_STEP,
            "kept": 1 - physics.DAMPING,
            "contact_force": physics.CONTACT_FORCE,
            "contact_margin": physics.CONTACT_MARGIN,
            "push_range": physics.PUSH_RANGE,
            **rules,
        }
        self._struct, self._arrays = _Struct(), arrays  # these live as long as the struct
        for name, array in arrays.items():
            assert array.flags.c_contiguous
            assert array.dtype.itemsize == (4 if "final" in name else 8)
            setattr(self._struct, name, array.ctypes.data)
        for name, value in numbers.items():
            setattr(self._struct, name, int(value) if name in INTS else float(value))
        self._at = ctypes.addressof(self._struct)
        # One piece of memory for all that a step tells: an address costs more than an array.
        sizes = [4 * int(np.prod(shape)) for shape in (*self._shapes, (2, copies))]
        self._places = [0, *np.cumsum([-(-size // 64) * 64 for size in sizes]).tolist()]

    def __call__(self, actions: IntArray) -> Stepped | None:
        """One step with actions [B, N]; copies that end begin their next episode. None: nothing
        was done, because they are not such an array, or there is no such action."""
        usual = actions.shape == self._shapes[2] and actions.dtype == np.int64
        if not (usual and actions.flags.c_contiguous):
            return None
        room = np.empty(self._places[-1] + len(actions), np.uint8)
        at, places = address(room), self._places
        ended = self._step(self._at, address(actions), *[at + place for place in places])
        if ended < 0:
            return None
        obs, state, reward = (
            np.ndarray(shape, np.float32, room, place)
            for shape, place in zip(self._shapes, places, strict=False)
        )
        info = np.ndarray((2, len(actions)), np.float32, room, places[3])
        truncated = np.ndarray(len(actions), np.bool_, room, places[4])
        final = None
        if ended:
            final = (self._final[0][:ended].copy(), self._final[1][:ended].copy())
        return Stepped(obs, state, reward, info, truncated, final)


def _self_test(kernel: ParticleKernel) -> float:
    """The largest difference to NumPy in some steps of small games."""
    from omg.envs.predator_prey import PredatorPreyEnv  # they are made of what is tested here
    from omg.envs.spread import SpreadEnv

    rng, worst = np.random.default_rng(0), 0.0
    hunt = {"n_prey": 2, "max_cycles": 7, "shaped_reward": True}
    for kind, args in ((SpreadEnv, {"max_cycles": 5}), (PredatorPreyEnv, hunt)):
        games = [kind(args=args, n_copies=9) for _ in range(2)]
        for game, used in zip(games, (kernel, None), strict=True):
            game.use(used)
            game.reset(5)
        for _ in range(20):
            actions = rng.integers(0, physics.N_ACTIONS, (9, games[0].spec.n_agents))
            first, second = (game.step(actions) for game in games)
            pairs = [(getattr(first, n), getattr(second, n)) for n in ("obs", "state", "reward")]
            pairs += [(first.info[name], second.info[name]) for name in first.info]
            if (first.final is None) != (second.final is None):
                return float("inf")
            if first.final is not None and second.final is not None:
                pairs += [(first.final.obs, second.final.obs)]
                pairs += [(first.final.state, second.final.state)]
            worst = max(worst, *(float(np.abs(a - b).max()) for a, b in pairs))
    return worst


@functools.cache
def _library() -> tuple[ctypes.CDLL | None, str]:
    return compiled.load_library(Path(__file__).with_name("particles.c"), FLAGS)


@switched
def particle_kernel() -> Found[ParticleKernel]:
    """The kernel after its self-test, or None and the reason."""
    library, reason = _library()
    return compiled.checked(
        *(library, reason),
        make=ParticleKernel,
        self_test=_self_test,
        tolerance=1e-6,
        name="particles.c",
        instead="NumPy",
    )
