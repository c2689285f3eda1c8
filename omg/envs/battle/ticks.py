"""The fight in NumPy, tick by tick: the reference for the C kernel, which does the same operations
in the same order, so that both agree in every bit. Loops run over units, copies are arrays."""

from __future__ import annotations

import numpy as np

from omg.envs.battle import units
from omg.envs.battle.damage import Damage
from omg.envs.battle.field import Array, Field
from omg.envs.battle.maps import SIDE
from omg.envs.battle.rules import Rules
from omg.envs.battle.units import HEAL
from omg.types import BoolArray, FloatArray, IntArray

f32 = np.float32
HALF, ONE = f32(0.5), f32(1)
LOW_PRIORITY = f32(1e4)  # added to the squared distance of units that cannot fight
EVERYWHERE = f32(1e6)
SAME_PLACE = f32(1e-8)
CHUNK = 40_000  # pairs looked at together


class Fight:
    """Moves the battles of a field forward."""

    def __init__(self, rules: Rules, field: Field) -> None:
        self.rules, self.field = rules, field
        self._damage = Damage(rules, field)
        self._fighter = rules.weapon != HEAL
        self._scripted = () if rules.both else tuple(range(rules.n_allies, rules.n_units))
        n = rules.n_units
        # Numbers of units over all copies, and of pairs of units: what is before the unit itself.
        self._first = np.arange(len(field.ticks))[:, None] * n
        self._pairs_of = np.arange(n) * n
        self._reach, self._hurts = rules.reach.ravel(), (rules.damage > 0).ravel()
        self._recovers = bool(
            rules.full_shield.any() or rules.regrowth.any() or not self._fighter.all()
        )
        self._bodies = np.triu(rules.touch > 0, 1).nonzero()
        self._touch = rules.touch[self._bodies]
        self._near = self._touch * self._touch * f32(1.0001)  # a little more than touching
        # Where everybody can go, if all go alike.
        alike = (rules.walks == rules.walks[0]).all()
        self._ground = ((rules.grid & rules.walks[0]) != 0).ravel() if alike else None

    def tick(self) -> None:
        """One tick of every copy."""
        field, rules = self.field, self.rules
        np.maximum(field.cooldown - 1, 0, out=field.cooldown)
        looking = field.ticks % rules.period == 0
        if looking.any():
            for unit in self._scripted:
                self._look(unit, looking)
        alive = field.health > 0
        at = np.maximum(field.target, 0)
        there = at + self._first
        aimed = (field.target >= 0) & alive.take(there)
        np.copyto(field.target, -1, where=~aimed)
        self._damage.hit(self._walk(alive, aimed, at, there))
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

    def _walk(self, alive: BoolArray, aimed: BoolArray, at: IntArray, there: IntArray) -> BoolArray:
        """Those out of reach of their target walk to it, others to their goal; who is in reach and
        ready fires, which is the answer. `there` numbers the targets over all copies."""
        field, rules = self.field, self.rules
        to_x = np.where(aimed, field.x.take(there), field.goal_x)
        to_y = np.where(aimed, field.y.take(there), field.goal_y)
        dx, dy = to_x - field.x, to_y - field.y
        length = np.sqrt(dx * dx + dy * dy)
        pair = at + self._pairs_of
        within = aimed & (length <= self._reach.take(pair))
        firing = alive & within & self._ready(at, there, pair)
        goes = alive & np.where(aimed, ~within, field.moving > 0)
        if len(rules.routes):
            dx, dy = self._round(to_x, to_y, dx, dy, goes)
            length = np.sqrt(dx * dx + dy * dy)
        far = length > rules.speed
        share = np.where(far, rules.speed / np.where(far, length, ONE), ONE)
        way_x, way_y = dx * share, dy * share
        against = field.press_x * way_x + field.press_y * way_y
        stopped = against < 0
        if stopped.any():
            square = field.press_x * field.press_x + field.press_y * field.press_y
            part = np.where(stopped, against / np.where(stopped, square, ONE), f32(0))
            way_x, way_y = way_x - field.press_x * part, way_y - field.press_y * part
        self._shift(goes, field.x + way_x, field.y + way_y)
        return firing

    def _ready(self, at: IntArray, there: IntArray, pair: IntArray) -> BoolArray:
        field, rules = self.field, self.rules
        shoots: BoolArray = (field.cooldown == 0) & self._hurts.take(pair)
        if self._fighter.all():
            return shoots
        hurt = field.health.take(there) < rules.full_health[at]
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
        if np.count_nonzero(both) != np.count_nonzero(goes):
            along_x = both | (goes & self._passable(x, field.y))
            along_y = both | (goes & ~along_x & self._passable(field.x, y))
        np.copyto(field.x, x, where=along_x)
        np.copyto(field.y, y, where=along_y)

    def _passable(self, x: FloatArray, y: FloatArray) -> BoolArray:
        inside: BoolArray | None = None
        if x.min() < 0 or y.min() < 0 or x.max() >= SIDE or y.max() >= SIDE:
            inside = (x >= 0) & (y >= 0) & (x < SIDE) & (y < SIDE)
            x, y = (np.where(inside, v, f32(0)) for v in (x, y))
        cell = x.astype(np.int32) * SIDE + y.astype(np.int32)
        found: BoolArray
        if self._ground is not None:
            found = self._ground.take(cell)
        else:
            found = (self.rules.grid.ravel().take(cell) & self.rules.walks) != 0
        return found if inside is None else inside & found

    # --- between attacks -------------------------------------------------------------------

    def _recover(self) -> None:
        field, rules = self.field, self.rules
        field.peace += 1
        if not self._recovers:
            return
        alive = field.health > 0
        rests = alive & (field.peace > units.SHIELD_PAUSE)
        fuller = np.minimum(field.shield + f32(units.SHIELD_PER_TICK), rules.full_shield)
        np.copyto(field.shield, fuller, where=rests)
        grown = np.minimum(field.health + rules.regrowth, rules.full_health)
        np.copyto(field.health, grown, where=alive & (rules.regrowth > 0))
        fresh = np.minimum(field.energy + f32(units.ENERGY_PER_TICK), f32(units.ENERGY_MAX))
        np.copyto(field.energy, fresh, where=alive & ~self._fighter)

    def _part(self) -> None:
        """Bodies that overlap push each other apart, each by half of it. `add.at` adds in the order
        of the pairs: to every unit first those of lower numbers, then those of higher ones."""
        field = self.field
        field.press_x[:], field.press_y[:] = 0, 0
        lower, higher, touch, dx, dy, square = self._overlaps()
        if not len(lower):
            return
        length = np.sqrt(square)
        over, close = touch - length, square < SAME_PLACE
        if close.any():  # two in one place part sideways
            dx, dy = np.where(close, ONE, dx), np.where(close, f32(0), dy)
            over, length = np.where(close, touch, over), np.where(close, ONE, length)
        share = HALF * over / length
        share = np.where(over > 0, share, f32(0))
        for press, gap in ((field.press_x.ravel(), dx), (field.press_y.ravel(), dy)):
            push = gap * share
            np.add.at(press, higher, push)
            np.subtract.at(press, lower, push)
        pushed = (field.press_x != 0) | (field.press_y != 0)
        self._shift(pushed, field.x + field.press_x, field.y + field.press_y)

    def _overlaps(self) -> tuple[Array, ...]:
        """Pairs of living bodies that may touch, numbered over all copies: the lower and the higher
        one, how near they may come, dx, dy and the squared distance from the lower to the higher
        one. Copies in chunks that fit into the cache."""
        field, (lower, higher) = self.field, self._bodies
        alive = field.health > 0
        x, y = (np.where(alive, v, f32(np.nan)) for v in (field.x, field.y))
        size = max(1, CHUNK // max(1, len(lower)))
        found = []
        for start in range(0, len(x), size):
            part_x, part_y = x[start : start + size], y[start : start + size]
            dx = part_x.take(higher, 1) - part_x.take(lower, 1)
            dy = part_y.take(higher, 1) - part_y.take(lower, 1)
            square = dx * dx + dy * dy
            at = (square < self._near).ravel().nonzero()[0]
            copy, pair = np.divmod(at, max(1, len(lower)))
            first = (copy + start) * self.rules.n_units
            ends = first + lower.take(pair), first + higher.take(pair), self._touch.take(pair)
            found.append((*ends, *(v.ravel().take(at) for v in (dx, dy, square))))
        if len(found) == 1:
            return found[0]
        return tuple(np.concatenate(column) for column in zip(*found, strict=True))
