"""One situation of a battle as plain numbers, for pictures: from a state, or from a whole episode
of them. Who fires at whom is what the states let one conclude: see `_attacks`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from omg.envs.battle.reading import Units, read_units
from omg.envs.battle.rules import Rules
from omg.envs.battle.units import HEAL
from omg.envs.drawing import Point
from omg.envs.sc2.args import PLAIN_ACTIONS
from omg.types import BoolArray, FloatArray

# How far beyond its weapon's reach a unit may be after a step in which it fired.
_SLACK = 1.0


@dataclass(frozen=True, slots=True)
class UnitFrame:
    """A unit: shares of health, shield (negative: has none) and of what its weapon still waits."""

    x: float
    y: float
    health: float  # 0: dead
    shield: float
    waits: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BattleFrame:
    """All units, ours first; who attacks or heals whom; who died in the step that led here."""

    units: tuple[UnitFrame, ...]
    attacks: tuple[tuple[int, int], ...] = ()
    deaths: tuple[int, ...] = ()
    graves: tuple[tuple[int, Point], ...] = ()  # the dead and where they fell
    ghosts: tuple[tuple[int, Point], ...] = ()  # units and where they are expected to be
    step: int = 0
    score: tuple[float, ...] = ()  # of our side, and of theirs where it has seats


def frames_of(
    rules: Rules, states: FloatArray, rewards: FloatArray, *, first_step: int = 0
) -> list[BattleFrame]:
    """An episode's frames from its states [T + 1, S] and rewards [T, N] or [T, 1]."""
    units = read_units(rules, states)
    sides = [0, rules.n_allies] if rules.both and rewards.shape[1] > 1 else [0]
    scores = np.concatenate([np.zeros((1, len(sides))), np.cumsum(rewards[:, sides], axis=0)])
    frames: list[BattleFrame] = []
    graves: dict[int, Point] = {}
    before: BattleFrame | None = None
    for at in range(len(states)):
        now = tuple(_unit(rules, units, at, unit) for unit in range(rules.n_units))
        deaths = tuple(
            unit
            for unit in range(rules.n_units)
            if before is not None and before.units[unit].health > 0 and now[unit].health <= 0
        )
        for unit in deaths:
            assert before is not None
            graves[unit] = (before.units[unit].x, before.units[unit].y)
        frame = BattleFrame(
            units=now,
            deaths=deaths,
            graves=tuple(graves.items()),
            step=first_step + at,
            score=tuple(scores[at].tolist()),
        )
        if before is not None:
            frame = replace(frame, attacks=_attacks(rules, units, at))
        frames.append(frame)
        before = frame
    return frames


def with_ghosts(
    frames: Sequence[BattleFrame], ghosts: Sequence[Sequence[tuple[int, Point]]]
) -> list[BattleFrame]:
    """The frames with the places where units are expected to be; those of the dead are left out."""
    return [
        replace(
            frame,
            ghosts=tuple((unit, at) for unit, at in expected if frame.units[unit].health > 0),
        )
        for frame, expected in zip(frames, ghosts, strict=True)
    ]


def _unit(rules: Rules, units: Units, at: int, unit: int) -> UnitFrame:
    x, y = units.place[at, unit].tolist()
    shield = float(units.shield[at, unit]) if rules.full_shield[unit] > 0 else -1.0
    heals = rules.weapon[unit] == HEAL
    most = rules.cooldown_scale[unit] if heals else rules.full_cooldown[unit] + 2
    waits = min(1.0, float(units.waits[at, unit]) / float(most)) if most else 0.0
    return UnitFrame(x, y, float(units.health[at, unit]), shield, waits)


def _attacks(rules: Rules, units: Units, at: int) -> tuple[tuple[int, int], ...]:
    """Those with a known last action attack its target. Of another unit it is concluded: if it may
    have fired, and some of the other side within its reach were hurt, it was at the nearest."""
    alive, place = units.alive[at], units.place[at]
    was, there = units.alive[at - 1], units.place[at - 1]
    found = []
    hurt = units.life(rules)[at] < units.life(rules)[at - 1] - 1e-3
    for unit in range(rules.n_units):
        if not was[unit] or not (alive[unit] or hurt[unit]):
            continue
        if units.last is not None and unit < rules.n_seats:
            target = _told(rules, units.last[at, unit], unit)
        else:
            target = _concluded(rules, units, at, unit, hurt)
        if target is None or not was[target]:
            continue
        ends = [place[one] if alive[one] else there[one] for one in (unit, target)]
        if float(np.hypot(*(ends[0] - ends[1]))) <= rules.reach[unit, target] + _SLACK:
            found.append((unit, target))
    return tuple(found)


def _told(rules: Rules, action: int, unit: int) -> int | None:
    """Whom a seat's last action attacks or heals."""
    if action < PLAIN_ACTIONS:
        return None
    theirs, heals = unit >= rules.n_allies, rules.weapon[unit] == HEAL
    return int(action) - PLAIN_ACTIONS + (rules.n_allies if theirs == heals else 0)


def _concluded(rules: Rules, units: Units, at: int, unit: int, hurt: BoolArray) -> int | None:
    """The nearest that it can hurt among those who were hurt within its reach."""
    if rules.weapon[unit] == HEAL or _waited(rules, units, at, unit):
        return None
    ours = np.arange(rules.n_units) < rules.n_allies
    others = ours if unit >= rules.n_allies else ~ours
    gaps = np.hypot(*(units.place[at - 1] - units.place[at - 1, unit]).T)
    near = others & hurt & (rules.damage[unit] > 0) & (gaps <= rules.reach[unit] + _SLACK)
    return int(np.where(near, gaps, np.inf).argmin()) if near.any() else None


def _waited(rules: Rules, units: Units, at: int, unit: int) -> bool:
    """Whether its cooldown, where the state tells it, went down and nothing else: no shot."""
    known = rules.both or unit < rules.n_allies
    if not (known and units.alive[at, unit] and rules.full_cooldown[unit] > rules.args.step_mul):
        return False
    before, now = units.waits[at - 1 : at + 1, unit].tolist()
    return bool(now <= max(before - rules.args.step_mul, 0) + 0.5)
