"""Level-based foraging, many copies at once. Actions: none, north, south, west, east, load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omg.envs.contract import Keys, NativeEnv, draw_words, episode_keys
from omg.envs.foraging.args import ForagingArgs, ForagingRules
from omg.envs.foraging.game import LOAD, MISSING, N_ACTIONS, Games, Layout, pack
from omg.envs.foraging.kernel import ForagingKernel, foraging_kernel
from omg.envs.foraging.render import (
    ForagingFrame,
    frame_of,
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

STATISTIC = "food_collected"


class Spawner:
    """How episodes begin, a pure function of (seed, copy, episode): draws layouts with the
    reference's distribution, without its rejection loops."""

    def __init__(self, rules: ForagingRules) -> None:
        self.rules = rules
        self._player_low = np.array(rules.min_player_level)
        self._player_span = np.array(rules.max_player_level) - self._player_low + 1
        self._food_low = np.array(rules.min_food_level)
        top = rules.max_food_level
        self._food_high = None if top is None else np.array(top)
        self._n_draws = 3 * (rules.n_players + rules.max_num_food)
        # A board with a margin of one cell: marking around interior cells stays inside it.
        self._width = rules.cols + 2
        board = np.zeros((rules.rows + 2, self._width), np.bool_)
        board[2:-2, 2:-2] = True
        self._interior = board.ravel()
        reach = [
            (row, col)
            for row in range(-2, 3)
            for col in range(-2, 3)
            if max(abs(row), abs(col)) <= 1 or (abs(row) + abs(col) == 2 and row * col == 0)
        ]
        self._reach = np.array([row * self._width + col for row, col in reach])

    def spawn(self, keys: Keys) -> Layout:
        """One layout for each episode key [E]."""
        rules, n, f = self.rules, self.rules.n_players, self.rules.max_num_food
        words = draw_words(keys, self._n_draws)
        draws = (words >> np.uint64(32)).astype(np.int64)
        position, level, shuffle = draws[:, :n], draws[:, n : 2 * n], draws[:, 2 * n : 3 * n]
        low, span = _permuted(shuffle, self._player_low, self._player_span)
        levels = low + ((level * span) >> 32)
        cells = self._player_cells(position)
        foods = draws[:, 3 * n :]
        high = self._food_high
        if high is None:
            high = np.sort(levels, axis=1)[:, :3].sum(1, keepdims=True).repeat(f, axis=1)
        low, high = _permuted(foods[:, 2 * f :], self._food_low, high)
        if rules.force_coop:
            low = high
        elif rules.version == 1:
            high = np.maximum(high - 1, 1)
        food_levels = low + ((foods[:, f : 2 * f] * (high - low + 1)) >> 32)
        return Layout(cells, levels, self._food_places(foods[:, :f], food_levels, cells))

    def _player_cells(self, draws: IntArray) -> IntArray:
        """Distinct cells, each uniform among those left over by the seats before."""
        rows, cols = self.rules.start_field
        cells = np.empty_like(draws)
        for seat in range(draws.shape[1]):
            pick = (draws[:, seat] * (rows * cols - seat)) >> 32
            taken = np.sort(cells[:, :seat], axis=1)
            for other in range(seat):
                pick += pick >= taken[:, other]
            cells[:, seat] = pick
        row, col = np.divmod(cells, cols)
        return row * self.rules.cols + col

    def _food_places(self, draws: IntArray, levels: IntArray, players: IntArray) -> IntArray:
        """Foods one by one, uniform among interior cells away from players and other foods."""
        episodes = np.arange(len(draws))
        free = np.repeat(self._interior[None], len(draws), axis=0)
        rows, cols = np.divmod(players, self.rules.cols)
        free[episodes[:, None], (rows + 1) * self._width + cols + 1] = False
        places = np.full(draws.shape, MISSING)
        for slot in range(draws.shape[1]):
            rank = np.cumsum(free, axis=1, dtype=np.int32)
            count = rank[:, -1]
            pick = (draws[:, slot] * count) >> 32
            cell = (rank > pick[:, None]).argmax(axis=1)
            row, col = np.divmod(cell, self._width)
            places[:, slot] = np.where(count > 0, pack(row - 1, col - 1, levels[:, slot]), MISSING)
            if slot + 1 < draws.shape[1]:
                # Where nothing was free, `cell` is 0 and nothing changes that matters.
                free[episodes[:, None], np.maximum(cell[:, None] + self._reach, 0)] = False
        return np.sort(places, axis=1)


