"""`ppo_learner_4am`: PPO of one learning agent and its opponent model in a mixed team."""

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
from omg.learners.model_training import ModelTraining, TrainsModel
from omg.learners.ppo_learner import PPOLearner
from omg.types import EnvSpec


class LearningAgentPPOLearner(PPOLearner):
    """As `ppo_learner`, on the learning agent's own trajectories in the seat it had in each
    episode. What the opponent model told the policy while it played is computed once and stands
    in all epochs; only then the model learns from the same batch, as many times."""

    trains = MultiModuleMAC
    able = Capabilities(
        on_policy=True,
        outputs="pi_logits",
        macs=("multi_module_mac",),
        critics=("ac", "cv"),
    )
    learns_one_seat = True

    def __init__(
        self, *, config: Config, spec: EnvSpec, mac: Controller, device: torch.device
    ) -> None:
        super().__init__(config=config, spec=spec, mac=mac, device=device)
        assert isinstance(mac, MultiModuleMAC)
        self._model_training = self._new_model_training(config, mac)

    def _new_model_training(self, config: Config, team: MultiModuleMAC) -> TrainsModel:
        return ModelTraining(config, team)

    def _own_part(self, batch: EpisodeBatch) -> tuple[EpisodeBatch, Tensor | None]:
        return learning_agent_part(batch)

    def _feature(self, batch: EpisodeBatch, packing: Packing) -> Tensor | None:
        return self._model_training.features(batch, packing).unsqueeze(1)

    def _critic_file(self) -> str:
        return f"{self._config.train_alg or self._config.name}/critic"

    def _train_model(self, batch: EpisodeBatch, packing: Packing) -> Metrics:
        steps = [self._model_training.train(batch, packing) for _ in range(self._config.ppo_epochs)]
        return {name: torch.stack([step[name] for step in steps]).mean() for name in steps[0]}

    def optimiser_state(self) -> dict[str, Any]:
        model = self._model_training.optimiser_state()
        return {**super().optimiser_state(), **({} if model is None else {"am": model})}

    def load_optimiser_state(self, state: dict[str, Any]) -> None:
        super().load_optimiser_state(state)
        if self._model_training.optimiser_state() is not None:
            self._model_training.load_optimiser_state(state["am"])

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), **self._model_training.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._model_training.load_state_dict(state)
