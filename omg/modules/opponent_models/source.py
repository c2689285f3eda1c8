"""Which part of the state a subgoal stands for, and where in it the other players are."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from omg.components.learning_agent import SeatOrder
from omg.types import EnvSpec, OmgError


def check_agent_features(spec: EnvSpec, asking: str, otherwise: str) -> None:
    """Refuse an environment that does not say whose features are whose."""
    if not spec.agent_features:
        raise OmgError(
            f"{asking} needs to know which features of {spec.name}'s state belong to which agent. "
            f"Give EnvSpec.agent_features, or {otherwise}."
        )


class SubgoalSource(nn.Module):
    """Selects what is encoded: the whole state, or everything but the own features with the other
    agents ordered relative to the own seat (so that a prior works in every seat)."""

    def __init__(self, spec: EnvSpec, *, whole: bool) -> None:
        super().__init__()
        self._agents = spec.n_agents
        self._order = SeatOrder(spec)
        blocks = spec.agent_features
        whole = whole or not blocks  # an environment that does not say whose is whose: all of it
        owned = {column for block in blocks for column in block}
        common = [c for c in range(spec.state_dim) if c not in owned]
        rows = []
        for seat in range(spec.n_agents):
            if whole:
                rows.append(list(range(spec.state_dim)))
                continue
            others = self._order.others_of[seat].tolist()
            rows.append([c for other in others for c in blocks[other]] + common)
        self.dim = len(rows[0])
        self._whole = whole
        self.width = len(blocks[0]) if blocks else 0
        self.place_dim = (spec.n_agents - 1) * self.width if blocks else self.dim
        self.register_buffer("_columns", torch.tensor(rows), persistent=False)
        self.register_buffer(
            "_blocks",
            torch.tensor(blocks) if blocks else torch.zeros(0, dtype=torch.int64),
            persistent=False,
        )
        self._columns: Tensor
        self._blocks: Tensor

    def forward(self, state: Tensor, seats: Tensor) -> Tensor:
        """state [R, S], seats [R] -> what a subgoal encodes, [R, dim]."""
        return state.gather(1, self._columns[seats])

    def places(self, encoded: Tensor, seats: Tensor) -> Tensor:
        """The other agents' features inside encoded parts, [R, N-1, width]."""
        others = self._agents - 1
        if not self._whole:
            return encoded[:, : others * self.width].reshape(len(encoded), others, self.width)
        columns = self._blocks[self._order(seats)].flatten(1)
        return encoded.gather(1, columns).view(len(encoded), others, self.width)

    def ahead(self, features: Tensor, state: Tensor, seats: Tensor) -> Tensor:
        """Features [R, N-1, width] of the others relative to one's own present ones, flat."""
        own = state.gather(1, self._blocks[seats])
        return (features - own.unsqueeze(1)).flatten(1)

    def place(self, decoded: Tensor, state: Tensor, seats: Tensor) -> Tensor:
        """The others' decoded features relative to one's own present ones, [R, place_dim]; the
        decoded part itself where the environment does not say whose features are whose."""
        if self.width == 0:
            return decoded
        return self.ahead(self.places(decoded, seats), state, seats)
