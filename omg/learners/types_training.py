"""How `types_am` learns: what each type does, from episodes whose players are known by name; and
with which types the policy learns."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from omg.components.trajectories import Trajectories
from omg.config.schema import Config
from omg.controllers.team import TeamMAC
from omg.learners.base import Metrics, Progress
from omg.learners.model_training import Lesson, OwnLossTraining, ValuesAlternatives
from omg.modules.opponent_models.types_am import TypesModel
from omg.types import OmgError


@dataclass(frozen=True)
class TypesLesson(Lesson):
    """With how often the most probable type was the true one."""

    accuracy: Tensor | None = None


class TypesTraining(OwnLossTraining):
    """The policy learns with the types that it would have inferred, or with the true ones
    (`types_teacher`): a best response to each type, which acts on the most probable one."""

    trains = TypesModel

    @classmethod
    def check(cls, config: Config, *, on_policy: bool) -> None:
        if config.types_teacher and on_policy:
            raise OmgError(
                f"types_teacher=true lets a policy learn with other types than it acted on, and "
                f"learner={config.learner} learns from what it did itself. Set types_teacher=false."
            )

    def __init__(self, *, config: Config, mac: TeamMAC, on_policy: bool) -> None:
        super().__init__(config=config, mac=mac, on_policy=on_policy)
        assert isinstance(mac.trainee, TypesModel)
        self._types = mac.trainee

    @torch.no_grad()
    def prepare(
        self, played: Trajectories, progress: Progress, values: ValuesAlternatives
    ) -> TypesLesson:
        rows = self._mac.model_rows(played)
        belief = self._types.beliefs(rows, played.rows)
        fed = self._types.taught if self.config.types_teacher else self._types.features
        feature = fed(belief, rows).view(-1, played.n_seats, self._types.feature_dim)
        accuracy = self._types.type_accuracy(belief, rows, played.rows)
        return TypesLesson(played, feature, accuracy=accuracy)

    def train(self, lesson: Lesson) -> Metrics:
        told = super().train(lesson)
        if isinstance(lesson, TypesLesson) and lesson.accuracy is not None:
            return {**told, "am_type_accuracy": lesson.accuracy}
        return told
