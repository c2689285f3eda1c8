"""`basic_mac`: one policy with shared parameters for the whole team."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from omg.components.episode_batch import EpisodeBatch
from omg.components.learning_agent import seats_part
from omg.config.schema import Config
from omg.controllers.base import Acted, Carry, Controller, StepView
from omg.controllers.policy import Policy
from omg.functional.packing import Packing
from omg.types import EnvSpec


class BasicMAC(Controller):
    """Every seat is played by the same network; seats differ by their one-hot input."""

    def __init__(self, *, config: Config, spec: EnvSpec, device: torch.device) -> None:
        self.policy = Policy(config=config, spec=spec, device=device)
        self.seats: tuple[int, ...] = tuple(range(spec.n_agents))  # those that learn
        self._n_agents = spec.n_agents
        self._roles = {"roles": list(dict.fromkeys(spec.roles))} if spec.roles else {}
        self._device = device

    @property
    def everybody(self) -> bool:
        """Whether all seats learn."""
        return len(self.seats) == self._n_agents

    def own_part(self, batch: EpisodeBatch) -> tuple[EpisodeBatch, Tensor | None]:
        """What is learned from, and the seats in it ([B, n]; None: all seats in order)."""
        return (batch, None) if self.everybody else seats_part(batch, self.seats)

    def initial_carry(self, n_copies: int) -> Carry:
        width = self.policy.network.carry_dim
        return {"hidden": torch.zeros(n_copies, len(self.seats), width, device=self._device)}

    def act(
        self,
        view: StepView,
        carry: Carry,
        *,
        env_steps: int,
        greedy: bool,
        generator: torch.Generator,
    ) -> Acted:
        outputs, hidden = self.policy.step(view, carry["hidden"])
        actions = self.policy.selector.select(
            outputs.cpu(), view.avail.cpu(), env_steps=env_steps, greedy=greedy, generator=generator
        )
        return Acted(actions, {"hidden": hidden})

    def unroll(self, batch: EpisodeBatch) -> Tensor:
        """Outputs for whole episodes, [B, T, n, A]; zeros in the padding."""
        batch, seats = self.own_part(batch)
        packing = Packing.of(batch.filled, batch.raw("terminated"))
        inputs = self.policy.build_inputs(batch, packing, seats)
        return packing.unpack(self.policy.unroll(inputs, packing, seats=seats))

    def networks(self) -> Mapping[str, nn.Module]:
        return {"agent": self.policy.network}

    def describe(self) -> dict[str, Any]:
        return {**self.policy.describe(), **self._roles}

    def metrics(self, env_steps: int) -> dict[str, float]:
        return self.policy.selector.metrics(env_steps)
