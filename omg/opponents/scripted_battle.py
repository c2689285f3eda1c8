"""Scripted soldiers, for opponent pools: whom each attacks, and when it walks away.

They read the state and play any seat of either side. Every script names a unit to attack and, where
it prefers to walk, a direction; medivacs heal whoever is hurt most, whatever the script. A row is
one copy and one seat to act for: R rows, N own units, M units of the other side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omg.envs.battle.args import BattleArgs
from omg.envs.battle.maps import SIDE
from omg.envs.battle.reading import read_units
from omg.envs.battle.rules import MOVES, SHOOT_RANGE, Rules
from omg.envs.battle.units import HEAL
from omg.envs.sc2.args import PLAIN_ACTIONS
from omg.opponents import scripts as base
from omg.opponents.scripts import Script
from omg.types import BoolArray, FloatArray, IntArray, OmgError

Numbers = NDArray[np.float32]

NOOP, STOP = 0, 1
FAR = np.float32(1e6)
_HURT = 0.4  # share of health and shields below which a cautious unit withdraws
_SAFE = 8.0  # and how far from the enemy it feels safe
_MARGIN = 2.5  # how far out of its enemy's reach a unit that kites wants to be
_RELOADED = 3  # ticks of cooldown with which it turns to fire again
_TIE = 0.001  # of life per distance: decides between equally weak enemies only
_FARTHER = 0.15  # what a step of the way counts against a unit's weakness, for the team's target


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The situation of rows that sit on one side, seen from there."""

    seats: IntArray  # [R], within the own side
    own: Numbers  # [R, N, 2], places
    other: Numbers  # [R, M, 2]
    own_life: Numbers  # [R, N], health and shields; 0: dead
    other_life: Numbers  # [R, M]
    own_full: Numbers  # [R, N], what it is at the start
    cooldown: Numbers  # [R], ticks
    reach: Numbers  # [R, M], how far the others' weapons reach the row's unit
    hurts: BoolArray  # [R, M], whether its weapon can hurt them; marauders cannot hit the air
    avail: BoolArray  # [R, A]

    @property
    def place(self) -> Numbers:
        """Where the row's own unit is, [R, 2]."""
        found: Numbers = self.own[np.arange(len(self.seats)), self.seats]
        return found

    @property
    def gaps(self) -> Numbers:
        """Distance to each of the others, [R, M]; far away if it is dead."""
        return np.where(self.other_life > 0, distance(self.place[:, None], self.other), FAR)

    @property
    def ways(self) -> Numbers:
        """Distance to each that the row's unit can hurt, [R, M]; others are far away."""
        return np.where(self.hurts, self.gaps, FAR)

    @property
    def attackable(self) -> BoolArray:
        """Whom the row's unit can attack and hurt, as the places tell, [R, M]."""
        found: BoolArray = self.ways <= SHOOT_RANGE
        return found

    @property
    def allowed(self) -> BoolArray:
        """The same by its mask, which differs by rounding only, [R, M]."""
        may: BoolArray = self.avail[:, PLAIN_ACTIONS : PLAIN_ACTIONS + self.other.shape[1]]
        return may & self.hurts

    @property
    def condition(self) -> Numbers:
        """The share of life that is left to the own side's units, [R, N]."""
        return self.own_life / self.own_full

    def rows(self, chosen: IntArray) -> Scene:
        """Some of the rows."""
        return Scene(**{f.name: getattr(self, f.name)[chosen] for f in fields(self)})


def distance(points: Numbers, others: Numbers) -> Numbers:
    """Euclidean, along the last axis."""
    difference = points - others
    found: Numbers = np.sqrt((difference * difference).sum(axis=-1))
    return found


