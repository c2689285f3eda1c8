"""One battle with every number filled in: constants of its units, where they begin, and what
observations and states consist of. Both simulators, NumPy's and C's, read only this."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omg.envs.battle import units
from omg.envs.battle.args import ALLY, ENEMY, BattleArgs
from omg.envs.battle.maps import STAY, TO_UNITS, BattleMap, Point, routes_of
from omg.envs.battle.units import AIR, BURST, HEAL, MELEE, Unit
from omg.envs.sc2.args import ALLY_COLUMNS, ENEMY_COLUMNS, PLAIN_ACTIONS
from omg.types import EnvSpec, FloatArray, OmgError

SHOOT_RANGE, SIGHT_RANGE = 6.0, 9.0
# How often the scripted enemy looks for a target, in ticks, and how far, by difficulty.
LEVELS = {
    "1": (32, 3.0),
    "2": (24, 4.0),
    "3": (16, 4.0),
    "4": (16, 4.5),
    "5": (16, 5.0),
    "6": (12, 6.0),
    "7": (8, 6.0),
    "8": (6, 7.0),
    "9": (4, 8.0),
    "A": (2, 9.0),
}
# The four moves in the order of the actions.
MOVES = ((0, 1), (0, -1), (1, 0), (-1, 0))
# SMAC's points around a unit for the pathing grid, by move amounts, then the unit itself.
AROUND = ((0, 2), (0, -2), (2, 0), (-2, 0), (1, 1), (-1, -1), (1, -1), (-1, 1), (0, 0))
N_PATHING, N_HEIGHT = 8, 9
STATISTICS = ("battle_won", "dead_allies", "dead_enemies", "timeouts")


@dataclass(frozen=True, slots=True, kw_only=True)
class SideView:
    """Widths of what one side sees: per enemy, per ally, of itself, and in all."""

    enemy: int
    ally: int
    own: int
    moves: int
    total: int


class Rules:
    """Constants by unit, ours first. Arrays are float32 or int32, [U] or [U, U]."""

    def __init__(self, args: BattleArgs) -> None:
        self.args = args
        self.map: BattleMap = args.map()
        info = self.map.info
        self.n_allies, self.n_enemies = info.n_agents, info.n_enemies
        self.n_units = self.n_allies + self.n_enemies
        self.both = args.enemies == "seats"
        self.n_seats = self.n_units if self.both else self.n_allies
        attacked = max(self.n_allies, self.n_enemies) if self.both else self.n_enemies
        self.n_actions = PLAIN_ACTIONS + attacked
        self.limit = info.limit
        self.shields = tuple(int(race == "P") for race in info.races)
        self._fill_units(self.map.units())
        self._fill_ground()
        self._fill_sizes()
        self._fill_reward()
        self._fill_script()

    def _fill_units(self, kinds: Sequence[Unit]) -> None:
        tick = units.TICKS_PER_SECOND
        self.kinds = tuple(kinds)
        self.full_health = _floats(kind.health for kind in kinds)
        self.full_shield = _floats(kind.shield for kind in kinds)
        self.armour = _floats(kind.armour for kind in kinds)
        self.radius = _floats(kind.size / 2 for kind in kinds)
        self.speed = _floats(kind.speed / tick for kind in kinds)
        self.regrowth = _floats(kind.regrowth / tick for kind in kinds)
        self.full_cooldown = _ints(kind.ticks for kind in kinds)
        self.hits = _ints(kind.hits for kind in kinds)
        self.weapon = _ints(kind.weapon for kind in kinds)
        self.walks = _ints(1 << kind.moves_on for kind in kinds)
        # Bodies push each other only within a layer: on the ground, or among colossi.
        self.touch = _floats(
            [
                0.0
                if number == other or one.moves_on != two.moves_on or one.moves_on == AIR
                else one.size / 2 + two.size / 2
                for other, two in enumerate(kinds)
            ]
            for number, one in enumerate(kinds)
        )
        self.cooldown_scale = _floats(
            units.ENERGY_MAX if kind.weapon == HEAL else kind.cooldown_scale or kind.ticks + 2
            for kind in kinds
        )
        self.damage = _floats([one.damage_to(other) for other in kinds] for one in kinds)
        self.reach = _floats(
            [one.range + one.size / 2 + other.size / 2 for other in kinds] for one in kinds
        )
        names = self.map.allies
        self.block = _ints(names.index(name) for name in names)
        self.bit_own = _ints(self.map.type_bits(0))
        self.bit_other = _ints(self.map.type_bits(1))
        self.start_energy = _floats(units.ENERGY_START * (kind.weapon == HEAL) for kind in kinds)

    def _fill_script(self) -> None:
        """How often and how far scripted units look for targets."""
        self.period, self.acquire = LEVELS[self.args.level()]
        self.orders = self.map.orders
        radius = np.full(self.n_units, self.acquire, np.float32)
        if self.orders == TO_UNITS:
            radius[:] = 1e3
        elif self.orders == STAY:  # it cannot follow, so it sees as far as it shoots
            radius = np.maximum(radius, self.reach[:, : self.n_allies].max(1))
        self.view_radius = radius

    def _fill_ground(self) -> None:
        self.grid = self.map.grid
        self.heights: FloatArray = self.map.heights
        self.routes = routes_of(self.map.terrain)
        xs, ys = (self.grid & 1).nonzero()
        self.extent = float(np.ptp(xs) + 1), float(np.ptp(ys) + 1)
        self.spawns = self.map.spawns
        ours, theirs = self.map.spawns
        places = [
            *formation(self.kinds[: self.n_allies], ours, theirs, handed=1.0),
            *formation(self.kinds[self.n_allies :], theirs, ours, handed=-1.0),
        ]
        for index, (x, y) in enumerate(places):
            if not self.grid[int(x), int(y)] & 1:
                places[index] = self.spawns[index >= self.n_allies]
        self.place = np.array(places, np.float32)  # [U, 2]

    def _fill_sizes(self) -> None:
        args, info = self.args, self.map.info
        sides = [self._side_view(side) for side in ((0, 1) if self.both else (0,))]
        self.views = tuple(sides)
        self.obs_dim = max(side.total for side in sides)
        # With seats on both sides all rows of the state are alike.
        shields = (max(self.shields),) * 2 if self.both else self.shields
        self.state_shields = shields
        self.ally_width = ALLY_COLUMNS + shields[0] + info.type_bits
        columns = ALLY_COLUMNS if self.both else ENEMY_COLUMNS
        self.enemy_width = columns + shields[1] + info.type_bits
        self.units_width = self.n_allies * self.ally_width + self.n_enemies * self.enemy_width
        plain = self.units_width + args.state_timestep_number
        plain += self.n_seats * self.n_actions * args.state_last_action
        self.state_dim = self.n_seats * self.obs_dim if args.obs_instead_of_state else plain

    def _side_view(self, side: int) -> SideView:
        args, bits = self.args, self.map.info.type_bits
        ours, theirs = self.shields[side], self.shields[1 - side]
        counts = self.n_allies, self.n_enemies
        moves = 4 + N_PATHING * args.obs_pathing_grid + N_HEIGHT * args.obs_terrain_height
        enemy = 4 + (1 + theirs) * args.obs_all_health + bits
        ally = 4 + (1 + ours) * args.obs_all_health + bits + self.n_actions * args.obs_last_action
        own = (1 + ours) * (args.obs_own_health or args.obs_all_health) + bits
        own += args.obs_timestep_number
        total = moves + counts[1 - side] * enemy + (counts[side] - 1) * ally + own
        return SideView(enemy=enemy, ally=ally, own=own, moves=moves, total=total)

    def _fill_reward(self) -> None:
        """By what the reward of each side is divided."""
        args, scales = self.args, []
        for first, last in ((self.n_allies, self.n_units), (0, self.n_allies)):
            most = (last - first) * args.reward_death_value + args.reward_win
            most += sum(kind.health + kind.shield for kind in self.kinds[first:last])
            if args.reward_scale and most <= 0:
                raise OmgError(
                    f"With env_args.reward_win={args.reward_win:g} and reward_death_value="
                    f"{args.reward_death_value:g} a perfect battle on {args.map_name} is worth "
                    f"{most:g}, which cannot be scaled to {args.reward_scale_rate:g}. Raise one of "
                    "them, or set reward_scale=false."
                )
            scales.append(most / args.reward_scale_rate if args.reward_scale else 1.0)
        self.reward_divisor = _floats(scales)

    @property
    def roles(self) -> tuple[str, ...]:
        """The role of every seat, where there are two."""
        return (ALLY,) * self.n_allies + (ENEMY,) * self.n_enemies if self.both else ()

    def spec(self) -> EnvSpec:
        """The sizes as the rest of omg needs them."""
        args = self.args
        widths = [self.views[side].total for side in (0,) * self.n_allies]
        if self.both:
            widths += [self.views[1].total] * self.n_enemies
        starts = [seat * self.ally_width for seat in range(self.n_seats)]
        return EnvSpec(
            name=args.name,
            n_agents=self.n_seats,
            n_actions=self.n_actions,
            obs_dim=self.obs_dim,
            state_dim=self.state_dim,
            episode_limit=self.limit,
            shared_reward=not self.both,
            agent_features=()
            if args.obs_instead_of_state
            else tuple(tuple(range(start, start + self.ally_width)) for start in starts),
            roles=self.roles,
            opposed=self.both,
            obs_dims=tuple(widths) if len(set(widths)) > 1 else (),
            statistics=STATISTICS,
        )


def formation(
    kinds: Sequence[Unit], at: Point, towards: Point, *, handed: float
) -> list[tuple[float, float]]:
    """Ranks around `at`, those that fight hand to hand in front. The two sides are mirror images:
    `handed` turns the left side into the right one."""
    length = math.dist(at, towards)
    ahead = (towards[0] - at[0]) / length, (towards[1] - at[1]) / length
    aside = -ahead[1] * handed, ahead[0] * handed
    gap = max(kind.size for kind in kinds) * 0.9 + 0.15
    per_rank = math.ceil(math.sqrt(2 * len(kinds)))
    n_ranks = math.ceil(len(kinds) / per_rank)
    front = sorted(range(len(kinds)), key=lambda index: _depth(kinds[index]))
    places = [at] * len(kinds)
    for turn, index in enumerate(front):
        rank, file = divmod(turn, per_rank)
        in_rank = min(per_rank, len(kinds) - rank * per_rank)
        forward = ((n_ranks - 1) / 2 - rank) * gap
        sideward = (file - (in_rank - 1) / 2) * gap
        places[index] = (
            at[0] + forward * ahead[0] + sideward * aside[0],
            at[1] + forward * ahead[1] + sideward * aside[1],
        )
    return places


def _depth(kind: Unit) -> int:
    if kind.weapon == HEAL:
        return 2
    return 0 if kind.range <= MELEE or kind.weapon == BURST else 1


def _floats(values: Any) -> FloatArray:
    return np.array(list(values), np.float32)


def _ints(values: Any) -> NDArray[np.int32]:
    return np.array(list(values), np.int32)
