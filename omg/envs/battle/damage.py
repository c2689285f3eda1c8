"""Attacks of a tick in NumPy, in the order of the units; the C kernel does the same."""

from __future__ import annotations

import numpy as np

from omg.envs.battle import units
from omg.envs.battle.field import Array, Field
from omg.envs.battle.rules import Rules
from omg.envs.battle.units import BURST, HEAL, LINE
from omg.types import BoolArray, IntArray

f32 = np.float32
ONE = f32(1)
LEAST_DAMAGE = f32(0.5)


class Damage:
    """What attacks do to the units of a field."""

    def __init__(self, rules: Rules, field: Field) -> None:
        self.rules, self.field = rules, field
        shots = ~np.isin(rules.weapon, (HEAL, BURST, LINE))
        self._plain = bool(shots.all()) and not rules.full_shield.any()
        self._damage = rules.damage.ravel()

    def hit(self, firing: BoolArray) -> None:
        """All attacks of a tick; the dead are found after the last."""
        field, rules = self.field, self.rules
        was_alive = field.health > 0
        if self._plain:
            shooters = firing.ravel().nonzero()[0]
            if not len(shooters):
                return
            self._shoot(shooters)
        else:
            self._unit_by_unit(firing, was_alive)
        dead = was_alive & ~(field.health > 0)
        field.burst[dead & (rules.weapon == BURST) & ~firing] = 1
        field.health[dead] = 0
        field.shield[dead] = 0

    def _shoot(self, shooters: IntArray) -> None:
        """Where nobody has shields and weapons hit their target alone: all shots at once. They are
        taken off one after the other, in the order of the units."""
        field, rules = self.field, self.rules
        self._roll(shooters)
        unit = shooters % rules.n_units
        target = field.target.ravel()[shooters]
        at = shooters - unit + target
        rest = self._damage.take(unit * rules.n_units + target) - rules.armour.take(target)
        rest = np.maximum(rest, LEAST_DAMAGE)
        field.peace.ravel()[at] = 0
        hits = rules.hits.take(unit)
        if (hits > 1).any():
            at, rest = at.repeat(hits), rest.repeat(hits)
        np.subtract.at(field.health.ravel(), at, rest)

    def _unit_by_unit(self, firing: BoolArray, was_alive: BoolArray) -> None:
        field, rules = self.field, self.rules
        acts = firing | (field.burst > 0)
        for unit in acts.any(axis=0).nonzero()[0].tolist():
            copies = acts[:, unit].nonzero()[0]
            targets = field.target[copies, unit]
            if rules.weapon[unit] == HEAL:
                self._heal(unit, copies, targets)
            elif rules.weapon[unit] == BURST:
                self._explode(unit, copies, was_alive)
            else:
                self._roll(copies * rules.n_units + unit)
                self._strike(unit, copies, targets)
                if rules.weapon[unit] == LINE:
                    self._sweep(unit, copies, targets, was_alive)

    def _heal(self, unit: int, copies: Array, targets: Array) -> None:
        field, rules = self.field, self.rules
        health = field.health[copies, targets]
        after = np.minimum(health + f32(units.HEAL_PER_TICK), rules.full_health[targets])
        field.health[copies, targets] = np.where(health > 0, after, health)
        field.energy[copies, unit] -= f32(units.HEAL_COST)

    def _roll(self, shooters: IntArray) -> None:
        """The next cooldown of units (numbered over all copies): their own and -1, 0, 1 or 2
        ticks."""
        every = self.field.dice.ravel()
        dice = every[shooters]
        dice ^= dice << np.uint32(13)
        dice ^= dice >> np.uint32(17)
        dice ^= dice << np.uint32(5)
        every[shooters] = dice
        chance = (dice >> np.uint32(30)).astype(np.int32) - 1
        usual = self.rules.full_cooldown.take(shooters % self.rules.n_units)
        self.field.cooldown.ravel()[shooters] = usual + chance

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
