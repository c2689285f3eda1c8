"""How an opponent model learns beside a policy: a part that any learner holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from omg.components.episodes import EpisodeBatch
from omg.components.trajectories import Trajectories
from omg.config.schema import Config
from omg.controllers.base import Controller
from omg.controllers.team import TeamMAC
from omg.learners.base import Learner, Metrics, Progress, check_supported, descend_model, team_mac
from omg.learners.pretrained import load_pretrained
from omg.modules.kernels.optimiser import FastAdam
from omg.modules.opponent_models import OpponentModel, model_kind
from omg.registry import Registry
from omg.types import EnvSpec, OmgError


@dataclass(frozen=True)
class Lesson:
    """An opponent model's share in one update."""

    played: Trajectories
    feature: Tensor | None = None  # [P, n, F], what the policy is fed at every slot
    # [K, n, F], what it is fed one step after every transition, where that is not `feature` there.
    ahead: Tensor | None = None


@dataclass(frozen=True)
class Alternatives:
    """H other features that the policy could have been fed at every transition's row."""

    fed: Tensor  # [P·n, F], what it is fed before and after
    learned: bool  # whether the policy will learn with `fed`: a pass with it can be kept
    rows: Tensor  # [K·n, H], of a table; -1: there is no such alternative, its value is any
    table: Tensor | None  # [P·n, F], where the features are rows of it
    each: Callable[[], Tensor]  # [K·n, H, F], the features

    def features(self) -> tuple[Tensor, Tensor]:
        """All of them as a table, and its row of each alternative."""
        if self.table is not None:
            return self.table, self.rows
        each = torch.arange(self.rows.numel(), device=self.rows.device).view_as(self.rows)
        return self.each().flatten(0, 1), each.masked_fill(self.rows < 0, -1)


class ValuesAlternatives(Protocol):
    """A learner's values, for models that choose by them."""

    def __call__(self, alternatives: Alternatives) -> Tensor:
        """V of every transition's row with each of the alternatives, [K·n, H]."""


class ModelTraining(ABC):
    """Prepares what a model adds to an update, then trains the model on the same episodes. No
    gradient of the policy reaches the model."""

    trains: ClassVar[type[Any]] = OpponentModel  # which models
    asks_values: ClassVar[bool] = False  # whether it chooses by the learner's values
    optimiser: torch.optim.Optimizer | None = None

    @classmethod
    def check(cls, config: Config, *, on_policy: bool) -> None:
        """Refuse a configuration before anything is built."""
        return

    def __init__(self, *, config: Config, mac: TeamMAC, on_policy: bool) -> None:
        self.config, self.policy = config, mac.policy
        self.model: OpponentModel | None = mac.trainee
        self.generator = torch.Generator().manual_seed(config.seed)

    @abstractmethod
    def prepare(
        self, played: Trajectories, progress: Progress, values: ValuesAlternatives
    ) -> Lesson:
        """Called before the policy learns from these episodes."""

    @abstractmethod
    def train(self, lesson: Lesson) -> Metrics:
        """Called after; on-policy, as many times as the policy goes over the episodes."""

    def receive(self, played: Trajectories) -> None:  # noqa: B027 - optional
        """As `Learner.receive`: every episode of the run once, when it has ended."""

    def finish(self, lesson: Lesson) -> Metrics:
        """Called once per update, after the last `train`."""
        return {}

    def start(self, meta: Mapping[str, Any]) -> Mapping[str, str]:
        """As `Learner.start`: a pre-trained model, where there is one."""
        return {} if self.model is None else load_pretrained(self.config, meta, self.model)

    def optimisers(self) -> dict[str, torch.optim.Optimizer]:
        """For opt.th; none where nothing is learned."""
        return {} if self.optimiser is None else {"am": self.optimiser}

    def saved(self) -> dict[str, Any]:
        """As `Learner.saved`; the weights are saved as networks."""
        return {**self.optimisers(), "generator": self.generator}


class NoModelTraining(ModelTraining):
    """There is no opponent model."""

    def prepare(
        self, played: Trajectories, progress: Progress, values: ValuesAlternatives
    ) -> Lesson:
        return Lesson(played)

    def train(self, lesson: Lesson) -> Metrics:
        return {}

    def saved(self) -> dict[str, Any]:
        return {}


