"""The arguments of the StarCraft II environments (SMAC's own, passed on, and two of ours), SMAC's
maps, and which columns of a state belong to whom. `battle`, which needs no game, shares them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from omg.envs.contract import GameArguments
from omg.registry import nearest
from omg.types import OmgError

DIFFICULTIES = tuple("123456789A")
# Ours; everything else belongs to the package's class.
OWN_ARGUMENTS = ("timeout_seconds", "max_restarts")
# Arguments of `battle` alone, with the values that say what the game does anyway.
OF_BATTLE = {"enemies": "script", "unavailable": "error", "threads": 1}


class SmacArguments(GameArguments):
    """The arguments of SMAC's class with its defaults, and two of ours."""

    map_name: str = "8m"
    step_mul: int = Field(8, ge=1, le=1000)
    move_amount: float = Field(2, gt=0, le=16)
    difficulty: str | int = "7"
    game_version: str | None = None
    seed: int | None = None
    continuing_episode: bool = False
    obs_all_health: bool = True
    obs_own_health: bool = True
    obs_last_action: bool = False
    obs_pathing_grid: bool = False
    obs_terrain_height: bool = False
    obs_instead_of_state: bool = False
    obs_timestep_number: bool = False
    state_last_action: bool = True
    state_timestep_number: bool = False
    reward_sparse: bool = False
    reward_only_positive: bool = True
    reward_death_value: float = Field(10, allow_inf_nan=False)
    reward_win: float = Field(200, allow_inf_nan=False)
    reward_defeat: float = Field(0, allow_inf_nan=False)
    reward_negative_scale: float = Field(0.5, allow_inf_nan=False)
    reward_scale: bool = True
    reward_scale_rate: float = Field(20, gt=0, allow_inf_nan=False)
    replay_dir: str = ""
    replay_prefix: str = ""
    window_size_x: int = 1920
    window_size_y: int = 1200
    heuristic_ai: bool = False
    heuristic_rest: bool = False
    debug: bool = False
    timeout_seconds: float = 300.0
    max_restarts: int = 5


def check_arguments(args: Mapping[str, Any], known: Collection[str], owner: str) -> dict[str, Any]:
    """Arguments for the class `owner`, in the types it needs; what it does not take is refused.
    Those of `battle` may be there with their defaults, so that a configuration serves both."""
    for name, value in OF_BATTLE.items():
        if name not in known and args.get(name, value) != value:
            raise OmgError(
                f"env_args.{name}={args[name]} is for env=battle; the game has only {value}. Leave "
                "it out, or use --env-config=battle."
            )
    args = {name: value for name, value in args.items() if name not in OF_BATTLE or name in known}
    for name in args:
        if name not in known:
            choices = [*known, *OWN_ARGUMENTS]
            raise OmgError(
                f"{owner} has no argument '{name}'{nearest(name, choices) or '.'} "
                f"Choose among: {', '.join(choices)}."
            )
    checked = dict(args)
    if "difficulty" in checked:
        checked["difficulty"] = checked_difficulty(checked["difficulty"])
    if isinstance(checked.get("game_version"), int | float):
        raise OmgError(
            f"env_args.game_version={checked['game_version']} is a number (4.10 would become 4.1). "
            "Write it with three parts, e.g. 4.10.0, or in quotes."
        )
    if checked.get("replay_dir"):  # the game takes relative paths as relative to its own folder
        checked["replay_dir"] = str(Path(checked["replay_dir"]).expanduser().absolute())
    return checked


def check_own_arguments(timeout_seconds: Any, max_restarts: Any) -> tuple[float, int]:
    """Seconds until a silent game counts as hung (0: never), and restarts allowed in a row."""
    if not _is_number(timeout_seconds, int | float):
        raise OmgError(
            f"env_args.timeout_seconds={timeout_seconds!r} is not possible. Give seconds, or 0 to "
            "wait for ever."
        )
    if not _is_number(max_restarts, int):
        raise OmgError(
            f"env_args.max_restarts={max_restarts!r} is not possible. Give a whole number from 0."
        )
    return float(timeout_seconds), int(max_restarts)


def _is_number(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool) and 0 <= value < float("inf")


def checked_difficulty(value: Any) -> str:
    """A digit on a command line is a number; SMAC wants text."""
    if str(value) not in DIFFICULTIES:
        raise OmgError(
            f"env_args.difficulty={value!r} is not possible. Choose one of "
            f"{', '.join(DIFFICULTIES)} (7 is SMAC's)."
        )
    return str(value)


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
