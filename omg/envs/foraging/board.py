"""Look-up tables of a field: which actions a cell allows and where they lead.

Each cell of each copy has a code: which of its four neighbours can be entered (4 bits), and in
which direction food lies (0 for none, else 1 to 4). Foods keep their distance from one another,
so a cell never touches two. Codes are stored times 8, which makes code + action an index.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from omg.types import BoolArray, IntArray

N_ACTIONS = 6
LOAD = 5
_STEP = 8
_CODES = 16 * 5


class Board:
    """Tables for a field of `rows` x `cols` cells, numbered row by row."""

    def __init__(self, rows: int, cols: int) -> None:
        self.n_cells = rows * cols
        row, col = np.divmod(np.arange(self.n_cells), cols)
        self.rows_i: IntArray = row
        self.cols_i: IntArray = col
        self.rows_f = row.astype(np.float32)
        self.cols_f = col.astype(np.float32)
        # North, south, west, east.
        self.offsets: IntArray = np.array([-cols, cols, -1, 1])
        inside = np.stack([row > 0, row < rows - 1, col > 0, col < cols - 1])
        self.empty: NDArray[np.int16] = ((1 << np.arange(4)) @ inside * _STEP).astype(np.int16)
        # What food in each direction changes in the code of a cell.
        direction = np.arange(4)
        self.beside_food = (((direction + 1) * 16 - (1 << direction)) * _STEP).astype(np.int16)

        self.moves: IntArray = np.zeros(_CODES * _STEP, np.int64)
        self.loads: BoolArray = np.zeros(_CODES * _STEP, np.bool_)
        self.food_offset: IntArray = np.zeros(_CODES * _STEP, np.int64)
        self.avail: BoolArray = np.zeros((_CODES * _STEP, N_ACTIONS), np.bool_)
        self.avail[:, 0] = True
        for code in range(_CODES):
            food, free = divmod(code, 16)
            for side in range(4):
                if free >> side & 1:
                    self.moves[code * _STEP + 1 + side] = self.offsets[side]
                    self.avail[code * _STEP, 1 + side] = True
            if food:
                self.loads[code * _STEP + LOAD] = True
                self.food_offset[code * _STEP] = self.offsets[food - 1]
                self.avail[code * _STEP, LOAD] = True
