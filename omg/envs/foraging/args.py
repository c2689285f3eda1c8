"""The arguments of the foraging game: an id such as `Foraging-8x8-2p-3f-v3`, or its parts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import model_validator

from omg.envs.contract import GameArguments
from omg.types import OmgError

KEY = re.compile(
    r"(?:lbforaging:)?Foraging(?:-(?P<sight>\d+)s)?-(?P<rows>\d+)x(?P<cols>\d+)"
    r"-(?P<players>\d+)p-(?P<foods>\d+)f(?P<coop>-coop)?(?:(?P<ind>-ind)?(?P<pen>-pen)?-v3|(?P<first>-v1))"
)
KEY_FORMAT = (
    "Foraging[-<sight>s]-<rows>x<cols>-<players>p-<foods>f[-coop][-ind][-pen]-v3, or [-coop]-v1"
)
# Positions and levels are packed into 16 bits each.
MAX_SIDE = 1_000
MAX_LEVEL = 10_000

Levels = int | tuple[int, ...]
Version = Literal[1, 3]  # of lbforaging's ids; -v2 has named several games


@dataclass(frozen=True, slots=True, kw_only=True)
class ForagingRules:
    """One foraging game with every number filled in."""

    name: str
    rows: int
    cols: int
    n_players: int
    max_num_food: int
    sight: int
    max_episode_steps: int
    force_coop: bool
    min_player_level: tuple[int, ...]
    max_player_level: tuple[int, ...]
    min_food_level: tuple[int, ...]
    max_food_level: tuple[int, ...] | None  # None: the sum of the three lowest player levels
    normalize_reward: bool
    penalty: float
    observe_agent_levels: bool
    relative_obs: bool
    version: Version

    @property
    def start_field(self) -> tuple[int, int]:
        """Rows and columns where players begin: version 1 leaves the last of each free."""
        left_out = 1 if self.version == 1 else 0
        return self.rows - left_out, self.cols - left_out

    @property
    def sees_everything(self) -> bool:
        """No cell is ever out of sight, so relative coordinates are the absolute ones."""
        return self.sight >= max(self.rows, self.cols) - 1

    @property
    def obs_format(self) -> str:
        """The settings that change what the numbers of an observation mean."""
        sight = "all" if self.sees_everything else str(self.sight)
        return (
            f"sight={sight}, observe_agent_levels={self.observe_agent_levels}, "
            f"relative_obs={self.relative_obs}"
        )

    @property
    def obs_dim(self) -> int:
        """Length of one player's observation."""
        return 3 * self.max_num_food + (3 if self.observe_agent_levels else 2) * self.n_players

    @property
    def state_dim(self) -> int:
        """Length of the state."""
        return 3 * (self.max_num_food + self.n_players)

    @property
    def highest_number(self) -> int:
        """The largest value that an observation or a state can hold."""
        foods = self.max_food_level or (sum(sorted(self.max_player_level)[:3]),)
        return max(self.rows - 1, self.cols - 1, *self.max_player_level, *foods)


class ForagingArgs(GameArguments):
    """`key` sets everything; a field given beside it replaces that part of the key."""

    game = "Foraging"

    key: str | None = None
    players: int | None = None
    field_size: int | tuple[int, int] | None = None
    max_num_food: int | None = None
    sight: int | None = None
    max_episode_steps: int = 50
    force_coop: bool = False
    min_player_level: Levels = 1
    max_player_level: Levels = 2
    min_food_level: Levels = 1
    max_food_level: Levels | None = None
    normalize_reward: bool = True
    penalty: float = 0.0
    observe_agent_levels: bool = True
    relative_obs: bool = False  # ours, not lbforaging's: see docs/environments/foraging.md
    version: Version = 3  # 1: the easier game of papers up to 2022

    @model_validator(mode="after")
    def _is_playable(self) -> ForagingArgs:
        self.resolve()
        return self

    def resolve(self) -> ForagingRules:
        """The game these arguments describe, checked."""
        given: dict[str, Any] = parse_key(self.key) if self.key is not None else {}
        sized = ("players", "field_size", "max_num_food")
        for field in type(self).model_fields:
            value = getattr(self, field)
            stands_in_key = field in given and field not in self.model_fields_set
            if not stands_in_key and not (field in sized and value is None):
                given[field] = value
        missing = [field for field in sized if field not in given]
        if missing:
            raise OmgError(
                f"Foraging needs {' and '.join(f'`{field}`' for field in missing)}, "
                f"or a `key` such as 'Foraging-8x8-2p-3f-v3'."
            )
        size = given["field_size"]
        rows, cols = (size, size) if isinstance(size, int) else size
        sight = max(rows, cols) if given["sight"] is None else given["sight"]
        players, foods = given["players"], given["max_num_food"]
        top = given["max_food_level"]
        rules = ForagingRules(
            name=self._title(given, (rows, cols)),
            rows=rows,
            cols=cols,
            n_players=players,
            max_num_food=foods,
            sight=sight,
            max_episode_steps=given["max_episode_steps"],
            force_coop=given["force_coop"],
            min_player_level=_spread("min_player_level", given["min_player_level"], players),
            max_player_level=_spread("max_player_level", given["max_player_level"], players),
            min_food_level=_spread("min_food_level", given["min_food_level"], foods),
            max_food_level=None if top is None else _spread("max_food_level", top, foods),
            normalize_reward=given["normalize_reward"],
            penalty=given["penalty"],
            observe_agent_levels=given["observe_agent_levels"],
            relative_obs=given["relative_obs"],
            version=given["version"],
        )
        _check(rules)
        return rules

    def _title(self, given: Mapping[str, Any], size: tuple[int, int]) -> str:
        """The key as it was given, unless other fields changed what it stands for."""
        if self.key is not None:
            named = parse_key(self.key)
            if all(given[field] == value for field, value in named.items()):
                return self.key
        return _name({**given}, size)


