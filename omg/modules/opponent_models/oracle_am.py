"""`oracle_am`: the others' features to come, as they really will be.

Every study starts with it: what an agent gains that knows the others' future is the most any
opponent model can gain in that game. The controller looks ahead for it (`oracle_kind`).
"""

from __future__ import annotations

from torch import Tensor

from omg.modules.opponent_models.base import ModelRows
from omg.modules.opponent_models.control_am import DiagnosticModel


class OracleModel(DiagnosticModel):
    """The others where they are heading to, in place of a prediction."""

    needs_foresight = True

    def feature(self, rows: ModelRows) -> Tensor:
        assert rows.foresight is not None, "the controller must look ahead for the oracle"
        return self.source.ahead(rows.foresight, rows.state, rows.seats)
