"""What agents see and may do, in NumPy: SMAC's observations, state and masks.

With seats on both sides the enemy sees the field turned by half a turn, so that both sides look
ahead in the same direction: its north is our south, its east our west.
"""

from __future__ import annotations

import numpy as np

from omg.envs.battle.field import Array, Field, Seen
from omg.envs.battle.maps import SIDE
from omg.envs.battle.rules import (
    AROUND,
    MOVES,
    N_HEIGHT,
    N_PATHING,
    SHOOT_RANGE,
    SIGHT_RANGE,
    Rules,
)
from omg.envs.battle.units import HEAL
from omg.envs.sc2.args import PLAIN_ACTIONS
from omg.types import BoolArray, FloatArray, IntArray

f32 = np.float32
SIGHT = f32(SIGHT_RANGE)
SHOT = f32(SHOOT_RANGE)
Pick = IntArray | slice  # some copies, or all of them


class Sight:
    """Looks at the battles of a field."""

    def __init__(self, rules: Rules, field: Field) -> None:
        self.rules, self.field = rules, field
        allies, everybody = np.arange(rules.n_allies), np.arange(rules.n_allies, rules.n_units)
        self._sides = ((allies, everybody), (everybody, allies))
        self._heals = rules.weapon == HEAL

    def view(self, steps: IntArray, copies: IntArray | None = None) -> Seen:
        """Fresh arrays of all copies or of some, [B, …]."""
        rules = self.rules
        pick = slice(None) if copies is None else copies
        now = (steps[pick].astype(f32) / f32(rules.limit)).astype(f32)
        obs = np.zeros((len(now), rules.n_seats, rules.obs_dim), f32)
        avail = np.zeros((len(now), rules.n_seats, rules.n_actions), np.bool_)
        for side in range(len(rules.views)):
            self._masks(side, pick, avail)
            self._observe(side, pick, avail, now, obs)
        if rules.args.obs_instead_of_state:
            state = obs.reshape(len(now), -1).copy()
        else:
            state = self._state(pick, now)
        return Seen(obs, state, avail)

    def _gaps(self, pick: Pick, ones: Array, others: Array) -> tuple[Array, Array, Array]:
        """dx, dy and distance from each of `ones` to each of `others`, [B, N, M]."""
        x, y = self.field.x[pick], self.field.y[pick]
        dx = x[:, None, others] - x[:, ones, None]
        dy = y[:, None, others] - y[:, ones, None]
        return dx, dy, np.sqrt(dx * dx + dy * dy)

    def _masks(self, side: int, pick: Pick, avail: BoolArray) -> None:
        own, others = self._sides[side]
        alive = self.field.health[pick] > 0
        mine = avail[:, own]
        mine[..., 0] = ~alive[:, own]
        mine[..., 1] = alive[:, own]
        mine[..., 2:6] = self._free_ways(side, pick, own) & alive[:, own, None]
        near = self._gaps(pick, own, others)[2] <= SHOT
        attack = near & alive[:, own, None] & alive[:, None, others]
        mine[..., PLAIN_ACTIONS : PLAIN_ACTIONS + len(others)] = attack
        for seat in self._heals[own].nonzero()[0].tolist():
            near = self._gaps(pick, own[[seat]], own)[2][:, 0] <= SHOT
            care = near & alive[:, own[seat], None] & alive[:, own] & ~self._heals[own]
            mine[:, seat, PLAIN_ACTIONS:] = False
            room = min(len(own), mine.shape[-1] - PLAIN_ACTIONS)
            mine[:, seat, PLAIN_ACTIONS : PLAIN_ACTIONS + room] = care[:, :room]
        avail[:, own] = mine

    def _free_ways(self, side: int, pick: Pick, own: Array) -> BoolArray:
        """Whether the cell half a move away is ground, in the order of the actions, [B, N, 4]."""
        half = f32(self.rules.args.move_amount / 2)
        x, y = self.field.x[pick][:, own], self.field.y[pick][:, own]
        free = np.zeros((*x.shape, 4), np.bool_)
        for action, (dx, dy) in enumerate(MOVES):
            ahead = self._cell(x + f32(dx) * half, y + f32(dy) * half)
            free[..., action ^ side] = np.where(ahead >= 0, self._ground(ahead), False)
        return free

    def _cell(self, x: Array, y: Array) -> Array:
        """The number of a cell as SMAC finds it (towards zero); -1 outside of the map."""
        column, row = x.astype(np.int32), y.astype(np.int32)
        inside = (column >= 0) & (row >= 0) & (column < SIDE) & (row < SIDE)
        return np.where(inside, column * SIDE + row, -1)

    def _ground(self, cell: Array) -> Array:
        found: Array = (self.rules.grid.ravel()[np.maximum(cell, 0)] & 1) != 0
        return found

    def _observe(
        self, side: int, pick: Pick, avail: BoolArray, now: FloatArray, obs: FloatArray
    ) -> None:
        rules, view = self.rules, self.rules.views[side]
        own, others = self._sides[side]
        rows = np.zeros((len(now), len(own), rules.obs_dim), f32)
        rows[..., :4] = avail[:, own, 2:6]
        if view.moves > 4:
            rows[..., 4 : view.moves] = self._surroundings(side, pick, own)
        first = avail[:, own, PLAIN_ACTIONS : PLAIN_ACTIONS + len(others)]
        enemies = np.broadcast_to(others, (len(own), len(others)))
        mates = np.array([[unit for unit in own if unit != one] for one in own], np.int64)
        parts = [
            self._describe(side, pick, own, enemies, first, ally=False),
            self._describe(side, pick, own, mates, np.ones((1, 1, 1), f32), ally=True),
            self._oneself(side, pick, own),
        ]
        flat = [part.reshape(len(now), len(own), -1) for part in parts]
        known = np.concatenate(flat, -1)
        rows[..., view.moves : view.moves + known.shape[-1]] = known
        rows[~(self.field.health[pick][:, own] > 0)] = 0
        if rules.args.obs_timestep_number:
            rows[..., view.total - 1] = now[:, None]
        obs[:, own] = rows

    def _surroundings(self, side: int, pick: Pick, own: Array) -> Array:
        """The ground (1: free) and its height at points around, as the options ask for them."""
        args = self.rules.args
        x, y = (v[pick][:, own].astype(np.int32) for v in (self.field.x, self.field.y))
        found = []
        for wanted, count, values in (
            (args.obs_pathing_grid, N_PATHING, (self.rules.grid & 1).astype(f32)),
            (args.obs_terrain_height, N_HEIGHT, self.rules.heights),
        ):
            if not wanted:
                continue
            part = np.zeros((*x.shape, count), f32)
            for number, (dx, dy) in enumerate(AROUND[:count]):
                cell = self._cell(
                    x.astype(f32) + f32(dx * args.move_amount),
                    y.astype(f32) + f32(dy * args.move_amount),
                )
                seen = np.where(cell >= 0, values.ravel()[np.maximum(cell, 0)], f32(1))
                part[..., number ^ side if number < N_PATHING else number] = seen
            found.append(part)
        return np.concatenate(found, -1)

    def _describe(
        self, side: int, pick: Pick, ones: Array, others: Array, first: Array, *, ally: bool
    ) -> Array:
        """Features of units [N, K] as each of `ones` [N] sees them, [B, N, K, width]; zero where
        they are out of sight or dead."""
        rules, args, field = self.rules, self.rules.args, self.field
        x, y = field.x[pick], field.y[pick]
        dx, dy = x[:, others] - x[:, ones, None], y[:, others] - y[:, ones, None]
        length = np.sqrt(dx * dx + dy * dy)
        turn = f32(-1 if side else 1)
        seen = (length < SIGHT) & (field.health[pick][:, others] > 0)
        columns = [first, length / SIGHT, turn * dx / SIGHT, turn * dy / SIGHT]
        if args.obs_all_health:
            columns += self._condition(side if ally else 1 - side, pick, others)
        bits = (rules.bit_own if ally else rules.bit_other)[others]
        columns += [(bits == number).astype(f32) for number in range(rules.map.info.type_bits)]
        width = rules.views[side].ally if ally else rules.views[side].enemy
        found = np.zeros((*seen.shape, width), f32)
        for number, column in enumerate(columns):
            found[..., number] = np.where(seen, column, f32(0))
        if ally and args.obs_last_action:
            last = field.last[pick][:, others][..., None] == np.arange(rules.n_actions)
            found[..., len(columns) :] = seen[..., None] & last
        return found

    def _condition(self, side: int, pick: Pick, which: Array) -> list[Array]:
        """Health and, on a side that has them, shields, as shares."""
        rules, field = self.rules, self.field
        columns = [field.health[pick][:, which] / rules.full_health[which]]
        if rules.shields[side]:
            columns.append(self._shields(pick, which))
        return columns

    def _shields(self, pick: Pick, which: Array | slice) -> Array:
        most = self.rules.full_shield[which]
        share = self.field.shield[pick][:, which] / np.where(most > 0, most, f32(1))
        return np.where(most > 0, share, f32(0))

    def _oneself(self, side: int, pick: Pick, own: Array) -> Array:
        rules, args = self.rules, self.rules.args
        shape = len(self.field.health[pick]), len(own)
        columns = []
        if args.obs_own_health or args.obs_all_health:
            columns += self._condition(side, pick, own)
        bits = rules.bit_own[own]
        for number in range(rules.map.info.type_bits):
            columns.append(np.broadcast_to((bits == number).astype(f32), shape))
        if not columns:
            return np.zeros((*shape, 0), f32)
        return np.stack(columns, -1)

    def _state(self, pick: Pick, now: FloatArray) -> FloatArray:
        """Our units, theirs, last actions, time; rows of the dead are zero."""
        rules, args, field = self.rules, self.rules.args, self.field
        state = np.zeros((len(now), rules.state_dim), f32)
        ours = rules.n_allies * rules.ally_width
        self._side_of_state(0, pick, state[:, :ours])
        self._side_of_state(1, pick, state[:, ours : rules.units_width])
        at = rules.units_width
        if args.state_last_action:
            last = field.last[pick][:, :, None] == np.arange(rules.n_actions)
            state[:, at : at + rules.n_seats * rules.n_actions] = last.reshape(len(now), -1)
        if args.state_timestep_number:
            state[:, -1] = now
        return state

    def _side_of_state(self, side: int, pick: Pick, into: FloatArray) -> None:
        """Fill in the rows of our units or of theirs."""
        rules, field = self.rules, self.field
        which = slice(rules.n_allies) if side == 0 else slice(rules.n_allies, None)
        health = field.health[pick, which]
        columns = [health / rules.full_health[which]]
        if side == 0 or rules.both:
            cooldown = field.cooldown[pick, which].astype(f32)
            waits = np.where(self._heals[which], field.energy[pick, which], cooldown)
            columns.append(waits / rules.cooldown_scale[which])
        for place, extent in zip((field.x, field.y), rules.extent, strict=True):
            columns.append((place[pick, which] - f32(SIDE / 2)) / f32(extent))
        if rules.state_shields[side]:
            columns.append(self._shields(pick, which))
        bits = (rules.bit_own if side == 0 else rules.bit_other)[which]
        columns += [(bits == number).astype(f32) for number in range(rules.map.info.type_bits)]
        alive = health > 0
        rows = np.empty((*health.shape, len(columns)), f32)
        for number, column in enumerate(columns):
            rows[..., number] = np.where(alive, column, f32(0))
        into[:] = rows.reshape(len(health), -1)
