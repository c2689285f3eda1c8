"""Scripted hunters, for opponent pools: some commit to a goal, some change their mind."""

from __future__ import annotations

import numpy as np

from omg.envs.goal_grid.stag_hunt import HUNT_HARE, HUNT_STAG, StagHuntArgs
from omg.opponents.grid_scripts import FAR, NOTHING, Aim, GridScripts, Kind, Scene
from omg.types import BoolArray, IntArray

# When another player is at the stag, by this many steps.
AT_THE_STAG = 1


def _stags(scene: Scene, board: StagHuntArgs) -> BoolArray:
    """Which targets are stags, [1, K]."""
    return (np.arange(scene.there.shape[1]) < board.stags)[None]


def _or_else(goal: IntArray, other: IntArray) -> IntArray:
    return np.where(goal == NOTHING, other, goal)


def stag_of(scene: Scene, board: StagHuntArgs) -> IntArray:
    """The nearest stag; NOTHING where all are gone."""
    return scene.least(scene.steps, _stags(scene, board))


def hare_of(scene: Scene, board: StagHuntArgs) -> IntArray:
    """The nearest hare, the one so far as long as it is there; NOTHING where all are gone."""
    hares = ~_stags(scene, board)
    had_hare = scene.keeps() & (scene.goal >= board.stags)
    return np.where(had_hare, scene.goal, scene.least(scene.steps, hares))


def _stag(scene: Scene, board: StagHuntArgs) -> IntArray:
    return _or_else(stag_of(scene, board), hare_of(scene, board))


def _hare(scene: Scene, board: StagHuntArgs) -> IntArray:
    return _or_else(hare_of(scene, board), stag_of(scene, board))


def _farthest(scene: Scene, board: StagHuntArgs) -> IntArray:
    hares = ~_stags(scene, board)
    return _or_else(scene.committed(scene.least(-scene.steps, hares)), stag_of(scene, board))


def _lonely(scene: Scene, board: StagHuntArgs) -> IntArray:
    hares = ~_stags(scene, board)
    return _or_else(
        scene.committed(scene.least(-scene.nearest_other, hares)), stag_of(scene, board)
    )


def _this_hare(number: int) -> Aim:
    def aim(scene: Scene, board: StagHuntArgs) -> IntArray:
        wanted = np.arange(scene.there.shape[1])[None] == board.stags + number - 1
        return _or_else(scene.least(scene.steps, wanted), _hare(scene, board))

    return aim


def _this_stag(number: int) -> Aim:
    def aim(scene: Scene, board: StagHuntArgs) -> IntArray:
        wanted = _stags(scene, board) & (np.arange(scene.there.shape[1])[None] == number - 1)
        return _or_else(scene.least(scene.steps, wanted), _stag(scene, board))

    return aim


def _first_stag(first: Aim) -> Aim:
    """The stag that `first` names at the start, as long as it is there; then another such."""

    def aim(scene: Scene, board: StagHuntArgs) -> IntArray:
        return _or_else(scene.committed(first(scene, board)), _hare(scene, board))

    return aim


def _farthest_stag(scene: Scene, board: StagHuntArgs) -> IntArray:
    return scene.least(-scene.steps, _stags(scene, board))


def _lonely_stag(scene: Scene, board: StagHuntArgs) -> IntArray:
    return scene.least(-scene.nearest_other, _stags(scene, board))


def _meeting_stag(scene: Scene, board: StagHuntArgs) -> IntArray:
    return scene.least(np.maximum(scene.steps, scene.nearest_other), _stags(scene, board))


def _until(step: int) -> Aim:
    def aim(scene: Scene, board: StagHuntArgs) -> IntArray:
        return np.where(scene.clock < step, _stag(scene, board), _hare(scene, board))

    return aim


def _patient(waits: int) -> Aim:
    """The stag, until it has hunted it `waits` times in vain; from then on a hare."""

    def aim(scene: Scene, board: StagHuntArgs) -> IntArray:
        is_stag = (scene.goal >= 0) & (scene.goal < board.stags)
        gave_up = (is_stag & (scene.tried >= waits)) | (scene.keeps() & (scene.goal >= board.stags))
        return np.where(gave_up, _hare(scene, board), _stag(scene, board))

    return aim


def _join(scene: Scene, board: StagHuntArgs) -> IntArray:
    """A hare, until another player is at a stag; from then on that stag, as long as it is there."""
    chased = scene.nearest_other <= AT_THE_STAG
    joined = scene.least(scene.steps, _stags(scene, board) & chased)
    keeps = scene.keeps() & (scene.goal < board.stags)
    return np.where(keeps, scene.goal, _or_else(joined, _hare(scene, board)))


