"""Scripted players of Snowdrift, for opponent pools: who clears what, who lets others do it, and
who changes from one to the other."""

from __future__ import annotations

import numpy as np

from omg.envs.goal_grid.snowdrift import REMOVE, SnowdriftArgs
from omg.opponents.grid_scripts import NOTHING, Aim, GridScripts, Kind, Scene
from omg.types import IntArray


def _nearest(scene: Scene, board: SnowdriftArgs) -> IntArray:
    return scene.committed(scene.least(scene.steps))


def _farthest(scene: Scene, board: SnowdriftArgs) -> IntArray:
    return scene.committed(scene.least(-scene.steps))


def _lonely(scene: Scene, board: SnowdriftArgs) -> IntArray:
    return scene.committed(scene.least(-scene.nearest_other))


def _from(number: int) -> Aim:
    """Drift `number` first, then the others in turn."""

    def aim(scene: Scene, board: SnowdriftArgs) -> IntArray:
        count = scene.there.shape[1]
        return scene.least(((np.arange(count) - (number - 1)) % count)[None])

    return aim


def _nothing(scene: Scene, board: SnowdriftArgs) -> IntArray:
    return np.full(len(scene.seats), NOTHING)


def _after(step: int) -> Aim:
    def aim(scene: Scene, board: SnowdriftArgs) -> IntArray:
        return np.where(scene.clock < step, NOTHING, _nearest(scene, board))

    return aim


def _at_most(drifts: int) -> Aim:
    def aim(scene: Scene, board: SnowdriftArgs) -> IntArray:
        return np.where(scene.got >= drifts, NOTHING, _nearest(scene, board))

    return aim


def _yields(scene: Scene, board: SnowdriftArgs) -> IntArray:
    """The nearest drift that no other player is nearer to."""
    return scene.least(scene.steps, scene.steps <= scene.nearest_other)


def _fickle(scene: Scene, board: SnowdriftArgs) -> IntArray:
    """Another drift every six steps, in turn."""
    count = scene.there.shape[1]
    turn = (np.arange(count)[None] - (scene.clock // 6 + scene.seats)[:, None]) % count
    return scene.least(turn)


SCRIPTS: dict[str, Kind] = {
    "nearest_drift": Kind(about="the drift nearest to itself, then the next", aim=_nearest),
    "farthest_drift": Kind(about="the drift farthest from itself", aim=_farthest),
    "lonely_drift": Kind(about="the drift farthest from the other players", aim=_lonely),
    **{
        f"drift_{number}": Kind(about=f"drift {number}, then the others in turn", aim=_from(number))
        for number in range(1, 7)
    },
    "free_rider": Kind(about="nothing: it stays and lets the others pay", aim=_nothing),
    "late": Kind(about="nothing until step 15, then the nearest drift", aim=_after(15)),
    "tires_1": Kind(about="the nearest drift; it rests after removing one", aim=_at_most(1)),
    "tires_2": Kind(about="the nearest drifts; it rests after removing two", aim=_at_most(2)),
    "yields": Kind(about="at every step: the nearest drift nobody is nearer to", aim=_yields),
    "fickle_drift": Kind(about="another drift every six steps, in turn", aim=_fickle),
    "random": Kind(about="nothing: any available action", aim=None),
}


def _action_for(goal: IntArray, board: SnowdriftArgs) -> IntArray:
    return np.full(len(goal), REMOVE)


_PLAYERS = GridScripts(
    SCRIPTS, what="scripted snow clearer", arguments=SnowdriftArgs, action_for=_action_for
)
MEMORY_DIM = _PLAYERS.memory_dim
make_script, board_of = _PLAYERS.make_script, _PLAYERS.board_of
act_together, headings, goals = _PLAYERS.act_together, _PLAYERS.headings, _PLAYERS.goals
