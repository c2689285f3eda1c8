"""What Stag Hunt and Snowdrift share: copies of a grid game with seeds, snapshots and pictures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from omg.envs.contract import GameArguments, NativeEnv, episode_keys
from omg.envs.goal_grid.games import GridGames
from omg.envs.goal_grid.layout import GridSize, Layout, Spawner
from omg.envs.goal_grid.render import (
    Frame,
    Look,
    frames_from_states,
    to_animated_svg,
    to_rgb,
    write_gif,
)
from omg.types import (
    EnvSpec,
    FinalObservation,
    FloatArray,
    IntArray,
    Observation,
    OmgError,
    Snapshot,
    TimeStep,
)

Size = int | tuple[int, int]
# What an episode's counters and places are, as a snapshot names them.
_SAVED = ("cells", "strengths", "alive", "targets", "there", "obstacles")


def sides(size: Size) -> tuple[int, int]:
    """Rows and columns."""
    return (size, size) if isinstance(size, int) else size


class GridArguments(GameArguments):
    """The arguments of a grid game; `grid` is checked when they are made."""

    @property
    @abstractmethod
    def grid(self) -> GridSize:
        """The field and what is on it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What the game is called in headers and folders."""

    def model_post_init(self, context: Any, /) -> None:
        self.grid.check(self.game)


class GridEnv(NativeEnv):
    """A subclass says what its targets are, and what trying for them brings (`_settle`)."""

    statistics: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        *,
        args: GridArguments,
        n_copies: int,
        first_copy: int,
        goals: Sequence[str],
        kinds: Sequence[int],
        n_actions: int,
        limit: int,
        obs_format: str,
        leavers: bool,
        look: Look,
    ) -> None:
        """`kinds`: for every target the action that is for it."""
        self.size = size = args.grid
        games = GridGames(size, n_copies, kinds=np.array(kinds), n_actions=n_actions)
        k, n = size.n_targets, size.n_players
        columns = [tuple(range(3 * thing, 3 * thing + 3)) for thing in range(size.n_things)]
        spec = EnvSpec(
            name=args.name,
            n_agents=n,
            n_actions=n_actions,
            obs_dim=games.obs_dim,
            state_dim=3 * size.n_things,
            episode_limit=limit,
            obs_scale=1.0 / max(size.rows, size.cols),
            state_scale=1.0 / max(size.rows, size.cols),
            obs_dtype="int8",
            state_dtype="int8",
            obs_format=obs_format,
            agent_features=tuple(columns[k : k + n]),
            statistics=self.statistics,
            leavers=leavers,
            goals=tuple(goals),
            goal_features=tuple(columns[:k]),
            event_actions=tuple(sorted(set(kinds))),
        )
        super().__init__(spec=spec, n_copies=n_copies, first_copy=first_copy)
        self.games, self.look = games, look
        self._counts = np.zeros((n_copies, len(self.statistics)), np.float32)
        self._score = np.zeros((n_copies, n))
        # The next layout of every copy, and whether it has been drawn.
        self._spawner = Spawner(size)
        self._next = self._spawner.blank(n_copies)
        self._ready = np.zeros(n_copies, np.bool_)

    @abstractmethod
    def _settle(
        self, copies: IntArray, tries: NDArray[np.bool_], reward: FloatArray, reached: IntArray
    ) -> None:
        """Who tries for which target in some copies, [E, N, K]: take targets away, let players
        leave, count, and write rewards and reached goals [B, N]."""

    def observe(self) -> Observation:
        """What the players see now."""
        return self._observation(*self.games.view())

    def step(self, actions: IntArray) -> TimeStep:
        """Move, try for targets, and restart the copies that end; impossible actions do nothing."""
        self._require_reset()
        games, leavers = self.games, self.spec.leavers
        copies, tries = games.act(self._checked_actions(actions))
        shape = (self.n_copies, self.spec.n_agents)
        reward, reached = np.zeros(shape, np.float32), np.full(shape, -1, np.int64)
        if copies.size:
            self._settle(copies, tries, reward, reached)
            self._score += reward
        self._steps += 1
        terminated = games.over
        truncated = (self._steps >= self.spec.episode_limit) & ~terminated
        info = {name: self._counts[:, i].copy() for i, name in enumerate(self.statistics)}
        final = None
        ended = (terminated | truncated).nonzero()[0]
        if ended.size:
            obs, state, avail, alive = games.view(ended)
            final = FinalObservation(ended, obs, state, avail, alive if leavers else None)
            self._begin(ended)
        obs, state, avail, alive = games.view()
        return TimeStep(
            obs=obs,
            state=state,
            avail=avail,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            final=final,
            info=info,
            alive=alive if leavers else None,
            reached=reached,
        )

    def _observation(self, obs: Any, state: Any, avail: Any, alive: Any) -> Observation:
        return Observation(obs, state, avail, alive if self.spec.leavers else None)

    # --- snapshots ---------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Counters and the running games; the layouts to come follow from the counters."""
        return {
            "seed": np.array(self._require_reset(), np.uint64),
            "episode": self._episode.copy(),
            "steps": self._steps.copy(),
            "counts": self._counts.copy(),
            "score": self._score.copy(),
            **{name: getattr(self.games, name).copy() for name in _SAVED},
        }

    def restore(self, snapshot: Snapshot) -> Observation:
        """Continue bit for bit where the snapshot was taken."""
        games = self.games
        if any(snapshot[name].shape != getattr(games, name).shape for name in _SAVED):
            raise self._snapshot_refused()
        self._set_seed(int(snapshot["seed"]))
        self._episode[:], self._steps[:] = snapshot["episode"], snapshot["steps"]
        self._counts[:], self._score[:] = snapshot["counts"], snapshot["score"]
        for name in _SAVED:
            getattr(games, name)[...] = snapshot[name]
        games.block(self._all)
        return self.observe()

    def set_layout(
        self,
        copy: int,
        *,
        players: Sequence[tuple[int, int]],
        targets: Sequence[tuple[int, int]],
        obstacles: Sequence[tuple[int, int]] = (),
        strengths: Sequence[int] | None = None,
        step: int = 0,
    ) -> Observation:
        """Put one copy into a given situation at the start of an episode; places are (row, col)."""
        self._require_reset()
        size = self.size
        counts = (len(players), len(targets), len(obstacles))
        if counts != (size.n_players, size.n_targets, size.n_obstacles):
            raise OmgError(
                f"{counts} players, targets and obstacles were given. Give {size.n_players}, "
                f"{size.n_targets} and {size.n_obstacles}."
            )
        cells = [
            np.array([[row * size.cols + col for row, col in places]], np.int64).reshape(1, -1)
            for places in (players, targets, obstacles)
        ]
        strong = np.array([strengths or [size.min_strength] * size.n_players])
        at = self._all[[copy]]
        self.games.place(at, Layout(cells[0], strong, cells[1], cells[2]))
        self._steps[copy], self._counts[copy], self._score[copy] = step, 0, 0
        return self.observe()

    # --- pictures ----------------------------------------------------------------------------

    def frame(self, copy: int = 0) -> Frame:
        """The situation of one copy, for pictures."""
        state = self.games.view(self._all[[copy]])[1]
        frame = frames_from_states(state, np.zeros((0, self.spec.n_agents), np.float32), self.size)[
            0
        ]
        return frame.at(int(self._steps[copy]), tuple(self._score[copy].tolist()))

    def render(self, copy: int = 0) -> NDArray[np.uint8]:
        """An RGB picture of one copy."""
        return to_rgb(self.frame(copy), self.look)

    def draw_episode(self, stem: Path, states: FloatArray, rewards: FloatArray) -> list[Path]:
        """Write an episode, states [T + 1, S] and rewards [T, N], as moving SVG and GIF."""
        frames = frames_from_states(states, rewards, self.size)
        svg, gif = stem.with_suffix(".svg"), stem.with_suffix(".gif")
        svg.write_text(to_animated_svg(frames, self.look), encoding="utf-8")
        write_gif(gif, frames, self.look)
        return [svg, gif]

    # --- beginnings --------------------------------------------------------------------------

    def _set_seed(self, seed: int) -> None:
        super()._set_seed(seed)
        self._ready[:] = False

    def _begin(self, copies: IntArray) -> None:
        """Start the next episode of some copies; layouts are drawn for all that lack one."""
        if not self._ready[copies].all():
            lacking = (~self._ready).nonzero()[0]
            keys = episode_keys(self._keys[lacking], self._episode[lacking] + 1)
            self._next.put(lacking, self._spawner.spawn(keys))
            self._ready[lacking] = True
        self.games.place(copies, self._next.of(copies))
        self._ready[copies] = False
        self._episode[copies] += 1
        self._steps[copies], self._counts[copies], self._score[copies] = 0, 0, 0
