"""Scripted predators and prey, for opponent pools: each heads for a place of its own kind.

Every script names a goal at every step; all steer to it in the same way, round obstacles. Prey
keeps inside the field, where it is not punished. A row is one copy and one seat to act for: R rows,
P predators, Q prey, K obstacles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omg.envs.particles.physics import DAMPING, DIRECTIONS, TIME_STEP
from omg.envs.predator_prey import (
    ACCELERATION,
    MAX_SPEED,
    OBSTACLE_SIZE,
    PREDATOR,
    PREY,
    SIZE,
    PredatorPreyArgs,
)
from omg.opponents import scripts as base
from omg.opponents.scripts import Script
from omg.types import BoolArray, FloatArray, IntArray

Doubles = NDArray[np.float64]

# Seconds of motion by which an action is judged: a push shows only after the next step.
_LOOK_AHEAD = 0.3
# How far from an obstacle's surface a way round it leads.
_BERTH = 0.06


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The situation of every row."""

    place: Doubles  # [R, 2], of the row's own agent
    velocity: Doubles  # [R, 2]
    is_prey: BoolArray  # [R]
    seats: IntArray  # [R]
    predators: Doubles  # [R, P, 4]: x, y and velocity
    prey: Doubles  # [R, Q, 4]
    obstacles: Doubles  # [R, K, 2]

    @classmethod
    def read(cls, state: FloatArray, seats: IntArray, args: PredatorPreyArgs) -> Scene:
        """From states [R, S]: x, y, vx, vy of each agent, then x, y of each obstacle."""
        agents, n_predators, n_obstacles = args.n_agents, args.n_predators, args.n_obstacles
        if state.ndim != 2 or state.shape[1] != args.state_dim:
            raise ValueError(
                f"States of {agents} agents and {n_obstacles} obstacles must be "
                f"[R, {args.state_dim}], not {state.shape}."
            )
        numbers = state.astype(np.float64)
        everybody = numbers[:, : 4 * agents].reshape(len(state), agents, 4)
        own = everybody[np.arange(len(state)), seats]
        return cls(
            place=own[:, :2],
            velocity=own[:, 2:],
            is_prey=seats >= n_predators,
            seats=seats,
            predators=everybody[:, :n_predators],
            prey=everybody[:, n_predators:],
            obstacles=numbers[:, 4 * agents :].reshape(len(state), n_obstacles, 2),
        )

    def rows(self, chosen: IntArray) -> Scene:
        """Some of the rows."""
        return Scene(**{f.name: getattr(self, f.name)[chosen] for f in fields(self)})

    @property
    def own(self) -> Doubles:
        """Place and velocity of the row's own agent, [R, 4]."""
        return np.concatenate([self.place, self.velocity], axis=1)


def distance(points: Doubles, others: Doubles) -> Doubles:
    """Euclidean, along the last axis."""
    difference = points - others
    found: Doubles = np.sqrt((difference * difference).sum(axis=-1))
    return found


def nearest_of(points: Doubles, others: Doubles) -> Doubles:
    """The row of `others` [R, K, F] nearest to each point [R, 2], [R, F]."""
    which = distance(points[:, None], others[:, :, :2]).argmin(axis=1)
    chosen: Doubles = others[np.arange(len(which)), which]
    return chosen


def round_obstacles(scene: Scene, goal: Doubles) -> Doubles:
    """Where to steer for to reach `goal` [R, 2]: beside the first obstacle in the way, else it."""
    if not scene.obstacles.shape[1]:
        return goal
    way = goal - scene.place
    length = np.maximum(distance(goal, scene.place), 1e-9)[:, None]
    ahead = way / length
    to_obstacle = scene.obstacles - scene.place[:, None]
    along = (to_obstacle * ahead[:, None]).sum(axis=-1)
    side = to_obstacle[..., 1] * ahead[:, :1] - to_obstacle[..., 0] * ahead[:, 1:]
    size = np.where(scene.is_prey, SIZE[PREY], SIZE[PREDATOR])[:, None]
    clearance = OBSTACLE_SIZE + size
    blocks = (along > 0) & (along < length) & (np.abs(side) < clearance)
    first = np.where(blocks, along, np.inf).argmin(axis=1)
    rows = np.arange(len(first))
    centre, lies = scene.obstacles[rows, first], side[rows, first]
    # Pass on the side that the straight way is on already.
    across = np.stack([-ahead[:, 1], ahead[:, 0]], axis=1) * np.where(lies > 0, -1.0, 1.0)[:, None]
    detour = centre + across * (clearance + _BERTH)
    return np.where(blocks.any(axis=1)[:, None], detour, goal)


