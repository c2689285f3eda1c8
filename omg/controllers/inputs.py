"""What a policy network is fed: observation or state, last action, seat."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from omg.components.episode_batch import EpisodeBatch
from omg.components.transforms import OneHot
from omg.controllers.base import StepView
from omg.functional.packing import Packing
from omg.modules.opponent_models.present import PresentOthers
from omg.types import EnvSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSettings:
    """The settings a policy was trained with; they travel with its weights."""

    obs_is_state: bool
    obs_last_action: bool
    obs_agent_id: bool
    scale: float = 1.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class InputBuilder:
    """Builds [observation | last action one-hot | seat one-hot], PyMARL's order, then where
    `present` is given the others' present features, and behind it what an opponent model
    contributes."""

    def __init__(
        self,
        spec: EnvSpec,
        settings: InputSettings,
        *,
        device: torch.device,
        feature_dim: int = 0,
        present: PresentOthers | None = None,
    ) -> None:
        self.settings = settings
        self._present = present
        self.own_dim = spec.state_dim if settings.obs_is_state else spec.obs_dim
        self.n_agents = spec.n_agents
        self._one_hot = OneHot(spec.n_actions)
        self._seats = torch.eye(spec.n_agents, device=device)
        self.dim = self.own_dim + feature_dim + (present.dim if present else 0)
        self.dim += spec.n_actions if settings.obs_last_action else 0
        self.dim += spec.n_agents if settings.obs_agent_id else 0

    def _join(
        self, obs: Tensor, state: Tensor, last_actions: Tensor, seats: Tensor | None
    ) -> Tensor:
        """obs [..., n, O], state [..., S], last actions and seats [..., n] -> [..., n, I]; without
        `seats` the n rows are all seats in order."""
        lead = obs.shape[:-1]
        parts = [
            state.unsqueeze(-2).expand(*lead, state.shape[-1])
            if self.settings.obs_is_state
            else obs
        ]
        if self.settings.scale != 1.0:
            parts[0] = parts[0] * self.settings.scale
        if self.settings.obs_last_action:
            parts.append(self._one_hot(last_actions))
        if self.settings.obs_agent_id:
            one_hot = self._seats if seats is None else self._seats[seats]
            parts.append(one_hot.expand(*lead, self.n_agents))
        if self._present is not None:
            all_seats = torch.arange(self.n_agents, device=state.device)
            parts.append(self._present(state, all_seats.expand(lead) if seats is None else seats))
        return torch.cat(parts, -1)

    def step(self, view: StepView, seats: Tensor | None = None) -> Tensor:
        """Inputs of one step, [B, n, I]; `seats` [B, n] says which seats the view holds."""
        return self._join(view.obs, view.state, view.last_actions, seats)

    def packed(self, batch: EpisodeBatch, packing: Packing, seats: Tensor | None = None) -> Tensor:
        """Inputs of whole episodes without padding, [P, n, I]; `seats` [B, n] as in `step`."""
        last = packing.pack_previous(batch.raw("actions").to(torch.int16), -1)
        obs = packing.pack(batch.raw("obs")).to(torch.float32)
        needed = self.settings.obs_is_state or self._present is not None
        state = packing.pack(batch.raw("state")).to(torch.float32) if needed else obs
        chosen = None if seats is None else seats[packing.episode]
        return self._join(obs, state, last, chosen)
