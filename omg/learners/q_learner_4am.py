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
from omg.learners.base import Metrics
from omg.learners.capabilities import Capabilities
from omg.learners.model_training import ModelTraining
from omg.learners.q_learner import QLearner
from omg.types import EnvSpec


class LearningAgentQLearner(QLearner):
    """As `q_learner` without a mixer, on the learning agent's own trajectories: its observations,
    actions and rewards in the seat it had in each episode. The opponent model learns from the
    same batch by its own loss and optimiser; no gradient of the values reaches it."""

    trains = MultiModuleMAC
    able = Capabilities(outputs="q", macs=("multi_module_mac",))
    learns_one_seat = True

    def __init__(
        self, *, config: Config, spec: EnvSpec, mac: Controller, device: torch.device
    ) -> None:
        super().__init__(config=config, spec=spec, mac=mac, device=device)
        assert isinstance(mac, MultiModuleMAC)
        self._model = ModelTraining(config, mac)
        self._generator = self._model.generator

    def _own_part(self, batch: EpisodeBatch) -> tuple[EpisodeBatch, Tensor | None]:
        return learning_agent_part(batch)

    def _feature(self, batch: EpisodeBatch, packing: Packing) -> Tensor | None:
        return self._model.features(batch, packing).unsqueeze(1)

    def _train_model(self, batch: EpisodeBatch, packing: Packing) -> Metrics:
        return self._model.train(batch, packing)

    def optimiser_state(self) -> dict[str, Any]:
        model = self._model.optimiser_state()
        policy = super().optimiser_state()
        return policy if model is None else {"policy": policy, "am": model}

    def load_optimiser_state(self, state: dict[str, Any]) -> None:
        if self._model.optimiser_state() is None:
            super().load_optimiser_state(state)
            return
        super().load_optimiser_state(state["policy"])
        self._model.load_optimiser_state(state["am"])

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), **self._model.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._model.load_state_dict(state)