def parse_key(key: str) -> dict[str, Any]:
    """The fields that an id stands for."""
    match = KEY.fullmatch(key)
    if match is None:
        if key.removeprefix("lbforaging:").startswith("Foraging-grid"):
            raise OmgError(
                f"'{key}' asks for grid observations, but only the vector observation is "
                f"offered. Use the same id without 'grid', e.g. 'Foraging-8x8-2p-3f-v3'."
            )
        raise OmgError(
            f"'{key}' is not a foraging id. Write it as {KEY_FORMAT}, e.g. 'Foraging-8x8-2p-3f-v3'."
        )
    fields = {
        "players": int(match["players"]),
        "field_size": (int(match["rows"]), int(match["cols"])),
        "max_num_food": int(match["foods"]),
        "sight": int(match["sight"]) if match["sight"] else None,
        "force_coop": match["coop"] is not None,
        "version": 1 if match["first"] else 3,
    }
    if match["ind"]:
        fields["max_food_level"] = 1
    if match["pen"]:
        fields["penalty"] = 0.1
    return fields


def _name(given: Mapping[str, Any], size: tuple[int, int]) -> str:
    sight = "" if given["sight"] is None else f"-{given['sight']}s"
    coop = "-coop" if given["force_coop"] else ""
    counts = f"{size[0]}x{size[1]}-{given['players']}p-{given['max_num_food']}f"
    return f"Foraging{sight}-{counts}{coop}-v{given['version']}"


def _spread(field: str, levels: Levels, count: int) -> tuple[int, ...]:
    if isinstance(levels, int):
        return (levels,) * max(count, 0)
    if len(levels) != count:
        whose = "player" if "player" in field else "food"
        raise OmgError(
            f"`{field}` lists {len(levels)} levels for {count} {whose}s. "
            f"Give one number, or one per {whose}."
        )
    return tuple(levels)


def _check(rules: ForagingRules) -> None:
    """Refuse games that cannot be played."""
    if rules.version == 1 and (rules.max_food_level or max(rules.min_food_level) > 1):
        raise OmgError(
            f"{rules.name} is version 1, which knows no `min_food_level` and no "
            "`max_food_level`. Leave them out, or use version 3."
        )
    start_rows, start_cols = rules.start_field
    bounds = (
        ("field_size", min(rules.rows, rules.cols), 3, MAX_SIDE),
        ("field_size", max(rules.rows, rules.cols), 3, MAX_SIDE),
        ("players", rules.n_players, 1, start_rows * start_cols - 1),
        ("max_num_food", rules.max_num_food, 1, rules.rows * rules.cols),
        ("sight", rules.sight, 0, MAX_SIDE),
        ("max_episode_steps", rules.max_episode_steps, 1, 2**31),
        ("penalty", rules.penalty, 0, float("inf")),
    )
    for field, value, low, high in bounds:
        if not low <= value <= high:
            raise OmgError(
                f"`{field}` is {value} in {rules.name}, which cannot be played. "
                f"Choose a value between {low} and {high}."
            )
    tops = rules.max_food_level or rules.min_food_level
    for kind, lows, highs in (
        ("player", rules.min_player_level, rules.max_player_level),
        ("food", rules.min_food_level, tops),
    ):
        for low, high in zip(lows, highs, strict=True):
            if not 1 <= low <= high <= MAX_LEVEL:
                raise OmgError(
                    f"`min_{kind}_level` {low} and `max_{kind}_level` {high} leave no level to "
                    f"draw. Keep 1 <= min <= max <= {MAX_LEVEL}."
                )
    weakest = sum(sorted(rules.min_player_level)[:3])
    if rules.max_food_level is None and not rules.force_coop and max(tops) > weakest:
        raise OmgError(
            f"`min_food_level` {max(tops)} can exceed the highest food level, which is the sum of "
            f"the three lowest player levels ({weakest} at least). Lower it, or set "
            f"`max_food_level`."
        )
