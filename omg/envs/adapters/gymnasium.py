"""Gymnasium environments with several agents (one observation, action and reward each)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from omg.envs.adapters.base import AdaptedEnv, Seen, cut_off, first_possible, known_limit, no_limit
from omg.envs.adapters.options import Options, seat_of
from omg.envs.adapters.packages import import_foreign, origin, registered
from omg.envs.serial import End
from omg.types import FloatArray, OmgError


def _forget_players(game: Any) -> None:
    """lbforaging places players where none of the last episode stands, unless it has forgotten."""
    for player in game.unwrapped.players:
        player.position = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What a package does differently. `limit` is the argument of a limit that its games report
    as a termination; they are given one step more and cut by us. `forget` makes an episode
    independent of the one before."""

    limit: str
    forget: Callable[[Any], None] | None = None


HABITS = {
    "lbforaging": Habits(limit="max_episode_steps", forget=_forget_players),
    "rware": Habits(limit="max_steps"),
}


class GymnasiumEnv(AdaptedEnv):
    """A Gymnasium environment with several agents, named by env_args.key=package:id.

    Actions, observations and rewards come in tuples or lists, one part per agent; one number as
    the reward is the team's. An environment with one agent has one seat. A limit is a truncation.
    """

    def __init__(self, *, args: Mapping[str, Any], n_copies: int, first_copy: int = 0) -> None:
        options = Options.parse(args, example="lbforaging:Foraging-8x8-2p-3f-v3")
        if options.state == "env":
            raise OmgError(
                f"{options.key} has no state of its own, as Gymnasium knows none. Use "
                "env_args.state=observations."
            )
        recipe = _recipe(options)
        self._limit, self._forget = recipe.limit, recipe.forget
        super().__init__(options, make=recipe.make, n_copies=n_copies, first_copy=first_copy)

    def _settle(self) -> None:
        game, options = self._games[0], self._options
        observed, acted = _parts(game, options.key)
        limit = self._limit or known_limit(game, options.game_args)
        if limit is None:
            raise no_limit(options.key)
        self._alone = observed is None
        pairs = [(game.observation_space, game.action_space)] if self._alone else None
        pairs = pairs or list(zip(observed, acted, strict=True))
        seats = [
            seat_of(options.key, str(number), observed=see, acted=act)
            for number, (see, act) in enumerate(pairs)
        ]
        self._n = len(seats)
        self._any_masked = any(seat.masked for seat in seats)
        self._no_masks = [None] * self._n
        self._seats = tuple(seats)
        found, shared = self._gives_team_reward(), options.shared_reward
        self._describe(
            seats, episode_limit=limit, shared_reward=found if shared is None else shared
        )

    def _gives_team_reward(self) -> bool:
        """Try one step: whether its answer has the right form, and one reward for several."""
        observations, info = self._reset_game(0, seed=0)
        masks = self._sorted(0, observations, info).masks
        actions = [first_possible(*pair) for pair in zip(self._seats, masks, strict=True)]
        answer = self._games[0].step(actions[0] if self._alone else actions)
        if len(answer) != 5:
            raise OmgError(
                f"step() of {self._options.key} returns {len(answer)} values. Use a version with "
                "Gymnasium's five: observations, rewards, terminated, truncated, info."
            )
        return not self._alone and not _is_several(answer[1])

    def _start(self, b: int, seed: int) -> None:
        if self._forget is not None:
            self._forget(self._games[b])
        self._seen[b] = self._sorted(b, *self._reset_game(b, seed))

    def _act(
        self, b: int, actions: list[int], reward: FloatArray, info: Mapping[str, FloatArray]
    ) -> End:
        chosen = actions[0] if self._alone else actions
        observations, rewards, over, cut, details = self._games[b].step(chosen)
        if _is_several(rewards) and len(rewards) != self._n:
            raise self._another_number(b, "rewards", len(rewards))
        reward[...] = rewards
        if self.spec.shared_reward:
            self._share(b, reward, range(self._n))
        self._seen[b] = self._sorted(b, observations, details)
        if over is False and cut is False:
            return End.NONE
        over, cut = _as_one(over, cut, self._n)
        if not (over or cut):
            return End.NONE
        return End.TRUNCATED if not over or self._counts_as_cut(b) else End.TERMINATED

    def _sorted(self, b: int, observations: Any, info: Any) -> Seen:
        values = [observations] if self._alone else observations
        if len(values) != self._n:
            raise self._another_number(b, "observations", len(values))
        if not info and not self._any_masked:
            return Seen(values, self._no_masks, True)
        masks = self._masks(b, info)
        if self._any_masked:
            masks = [
                value.get("action_mask", mask) if seat.masked else mask
                for seat, value, mask in zip(self._seats, values, masks, strict=True)
            ]
        return Seen(values, masks, masks is self._no_masks)

    def _masks(self, b: int, info: Any) -> Sequence[Any]:
        """Masks of all agents, from one info or one per agent."""
        if isinstance(info, (list, tuple)):
            masks: Any = [part.get("action_mask") for part in info]
        elif (masks := info.get("action_mask")) is None:
            return self._no_masks
        else:
            masks = [masks] if self._alone else masks
        if len(masks) != self._n:
            raise self._another_number(b, "action masks", len(masks))
        return masks  # type: ignore[no-any-return]

    def _another_number(self, b: int, what: str, found: int) -> OmgError:
        where = self._where(b) if hasattr(self, "spec") else f"of {self._options.key}"
        return OmgError(
            f"There are {what} for {found} agents {where}, and its spaces are those of {self._n}. "
            "The number of agents must stay as it is."
        )


