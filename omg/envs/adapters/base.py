"""Copies of a foreign game whose agents sit in fixed seats: what PettingZoo and Gymnasium share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from omg.envs.adapters.options import Options, Seat, dtype_of, scale_of
from omg.envs.serial import Rows, SerialEnv, close_games
from omg.types import EnvSpec, FloatArray, IntArray, OmgError, TimeStep


class Seen(NamedTuple):
    """The last answer of a game, by seats. An agent that is not there has no observation. It is
    `plain` if all are there and nobody has a mask."""

    obs: Sequence[Any]
    masks: Sequence[Any]
    plain: bool


class AdaptedEnv(SerialEnv):
    """A subclass makes games, and sorts what they answer into `Seen`.

    Observations are padded with zeros to the widest seat, actions to the seat with the most; an
    agent that is not there sees zeros, can only do action 0 and earns nothing.
    """

    _seats: tuple[Seat, ...]
    # Whether a game has ever given an action mask.
    _has_masks = False

    def __init__(
        self,
        options: Options,
        *,
        make: Callable[[], Any],
        n_copies: int,
        first_copy: int,
    ) -> None:
        super().__init__(n_copies=n_copies, first_copy=first_copy)
        self._options, self._make = options, make
        self._seen = [Seen((), (), False)] * n_copies
        self._games: list[Any] = []
        try:
            for _ in range(n_copies):
                self._games.append(self._made(make))
            self._settle()
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _settle(self) -> None:
        """Learn the seats of the games and call `_describe`."""

    def _describe(
        self,
        seats: Sequence[Seat],
        *,
        episode_limit: int,
        shared_reward: bool,
        state_dim: int | None = None,
        roles: tuple[str, ...] = (),
    ) -> None:
        """Set the spec. Without `state_dim` the state is the observations side by side."""
        self._seats = tuple(seats)
        self._agent_names = tuple(seat.name for seat in seats)
        n, width = len(seats), max(seat.features.width for seat in seats)
        n_actions = max(seat.n_actions for seat in seats)
        self._possible = np.arange(n_actions) < np.array([[seat.n_actions] for seat in seats])
        self._first_actions = np.array([seat.first_action for seat in seats], np.int64)
        self._zero_based = not self._first_actions.any()
        self._only_first = np.arange(n_actions) == 0
        # Where the features of all seats lie in a row of observations.
        real = np.arange(width) < np.array([[seat.features.width] for seat in seats])
        self._columns: Any = slice(None) if real.all() else np.flatnonzero(real)
        self._flat = all(seat.features.flat and not seat.masked for seat in seats)
        self._lengths = [seat.features.width for seat in seats] * self.n_copies
        self._own_state = state_dim is not None
        blocks = np.arange(n * width).reshape(n, width).tolist()
        self._widths = widths = tuple(seat.features.width for seat in seats)
        self._readers = [seat.read if seat.masked else seat.features.read for seat in seats]
        dtype, scale = dtype_of(seats), scale_of(seats)
        self._stored = None if dtype == "float32" else np.dtype(dtype)
        self.spec = EnvSpec(
            name=self._options.key,
            n_agents=n,
            n_actions=n_actions,
            obs_dim=width,
            state_dim=n * width if state_dim is None else state_dim,
            episode_limit=episode_limit,
            shared_reward=shared_reward,
            obs_scale=scale,
            state_scale=1.0 if self._own_state else scale,
            obs_dtype=dtype,
            state_dtype="float32" if self._own_state else dtype,
            agent_features=() if self._own_state else tuple(map(tuple, blocks)),
            roles=roles if len(set(roles)) > 1 else (),
            obs_dims=widths if len(set(widths)) > 1 else (),
        )

    def step(self, actions: IntArray) -> TimeStep:
        return super().step(actions if self._zero_based else actions + self._first_actions)

    def render(self, copy: int = 0) -> NDArray[np.uint8]:
        game = self._games[copy]
        picture = game.render() if getattr(game, "render_mode", None) == "rgb_array" else None
        if not isinstance(picture, np.ndarray):
            raise RuntimeError(
                f"{self.spec.name} draws no picture. Give env_args.render_mode=rgb_array, if it "
                "has such a mode."
            )
        return picture

    def close(self) -> None:
        close_games(self._games)

    def _look(self, b: int, rows: Rows, at: int) -> None:
        obs = rows.obs[at]
        widths, readers = self._widths, self._readers
        values, masks, _ = self._seen[b]
        for seat, value in enumerate(values):
            if value is None:
                rows.avail[at, seat] = self._only_first
                continue
            try:
                numbers = readers[seat](value)
                self._check_kept(b, seat, numbers)
                obs[seat, : widths[seat]] = numbers
            except (ValueError, TypeError) as error:
                raise OmgError(
                    f"The observation of {self._agent(seat)} {self._where(b)} does not fit its "
                    f"space of {widths[seat]} numbers: {error}. Correct one of the two."
                ) from error
            if masks[seat] is not None:
                self._mask(b, seat, rows.avail[at, seat], masks[seat])
        if self._own_state:
            rows.state[at] = self._state(b)

    def _look_at_all(self, rows: Rows) -> None:
        if not self._join(rows):
            super()._look_at_all(rows)
        elif self._own_state:
            for b in range(self.n_copies):
                rows.state[b] = self._state(b)

    def _join(self, rows: Rows) -> bool:
        """Write the observations of all copies at once, where every agent of theirs has a flat
        one and no mask; False where it has to be done one by one."""
        if not self._flat or not all(seen.plain for seen in self._seen):
            return False
        parts = [value for seen in self._seen for value in seen.obs]
        try:
            if list(map(len, parts)) != self._lengths:
                return False
            joined = np.concatenate(parts).reshape(self.n_copies, -1)
        except (TypeError, ValueError):  # no arrays of one axis: what they are is told one by one
            return False
        if not self._kept(joined):
            return False
        rows.obs.reshape(self.n_copies, -1)[:, self._columns] = joined
        return True

    def _kept(self, numbers: NDArray[Any]) -> bool:
        """Whether episodes, which are stored in the declared dtype, keep these numbers."""
        declared = self._stored
        if declared is None or np.can_cast(numbers.dtype, declared):
            return True
        with np.errstate(invalid="ignore"):
            return bool((numbers.astype(declared) == numbers).all())

    def _check_kept(self, b: int, seat: int, numbers: NDArray[Any]) -> None:
        if not self._kept(numbers):
            raise OmgError(
                f"The observation of {self._agent(seat)} {self._where(b)} does not fit the dtype "
                f"of its space, {self._stored}: {numbers.dtype} {numbers.ravel()[:4]}. Declare a "
                "space that holds what is observed, e.g. of float32."
            )

    def _blank(self) -> Rows:
        """Rows in which everybody can do everything. Observations side by side are the state, so
        that one is a view of the other."""
        rows = super()._blank()
        rows.avail[...] = self._possible
        if self._own_state:
            return rows
        return rows._replace(state=rows.obs.reshape(self.n_copies, -1))

    def _mask(self, b: int, seat: int, avail: NDArray[np.bool_], mask: Any) -> None:
        n_actions = self._seats[seat].n_actions
        possible = np.asarray(mask, np.bool_)
        if possible.shape != (n_actions,):
            raise OmgError(
                f"The action mask of {self._agent(seat)} {self._where(b)} has shape "
                f"{possible.shape} for {n_actions} actions. Correct one of the two."
            )
        avail[:n_actions] = possible
        self._has_masks = True

    def _check(
        self, rows: Rows, copies: Sequence[int], steps: Sequence[int], *, over: bool = False
    ) -> None:
        super()._check(rows, copies, steps, over=over)
        if not self._has_masks:
            return
        stuck = ~rows.avail.any(axis=-1)
        if not stuck.any():
            return
        if not over:
            row, seat = np.argwhere(stuck)[0].tolist()
            raise OmgError(
                f"The action mask of {self._agent(seat)} "
                f"{self._where(copies[row], steps[row])} leaves it no action. Correct the mask, "
                "or let the agent leave the game."
            )
        rows.avail[..., 0] |= stuck  # nobody acts any more

    def _state(self, b: int) -> NDArray[Any]:
        raise AssertionError("only a subclass whose games have a state asks for it")

    def _share(self, b: int, reward: FloatArray, playing: Sequence[int]) -> None:
        """Give the one reward of all that play to every seat."""
        if not np.isfinite(reward).all():
            return  # the check of all copies says where
        if len({float(reward[seat]) for seat in playing}) > 1:
            raise OmgError(
                f"The rewards {self._where(b)} differ between agents. Set "
                "env_args.shared_reward=false."
            )
        reward[...] = reward[playing[0]] if playing else 0.0

    def _counts_as_cut(self, b: int) -> bool:
        """Whether a plain end stands for the limit, as env_args.limit_is_truncation says."""
        return self._options.limit_is_truncation and self._steps[b] >= self.spec.episode_limit

    def _made(self, make: Callable[[], Any]) -> Any:
        key = self._options.key
        try:
            return make()
        except OmgError:
            raise
        except TypeError as error:
            reason = str(error).partition(" was raised from the environment creator")[0]
            raise OmgError(f"{key} does not take these env_args: {reason}.") from error
        except Exception as error:
            raise OmgError(
                f"{key} cannot be made: {type(error).__name__}: {error}. Check env_args; --debug "
                "shows where it failed."
            ) from error

    def _reset_game(self, b: int, seed: int) -> tuple[Any, Any]:
        """What a game's `reset` answers: observations and infos. With env_args.new_games it is a
        new game, as the old one would carry something over."""
        if self._options.new_games:
            self._games[b].close()
            self._games[b] = self._made(self._make)
        answer = self._games[b].reset(seed=seed)
        fits = isinstance(answer, tuple) and len(answer) == 2
        if not fits or not isinstance(answer[1], (Mapping, list, tuple)):
            raise OmgError(
                f"reset() of {self._options.key} does not return observations and infos. Use a "
                "version with the present interface of Gymnasium."
            )
        return answer[0], answer[1]


def first_possible(seat: Seat, mask: Any) -> int:
    """The first action a mask allows, as the game counts it."""
    return seat.first_action + (0 if mask is None else int(np.argmax(np.asarray(mask))))


def cut_off(terminated: Sequence[bool], truncated: Sequence[bool]) -> bool:
    """Whether a game's end is a truncation: an agent was stopped that had not finished."""
    return any(cut and not over for over, cut in zip(terminated, truncated, strict=True))


def known_limit(game: Any, args: Mapping[str, Any]) -> int | None:
    """The game's own limit, from its arguments or its fields of the usual names."""
    fields = getattr(game, "unwrapped", game)
    for name in ("max_cycles", "max_steps", "max_episode_steps"):
        value = args.get(name, getattr(fields, name, None))
        if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value > 0:
            return int(value)
    return None


def no_limit(key: str) -> OmgError:
    """Nobody said how long an episode may be."""
    return OmgError(
        f"{key} does not say how long an episode may be. Give the most steps of one as "
        "env_args.time_limit."
    )