def steer(scene: Scene, goal: Doubles, avail: BoolArray) -> IntArray:
    """The available action [R] whose motion ends nearest to `goal` [R, 2]."""
    power = np.where(scene.is_prey, ACCELERATION[PREY], ACCELERATION[PREDATOR])
    limit = np.where(scene.is_prey, MAX_SPEED[PREY], MAX_SPEED[PREDATOR])
    push = power[:, None, None] * TIME_STEP * DIRECTIONS
    after = scene.velocity[:, None] * (1 - DAMPING) + push  # [R, A, 2]
    speed = distance(after, np.zeros(2))
    after *= np.minimum(1.0, limit[:, None] / np.maximum(speed, 1e-9))[..., None]
    place = (scene.place + TIME_STEP * scene.velocity)[:, None] + _LOOK_AHEAD * after
    cost = distance(place, goal[:, None])
    action: IntArray = np.where(avail, cost, np.inf).argmin(axis=1)
    return action


MEMORY_DIM = 1
# Goals [R, 4] (x, y and velocity) and the memory for the next step [R].
Aim = Callable[[Scene, IntArray], tuple[Doubles, IntArray]]

# Prey does not plan to be further out than this: its penalty begins at 0.9.
_INSIDE = 0.85
_FLIGHT = 0.4  # how far ahead fleeing prey looks
_LUNGE = 0.35  # predators that wait leave their post for prey this near
_SIDE_STEP = 0.4  # how far behind the prey an ambush lies
_LONGEST_LEAD = 1.0  # seconds
_POST = 0.4  # a guard's post, as a share of the way from the centre to the prey
_THREAT = 0.55  # predators this near to a refuge make it useless
_CIRCLE, _ARC = 0.65, 0.7  # radius of an orbit, and how far ahead on it to steer for, in radians
_COMPASS = np.stack([f(np.arange(16) * np.pi / 8) for f in (np.cos, np.sin)], axis=1)  # [16, 2]
_CORNERS = _INSIDE * np.array([[-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0], [1.0, 1.0]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(base.Kind):
    """Where a scripted agent heads to."""

    aim: Aim | None  # None: it acts at random


def _aims(
    scripts: Sequence[Script[Kind]], members: IntArray, scene: Scene, memory: IntArray
) -> tuple[Doubles, IntArray]:
    """Kind by kind: goals [R, 4], and the memory for the next step."""
    goal, after = scene.own, np.zeros_like(memory)
    for number in np.unique(members).tolist():
        script = scripts[number]
        chosen = (members == number).nonzero()[0]
        part, role = scene.rows(chosen), script.kind.role
        if role is not None and (part.is_prey != (role == PREY)).any():
            raise ValueError(f"Script '{script.name}' plays {role} and no other seat.")
        if script.kind.aim is not None:
            goal[chosen], after[chosen, 0] = script.kind.aim(part, memory[chosen, 0])
    return goal, after


def act_together(
    scripts: Sequence[Script[Kind]],
    members: IntArray,
    state: FloatArray,
    seats: IntArray,
    avail: BoolArray,
    memory: IntArray,
    rng: np.random.Generator,
    board: PredatorPreyArgs,
) -> tuple[IntArray, IntArray]:
    """Actions [R] and the memory for the next step, of rows played by scripts[members[row]]:
    goals kind by kind, the steering in one call.

    The generator is used only with `noise` or by `random`, as many draws for every row.
    """
    scene = Scene.read(state, seats, board)
    goal, after = _aims(scripts, members, scene, memory)
    actions = steer(scene, round_obstacles(scene, goal[:, :2]), avail)
    noise = np.array([1.0 if s.kind.aim is None else s.noise for s in scripts])[members]
    return base.by_chance(actions, avail, noise, rng), after


def _at(points: Doubles) -> Doubles:
    """Places as features of an agent at rest."""
    return np.concatenate([points, np.zeros_like(points)], axis=1)


def _chase(scene: Scene, memory: IntArray) -> tuple[Doubles, IntArray]:
    return nearest_of(scene.place, scene.prey), memory


def _intercept(scene: Scene, memory: IntArray) -> tuple[Doubles, IntArray]:
    prey = nearest_of(scene.place, scene.prey)
    lead = np.minimum(distance(scene.place, prey[:, :2]) / MAX_SPEED[PREDATOR], _LONGEST_LEAD)
    meeting = prey[:, :2] + lead[:, None] * prey[:, 2:]
    # Prey turns at the border, or is driven back by it.
    return np.concatenate([np.clip(meeting, -1.0, 1.0), prey[:, 2:]], axis=1), memory


def _ambush(scene: Scene, memory: IntArray) -> tuple[Doubles, IntArray]:
    prey = nearest_of(scene.place, scene.prey)
    if scene.predators.shape[1] == 1:
        return prey, memory
    gaps = distance(prey[:, None, :2], scene.predators[:, :, :2])
    gaps[np.arange(len(gaps)), scene.seats] = np.inf
    driver = scene.predators[np.arange(len(gaps)), gaps.argmin(axis=1), :2]
    away = prey[:, :2] - driver
    away /= np.maximum(distance(prey[:, :2], driver), 1e-9)[:, None]
    post = _at(np.clip(prey[:, :2] + _SIDE_STEP * away, -1.0, 1.0))
    return _lunging(scene, prey, post), memory


def _guard(scene: Scene, memory: IntArray) -> tuple[Doubles, IntArray]:
    prey = nearest_of(scene.place, scene.prey)
    return _lunging(scene, prey, _at(_POST * np.clip(prey[:, :2], -1.0, 1.0))), memory


def _lunging(scene: Scene, prey: Doubles, post: Doubles) -> Doubles:
    """The post, unless the prey is within reach."""
    near = distance(scene.place, prey[:, :2]) < _LUNGE
    return np.where(near[:, None], prey, post)


def _flee(scene: Scene, memory: IntArray) -> tuple[Doubles, IntArray]:
    hunter = nearest_of(scene.place, scene.predators)
    return _best_way(scene, lambda ends: distance(ends, hunter[:, None, :2])), memory


def _flee_all(scene: Scene, memory: IntArray) -> tuple[Doubles, IntArray]:
    def safety(ends: Doubles) -> Doubles:
        gaps = distance(ends[:, :, None], scene.predators[:, None, :, :2])
        total: Doubles = -(1.0 / np.maximum(gaps, 0.05)).sum(axis=-1)
        return total

    return _best_way(scene, safety), memory


def _best_way(scene: Scene, safety: Callable[[Doubles], Doubles]) -> Doubles:
    """The safest of sixteen directions that do not lead out of the field."""
    ends = scene.place[:, None] + _FLIGHT * _COMPASS
    outside = np.maximum(np.abs(ends) - _INSIDE, 0.0).sum(axis=-1)
    best = (safety(ends) - 100.0 * outside).argmax(axis=1)
    return _at(ends[np.arange(len(best)), best])


def _corner(scene: Scene, memory: IntArray) -> tuple[Doubles, IntArray]:
    """Memory: the corner's number plus one, kept until a predator is there."""
    gaps = distance(_CORNERS[None, :, None], scene.predators[:, None, :, :2]).min(axis=2)  # [R, 4]
    own = distance(_CORNERS, scene.place[:, None])
    best = (gaps - own - 10.0 * (gaps <= _THREAT)).argmax(axis=1)
    kept = np.maximum(memory - 1, 0)
    keeps = (memory > 0) & (np.take_along_axis(gaps, kept[:, None], axis=1)[:, 0] > _THREAT)
    chosen = np.where(keeps, kept, best)
    return _at(_CORNERS[chosen]), chosen + 1


def _orbit(scene: Scene, memory: IntArray) -> tuple[Doubles, IntArray]:
    """Memory: 1 for anticlockwise, 2 for clockwise; chosen away from the nearest predator."""
    angle = np.arctan2(scene.place[:, 1], scene.place[:, 0])
    hunter = nearest_of(scene.place, scene.predators)
    bearing = np.arctan2(hunter[:, 1], hunter[:, 0]) - angle
    ahead_of_it = np.sin(bearing) > 0
    turning = np.where(memory > 0, memory, np.where(ahead_of_it, 2, 1))
    towards = angle + np.where(turning == 1, _ARC, -_ARC)
    return _at(_CIRCLE * np.stack([np.cos(towards), np.sin(towards)], axis=1)), turning


SCRIPTS: dict[str, Kind] = {
    "chase": Kind(about="straight to the nearest prey", role=PREDATOR, aim=_chase),
    "intercept": Kind(
        about="to where the nearest prey will be when it gets there", role=PREDATOR, aim=_intercept
    ),
    "ambush": Kind(
        about="behind the prey, seen from the other predator nearest to it",
        role=PREDATOR,
        aim=_ambush,
    ),
    "guard": Kind(
        about="between the centre and the prey, which it attacks when near",
        role=PREDATOR,
        aim=_guard,
    ),
    "flee": Kind(
        about="away from the nearest predator, turning at the border", role=PREY, aim=_flee
    ),
    "flee_all": Kind(
        about="away from all predators, the nearer the more", role=PREY, aim=_flee_all
    ),
    "corner": Kind(
        about="to the safest corner, and to another when a predator is there",
        role=PREY,
        aim=_corner,
    ),
    "orbit": Kind(about="round the centre, in one direction", role=PREY, aim=_orbit),
    "random": Kind(about="nowhere: any available action", aim=None),
}


def headings(
    scripts: Sequence[Script[Kind]],
    members: IntArray,
    state: FloatArray,
    seats: IntArray,
    memory: IntArray,
    board: PredatorPreyArgs,
) -> FloatArray:
    """Where each row heads to, as features of an agent [R, 4]: x, y and the velocity of what is
    pursued, else 0. The own features if it acts at random."""
    scene = Scene.read(state, seats, board)
    return _aims(scripts, members, scene, memory)[0].astype(np.float32)


def board_of(env_args: Mapping[str, Any]) -> PredatorPreyArgs:
    """What players have to know of the game, from a run's env_args."""
    return PredatorPreyArgs.parse(env_args)


def make_script(name: str, *, noise: float = 0.0) -> Script[Kind]:
    """A scripted agent by its name in SCRIPTS."""
    return base.make_script(name, SCRIPTS, what="scripted predator or prey", noise=noise)