def read_scene(
    rules: Rules, state: FloatArray, seats: IntArray, avail: BoolArray, side: int
) -> Scene:
    """The scene of rows of one side, from states [R, S]."""
    units = read_units(rules, state)
    life = units.life(rules)
    ours, theirs = slice(0, rules.n_allies), slice(rules.n_allies, None)
    own, other = (ours, theirs) if side == 0 else (theirs, ours)
    full = (rules.full_health + rules.full_shield)[own]
    return Scene(
        seats=seats - (rules.n_allies if side else 0),
        own=units.place[:, own],
        other=units.place[:, other],
        own_life=life[:, own],
        other_life=life[:, other],
        own_full=np.broadcast_to(full, life[:, own].shape),
        cooldown=units.waits[np.arange(len(state)), seats],
        reach=rules.reach[other].T[seats],
        hurts=rules.damage[seats][:, other] > 0,
        avail=avail,
    )


# --- what a script wants ---------------------------------------------------------------------

MEMORY_DIM = 1


@dataclass(frozen=True, slots=True)
class Wish:
    """Whom to attack [R], and where to walk instead [R, 2] (0, 0: nowhere), where `walks` [R]."""

    target: IntArray
    away: Numbers
    walks: BoolArray
    stays: BoolArray  # never walks, not even to its target


Aim = Callable[[Scene], Wish]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(base.Kind):
    """Whom a scripted soldier attacks."""

    aim: Aim | None  # None: it acts at random


def _wish(
    scene: Scene,
    target: IntArray,
    *,
    away: Numbers | None = None,
    walks: BoolArray | None = None,
    stays: bool = False,
) -> Wish:
    n = len(scene.seats)
    return Wish(
        target,
        np.zeros((n, 2), np.float32) if away is None else away,
        np.zeros(n, np.bool_) if walks is None else walks,
        np.full(n, stays),
    )


def _nearest(scene: Scene) -> IntArray:
    found: IntArray = scene.ways.argmin(axis=1)
    return found


def _weakest(scene: Scene) -> IntArray:
    """The weakest of those in range, the nearest of equally weak ones; the nearest where none is.
    Numbers must not decide: the two sides are numbered differently, and one would gain by it."""
    near = np.float32(_TIE) * np.minimum(scene.gaps, np.float32(SIDE))
    life = np.where(scene.attackable, scene.other_life + near, FAR)
    return np.where(scene.attackable.any(1), life.argmin(axis=1), _nearest(scene))


def _flight(scene: Scene) -> Numbers:
    """Away from the enemies around, the nearer the more, and not into a corner, [R, 2]."""
    gaps = np.maximum(scene.gaps, np.float32(0.3))
    weight = np.where(scene.other_life > 0, 1 / gaps**3, np.float32(0))[..., None]
    away: Numbers = ((scene.place[:, None] - scene.other) * weight).sum(axis=1)
    away /= np.maximum(np.linalg.norm(away, axis=1, keepdims=True), 1e-9)
    inward = np.float32(SIDE / 2) - scene.place
    found: Numbers = away + np.float32(0.03) * inward
    return found


def _attack_nearest(scene: Scene) -> Wish:
    return _wish(scene, _nearest(scene))


def _focus_fire(scene: Scene) -> Wish:
    return _wish(scene, _weakest(scene))


def _team_focus(scene: Scene) -> Wish:
    """One target for the whole side: weak, and near to all; the next best for those who cannot
    hurt it."""
    alive = scene.own_life > 0
    gaps = distance(scene.own[:, :, None], scene.other[:, None])
    mean = np.where(alive[..., None], gaps, 0).sum(1) / np.maximum(alive.sum(1), 1)[:, None]
    cost = scene.other_life * (1 + np.float32(_FARTHER) * mean**2)
    common = np.where((scene.other_life > 0) & scene.hurts, cost, FAR).argmin(axis=1)
    able = scene.attackable[np.arange(len(common)), common]
    close = scene.gaps[np.arange(len(common)), common] < SHOOT_RANGE + 2
    return _wish(scene, np.where(able | close, common, _weakest(scene)))


def _hold(scene: Scene) -> Wish:
    return _wish(scene, _nearest(scene), stays=True)


def _kite(scene: Scene) -> Wish:
    """Fire when the weapon is ready; until then keep out of the nearest enemy's reach."""
    nearest = scene.gaps.argmin(axis=1)
    rows = np.arange(len(nearest))
    danger = scene.gaps[rows, nearest] < scene.reach[rows, nearest] + _MARGIN
    walks = danger & (scene.cooldown > _RELOADED)
    return _wish(scene, _weakest(scene), away=_flight(scene), walks=walks)


