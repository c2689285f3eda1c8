"""Copies of a game in this process, stepped one after the other as one `BatchedEnv`.

What every such environment has in common: seeds and episode numbers, restarts, last views, and
checks that are made once per step for all copies together. A subclass speaks to one kind of game.
"""

from __future__ import annotations

import logging
import traceback
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from omg.envs.contract import BatchedEnv
from omg.types import (
    BoolArray,
    FinalObservation,
    FloatArray,
    IntArray,
    Observation,
    OmgError,
    RunFailedError,
    Snapshot,
    TimeStep,
)

log = logging.getLogger("omg.envs")
_said: set[tuple[type, str]] = set()


def close_games(games: Iterable[Any]) -> None:
    """Close games; one that fails at that has done its work all the same."""
    for game in games:
        try:
            game.close()
        except (Exception, SystemExit) as error:
            what = traceback.format_exception_only(error)[-1].strip()[:200]
            shown = what if what.isprintable() else ascii(what)
            if (type(game), shown) not in _said:  # once, however many copies there are
                _said.add((type(game), shown))
                log.warning("%s.close() failed (%s); nothing is lost.", type(game).__name__, shown)


class End(Enum):
    """What became of an episode in a step."""

    NONE = "goes on"
    TERMINATED = "terminated"
    TRUNCATED = "truncated"
    DROPPED = "dropped"


class Rows(NamedTuple):
    """Views of some copies, one row each."""

    obs: FloatArray  # [B, N, O]
    state: FloatArray  # [B, S]
    avail: BoolArray  # [B, N, A]
    alive: BoolArray | None = None  # [B, N], where agents may leave

    def first(self, n: int) -> Rows:
        """The first n rows."""
        alive = None if self.alive is None else self.alive[:n]
        return Rows(self.obs[:n], self.state[:n], self.avail[:n], alive)


def episode_seed(seed: int, copy: int, episode: int) -> int:
    """The 31-bit seed of one episode of one (globally numbered) copy."""
    state = np.random.SeedSequence([seed, copy, episode]).generate_state(1)
    return int(state[0]) & 0x7FFFFFFF


