"""What an opponent model is given: the learning agent's view, while acting and from storage."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from omg.components.episode_batch import EpisodeBatch
from omg.components.learning_agent import SEAT, SeatOrder
from omg.controllers.base import StepView
from omg.controllers.inputs import InputSettings
from omg.functional.packing import Packing
from omg.modules.opponent_models import ModelRows

FORESIGHT = "foresight"  # the field of an episode that holds it


class ModelRowBuilder:
    """Builds `ModelRows` with the policy's own input settings."""

    def __init__(
        self,
        settings: InputSettings,
        order: SeatOrder,
        *,
        state_scale: float,
        obs_scale: float = 1.0,
    ) -> None:
        self._order = order
        self._settings, self.state_scale, self._obs_scale = settings, state_scale, obs_scale

    def _build(
        self,
        obs: Tensor,
        state: Tensor,
        last_RN: Tensor,
        seats: Tensor,
        actions_RN: Tensor | None = None,
        foresight: Tensor | None = None,
    ) -> ModelRows:
        own = state if self._settings.obs_is_state else obs
        return ModelRows(
            own=own * self._settings.scale,
            last_action=last_RN.gather(1, seats.unsqueeze(1)).squeeze(1),
            others_last=self._order.relative(last_RN, seats),
            seats=seats,
            state=state * self.state_scale,
            others_actions=None if actions_RN is None else self._order.relative(actions_RN, seats),
            foresight=None if foresight is None else foresight * self.state_scale,
        )

    def acting(self, view: StepView, seats: Tensor, foresight: Tensor | None = None) -> ModelRows:
        """One row per copy."""
        rows = torch.arange(len(seats))
        return self._build(
            view.obs[rows, seats], view.state, view.last_actions, seats, foresight=foresight
        )

    def stored(self, batch: EpisodeBatch, packing: Packing) -> ModelRows:
        """One row per packed slot of whole-team episodes."""
        seats = batch[SEAT][packing.episode]
        rows = torch.arange(len(seats), device=seats.device)
        obs = packing.pack(batch.raw("obs"))[rows, seats].to(torch.float32)
        return self._build(
            obs,
            packing.pack(batch.raw("state")).to(torch.float32),
            packing.pack_previous(batch.raw("actions").to(torch.int16), -1).long(),
            seats,
            packing.pack(batch["actions"]),
            self._foresight(batch, packing),
        )

    def training(self, batch: EpisodeBatch, packing: Packing) -> ModelRows:
        """As `stored`, with what the others saw at every slot, which nobody knows while acting."""
        rows = self.stored(batch, packing)
        seen = self._order.relative(packing.pack(batch.raw("obs")), rows.seats)
        return replace(rows, others_obs=seen.to(torch.float32) * self._obs_scale)

    @staticmethod
    def _foresight(batch: EpisodeBatch, packing: Packing) -> Tensor | None:
        """What was foreseen; at an episode's last slot, where nobody acts, what was before."""
        if FORESIGHT not in batch.scheme.fields:
            return None
        foreseen = packing.pack(batch[FORESIGHT])
        last = (packing.time == packing.length - 1).view(-1, 1, 1)
        return torch.where(last, packing.previous(foreseen), foreseen)