def _retreat_when_hurt(scene: Scene) -> Wish:
    """Hurt units keep away as long as somebody else can fight."""
    rows = np.arange(len(scene.seats))
    hurt = scene.condition[rows, scene.seats] < _HURT
    relieved = ((scene.own_life > 0) & (scene.condition >= _HURT)).any(axis=1)
    walks = hurt & relieved & (scene.gaps.min(axis=1) < _SAFE)
    return _wish(scene, _nearest(scene), away=_flight(scene), walks=walks)


def _protect(scene: Scene) -> Wish:
    """Attack what is nearest to the teammate that is hurt most."""
    rows = np.arange(len(scene.seats))
    condition = np.where(scene.own_life > 0, scene.condition, FAR)
    condition[rows, scene.seats] = FAR
    ward = condition.argmin(axis=1)
    gaps = distance(scene.own[rows, ward][:, None], scene.other)
    gaps = np.where((scene.other_life > 0) & scene.hurts, gaps, FAR)
    alone = condition[rows, ward] >= FAR
    return _wish(scene, np.where(alone, _nearest(scene), gaps.argmin(axis=1)))


SCRIPTS: dict[str, Kind] = {
    "attack_nearest": Kind(
        about="the nearest enemy, as units do by themselves", aim=_attack_nearest
    ),
    "focus_fire": Kind(about="the weakest enemy in range, else the nearest", aim=_focus_fire),
    "team_focus": Kind(about="the one enemy that all of its side attack", aim=_team_focus),
    "hold": Kind(about="nowhere: attacks what comes into range", aim=_hold),
    "kite": Kind(about="away from the nearest enemy while it reloads", aim=_kite),
    "retreat_when_hurt": Kind(
        about="the nearest enemy; away while badly hurt and relieved", aim=_retreat_when_hurt
    ),
    "protect": Kind(about="the enemy nearest to the teammate hurt most", aim=_protect),
    "random": Kind(about="nowhere: any available action", aim=None),
}


# --- from wishes to actions ------------------------------------------------------------------


def _walk(scene: Scene, way: Numbers, side: int) -> IntArray:
    """The available move that leads furthest along `way` [R, 2]; stop where none does."""
    moves = np.array(MOVES, np.float32) * (-1 if side else 1)
    gain = way @ moves.T
    gain = np.where(scene.avail[:, 2:PLAIN_ACTIONS], gain, -FAR)
    best = gain.argmax(axis=1)
    useful = gain[np.arange(len(best)), best] > 0
    return np.where(useful, best + 2, STOP)


def _act(scene: Scene, wish: Wish, side: int) -> IntArray:
    """Attack the target, or another in range if it is out of it, or walk."""
    rows = np.arange(len(scene.seats))
    able = scene.allowed[rows, wish.target]
    to_target = scene.other[rows, wish.target] - scene.place
    action = np.where(able, wish.target + PLAIN_ACTIONS, _walk(scene, to_target, side))
    standby = np.where(scene.allowed, scene.gaps, FAR)
    in_range = standby.min(axis=1) < FAR
    instead = np.where(in_range, standby.argmin(axis=1) + PLAIN_ACTIONS, STOP)
    action = np.where(wish.stays & ~able, instead, action)
    flees = _walk(scene, wish.away, side)
    return np.where(wish.walks & (flees != STOP), flees, action)


def _heal(scene: Scene, side: int, fighters: BoolArray) -> tuple[IntArray, IntArray]:
    """What a medivac does, and whom it cares for."""
    rows = np.arange(len(scene.seats))
    gaps = distance(scene.place[:, None], scene.own)
    able = fighters[None] & (scene.own_life > 0)
    hurt = able & (scene.condition < 1)
    worst = np.where(hurt, scene.condition + gaps / 100, FAR)
    nearest = np.where(able, gaps, FAR).argmin(axis=1)
    ward = np.where(hurt.any(1), worst.argmin(axis=1), nearest)
    room = scene.avail.shape[1] - PLAIN_ACTIONS
    may = (ward < room) & scene.avail[rows, PLAIN_ACTIONS + np.minimum(ward, room - 1)]
    follow = _walk(scene, scene.own[rows, ward] - scene.place, side)
    action = np.where(may & hurt.any(1), ward + PLAIN_ACTIONS, follow)
    near = gaps[rows, ward] < 2
    return np.where(near & ~hurt.any(1), STOP, action), ward