class OwnLossTraining(ModelTraining):
    """The model learns by its own loss (`OpponentModel.episode_loss`) and its own Adam (`am_lr`),
    or not at all where it has no weights."""

    def __init__(self, *, config: Config, mac: TeamMAC, on_policy: bool) -> None:
        super().__init__(config=config, mac=mac, on_policy=on_policy)
        assert mac.trainee is not None
        self._model = mac.trainee
        self._mac = mac
        weights = [weight for weight in self._model.parameters() if weight.requires_grad]
        if weights and not _has_loss(type(self._model)):
            raise OmgError(
                f"learner={config.learner} does not train am_model={config.am_model}, which has "
                "weights and no loss of its own. Define episode_loss(rows, packing) in it, or set "
                "a training_kind of your own."
            )
        self.optimiser = FastAdam(weights, lr=config.am_lr) if weights else None

    @torch.no_grad()
    def prepare(
        self, played: Trajectories, progress: Progress, values: ValuesAlternatives
    ) -> Lesson:
        if not self._model.feature_dim:
            return Lesson(played)
        rows = self._mac.model_rows(played)
        feature = self._model.unroll(rows, played.rows, self.generator)
        return Lesson(played, feature.view(-1, played.n_seats, self._model.feature_dim))

    def train(self, lesson: Lesson) -> Metrics:
        if self.optimiser is None:
            return {}
        rows = self._mac.training_rows(lesson.played)
        terms = self._model.sampled_loss(rows, lesson.played.rows, self.generator)
        if "am_loss" not in terms:
            raise OmgError(
                f"The loss of {type(self._model).__name__} has no term am_loss, which is what is "
                "minimised. Return it among the named terms."
            )
        return descend_model(terms, self.optimiser)


def _has_loss(kind: type[OpponentModel]) -> bool:
    own, none = (kind.episode_loss, kind.sampled_loss), OpponentModel
    return own != (none.episode_loss, none.sampled_loss)


# By `OpponentModel.training_kind`.
MODEL_TRAININGS: Registry[type[ModelTraining]] = Registry(
    "training_kind",
    {
        "none": "omg.learners.model_training:NoModelTraining",
        "own_loss": "omg.learners.model_training:OwnLossTraining",
        "types": "omg.learners.types_training:TypesTraining",
        "subgoals": "omg.learners.subgoal_training:SubgoalTraining",
        "moa": "omg.learners.moa_training:MoaTraining",
        "moa_subgoals": "omg.learners.moa_training:MoaSubgoalTraining",
    },
    base=ModelTraining,
)


class PolicyLearner(Learner):
    """A learner of a policy that holds the training of its opponent model, if it has one."""

    # The one kind of model training that this learner is named after; empty: any.
    kind: ClassVar[str] = ""

    @classmethod
    def check(cls, config: Config) -> None:
        super().check(config)
        kind = MODEL_TRAININGS[cls._training_kind(config)]
        kind.check(config, on_policy=cls.able.on_policy)

    @classmethod
    def _training_kind(cls, config: Config) -> str:
        model = model_kind(config)
        asked = model.training_kind
        trains = MODEL_TRAININGS[asked]
        named = not cls.kind or issubclass(trains, MODEL_TRAININGS[cls.kind])
        if not (named and issubclass(model, trains.trains)):
            raise OmgError(
                f"learner={config.learner} needs am_model=omg_am, not {config.am_model}. "
                "Use --config=iql_omg."
            )
        return asked

    def __init__(
        self, *, config: Config, spec: EnvSpec, mac: Controller, device: torch.device
    ) -> None:
        check_supported(config, self.able, spec)
        self._config = config
        self._mac = team_mac(config, mac, self.able)
        self._policy = self._mac.policy
        kind = "none" if self._mac.model is None else self._training_kind(config)
        self._model = MODEL_TRAININGS[kind](
            config=config, mac=self._mac, on_policy=self.able.on_policy
        )

    def receive(self, episodes: EpisodeBatch) -> None:
        if type(self._model).receive is not ModelTraining.receive:
            self._model.receive(self._mac.trajectories(episodes))

    def start(self, meta: Mapping[str, Any]) -> Mapping[str, str]:
        return self._model.start(meta)
