"""An opponent model beside a policy: its features for the learner, its own loss and optimiser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from omg.components.episode_batch import EpisodeBatch
from omg.config.schema import Config
from omg.controllers.multi_module import MultiModuleMAC
from omg.functional.packing import Packing
from omg.learners.base import Metrics, load_optimiser
from omg.modules.kernels.optimiser import FastAdam
from omg.modules.opponent_models.base import OpponentModel
from omg.modules.opponent_models.omg_am import SubgoalModel
from omg.types import OmgError


class TrainsModel(Protocol):
    """What a policy learner asks of whoever trains its opponent model."""

    def features(self, batch: EpisodeBatch, packing: Packing) -> Tensor: ...

    def train(self, batch: EpisodeBatch, packing: Packing) -> Metrics: ...

    def optimiser_state(self) -> dict[str, Any] | None: ...

    def load_optimiser_state(self, state: dict[str, Any]) -> None: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class ModelTraining:
    """What a learner needs of its agent's opponent model, whatever the model. The batches are
    those of the whole team, and the packing is theirs. No gradient of the policy reaches the
    model: it learns by its own loss (`OpponentModel.episode_loss`) and its own Adam (`am_lr`)."""

    def __init__(self, config: Config, team: MultiModuleMAC) -> None:
        _check_trainable(config, team.model)
        self._team, self._model = team, team.model
        self.generator = torch.Generator().manual_seed(config.seed)
        weights = [weight for weight in team.model.parameters() if weight.requires_grad]
        self._optimiser = FastAdam(weights, lr=config.am_lr) if weights else None

    @torch.no_grad()
    def features(self, batch: EpisodeBatch, packing: Packing) -> Tensor:
        """What the model adds to the policy's inputs at every packed slot, [P, F]."""
        rows = self._team.rows.stored(batch, packing)
        return self._model.unroll(rows, packing, self.generator)

    def train(self, batch: EpisodeBatch, packing: Packing) -> Metrics:
        """One step of the model's own loss; its named terms, none where nothing is learned."""
        if self._optimiser is None:
            return {}
        terms = self._model.episode_loss(self._team.rows.training(batch, packing), packing)
        if "am_loss" not in terms:
            raise OmgError(
                f"The loss of {type(self._model).__name__} has no term am_loss, which is what is "
                "minimised. Return it among the named terms."
            )
        self._optimiser.zero_grad()
        terms["am_loss"].backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()
        return {name: value.detach() for name, value in terms.items()}

    def optimiser_state(self) -> dict[str, Any] | None:
        """For opt.th; None where nothing is learned."""
        return None if self._optimiser is None else self._optimiser.state_dict()

    def load_optimiser_state(self, state: dict[str, Any]) -> None:
        """Moments from an opt.th; the learning rate stays that of the configuration."""
        if self._optimiser is not None:
            load_optimiser(self._optimiser, state)

    def state_dict(self) -> dict[str, Any]:
        """What a continuation needs beside the weights."""
        own = {} if self._optimiser is None else {"am": self._optimiser.state_dict()}
        return {**own, "generator": self.generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self._optimiser is not None:
            self._optimiser.load_state_dict(state["am"])
        if "generator" in state:  # older states lack it; no shipped model draws from it
            self.generator.set_state(state["generator"])


def _check_trainable(config: Config, model: OpponentModel) -> None:
    """Refuse weights that nothing here would train."""
    if type(model).episode_loss is not OpponentModel.episode_loss:
        return
    if not any(weight.requires_grad for weight in model.parameters()):
        return
    remedy = (
        "Set learner=omg_learner (omg_ppo_learner with PPO)."
        if isinstance(model, SubgoalModel)
        else "Define episode_loss(rows, packing) in it, or set a learner of your own."
    )
    raise OmgError(
        f"learner={config.learner} does not train am_model={config.am_model}, which has weights "
        f"and no loss of its own. {remedy}"
    )
