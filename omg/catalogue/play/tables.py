"""Played episodes as tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.table import Table

from omg.catalogue import seat_ranges
from omg.catalogue.play.episodes import Played
from omg.runners.rollout import Finished


def seating(names: Sequence[str], played: Played) -> str:
    """Who sits where, those alike together: `0–2 chase (predator), 3 flee (prey)`."""
    roles = played.spec.roles or ("",) * len(names)
    groups: dict[tuple[str, str], list[int]] = {}
    for seat, key in enumerate(zip(names, roles, strict=True)):
        groups.setdefault(key, []).append(seat)
    return ", ".join(
        f"{seat_ranges(seats)} {name}{f' ({role})' if role else ''}"
        for (name, role), seats in groups.items()
    )


def _numbers(values: Sequence[float]) -> str:
    return "  ".join(f"{value:.4g}" for value in values)


def steps_table(episode: Finished, number: int) -> Table:
    """Actions and rewards of every step, by seat."""
    table = Table("step", "actions", "rewards", title=f"Episode {number}", title_justify="left")
    data = episode.episodes
    for step in range(int(episode.stats.lengths[0])):
        actions = "  ".join(map(str, data["actions"][0, step].flatten().tolist()))
        rewards = _numbers(data["reward"][0, step].tolist())
        table.add_row(str(step), actions, rewards)
    return table


def results_table(played: Played) -> Table:
    """Length, end, returns and statistics of every episode, and their means."""
    drawn = not played.players.seats
    who = ["players"] if drawn else []
    names = played.spec.statistics
    table = Table("episode", "steps", "ended by", *who, "return of each seat", *names)
    for number, episode in enumerate(played.episodes):
        stats = episode.stats
        table.add_row(
            *(str(number), str(int(stats.lengths[0]))),
            "limit" if stats.truncated[0] else "the game",
            *([seating(played.seats_of(episode), played)] if drawn else []),
            _numbers(stats.returns[0].tolist()),
            *(_numbers([float(stats.info[name][0])]) for name in names),
        )
    if len(played.episodes) > 1:
        every = [episode.stats for episode in played.episodes]
        table.add_row(
            *("mean", _numbers([float(np.mean([stats.lengths[0] for stats in every]))]), ""),
            *([""] if drawn else []),
            _numbers(np.mean([stats.returns[0] for stats in every], axis=0).tolist()),
            *(_numbers([float(np.mean([s.info[name][0] for s in every]))]) for name in names),
        )
    return table
