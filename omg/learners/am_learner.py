"""`am_learner`: trains only an opponent model, from the games of players that do not learn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import nn

from omg.components.episodes import EpisodeBatch
from omg.components.trajectories import Trajectories
from omg.config.schema import Config
from omg.controllers import CONTROLLERS, Controller
from omg.learners.base import Learner, Metrics, Optimisers, Progress, team_mac
from omg.learners.model_training import MODEL_TRAININGS, Lesson, ModelTraining
from omg.learners.prior_training import PriorTraining
from omg.modules.opponent_models import OpponentModel, model_kind
from omg.modules.opponent_models.base import NoModel
from omg.modules.opponent_models.control_am import DiagnosticModel
from omg.modules.opponent_models.omg_am import SubgoalModel
from omg.types import EnvSpec, OmgError


class Pretraining(Protocol):
    """What is trained of a model before a policy uses it."""

    def receive(self, played: Trajectories) -> None:
        """Every episode once."""

    def step(self, played: Trajectories) -> Metrics:
        """One update on a batch of episodes."""

    def networks(self) -> Mapping[str, nn.Module]:
        """By the name of the file."""

    def optimisers(self) -> Optimisers:
        """For opt.th."""

    def saved(self) -> dict[str, Any]:
        """As `Learner.saved`."""

    def examine(self, played: Trajectories | None) -> dict[str, float]:
        """As `Learner.examine`."""

    def verdict(self, found: Mapping[str, float]) -> None:
        """As `Learner.verdict`."""


class WholeModel:
    """All of a model, by the training that it has beside a policy, too."""

    def __init__(self, training: ModelTraining, model: OpponentModel) -> None:
        self._training, self._model = training, model

    def receive(self, played: Trajectories) -> None:
        self._training.receive(played)

    def step(self, played: Trajectories) -> Metrics:
        lesson = Lesson(played)
        return {**self._training.train(lesson), **self._training.finish(lesson)}

    def networks(self) -> Mapping[str, nn.Module]:
        return self._model.files()

    def optimisers(self) -> Optimisers:
        return self._training.optimisers()

    def saved(self) -> dict[str, Any]:
        return {"networks": self.networks(), **self._training.saved()}

    def examine(self, played: Trajectories | None) -> dict[str, float]:
        return {}

    def verdict(self, found: Mapping[str, float]) -> None:
        return


class ModelLearner(Learner):
    """Trains the configured opponent model and no policy: of `omg_am` the prior, of any other all
    of it. It learns what each learning seat would have learned: with mac=multi_module_mac from
    games of the frozen players alone, with mac=basic_mac from those of the team that
    checkpoint_path names, seen from every seat."""

    gathers = True

    @classmethod
    def check(cls, config: Config) -> None:
        """Mixer, critic and the like are for the learner that will use the model."""
        kind = model_kind(config)
        if issubclass(kind, (NoModel, DiagnosticModel)):
            raise OmgError(
                f"learner=am_learner trains an opponent model, and am_model={config.am_model} has "
                "nothing to learn. Choose one that has, e.g. am_model=liam_am, moa or omg_am, or "
                "use --config=iql_omg."
            )
        given = config.checkpoint_path or config.resume
        if not (CONTROLLERS[config.mac].models or given):
            raise OmgError(
                f"learner=am_learner with mac={config.mac} learns from the games of a trained "
                "team. Give checkpoint_path=<its run>, or set mac=multi_module_mac with a pool."
            )

    def __init__(
        self, *, config: Config, spec: EnvSpec, mac: Controller, device: torch.device
    ) -> None:
        self._mac = team_mac(config, mac)
        model = self._mac.trainee
        assert model is not None, "the controller gathers for a model"
        self._part: Pretraining
        if isinstance(model, SubgoalModel):
            self._part = PriorTraining(config=config, spec=spec, mac=self._mac, model=model)
        else:
            training = MODEL_TRAININGS[model.training_kind](
                config=config, mac=self._mac, on_policy=False
            )
            self._part = WholeModel(training, model)

    @property
    def part(self) -> Pretraining:
        """What is trained, and how."""
        return self._part

    def receive(self, episodes: EpisodeBatch) -> None:
        self._part.receive(self._mac.trajectories(episodes))

    def train(self, batch: EpisodeBatch, progress: Progress) -> Metrics:
        return self._part.step(self._mac.trajectories(batch))

    def examine(self, sample: Callable[[], EpisodeBatch | None]) -> dict[str, float]:
        batch = sample()
        return self._part.examine(None if batch is None else self._mac.trajectories(batch))

    def verdict(self, found: Mapping[str, float]) -> None:
        self._part.verdict(found)

    def networks(self) -> Mapping[str, nn.Module]:
        return {self._mac.file_name(k): part for k, part in self._part.networks().items()}

    def team(self) -> tuple[Mapping[str, nn.Module], Mapping[str, Any]] | None:
        if type(self._mac).models:
            return None
        return self._mac.networks(), self._mac.describe_team()

    def optimisers(self) -> Optimisers:
        return self._part.optimisers()

    def saved(self) -> dict[str, Any]:
        team = {} if self.team() is None else {"team": self._mac.networks()}
        return {**self._part.saved(), **team}