def _decide(
    scripts: Sequence[Script[Kind]],
    members: IntArray,
    state: FloatArray,
    seats: IntArray,
    avail: BoolArray,
    rules: Rules,
) -> tuple[IntArray, Numbers]:
    """Actions [R], and the places [R, 2] that rows are after."""
    actions = np.full(len(seats), STOP)
    places = np.zeros((len(seats), 2), np.float32)
    for side in (0, 1):
        at = ((seats >= rules.n_allies) == bool(side)).nonzero()[0]
        if not at.size:
            continue
        scene = read_scene(rules, state[at], seats[at], avail[at], side)
        heals = (rules.weapon == HEAL)[rules.n_allies :] if side else rules.weapon == HEAL
        heals = heals[: scene.own.shape[1]]
        for number in np.unique(members[at]).tolist():
            aim = scripts[number].kind.aim
            chosen = (members[at] == number).nonzero()[0]
            part = scene.rows(chosen)
            if aim is None:
                places[at[chosen]] = part.place
                continue
            wish = aim(part)
            found = _act(part, wish, side)
            rows = np.arange(len(chosen))
            place = np.where(
                wish.walks[:, None], part.place + 2 * wish.away, part.other[rows, wish.target]
            )
            place = np.where(wish.stays[:, None], part.place, place)
            nurse = heals[part.seats].nonzero()[0]
            if nurse.size:
                patients = part.rows(nurse)
                found[nurse], ward = _heal(patients, side, ~heals)
                place[nurse] = patients.own[np.arange(len(nurse)), ward]
            actions[at[chosen]], places[at[chosen]] = found, place
    actions = np.where(avail[:, NOOP], NOOP, actions)
    return actions, places


def act_together(
    scripts: Sequence[Script[Kind]],
    members: IntArray,
    state: FloatArray,
    seats: IntArray,
    avail: BoolArray,
    memory: IntArray,
    rng: np.random.Generator,
    board: Rules,
) -> tuple[IntArray, IntArray]:
    """Actions [R] and the memory for the next step, of rows played by scripts[members[row]].

    The generator is used only with `noise` or by `random`, as many draws for every row.
    """
    actions, _ = _decide(scripts, members, state, seats, avail, board)
    noise = np.array([1.0 if s.kind.aim is None else s.noise for s in scripts])[members]
    return base.by_chance(actions, avail, noise, rng), memory


def headings(
    scripts: Sequence[Script[Kind]],
    members: IntArray,
    state: FloatArray,
    seats: IntArray,
    memory: IntArray,
    board: Rules,
) -> FloatArray:
    """Where each row heads to, as features of an agent [R, W]: its own with another place."""
    rules = board
    idle = np.zeros((len(seats), rules.n_actions), np.bool_)
    _, places = _decide(scripts, members, state, seats, idle, rules)
    width = rules.ally_width
    columns = seats[:, None] * width + np.arange(width)
    found = np.take_along_axis(state, columns, 1).astype(np.float32)
    found[:, 2:4] = (places - np.float32(SIDE / 2)) / np.array(rules.extent, np.float32)
    return found


def board_of(env_args: Mapping[str, Any]) -> Rules:
    """What players have to know of the game, from a run's env_args."""
    args = BattleArgs.parse(env_args)
    if args.obs_instead_of_state:
        raise OmgError(
            "Scripted soldiers read the state, which env_args.obs_instead_of_state=true takes "
            "away. Set it to false, or use trained opponents."
        )
    return Rules(args)


def make_script(name: str, *, noise: float = 0.0) -> Script[Kind]:
    """A scripted soldier by its name in SCRIPTS."""
    return base.make_script(name, SCRIPTS, what="scripted soldier", noise=noise)
