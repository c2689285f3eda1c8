"""Level-based foraging, many copies at once. Actions: none, north, south, west, east, load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omg.envs.contract import BatchedEnv
from omg.envs.foraging.args import ForagingArgs
from omg.envs.foraging.board import N_ACTIONS
from omg.envs.foraging.frame import ForagingFrame, frame_of, frames_from_states
from omg.envs.foraging.game import Games
from omg.envs.foraging.layout import MISSING, Layout, Spawner, pack
from omg.envs.keys import WORD, copy_keys, episode_keys
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


class ForagingEnv(BatchedEnv):
    """Players of different levels collect food; what is too heavy for one needs several."""

    exact_snapshots = True

    def __init__(
        self,
        *,
        args: ForagingArgs | Mapping[str, Any],
        n_copies: int,
        first_copy: int = 0,
    ) -> None:
        if n_copies < 1:
            raise OmgError(f"n_copies is {n_copies}. Ask for at least one copy.")
        self.args = ForagingArgs.parse(args)
        self.rules = rules = self.args.resolve()
        self.n_copies = n_copies
        self.first_copy = first_copy
        dtype = "int8" if rules.highest_number <= 127 else "float32"
        self.spec = EnvSpec(
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
            obs_format=rules.obs_format,
            agent_features=tuple(
                tuple(range(3 * (rules.max_num_food + seat), 3 * (rules.max_num_food + seat + 1)))
                for seat in range(rules.n_players)
            ),
        )
        self._games = Games(rules, n_copies)
        self._all = self._games.copies
        self._seed: int | None = None
        self._keys = np.zeros(n_copies, np.uint64)
        self._episode = np.zeros(n_copies, np.int64)
        self._steps = np.zeros(n_copies, np.int64)
        # The next layout of every copy, and whether it has been drawn.
        self._spawner = Spawner(rules)
        self._ready = np.zeros(n_copies, np.bool_)
        shape = (n_copies, rules.n_players)
        self._next = Layout(
            np.zeros(shape, np.int64),
            np.zeros(shape, np.int64),
            np.zeros((n_copies, rules.max_num_food), np.int64),
        )

    def reset(self, seed: int) -> Observation:
        """Seed every copy and start its episode 0."""
        self._set_seed(seed)
        self._episode[:] = -1
        return self.restart()

    def restart(self) -> Observation:
        """Abandon every running episode and start the next one of each copy."""
        self._require_reset()
        self._begin(self._all)
        return self.observe()

    def observe(self) -> Observation:
        """What the players see now."""
        self._games.look()
        return Observation(*self._games.view())

    def step(self, actions: IntArray) -> TimeStep:
        """Move, load, and restart the copies that end; invalid actions do nothing."""
        self._require_reset()
        games = self._games
        actions = np.asarray(actions, np.int64)
        wanted = (self.n_copies, self.rules.n_players)
        if actions.shape != wanted or actions.view(np.uint64).max() >= N_ACTIONS:
            raise ValueError(f"Actions must be an array {wanted} of integers from 0 to 5.")
        reward = games.act(actions)
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
            raise OmgError(
                f"The snapshot does not fit {self.n_copies} copies of {self.spec.name}. "
                f"Restore it with the arguments it was made with."
            )
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
        from omg.envs.foraging.render import to_rgb

        return to_rgb(self.frame(copy))

    def draw_episode(self, stem: Path, states: FloatArray, rewards: FloatArray) -> list[Path]:
        """Write an episode, states [T + 1, S] and rewards [T, N], as moving SVG and GIF."""
        from omg.envs.foraging.render import to_animated_svg, write_gif

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
        self._seed = seed & WORD
        self._keys = copy_keys(self._seed, self.first_copy + self._all)
        self._ready[:] = False

    def _require_reset(self) -> int:
        if self._seed is None:
            raise RuntimeError("Call reset before anything else.")
        return self._seed

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
