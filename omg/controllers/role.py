"""`basic_mac` with `learning_role`: one role learns, members of a pool take the other seats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from omg.components.scheme import Field
from omg.config.schema import Config
from omg.controllers.base import Acted, Carry, StepView
from omg.controllers.basic import BasicMAC
from omg.controllers.others import Others
from omg.controllers.roster import build_roster, learning_role
from omg.types import EnvSpec, IntArray, OmgError


class RoleMAC(BasicMAC):
    """One policy for the seats of a role. The others are drawn anew for every episode."""

    def __init__(self, *, config: Config, spec: EnvSpec, device: torch.device) -> None:
        if config.multi_algs or not config.opponent_pool:
            raise OmgError(
                f"learning_role={config.learning_role} trains the seats of one role beside players "
                "of a pool. Give opponent_pool=<folder> and no team string, or leave learning_role "
                "out: then every seat learns."
            )
        super().__init__(config=config, spec=spec, device=device)
        self._role = learning_role(config, spec)
        self.seats = spec.seats_of(self._role)
        self._roster = build_roster(config, spec, device)
        self._others = Others(self._roster)
        self._free = np.ones(spec.n_agents, np.bool_)
        self._free[list(self.seats)] = False

    def initial_carry(self, n_copies: int) -> Carry:
        return {
            **super().initial_carry(n_copies),
            **self._others.initial_carry(n_copies),
        }

    def begin_episodes(
        self, carry: Carry, copies: IntArray, rng: np.random.Generator
    ) -> Mapping[str, NDArray[Any]]:
        rows = torch.from_numpy(copies)
        members = self._roster.draw(np.tile(self._free, (len(copies), 1)), rng)
        carry["hidden"][rows] = 0
        self._others.seat(carry, rows, members)
        return {"lineup": members}

    def act(
        self,
        view: StepView,
        carry: Carry,
        *,
        env_steps: int,
        greedy: bool,
        generator: torch.Generator,
    ) -> Acted:
        own = list(self.seats)
        mine = StepView(
            obs=view.obs[:, own],
            state=view.state,
            avail=view.avail[:, own],
            last_actions=view.last_actions[:, own],
        )
        seats = torch.tensor(own, device=view.obs.device).expand(len(view.obs), -1)
        outputs, hidden = self.policy.step(mine, carry["hidden"], seats)
        actions = torch.zeros(view.last_actions.shape, dtype=torch.int64)
        actions[:, own] = self.policy.selector.select(
            outputs.cpu(), mine.avail.cpu(), env_steps=env_steps, greedy=greedy, generator=generator
        )
        carry = {**carry, "hidden": hidden}
        self._others.act(view, carry, actions, generator)
        return Acted(actions, carry)

    def record_fields(self) -> Mapping[str, Field]:
        return self._others.record_fields()

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "roles": [self._role]}

    def players(self) -> list[str]:
        return list(self._roster.names)
