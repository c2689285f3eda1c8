"""The size of a grid game, and how its episodes begin: a pure function of (seed, copy, episode)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from omg.envs.contract import Keys, draw_words
from omg.types import BoolArray, IntArray, OmgError

MAX_SIDE = 100  # so that every number of an observation fits into a byte


@dataclass(frozen=True, slots=True, kw_only=True)
class GridSize:
    """How large a field is, and how many things are on it. Cells count row by row."""

    rows: int
    cols: int
    n_players: int
    n_targets: int
    n_obstacles: int = 0
    min_strength: int = 1
    max_strength: int = 1

    @property
    def n_cells(self) -> int:
        return self.rows * self.cols

    @property
    def n_things(self) -> int:
        """Targets, players and obstacles: what a state describes, in this order."""
        return self.n_targets + self.n_players + self.n_obstacles

    def check(self, game: str) -> None:
        """Refuse a field that cannot be played on."""
        bounds = (
            ("size", min(self.rows, self.cols), 2, MAX_SIDE),
            ("size", max(self.rows, self.cols), 2, MAX_SIDE),
            ("players", self.n_players, 1, self.n_cells),
            ("obstacles", self.n_obstacles, 0, max_obstacles(self.rows, self.cols)),
            ("min_strength", self.min_strength, 1, self.max_strength),
            ("max_strength", self.max_strength, self.min_strength, 127),
        )
        for field, value, low, high in bounds:
            if not low <= value <= high:
                raise OmgError(
                    f"{game} argument '{field}' is {value} on a field of {self.rows}x{self.cols}, "
                    f"which cannot be played. Choose a value between {low} and {high}."
                )
        if self.n_things > self.n_cells:
            raise OmgError(
                f"{self.n_things} players, targets and obstacles do not fit on {self.n_cells} "
                f"cells of {game}. Give a larger 'size', or fewer of them."
            )


def max_obstacles(rows: int, cols: int) -> int:
    """How many obstacles always find a place among the inner cells: each takes at most nine."""
    inner = max(rows - 2, 0) * max(cols - 2, 0)
    return -(-inner // 9)


@dataclass(frozen=True, slots=True)
class Layout:
    """The beginnings of E episodes."""

    players: IntArray  # [E, N], cells
    strengths: IntArray  # [E, N]
    targets: IntArray  # [E, K], cells
    obstacles: IntArray  # [E, O], cells

    def of(self, rows: IntArray) -> Layout:
        """Some of them."""
        return Layout(
            self.players[rows], self.strengths[rows], self.targets[rows], self.obstacles[rows]
        )

    def put(self, rows: IntArray, other: Layout) -> None:
        """Replace some of them."""
        self.players[rows], self.strengths[rows] = other.players, other.strengths
        self.targets[rows], self.obstacles[rows] = other.targets, other.obstacles


class Spawner:
    """Draws layouts: all things on different cells, uniformly. Obstacles stand neither at the wall
    nor beside one another (diagonals count), so that every free cell can be reached."""

    def __init__(self, size: GridSize) -> None:
        self.size = size
        rows, cols = np.divmod(np.arange(size.n_cells), size.cols)
        inner: BoolArray = (rows > 0) & (rows < size.rows - 1) & (cols > 0) & (cols < size.cols - 1)
        self._inner = inner
        gap = np.maximum(np.abs(rows[:, None] - rows), np.abs(cols[:, None] - cols))
        self._far: BoolArray = gap > 1  # [cells, cells]

    def blank(self, episodes: int) -> Layout:
        """Room for layouts."""
        size = self.size
        widths = (size.n_players, size.n_players, size.n_targets, size.n_obstacles)
        return Layout(*(np.zeros((episodes, width), np.int64) for width in widths))

    def spawn(self, keys: Keys) -> Layout:
        """One layout for each episode key [E]."""
        size = self.size
        n, k, cells = size.n_players, size.n_targets, size.n_cells
        words = draw_words(keys, cells + n + size.n_obstacles)
        draws = (words[:, cells:] >> np.uint64(32)).astype(np.int64)
        span = size.max_strength - size.min_strength + 1
        strengths = size.min_strength + ((draws[:, :n] * span) >> 32)
        obstacles = self._obstacles(draws[:, n:])
        order = words[:, :cells]
        if size.n_obstacles:
            np.put_along_axis(order, obstacles, np.uint64(2**64 - 1), axis=1)
        places = order.argsort(axis=1, kind="stable")[:, : n + k]
        return Layout(places[:, :n], strengths, places[:, n:], obstacles)

    def _obstacles(self, draws: IntArray) -> IntArray:
        """One by one, uniform among the inner cells that touch no other."""
        free = np.repeat(self._inner[None], len(draws), axis=0)
        places = np.zeros(draws.shape, np.int64)
        for slot in range(draws.shape[1]):
            rank = np.cumsum(free, axis=1, dtype=np.int32)
            pick = (draws[:, slot] * rank[:, -1]) >> 32
            places[:, slot] = (rank > pick[:, None]).argmax(axis=1)
            free &= self._far[places[:, slot]]
        return places