def _is_several(values: Any) -> bool:
    """Whether there is one value per agent instead of a single one."""
    return isinstance(values, (list, tuple)) or getattr(values, "ndim", 0) > 0


def _as_one(over: Any, cut: Any, n: int) -> tuple[bool, bool]:
    """Flags per agent as those of the episode: it ends when all have ended."""
    ends, cuts = (np.broadcast_to(np.asarray(flags, np.bool_), n).tolist() for flags in (over, cut))
    if not all(end or stop for end, stop in zip(ends, cuts, strict=True)):
        return False, False
    return (False, True) if cut_off(ends, cuts) else (True, False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recipe:
    """How the games are made, their limit where it is known before, and what they must forget."""

    make: Callable[[], Any]
    limit: int | None
    forget: Callable[[Any], None] | None


def _recipe(options: Options) -> _Recipe:
    spec, own = registered(options.key)
    args, limit = dict(options.game_args), options.time_limit
    if own is not None:
        return _Recipe(make=lambda: own(**args), limit=limit, forget=None)
    habits = HABITS.get(origin(spec).partition(".")[0])
    spec = copy.deepcopy(spec)
    spec.order_enforce = False  # we never step before a reset
    steps = None
    if habits is None:
        own_limit = args.pop("max_episode_steps", None)
        steps = limit = limit or own_limit or spec.max_episode_steps
    else:
        own_limit = args.pop(habits.limit, None)
        limit = limit or own_limit or spec.kwargs.get(habits.limit)
        args[habits.limit] = None if limit is None else limit + 1
    spec.kwargs.update(args)
    gymnasium = import_foreign("gymnasium")
    return _Recipe(
        make=lambda: gymnasium.make(spec, max_episode_steps=steps, disable_env_checker=True),
        limit=limit,
        forget=None if habits is None else habits.forget,
    )


def _parts(game: Any, key: str) -> tuple[Any, Any]:
    """The spaces of every agent; None twice for a game of one."""
    lacking = [
        name
        for name in ("observation_space", "action_space", "reset", "step")
        if not hasattr(game, name)
    ]
    if lacking:
        raise OmgError(f"{key} lacks {', '.join(lacking)} of Gymnasium's interface.")
    spaces = import_foreign("gymnasium.spaces")
    several = (spaces.Tuple, list, tuple)
    observed, acted = game.observation_space, game.action_space
    if isinstance(acted, spaces.MultiDiscrete) and isinstance(observed, several):
        acted = [
            spaces.Discrete(int(n), start=int(first))
            for n, first in zip(acted.nvec.ravel(), acted.start.ravel(), strict=True)
        ]
    if isinstance(observed, several) != isinstance(acted, several):
        raise OmgError(
            f"{key} has a {type(observed).__name__} of observations and a {type(acted).__name__} "
            "of actions. Both must be tuples with one part per agent, or neither."
        )
    if not isinstance(acted, several):
        return None, None
    if len(observed) != len(acted):
        raise OmgError(
            f"{key} has observations of {len(observed)} agents and actions of {len(acted)}. "
            "Correct its spaces."
        )
    return observed, acted
