"""What units can do. Figures are public game data; times are seconds at the speed "faster"."""

from __future__ import annotations

from dataclasses import dataclass

TICKS_PER_SECOND = 22.4
MELEE = 0.1  # range of those that must touch

# How a weapon works.
SHOT, LINE, BURST, HEAL = range(4)
# What a unit walks on: ground; cliffs as well; it flies.
GROUND, CLIFFS, AIR = range(3)

# A shield begins to recover after so many ticks without a hit.
SHIELD_PAUSE, SHIELD_PER_TICK = 160, 0.125
# A medivac's health per tick, what that costs, and what it recovers.
HEAL_PER_TICK, HEAL_COST, ENERGY_PER_TICK = 0.5625, 0.1875, 0.03515625
ENERGY_START, ENERGY_MAX = 50.0, 200.0
# Area damage: half the width and half the depth of a colossus' line, radius of a baneling's burst.
LINE_WIDTH, LINE_DEPTH, BURST_RADIUS = 1.4, 0.15, 2.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One kind of unit."""

    name: str
    health: float
    size: float  # diameter
    speed: float = 3.15  # per second
    shield: float = 0.0
    armour: float = 0.0
    damage: float = 0.0  # of one hit
    hits: int = 1  # of one attack
    bonus: float = 0.0  # more against units that are `bonus_to`
    bonus_to: str = ""
    cooldown: float = 0.0  # seconds between attacks
    range: float = MELEE  # from edge to edge
    weapon: int = SHOT
    moves_on: int = GROUND
    hits_air: bool = False
    is_light: bool = False
    is_armoured: bool = False
    regrowth: float = 0.0  # health per second
    # By what SMAC divides the cooldown in its state; 0: the unit is no ally in SMAC, ours is used.
    cooldown_scale: float = 0.0

    @property
    def ticks(self) -> int:
        """Ticks between attacks, before chance."""
        return round(self.cooldown * TICKS_PER_SECOND)

    def damage_to(self, other: Unit) -> float:
        """One hit, before armour; 0: it cannot attack the other."""
        if self.damage == 0.0 or (other.moves_on == AIR and not self.hits_air):
            return 0.0
        suits = {"light": other.is_light, "armoured": other.is_armoured}.get(self.bonus_to, False)
        return self.damage + (self.bonus if suits else 0.0)


ZERG_REGROWTH = 0.38

UNITS = {
    unit.name: unit
    for unit in (
        Unit(
            name="marine",
            health=45,
            size=0.75,
            damage=6,
            cooldown=0.61,
            range=5,
            hits_air=True,
            is_light=True,
            cooldown_scale=15,
        ),
        Unit(
            name="marauder",
            health=125,
            size=1.125,
            armour=1,
            damage=10,
            bonus=10,
            bonus_to="armoured",
            cooldown=1.07,
            range=6,
            is_armoured=True,
            cooldown_scale=25,
        ),
        Unit(
            name="medivac",
            health=150,
            size=1.5,
            armour=1,
            speed=3.85,
            range=4,
            weapon=HEAL,
            moves_on=AIR,
            is_armoured=True,
        ),
        Unit(
            name="stalker",
            health=80,
            shield=80,
            size=1.25,
            armour=1,
            speed=4.13,
            damage=13,
            bonus=5,
            bonus_to="armoured",
            cooldown=1.34,
            range=6,
            hits_air=True,
            is_armoured=True,
            cooldown_scale=35,
        ),
        Unit(
            name="zealot",
            health=100,
            shield=50,
            size=1.0,
            armour=1,
            damage=8,
            hits=2,
            cooldown=0.86,
            is_light=True,
            cooldown_scale=22,
        ),
        Unit(
            name="colossus",
            health=200,
            shield=150,
            size=2.0,
            armour=1,
            damage=10,
            hits=2,
            bonus=5,
            bonus_to="light",
            cooldown=1.07,
            range=7,
            weapon=LINE,
            moves_on=CLIFFS,
            is_armoured=True,
            cooldown_scale=24,
        ),
        Unit(
            name="zergling",
            health=35,
            size=0.75,
            speed=4.13,
            damage=5,
            cooldown=0.497,
            is_light=True,
            regrowth=ZERG_REGROWTH,
            cooldown_scale=11,
        ),
        Unit(
            name="baneling",
            health=30,
            size=0.75,
            speed=3.5,
            damage=16,
            bonus=19,
            bonus_to="light",
            weapon=BURST,
            regrowth=ZERG_REGROWTH,
            cooldown_scale=1,
        ),
        Unit(
            name="hydralisk",
            health=80,
            size=1.25,
            damage=12,
            cooldown=0.59,
            range=5,
            hits_air=True,
            is_light=True,
            regrowth=ZERG_REGROWTH,
            cooldown_scale=10,
        ),
        Unit(
            name="spine_crawler",
            health=300,
            size=1.0,
            armour=2,
            speed=0,
            damage=25,
            bonus=5,
            bonus_to="armoured",
            cooldown=1.32,
            range=7,
            is_armoured=True,
            regrowth=ZERG_REGROWTH,
        ),
    )
}
