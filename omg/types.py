"""Values that travel between the layers. Imports nothing of ours.

Axis letters used in names and comments everywhere: B copies or batch, T time, N agents,
A actions, O observation features, S state features.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float32]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
Snapshot: TypeAlias = dict[str, NDArray[Any]]


class OmgError(Exception):
    """A problem the user can act on: one sentence on what is wrong, one on what to do.

    `exit_code` is 2 for bad input (arguments, configuration, files that do not fit) and
    1 for something that failed while running.
    """

    exit_code = 2


class RunFailedError(OmgError):
    """Something outside our control failed while running (worker, disk, device)."""

    exit_code = 1


def cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def human_bytes(count: float) -> str:
    """1536 -> '1.5 KiB'."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} B" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")


def user_path(named: str | os.PathLike[str]) -> Path:
    """A path as users write it (`~/results`); one that cannot exist is refused."""
    text = os.fspath(named)
    if (
        not text.isprintable()
        or len(text) > 4000
        or any(len(p.encode()) > 255 for p in text.split("/"))
    ):
        raise OmgError(f"{text[:60]!r} cannot be a path. Use a shorter one of letters and digits.")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise OmgError(
            f"'{text}': there is no such user's folder. Write the path without '~'."
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvSpec:
    """The sizes of an environment, and what may be assumed about its rewards and features."""

    name: str
    n_agents: int
    n_actions: int
    obs_dim: int
    state_dim: int
    episode_limit: int
    # True: every agent receives the same team reward, so a common reward is any one of them.
    shared_reward: bool = False
    # Multiply observations and states by these to bring them to about [-1, 1].
    obs_scale: float = 1.0
    state_scale: float = 1.0
    # Narrowest dtypes that hold every observation and state without loss (replay storage).
    obs_dtype: str = "float32"
    state_dtype: str = "float32"
    # What gives observations their meaning beside their width, as "setting=value, …" (sight,
    # relative or absolute places …); weights are refused where it differs. Empty: not said.
    obs_format: str = ""
    # Columns of the state that describe each agent, in the same order for all; empty: not said.
    agent_features: tuple[tuple[int, ...], ...] = ()
    # The role of every seat ("predator", "prey" …); empty: all seats are alike. Seats of one role
    # see and may do the same kinds of things, and a policy of one role plays in all of them.
    roles: tuple[str, ...] = ()
    # True: roles are opponents, so that the sum of their rewards is nobody's goal.
    opposed: bool = False
    # How many of the obs_dim features every seat really has; the rest are always zero. Empty: all.
    obs_dims: tuple[int, ...] = ()
    # True: seats may become absent during an episode, and stay so until it ends (see `alive`).
    leavers: bool = False
    # What players may go for ("stag", "hare 1" …); empty: not said (see `TimeStep.reached`).
    goals: tuple[str, ...] = ()
    # Columns of the state that say where each goal is, in the same order for all; may be empty.
    goal_features: tuple[tuple[int, ...], ...] = ()
    # Actions that mark an event in a player's plan (to load, to capture …); empty: not said.
    event_actions: tuple[int, ...] = ()
    # Empty by default; environments list their `info` statistics (e.g. "battle_won").
    statistics: tuple[str, ...] = ()

    def seats_of(self, role: str) -> tuple[int, ...]:
        """The seats of a role, in order; all seats where none are named."""
        return tuple(
            seat for seat in range(self.n_agents) if not self.roles or self.roles[seat] == role
        )


@dataclass(frozen=True, slots=True)
class Observation:
    """What the agents of B copies see before they act."""

    obs: FloatArray  # [B, N, O]
    state: FloatArray  # [B, S]
    avail: BoolArray  # [B, N, A]
    # [B, N], who still acts; None: everybody. An absent seat sees zeros, may only do action 0 and
    # earns nothing.
    alive: BoolArray | None = None


@dataclass(frozen=True, slots=True)
class FinalObservation:
    """What ended copies saw last, before they were restarted."""

    copies: IntArray  # [E], indices of the ended copies, ascending
    obs: FloatArray  # [E, N, O]
    state: FloatArray  # [E, S]
    avail: BoolArray  # [E, N, A]
    alive: BoolArray | None = None  # [E, N]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeStep:
    """One step of B copies. Copies that ended have been restarted: `obs`, `state`, `avail` and
    `alive` belong to the new episode, `final` holds the last view of the old one."""

    obs: FloatArray  # [B, N, O]
    state: FloatArray  # [B, S]
    avail: BoolArray  # [B, N, A]
    reward: FloatArray  # [B, N]
    terminated: BoolArray  # [B]
    truncated: BoolArray  # [B]
    final: FinalObservation | None = None
    # Statistics named by EnvSpec.statistics, [B] each; read when a copy has ended.
    info: Mapping[str, FloatArray] = field(default_factory=dict)
    # Copies whose episode was lost (a worker died) and restarted; learn nothing from them.
    dropped: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    alive: BoolArray | None = None  # [B, N], as `Observation.alive`
    # [B, N], which of EnvSpec.goals each seat reached in this step, -1: none.
    reached: IntArray | None = None
