"""Who sits where in an episode, and who is held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, cast

import numpy as np

from omg.components.seeding import SeedTree
from omg.opponents.pool_manifest import PoolMember
from omg.types import IntArray, OmgError

LineupMode: TypeAlias = Literal["homologue", "mixed"]


def draw_lineups(
    members: Sequence[PoolMember],
    n_episodes: int,
    n_seats: int,
    rng: np.random.Generator,
    *,
    mode: LineupMode = "homologue",
) -> IntArray:
    """Who sits where, [n_episodes, n_seats] of indices into `members`.

    Homologue: a run is drawn, one of its skills, and for every seat a member of that run and
    skill. Mixed: every seat is drawn from all members independently.
    """
    if not members:
        raise OmgError("There are no opponents to draw from. Add members to this side of the pool.")
    if mode == "mixed":
        return rng.integers(len(members), size=(n_episodes, n_seats), dtype=np.int64)
    if mode != "homologue":
        raise OmgError(f"There is no line-up mode '{mode}'. Choose homologue or mixed.")
    runs: dict[str, dict[str, list[int]]] = {}
    for index, member in enumerate(members):
        runs.setdefault(member.run, {}).setdefault(member.skill, []).append(index)
    # All members, sorted by run and skill, and where each (run, skill) begins in that list.
    groups = [group for skills in runs.values() for group in skills.values()]
    order = np.concatenate([np.array(group, np.int64) for group in groups])
    group_sizes = np.array([len(group) for group in groups])
    group_starts = np.cumsum(group_sizes) - group_sizes
    skill_counts = np.array([len(skills) for skills in runs.values()])
    first_groups = np.cumsum(skill_counts) - skill_counts

    run_E = rng.integers(len(runs), size=n_episodes)
    group_E = first_groups[run_E] + rng.integers(skill_counts[run_E])
    sizes_E1 = group_sizes[group_E][:, None]
    picks = rng.integers(np.broadcast_to(sizes_E1, (n_episodes, n_seats)))
    return cast(IntArray, order[group_starts[group_E][:, None] + picks])


def draw_heldout(algorithms: Mapping[str, str], fraction: float, *, seed: int) -> set[str]:
    """The units (runs or members, with their algorithm) to hold out: about `fraction` of all,
    and of each algorithm with two or more units at least one on either side."""
    if not 0 <= fraction <= 1:
        raise OmgError(f"heldout={fraction:g} is not a fraction between 0 and 1.")
    if fraction in (0, 1):
        return set(algorithms) if fraction else set()
    units: dict[str, list[str]] = {}
    for unit in sorted(algorithms):
        units.setdefault(algorithms[unit], []).append(unit)
    rng = SeedTree(seed).numpy("pool.split")
    names = [str(name) for name in rng.permutation(sorted(units))]
    least = {name: int(len(units[name]) >= 2) for name in names}
    most = {name: max(1, len(units[name]) - 1) for name in names}
    quota = {name: fraction * len(units[name]) for name in names}
    count = {name: min(max(int(quota[name]), least[name]), most[name]) for name in names}
    total = min(max(round(fraction * len(algorithms)), 1), len(algorithms) - 1)
    while sum(count.values()) < total:
        room = [name for name in names if count[name] < most[name]]
        if not room:
            break
        count[max(room, key=lambda name: quota[name] - count[name])] += 1
    return {
        str(unit) for name in sorted(units) for unit in rng.permutation(units[name])[: count[name]]
    }