def _opportunist(scene: Scene, board: StagHuntArgs) -> IntArray:
    """Chosen at every step: a stag if another player is nearer to it than to any hare."""
    stags = _stags(scene, board)
    hares = (scene.there & ~stags)[:, None]
    to_hare = np.where(hares, scene.others, FAR).min(axis=2)  # [R, N]
    comes = (scene.others < to_hare[:, :, None]).any(axis=1)
    return _or_else(scene.least(scene.steps, stags & comes), _hare(scene, board))


def _betray(scene: Scene, board: StagHuntArgs) -> IntArray:
    """A stag, until another player is at it; from then on hares."""
    came = (scene.nearest_other[np.arange(len(scene.goal)), np.maximum(scene.goal, 0)]) == 0
    at_stag = scene.keeps() & (scene.goal < board.stags)
    left = scene.keeps() & (scene.goal >= board.stags)
    return np.where(left | (at_stag & came), _hare(scene, board), _stag(scene, board))


def _feint(scene: Scene, board: StagHuntArgs) -> IntArray:
    """The farthest hare for four steps, then the nearest stag."""
    return np.where(scene.clock < 4, _farthest(scene, board), _stag(scene, board))


def _follow(scene: Scene, board: StagHuntArgs) -> IntArray:
    """At every step what another player is nearest to."""
    return scene.least(scene.nearest_other)


def _fickle(scene: Scene, board: StagHuntArgs) -> IntArray:
    """Another target every six steps, in turn."""
    count = scene.there.shape[1]
    turn = (np.arange(count)[None] - (scene.clock // 6 + scene.seats)[:, None]) % count
    return scene.least(turn)


SCRIPTS: dict[str, Kind] = {
    "stag": Kind(about="the nearest stag; a hare when all are gone", aim=_stag),
    "farthest_stag": Kind(
        about="the stag farthest from itself at the start", aim=_first_stag(_farthest_stag)
    ),
    "lonely_stag": Kind(
        about="the stag farthest from the other players at the start",
        aim=_first_stag(_lonely_stag),
    ),
    "meeting_stag": Kind(
        about="the stag that it and another player can reach soonest, chosen at the start",
        aim=_first_stag(_meeting_stag),
    ),
    **{
        f"stag_{number}": Kind(
            about=f"stag {number}, wherever it is; then the nearest", aim=_this_stag(number)
        )
        for number in range(1, 4)
    },
    "nearest_hare": Kind(about="the hare nearest to itself at the start", aim=_hare),
    "farthest_hare": Kind(about="the hare farthest from itself at the start", aim=_farthest),
    "lonely_hare": Kind(about="the hare farthest from the other players", aim=_lonely),
    **{
        f"hare_{number}": Kind(
            about=f"hare {number}, wherever it is; then the nearest", aim=_this_hare(number)
        )
        for number in range(1, 5)
    },
    "impatient": Kind(about="the stag until step 8, then the nearest hare", aim=_until(8)),
    "persistent": Kind(about="the stag until step 20, then the nearest hare", aim=_until(20)),
    "waits_3": Kind(about="the stag, hunted 3 times in vain; then a hare", aim=_patient(3)),
    "waits_8": Kind(about="the stag, hunted 8 times in vain; then a hare", aim=_patient(8)),
    "joins": Kind(about="a hare, until another player is at a stag; then that", aim=_join),
    "opportunist": Kind(
        about="at every step: a stag that another player is nearer to than to a hare, else a hare",
        aim=_opportunist,
    ),
    "betrays": Kind(about="a stag, until another player is at it; then hares", aim=_betray),
    "feints": Kind(about="the farthest hare for four steps, then the nearest stag", aim=_feint),
    "follows": Kind(about="at every step what another player is nearest to", aim=_follow),
    "fickle": Kind(about="another target every six steps, in turn", aim=_fickle),
    "random": Kind(about="nothing: any available action", aim=None),
}


def _action_for(goal: IntArray, board: StagHuntArgs) -> IntArray:
    return np.where(goal < board.stags, HUNT_STAG, HUNT_HARE)


_PLAYERS = GridScripts(
    SCRIPTS, what="scripted hunter", arguments=StagHuntArgs, action_for=_action_for
)
MEMORY_DIM = _PLAYERS.memory_dim
make_script, board_of = _PLAYERS.make_script, _PLAYERS.board_of
act_together, headings, goals = _PLAYERS.act_together, _PLAYERS.headings, _PLAYERS.goals
