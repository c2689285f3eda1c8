"""SMAC's maps, and which columns of a state belong to whom."""

from __future__ import annotations

from dataclasses import dataclass

# Columns of the state: health, cooldown or energy, x, y of an ally; health, x, y of an enemy.
ALLY_COLUMNS, ENEMY_COLUMNS = 4, 3
# Actions that are no attack: none, stop, four directions.
PLAIN_ACTIONS = 6


@dataclass(frozen=True, slots=True)
class MapInfo:
    """What a map says: how many play, how long, which races, how many kinds of units."""

    n_agents: int
    n_enemies: int
    limit: int
    races: str  # ours and theirs, T P Z; only P has shields
    type_bits: int = 0

    @property
    def ally_width(self) -> int:
        """Columns of the state for each of ours."""
        return ALLY_COLUMNS + (self.races[0] == "P") + self.type_bits

    @property
    def enemy_width(self) -> int:
        """Columns of the state for each of theirs."""
        return ENEMY_COLUMNS + (self.races[1] == "P") + self.type_bits

    @property
    def n_actions(self) -> int:
        return PLAIN_ACTIONS + self.n_enemies


MAPS = {
    "3m": MapInfo(3, 3, 60, "TT"),
    "8m": MapInfo(8, 8, 120, "TT"),
    "25m": MapInfo(25, 25, 150, "TT"),
    "5m_vs_6m": MapInfo(5, 6, 70, "TT"),
    "8m_vs_9m": MapInfo(8, 9, 120, "TT"),
    "10m_vs_11m": MapInfo(10, 11, 150, "TT"),
    "27m_vs_30m": MapInfo(27, 30, 180, "TT"),
    "MMM": MapInfo(10, 10, 150, "TT", 3),
    "MMM2": MapInfo(10, 12, 180, "TT", 3),
    "2s3z": MapInfo(5, 5, 120, "PP", 2),
    "3s5z": MapInfo(8, 8, 150, "PP", 2),
    "3s5z_vs_3s6z": MapInfo(8, 9, 170, "PP", 2),
    "3s_vs_3z": MapInfo(3, 3, 150, "PP"),
    "3s_vs_4z": MapInfo(3, 4, 200, "PP"),
    "3s_vs_5z": MapInfo(3, 5, 250, "PP"),
    "1c3s5z": MapInfo(9, 9, 180, "PP", 3),
    "2m_vs_1z": MapInfo(2, 1, 150, "TP"),
    "corridor": MapInfo(6, 24, 400, "PZ"),
    "6h_vs_8z": MapInfo(6, 8, 150, "ZP"),
    "2s_vs_1sc": MapInfo(2, 1, 300, "PZ"),
    "so_many_baneling": MapInfo(7, 32, 100, "PZ"),
    "bane_vs_bane": MapInfo(24, 24, 200, "ZZ", 2),
    "2c_vs_64zg": MapInfo(2, 64, 400, "PZ"),
}


def ally_columns(
    n_agents: int, *, ally_width: int, others: int, state_size: int
) -> tuple[tuple[int, ...], ...]:
    """Columns of the state for each ally, which come first; `others` stand behind them. Nothing
    where that does not add up to the state the game announces."""
    if n_agents * ally_width + others != state_size:
        return ()
    starts = range(0, n_agents * ally_width, ally_width)
    return tuple(tuple(range(start, start + ally_width)) for start in starts)
