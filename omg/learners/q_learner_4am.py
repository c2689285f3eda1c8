"""`q_learner_4am`: Q-learning of one learning agent and its opponent model in a mixed team."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from omg.components.episode_batch import EpisodeBatch
from omg.components.learning_agent import learning_agent_part
from omg.config.schema import Config
from omg.controllers.base import Controller
from omg.controllers.multi_module import MultiModuleMAC
from omg.functional.packing import Packing
from omg.learners.base import Metrics, Progress, load_optimiser
from omg.learners.q_learner import QLearner
from omg.modules.opponent_models.base import MemorylessModel
from omg.types import EnvSpec, OmgError


class LearningAgentQLearner(QLearner):
    """As `q_learner` without a mixer, on the learning agent's own trajectories: its observations,
    actions and rewards in the seat it had in each episode. The opponent model learns from the
    same batch by its own loss and optimiser; no gradient of the values reaches it."""

    trains = MultiModuleMAC
    mac_name = "multi_module_mac"
    learns_one_seat = True

    def __init__(
        self, *, config: Config, spec: EnvSpec, mac: Controller, device: torch.device
    ) -> None:
        super().__init__(config=config, spec=spec, mac=mac, device=device)
        assert isinstance(mac, MultiModuleMAC)
        self._team = mac
        if not isinstance(mac.model, MemorylessModel):
            raise OmgError(
                f"learner=q_learner_4am does not train am_model={config.am_model}, which has a "
                "memory. Set learner=omg_learner for omg_am, or a learner of your own."
            )
        self._model = mac.model
        self._generator = torch.Generator().manual_seed(config.seed)
        weights = list(mac.model.parameters())
        self._model_optimiser = torch.optim.Adam(weights, lr=config.am_lr) if weights else None

    def _own_part(self, batch: EpisodeBatch) -> tuple[EpisodeBatch, Tensor | None]:
        return learning_agent_part(batch)

    def _feature(self, batch: EpisodeBatch, packing: Packing) -> Tensor | None:
        rows = self._team.rows.stored(batch, packing)
        return self._team.model.unroll(rows, packing, self._generator).unsqueeze(1)

    def train(self, batch: EpisodeBatch, progress: Progress) -> Metrics:
        metrics = super().train(batch, progress)
        return {**metrics, **self._train_model(batch)}

    def _train_model(self, batch: EpisodeBatch) -> Metrics:
        if self._model_optimiser is None:
            return {}
        packing = Packing.of(batch.filled, batch.raw("terminated"))
        rows = self._team.rows.stored(batch, packing).take(packing.now)
        terms = self._model.loss(rows)
        self._model_optimiser.zero_grad()
        terms["am_loss"].backward()  # type: ignore[no-untyped-call]
        self._model_optimiser.step()
        return {name: value.detach() for name, value in terms.items()}

    def optimiser_state(self) -> dict[str, Any]:
        if self._model_optimiser is None:
            return super().optimiser_state()
        return {"policy": super().optimiser_state(), "am": self._model_optimiser.state_dict()}

    def load_optimiser_state(self, state: dict[str, Any]) -> None:
        if self._model_optimiser is None:
            super().load_optimiser_state(state)
            return
        super().load_optimiser_state(state["policy"])
        load_optimiser(self._model_optimiser, state["am"])

    def state_dict(self) -> dict[str, Any]:
        own = {"am": self._model_optimiser.state_dict()} if self._model_optimiser else {}
        return {**super().state_dict(), **own, "generator": self._generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if self._model_optimiser is not None:
            self._model_optimiser.load_state_dict(state["am"])
        if "generator" in state:  # older states lack it; no shipped model draws from it
            self._generator.set_state(state["generator"])