def _permuted(shuffle: IntArray, *ranges: IntArray) -> tuple[IntArray, ...]:
    """The same random order for each row of every range, left out where it cannot matter."""
    if all((values == values[..., :1]).all() for values in ranges):
        return ranges
    order = shuffle.argsort(axis=1)
    wide = (np.broadcast_to(values, shuffle.shape) for values in ranges)
    return tuple(np.take_along_axis(values, order, axis=1) for values in wide)


class ForagingEnv(NativeEnv):
    """Players of different levels collect food; what is too heavy for one needs several."""

    def __init__(
        self,
        *,
        args: ForagingArgs | Mapping[str, Any],
        n_copies: int,
        first_copy: int = 0,
    ) -> None:
        self.args = ForagingArgs.parse(args)
        self.rules = rules = self.args.resolve()
        dtype = "int8" if rules.highest_number <= 127 else "float32"
        spec = EnvSpec(
            name=rules.name,
            n_agents=rules.n_players,
            n_actions=N_ACTIONS,
            obs_dim=rules.obs_dim,
            state_dim=rules.state_dim,
            episode_limit=rules.max_episode_steps,
            obs_scale=1.0 / max(rules.rows, rules.cols),
            state_scale=1.0 / max(rules.rows, rules.cols),
            obs_dtype=dtype,
            state_dtype=dtype,
            statistics=(STATISTIC,),
            event_actions=(LOAD,),
            obs_format=rules.obs_format,
            agent_features=tuple(
                tuple(range(3 * (rules.max_num_food + seat), 3 * (rules.max_num_food + seat + 1)))
                for seat in range(rules.n_players)
            ),
        )
        super().__init__(spec=spec, n_copies=n_copies, first_copy=first_copy)
        self._games = Games(rules, n_copies)
        self._chosen = False  # whether steps are made in C or in NumPy
        # The next layout of every copy, and whether it has been drawn.
        self._spawner = Spawner(rules)
        self._ready = np.zeros(n_copies, np.bool_)
        shape = (n_copies, rules.n_players)
        self._next = Layout(
            np.zeros(shape, np.int64),
            np.zeros(shape, np.int64),
            np.zeros((n_copies, rules.max_num_food), np.int64),
        )

    def observe(self) -> Observation:
        """What the players see now."""
        self._games.look()
        return Observation(*self._games.view())

    def use(self, kernel: ForagingKernel | None) -> None:
        """Make steps in C or in NumPy; the environment chooses by itself before its first."""
        self._chosen = True
        self._games.use(kernel)

    def step(self, actions: IntArray) -> TimeStep:
        """Move, load, and restart the copies that end; invalid actions do nothing."""
        self._require_reset()
        if not self._chosen:
            self.use(foraging_kernel()[0])
        games = self._games
        reward = games.act(self._checked_actions(actions))
        self._steps += 1
        terminated = games.no_food_left
        truncated = (self._steps >= self.rules.max_episode_steps) & ~terminated
        collected = games.collected.copy()
        games.look()
        final = None
        ended = (terminated | truncated).nonzero()[0]
        if ended.size:
            final = FinalObservation(ended, *games.view(ended))
            self._begin(ended)
            games.look()
        obs, state, avail = games.view()
        return TimeStep(
            obs=obs,
            state=state,
            avail=avail,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            final=final,
            info={STATISTIC: collected},
        )

    def snapshot(self) -> Snapshot:
        """Counters and the running games; the layouts to come follow from the counters."""
        games = self._games
        return {
            "seed": np.array(self._require_reset(), np.uint64),
            "episode": self._episode.copy(),
            "steps": self._steps.copy(),
            "cells": games.cells,
            "levels": games.levels.copy(),
            "foods": games.foods.copy(),
            "spawned": games.spawned.copy(),
            "score": games.score.copy(),
        }

    def restore(self, snapshot: Snapshot) -> Observation:
        """Continue bit for bit where the snapshot was taken."""
        games = self._games
        cells, foods = snapshot["cells"], snapshot["foods"]
        if cells.shape != games.levels.shape or foods.shape != games.foods.shape:
            raise self._snapshot_refused()
        self._set_seed(int(snapshot["seed"]))
        self._episode[:] = snapshot["episode"]
        self._steps[:] = snapshot["steps"]
        games.place(self._all, Layout(cells, snapshot["levels"], foods))
        games.spawned[:] = snapshot["spawned"]
        games.score[:] = snapshot["score"]
        games.count_collected(self._all)
        return self.observe()

    def set_layout(
        self,
        copy: int,
        *,
        player_pos: Sequence[tuple[int, int]],
        player_levels: Sequence[int],
        foods: Sequence[tuple[int, int, int]],
        step: int = 0,
        food_spawned: int | None = None,
    ) -> Observation:
        """Put one copy into a given situation; foods are (row, col, level).

        `food_spawned` is the sum of food levels at the episode's start, by default that of `foods`.
        """
        self._require_reset()
        rules, games = self.rules, self._games
        if len(player_pos) != rules.n_players or len(player_levels) != rules.n_players:
            raise OmgError(f"Give a position and a level for each of {rules.n_players} players.")
        if len(foods) > rules.max_num_food:
            raise OmgError(f"{len(foods)} foods are too many: at most {rules.max_num_food}.")
        for i, (row, col, _) in enumerate(foods):
            if not (0 < row < rules.rows - 1 and 0 < col < rules.cols - 1):
                raise OmgError(f"Food at ({row}, {col}) lies at the wall. Put it further in.")
            if any((row - r) ** 2 + (col - c) ** 2 in (0, 1, 2, 4) for r, c, _ in foods[:i]):
                raise OmgError(f"Food at ({row}, {col}) is too near another. Keep them apart.")
        places = np.full((1, rules.max_num_food), MISSING)
        if foods:
            places[0, : len(foods)] = pack(*np.array(foods).T)
        cells = np.array([[row * rules.cols + col for row, col in player_pos]])
        at = self._all[[copy]]
        games.place(at, Layout(cells, np.array([player_levels]), np.sort(places, axis=1)))
        self._steps[copy] = step
        if food_spawned is not None:
            games.spawned[copy] = food_spawned
            games.count_collected(at)
        return self.observe()

    def frame(self, copy: int = 0) -> ForagingFrame:
        """The situation of one copy, for pictures."""
        games = self._games
        return frame_of(
            games.view(self._all[[copy]])[1][0],
            field_size=(self.rules.rows, self.rules.cols),
            n_foods=self.rules.max_num_food,
            step=int(self._steps[copy]),
            score=tuple(games.score[copy].tolist()),
        )

    def render(self, copy: int = 0) -> NDArray[np.uint8]:
        """An RGB picture of one copy."""
        return to_rgb(self.frame(copy))

    def draw_episode(self, stem: Path, states: FloatArray, rewards: FloatArray) -> list[Path]:
        """Write an episode, states [T + 1, S] and rewards [T, N], as moving SVG and GIF."""
        frames = frames_from_states(
            states,
            rewards,
            field_size=(self.rules.rows, self.rules.cols),
            n_foods=self.rules.max_num_food,
        )
        svg, gif = stem.with_suffix(".svg"), stem.with_suffix(".gif")
        svg.write_text(to_animated_svg(frames), encoding="utf-8")
        write_gif(gif, frames)
        return [svg, gif]

    def _set_seed(self, seed: int) -> None:
        super()._set_seed(seed)
        self._ready[:] = False

    def _begin(self, copies: IntArray) -> None:
        """Start the next episode of some copies; layouts are drawn for all that lack one."""
        if not self._ready[copies].all():
            lacking = (~self._ready).nonzero()[0]
            keys = episode_keys(self._keys[lacking], self._episode[lacking] + 1)
            drawn = self._spawner.spawn(keys)
            self._next.cells[lacking] = drawn.cells
            self._next.levels[lacking] = drawn.levels
            self._next.foods[lacking] = drawn.foods
            self._ready[lacking] = True
        ahead = self._next
        layout = Layout(ahead.cells[copies], ahead.levels[copies], ahead.foods[copies])
        self._games.place(copies, layout)
        self._ready[copies] = False
        self._episode[copies] += 1
        self._steps[copies] = 0