class SerialEnv(BatchedEnv):
    """A subclass sets `spec` and defines `_start`, `_act` and `_look` for one copy.

    An episode that has not ended by itself after `episode_limit` steps is truncated there. A value
    that is not finite ends the run before anything is learned from it.
    """

    # What errors call the agents; empty: by number.
    _agent_names: tuple[str, ...] = ()

    def __init__(self, *, n_copies: int, first_copy: int) -> None:
        if n_copies < 1:
            raise OmgError(f"{n_copies} copies were asked for. Ask for at least one.")
        self.n_copies = n_copies
        self._first_copy = first_copy
        self._seed = -1
        self._episodes = [0] * n_copies
        self._steps = [0] * n_copies

    @abstractmethod
    def _start(self, b: int, seed: int) -> None:
        """Start an episode of copy b."""

    @abstractmethod
    def _act(
        self, b: int, actions: list[int], reward: FloatArray, info: Mapping[str, FloatArray]
    ) -> End:
        """Step copy b; write its rewards [N] (nothing where it is dropped) and its statistics."""

    def _reached(self, b: int, reached: IntArray) -> None:
        """Write the goals [N] that the agents of copy b reached in the last step."""
        raise NotImplementedError(f"{type(self).__name__} names goals and reports none.")

    @abstractmethod
    def _look(self, b: int, rows: Rows, at: int) -> None:
        """Write what copy b shows now into a row of `_blank`."""

    def reset(self, seed: int) -> Observation:
        return self.reset_at(seed, [0] * self.n_copies)

    def reset_at(self, seed: int, episodes: Sequence[int]) -> Observation:
        """Seed every copy and start its episode `episodes[b]`."""
        self._seed = int(seed)
        return self._begin_all([int(episode) for episode in episodes])

    def restart(self) -> Observation:
        self._require_reset()
        return self._begin_all([episode + 1 for episode in self._episodes])

    def step(self, actions: IntArray) -> TimeStep:
        self._require_reset()
        expected, limit = (self.n_copies, self.spec.n_agents), self.spec.episode_limit
        if actions.shape != expected:
            raise OmgError(
                f"Actions of {self.spec.name} have shape {actions.shape}. Give {expected}."
            )
        rows, reward = self._blank(), np.zeros(expected, np.float32)
        reached = np.full(expected, -1, np.int64) if self.spec.goals else None
        terminated, truncated = np.zeros((2, self.n_copies), np.bool_)
        info = {name: np.full(self.n_copies, np.nan, np.float32) for name in self.spec.statistics}
        last: Rows | None = None
        ended: list[int] = []
        dropped: list[int] = []
        taken = [steps + 1 for steps in self._steps]
        goes_on = End.NONE
        for b, row in enumerate(actions.tolist()):
            self._steps[b] = taken[b]
            end = self._act(b, row, reward[b], info)
            if reached is not None and end is not End.DROPPED:
                self._reached(b, reached[b])
            if end is goes_on and taken[b] >= limit:
                end = End.TRUNCATED
            if end is not goes_on:
                if end is End.DROPPED:
                    dropped.append(b)
                else:
                    last = last or self._blank()
                    self._look(b, last, len(ended))
                    ended.append(b)
                    truncated[b] = end is End.TRUNCATED
                    terminated[b] = end is End.TERMINATED
                self._begin(b, self._episodes[b] + 1)
        self._look_at_all(rows)
        self._require_finite("rewards", reward, range(self.n_copies), taken)
        self._check(rows, range(self.n_copies), self._steps)
        final = None
        if last is not None:
            last = last.first(len(ended))
            self._check(last, ended, [taken[b] for b in ended], over=True)
            final = FinalObservation(np.array(ended, np.int64), *last)
        return TimeStep(
            obs=rows.obs,
            state=rows.state,
            avail=rows.avail,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            final=final,
            info=info,
            dropped=np.array(dropped, np.int64),
            alive=rows.alive,
            reached=reached,
        )

    def snapshot(self) -> Snapshot:
        self._require_reset()
        if any(self._steps):
            raise OmgError(
                f"{self.spec.name} cannot be saved in the middle of an episode. "
                "Take the snapshot right after reset() or restart()."
            )
        return {"seed": np.array(self._seed), "episodes": np.array(self._episodes, np.int64)}

    def restore(self, snapshot: Snapshot) -> Observation:
        episodes = snapshot["episodes"]
        if episodes.shape != (self.n_copies,):
            raise OmgError(
                f"The snapshot holds {episodes.size} copies of {self.spec.name}, not "
                f"{self.n_copies}. Restore it with the number of copies it was taken with."
            )
        return self.reset_at(int(snapshot["seed"]), episodes.tolist())

    def _begin_all(self, episodes: list[int]) -> Observation:
        rows = self._blank()
        for b, episode in enumerate(episodes):
            self._begin(b, episode)
        self._look_at_all(rows)
        self._check(rows, range(self.n_copies), self._steps)
        return Observation(*rows)

    def _begin(self, b: int, episode: int) -> None:
        self._episodes[b], self._steps[b] = episode, 0
        self._start(b, episode_seed(self._seed, self._first_copy + b, episode))

    def _look_at_all(self, rows: Rows) -> None:
        for b in range(self.n_copies):
            self._look(b, rows, b)

    def _blank(self) -> Rows:
        spec, n = self.spec, self.n_copies
        return Rows(
            np.zeros((n, spec.n_agents, spec.obs_dim), np.float32),
            np.zeros((n, spec.state_dim), np.float32),
            np.zeros((n, spec.n_agents, spec.n_actions), np.bool_),
            np.ones((n, spec.n_agents), np.bool_) if spec.leavers else None,
        )

    def _check(
        self, rows: Rows, copies: Sequence[int], steps: Sequence[int], *, over: bool = False
    ) -> None:
        """Refuse views nobody should learn from; rows[i] is of copies[i] after steps[i] steps, and
        the last of its episode where it is `over`."""
        self._require_finite("observations", rows.obs, copies, steps)
        if rows.state.base is not rows.obs:  # else it is the observations themselves
            self._require_finite("state", rows.state, copies, steps)

    def _require_finite(
        self, what: str, values: NDArray[Any], copies: Sequence[int], steps: Sequence[int]
    ) -> None:
        finite = np.isfinite(values)
        if finite.all():
            return
        where = tuple(np.argwhere(~finite)[0].tolist())
        row, *place = where
        entry = [] if what == "rewards" else [f"entry {place[-1]}"]
        agent = [] if what == "state" else [self._agent(place[0])]
        raise RunFailedError(
            f"The {what} {self._where(copies[row], steps[row])} contain {values[where]} "
            f"({', '.join(agent + entry)}). Look for a division by zero or an overflow in the "
            "environment."
        )

    def _agent(self, seat: int) -> str:
        return f"agent {self._agent_names[seat] if self._agent_names else seat}"

    def _where(self, b: int, step: int | None = None) -> str:
        """Where something happened: environment, copy and step (by default the running one)."""
        step = self._steps[b] if step is None else step
        return f"of {self.spec.name} (copy {self._first_copy + b}, step {step})"

    def _require_reset(self) -> None:
        if self._seed < 0:
            raise OmgError(f"{self.spec.name} has not been started. Call reset(seed) first.")
