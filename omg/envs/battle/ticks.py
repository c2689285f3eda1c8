"""The fight in NumPy, tick by tick: the reference for the C kernel, which does the same operations
in the same order, so that both agree in every bit. Loops run over units, copies are arrays."""

from __future__ import annotations

import numpy as np

from omg.envs.battle import units
from omg.envs.battle.field import Array, Field
from omg.envs.battle.maps import SIDE
from omg.envs.battle.rules import Rules
from omg.envs.battle.units import BURST, HEAL, LINE
from omg.types import BoolArray, FloatArray

f32 = np.float32
HALF, ONE = f32(0.5), f32(1)
LOW_PRIORITY = f32(1e4)  # added to the squared distance of units that cannot fight
EVERYWHERE = f32(1e6)
SAME_PLACE = f32(1e-8)
LEAST_DAMAGE = f32(0.5)
CHUNK = 40_000  # pairs looked at together


class Fight:
    """Moves the battles of a field forward."""

    def __init__(self, rules: Rules, field: Field) -> None:
        self.rules, self.field = rules, field
        self._rows = np.arange(len(field.ticks))
        self._fighter = rules.weapon != HEAL
        self._near = rules.touch * rules.touch * f32(1.0001)  # a little more than touching
        self._scripted = () if rules.both else tuple(range(rules.n_allies, rules.n_units))

    def tick(self) -> None:
        """One tick of every copy."""
        field, rules = self.field, self.rules
        np.maximum(field.cooldown - 1, 0, out=field.cooldown)
        looking = field.ticks % rules.period == 0
        if looking.any():
            for unit in self._scripted:
                self._look(unit, looking)
        alive = field.health > 0
        gone = ~np.take_along_axis(alive, np.maximum(field.target, 0), 1)
        field.target[(field.target >= 0) & gone] = -1
        self._walk(alive)
        self._hit()
        self._recover()
        self._part()
        field.ticks += 1

    # --- what the scripted enemy wants -----------------------------------------------------

    def _look(self, unit: int, looking: BoolArray) -> None:
        """Attack-move: keep a target within reach, else take the nearest in view, else walk on."""
        field, rules = self.field, self.rules
        looking = looking & (field.health[:, unit] > 0)
        if rules.weapon[unit] == HEAL:
            self._look_after(unit, looking)
            return
        best = np.full(len(looking), EVERYWHERE, f32)
        found = np.full(len(looking), -1, np.int32)
        kept = np.zeros(len(looking), np.bool_)
        radius = rules.view_radius[unit]
        for other in range(rules.n_allies):
            if rules.damage[unit, other] == 0:
                continue
            square = self._square(unit, other)
            living = field.health[:, other] > 0
            near = living & (square <= radius * radius)
            key = square if self._fighter[other] else square + LOW_PRIORITY
            better = near & (key < best)
            best = np.where(better, key, best)
            found[better] = other
            within = np.sqrt(square) <= rules.reach[unit, other]
            kept |= living & within & (field.target[:, unit] == other)
        take = looking & ~kept
        field.target[take, unit] = found[take]

    def _look_after(self, unit: int, looking: BoolArray) -> None:
        """Heal the nearest hurt fighter in view; else follow the nearest."""
        field, rules = self.field, self.rules
        best, nearest = (np.full(len(looking), EVERYWHERE, f32) for _ in range(2))
        found, follow = (np.full(len(looking), -1, np.int32) for _ in range(2))
        radius = f32(rules.acquire)
        for other in range(rules.n_allies, rules.n_units):
            if not self._fighter[other]:
                continue
            square = self._square(unit, other)
            living = field.health[:, other] > 0
            closer = living & (square < nearest)
            nearest = np.where(closer, square, nearest)
            follow[closer] = other
            hurt = living & (field.health[:, other] < rules.full_health[other])
            better = hurt & (square <= radius * radius) & (square < best)
            best = np.where(better, square, best)
            found[better] = other
        field.target[looking, unit] = found[looking]
        led = looking & (follow >= 0)
        at = follow[led]
        field.goal_x[led, unit] = field.x[led, at]
        field.goal_y[led, unit] = field.y[led, at]
        field.moving[led, unit] = 1

    def _square(self, unit: int, other: int) -> FloatArray:
        field = self.field
        dx = field.x[:, other] - field.x[:, unit]
        dy = field.y[:, other] - field.y[:, unit]
        found: FloatArray = dx * dx + dy * dy
        return found

    # --- walking ---------------------------------------------------------------------------

    def _walk(self, alive: BoolArray) -> None:
        """Those out of reach of their target walk to it, others to their goal; who is in reach
        fires, which `_hit` does with the `firing` found here."""
        field, rules = self.field, self.rules
        aimed = field.target >= 0
        at = np.maximum(field.target, 0)
        to_x = np.where(aimed, np.take_along_axis(field.x, at, 1), field.goal_x)
        to_y = np.where(aimed, np.take_along_axis(field.y, at, 1), field.goal_y)
        dx, dy = to_x - field.x, to_y - field.y
        reach = rules.reach[np.arange(rules.n_units)[None], at]
        within = aimed & (np.sqrt(dx * dx + dy * dy) <= reach)
        self._firing = alive & within & self._ready(at)
        goes = alive & np.where(aimed, ~within, field.moving > 0)
        if len(rules.routes):
            dx, dy = self._round(to_x, to_y, dx, dy, goes)
        length = np.sqrt(dx * dx + dy * dy)
        far = length > rules.speed
        share = np.where(far, rules.speed / np.where(far, length, ONE), ONE)
        way_x, way_y = dx * share, dy * share
        against = field.press_x * way_x + field.press_y * way_y
        stopped = against < 0
        square = field.press_x * field.press_x + field.press_y * field.press_y
        part = np.where(stopped, against / np.where(stopped, square, ONE), f32(0))
        way_x, way_y = way_x - field.press_x * part, way_y - field.press_y * part
        self._shift(goes, field.x + way_x, field.y + way_y)

    def _ready(self, at: Array) -> BoolArray:
        field, rules = self.field, self.rules
        units_ = np.arange(rules.n_units)[None]
        shoots = (field.cooldown == 0) & (rules.damage[units_, at] > 0)
        hurt = np.take_along_axis(field.health, at, 1) < rules.full_health[at]
        heals = (field.energy >= f32(units.HEAL_COST)) & hurt
        found: BoolArray = np.where(self._fighter, shoots, heals)
        return found

    def _round(
        self, to_x: FloatArray, to_y: FloatArray, dx: FloatArray, dy: FloatArray, goes: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        """Towards the next cell of the way, for those that need ground."""
        field, rules = self.field, self.rules
        here = field.x.astype(np.int32) * SIDE + field.y.astype(np.int32)
        column, row = (np.clip(to.astype(np.int32), 0, SIDE - 1) for to in (to_x, to_y))
        there = column * SIDE + row
        cell = rules.routes[here, there].astype(np.int32)
        bent = goes & (rules.walks == 1) & (cell >= 0)
        step_x = (cell // SIDE).astype(f32) + HALF - field.x
        step_y = (cell % SIDE).astype(f32) + HALF - field.y
        return np.where(bent, step_x, dx), np.where(bent, step_y, dy)

    def _shift(self, goes: BoolArray, x: FloatArray, y: FloatArray) -> None:
        """To new places; along one axis where the ground ends, or not at all."""
        field = self.field
        both = goes & self._passable(x, y)
        along_x = along_y = both
        if not np.array_equal(both, goes):
            along_x = both | (goes & self._passable(x, field.y))
            along_y = both | (goes & ~along_x & self._passable(field.x, y))
        np.copyto(field.x, x, where=along_x)
        np.copyto(field.y, y, where=along_y)

    def _passable(self, x: FloatArray, y: FloatArray) -> BoolArray:
        inside = (x >= 0) & (y >= 0) & (x < SIDE) & (y < SIDE)
        column, row = (np.where(inside, v, f32(0)).astype(np.int32) for v in (x, y))
        found: BoolArray = inside & ((self.rules.grid[column, row] & self.rules.walks) != 0)
        return found

    # --- damage ----------------------------------------------------------------------------

    def _hit(self) -> None:
        """All attacks of a tick, unit by unit; the dead are found after the last."""
        field, rules = self.field, self.rules
        was_alive = field.health > 0
        acts = self._firing | (field.burst > 0)
        for unit in acts.any(axis=0).nonzero()[0].tolist():
            copies = acts[:, unit].nonzero()[0]
            targets = field.target[copies, unit]
            if rules.weapon[unit] == HEAL:
                self._heal(unit, copies, targets)
            elif rules.weapon[unit] == BURST:
                self._explode(unit, copies, was_alive)
            else:
                self._roll(unit, copies)
                self._strike(unit, copies, targets)
                if rules.weapon[unit] == LINE:
                    self._sweep(unit, copies, targets, was_alive)
        dead = was_alive & ~(field.health > 0)
        field.burst[dead & (rules.weapon == BURST) & ~self._firing] = 1
        field.health[dead] = 0
        field.shield[dead] = 0

    def _heal(self, unit: int, copies: Array, targets: Array) -> None:
        field, rules = self.field, self.rules
        health = field.health[copies, targets]
        after = np.minimum(health + f32(units.HEAL_PER_TICK), rules.full_health[targets])
        field.health[copies, targets] = np.where(health > 0, after, health)
        field.energy[copies, unit] -= f32(units.HEAL_COST)

    def _roll(self, unit: int, copies: Array) -> None:
        """The next cooldown: the unit's own and -1, 0, 1 or 2 ticks."""
        dice = self.field.dice[copies, unit]
        dice ^= dice << np.uint32(13)
        dice ^= dice >> np.uint32(17)
        dice ^= dice << np.uint32(5)
        self.field.dice[copies, unit] = dice
        chance = (dice >> np.uint32(30)).astype(np.int32) - 1
        self.field.cooldown[copies, unit] = self.rules.full_cooldown[unit] + chance

    def _strike(self, unit: int, copies: Array, targets: Array) -> None:
        """Hits on one target per copy: the shield takes what it can, armour stops some of the
        rest."""
        field, rules = self.field, self.rules
        damage, armour = rules.damage[unit, targets], rules.armour[targets]
        health, shield = field.health[copies, targets], field.shield[copies, targets]
        for _ in range(int(rules.hits[unit])):
            through = shield < damage
            rest = np.maximum(damage - shield - armour, LEAST_DAMAGE)
            health = np.where(through, health - rest, health)
            shield = np.where(through, f32(0), shield - damage)
        field.health[copies, targets], field.shield[copies, targets] = health, shield
        field.peace[copies, targets] = 0

    def _others(self, unit: int) -> range:
        allies, everybody = self.rules.n_allies, self.rules.n_units
        return range(allies, everybody) if unit < allies else range(allies)

    def _sweep(self, unit: int, copies: Array, targets: Array, was_alive: BoolArray) -> None:
        """A colossus burns a line across its view: others beside its target are hit as well."""
        field, rules = self.field, self.rules
        at_x, at_y = field.x[copies, targets], field.y[copies, targets]
        dx, dy = at_x - field.x[copies, unit], at_y - field.y[copies, unit]
        length = np.sqrt(dx * dx + dy * dy)
        near = length > f32(0)
        dx, dy = (np.where(near, v / np.where(near, length, ONE), f32(0)) for v in (dx, dy))
        for other in self._others(unit):
            if rules.damage[unit, other] == 0:
                continue
            rx, ry = field.x[copies, other] - at_x, field.y[copies, other] - at_y
            along, across = np.abs(rx * dx + ry * dy), np.abs(rx * dy - ry * dx)
            size = rules.radius[other]
            struck = (along <= f32(units.LINE_DEPTH) + size) & (
                across <= f32(units.LINE_WIDTH) + size
            )
            struck &= was_alive[copies, other] & (targets != other)
            hit = copies[struck]
            if len(hit):
                self._strike(unit, hit, np.full(len(hit), other))

    def _explode(self, unit: int, copies: Array, was_alive: BoolArray) -> None:
        """A baneling bursts, by itself or because it was killed."""
        field, rules = self.field, self.rules
        for other in self._others(unit):
            if rules.damage[unit, other] == 0:
                continue
            dx = field.x[copies, other] - field.x[copies, unit]
            dy = field.y[copies, other] - field.y[copies, unit]
            limit = f32(units.BURST_RADIUS) + rules.radius[other]
            near = np.sqrt(dx * dx + dy * dy) <= limit
            hit = copies[near & was_alive[copies, other]]
            if len(hit):
                self._strike(unit, hit, np.full(len(hit), other))
        field.health[copies, unit] = 0
        field.burst[copies, unit] = 0

    # --- between attacks -------------------------------------------------------------------

    def _recover(self) -> None:
        field, rules = self.field, self.rules
        alive = field.health > 0
        field.peace += 1
        rests = alive & (field.peace > units.SHIELD_PAUSE)
        fuller = np.minimum(field.shield + f32(units.SHIELD_PER_TICK), rules.full_shield)
        np.copyto(field.shield, fuller, where=rests)
        grown = np.minimum(field.health + rules.regrowth, rules.full_health)
        np.copyto(field.health, grown, where=alive & (rules.regrowth > 0))
        fresh = np.minimum(field.energy + f32(units.ENERGY_PER_TICK), f32(units.ENERGY_MAX))
        np.copyto(field.energy, fresh, where=alive & ~self._fighter)

    def _part(self) -> None:
        """Bodies that overlap push each other apart, each by half of it. `add.at` adds in the order
        of the pairs: to every unit, those of the others in the order of their numbers."""
        field, rules = self.field, self.rules
        copies, others, bodies, dx, dy, square = self._overlaps()
        touch, close = rules.touch[others, bodies], square < SAME_PLACE
        length = np.sqrt(square)
        counts = touch - length > 0
        # Two in one place part sideways.
        dx = np.where(close, np.where(bodies < others, -ONE, ONE), dx)
        dy = np.where(close, f32(0), dy)
        over = np.where(close, touch, touch - length)
        share = HALF * over / np.where(close, ONE, length)
        field.press_x[:], field.press_y[:] = 0, 0
        np.add.at(field.press_x, (copies, bodies), np.where(counts, dx * share, f32(0)))
        np.add.at(field.press_y, (copies, bodies), np.where(counts, dy * share, f32(0)))
        pushed = (field.press_x != 0) | (field.press_y != 0)
        self._shift(pushed, field.x + field.press_x, field.y + field.press_y)

    def _overlaps(self) -> tuple[Array, ...]:
        """Pairs of living bodies that may touch: copy, other, body, then dx, dy and the squared
        distance from the other to the body. Copies in chunks that fit into the cache."""
        field, n_units = self.field, self.rules.n_units
        alive = field.health > 0
        x, y = (np.where(alive, v, f32(np.nan)) for v in (field.x, field.y))
        size = max(1, CHUNK // n_units**2)
        found = []
        for first in range(0, len(x), size):
            part_x, part_y = x[first : first + size], y[first : first + size]
            dx = part_x[:, None] - part_x[:, :, None]
            dy = part_y[:, None] - part_y[:, :, None]
            square = dx * dx + dy * dy
            at = (square < self._near).nonzero()
            found.append((at[0] + first, at[1], at[2], dx[at], dy[at], square[at]))
        return tuple(np.concatenate(column) for column in zip(*found, strict=True))
