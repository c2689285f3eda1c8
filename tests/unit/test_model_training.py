"""The opponent model beside a policy: its features, its own loss, and what cannot be trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from omg.components.episode_batch import EpisodeBatch
from omg.controllers.multi_module import MultiModuleMAC
from omg.functional.packing import Packing
from omg.learners.base import Progress
from omg.learners.model_training import ModelTraining
from omg.learners.q_learner_4am import LearningAgentQLearner
from omg.modules.opponent_models.base import Inferred, ModelRows, OpponentModel
from omg.modules.opponent_models.base_am import NaiveModel
from omg.runners.rollout import Rollout
from omg.types import OmgError

from .test_mixed_teams import CPU, SMALL, TASK, collect, make_rollout


@pytest.fixture(scope="module")
def pool(scripted_pool: Callable[..., Path]) -> Path:
    return scripted_pool("nearest_food")


def words(pool: Path, model: str, *more: str) -> list[str]:
    learn = ["--config=iql_am", f"--am_model={model}", f"--opponent_pool={pool}"]
    return [*SMALL, *learn, "--am_hidden_dim=16", *more, *TASK]


class Echo(OpponentModel):
    """A recurrent model of a user's: how often the next seat chose each action so far, learned."""

    carry_dim = 4

    def __init__(self, *, spec: object, own_dim: int, config: object) -> None:
        nn.Module.__init__(self)
        self.feature_dim = 4
        self.rnn = nn.RNNCell(2, 4)
        self.head = nn.Linear(4, 1)

    def _seen(self, rows: ModelRows) -> Tensor:
        return rows.others_last.to(torch.float32)

    def infer(self, rows: ModelRows, carry: Tensor, generator: torch.Generator) -> Inferred:
        carry = self.rnn(self._seen(rows), carry)
        return Inferred(carry, carry)

    def _hidden(self, rows: ModelRows, packing: Packing) -> Tensor:
        found, carry, start = [], torch.zeros(int(packing.sizes[0]), 4), 0
        for size in packing.sizes.tolist():
            carry = self.rnn(self._seen(rows)[start : start + size], carry[:size])
            found.append(carry)
            start += size
        return torch.cat(found)

    def unroll(self, rows: ModelRows, packing: Packing, generator: torch.Generator) -> Tensor:
        return self._hidden(rows, packing)

    def files(self) -> Mapping[str, nn.Module]:
        return {"echo": self}


class TrainedEcho(Echo):
    def episode_loss(self, rows: ModelRows, packing: Packing) -> Mapping[str, Tensor]:
        assert rows.others_actions is not None
        told = self.head(self._hidden(rows, packing)[packing.now]).squeeze(1)
        wanted = rows.others_actions[packing.now, 0].to(torch.float32)
        return {"am_loss": (told - wanted).square().mean()}


class NamelessLoss(Echo):
    def episode_loss(self, rows: ModelRows, packing: Packing) -> Mapping[str, Tensor]:
        return {"loss": self._hidden(rows, packing).mean()}


def own(kind: type[OpponentModel]) -> str:
    return f"{__name__}:{kind.__name__}"


def team_of(rollout: Rollout) -> MultiModuleMAC:
    assert isinstance(rollout.mac, MultiModuleMAC)
    return rollout.mac


def played(rollout: Rollout) -> tuple[EpisodeBatch, Packing]:
    batch = max((f.episodes for f in collect(rollout, 40)), key=len)
    return batch, Packing.of(batch.filled, batch.raw("terminated"))


def training_of(rollout: Rollout) -> ModelTraining:
    team = team_of(rollout)
    return ModelTraining(team._config, team)


def learner_of(rollout: Rollout) -> LearningAgentQLearner:
    team = team_of(rollout)
    return LearningAgentQLearner(config=team._config, spec=rollout.env.spec, mac=team, device=CPU)


def test_the_loss_of_a_memoryless_model_is_that_of_the_transitions_only(pool: Path) -> None:
    rollout = make_rollout(words(pool, "base_am"))
    model = team_of(rollout).model
    assert isinstance(model, NaiveModel)
    batch, packing = played(rollout)
    rows = team_of(rollout).rows.training(batch, packing)
    found = model.episode_loss(rows, packing)["am_loss"]
    last = torch.ones(len(packing.time), dtype=torch.bool)
    last[packing.now] = False
    assert int(last.sum()) >= len(batch)
    rows.own[last] = 1e6  # where nobody acts any more
    assert torch.equal(model.episode_loss(rows, packing)["am_loss"], found)
    assert found == model.loss(rows.take(packing.now))["am_loss"]


def test_a_model_without_weights_has_features_and_nothing_to_train(pool: Path) -> None:
    rollout = make_rollout(words(pool, "control_am"))
    training = training_of(rollout)
    batch, packing = played(rollout)
    assert training.features(batch, packing).shape == (len(packing.time), 2 * 3)
    assert training.train(batch, packing) == {}
    assert training.optimiser_state() is None
    assert set(training.state_dict()) == {"generator"}


def test_a_recurrent_model_of_ones_own_is_trained_through_time(pool: Path) -> None:
    rollout = make_rollout(words(pool, own(TrainedEcho)))
    learner, model = learner_of(rollout), team_of(rollout).model
    batch, _ = played(rollout)
    losses = [float(learner.train(batch, Progress(0, 0, 0))["am_loss"]) for _ in range(60)]
    assert losses[-1] < 0.8 * losses[0]
    assert isinstance(model, TrainedEcho)
    assert model.rnn.weight_hh.grad is not None
    assert float(model.rnn.weight_hh.grad.abs().sum()) > 0
    assert set(learner.optimiser_state()) == {"policy", "am"}


@pytest.mark.parametrize(
    ("model", "answer"),
    [
        ("omg_am", "q_learner_4am does not train am_model=omg_am.* learner=omg_learner"),
        (own(Echo), r"does not train am_model=.*Echo.* Define episode_loss\(rows, packing\)"),
    ],
)
def test_weights_that_nothing_would_train_are_refused(pool: Path, model: str, answer: str) -> None:
    rollout = make_rollout(words(pool, model))
    with pytest.raises(OmgError, match=answer):
        learner_of(rollout)


def test_a_loss_without_the_term_that_is_minimised_is_refused(pool: Path) -> None:
    rollout = make_rollout(words(pool, own(NamelessLoss)))
    with pytest.raises(OmgError, match="NamelessLoss has no term am_loss"):
        training_of(rollout).train(*played(rollout))


@pytest.mark.parametrize("model", ["base_am", "liam_am"])
def test_a_training_continues_from_its_saved_state(pool: Path, model: str) -> None:
    first, second = (make_rollout(words(pool, model)) for _ in range(2))
    batch, packing = played(first)
    trained, other = training_of(first), training_of(second)
    trained.train(batch, packing)
    torch.rand(3, generator=trained.generator)
    team_of(second).model.load_state_dict(team_of(first).model.state_dict())
    other.load_state_dict(deepcopy(trained.state_dict()))  # moments would be shared
    for training in (trained, other):
        training.train(batch, packing)
    weights = (team_of(rollout).model.state_dict() for rollout in (first, second))
    mine, theirs = weights
    assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    assert torch.equal(*(torch.rand(2, generator=t.generator) for t in (trained, other)))


def test_moments_are_loaded_and_the_learning_rate_stays_the_configured_one(pool: Path) -> None:
    first = make_rollout(words(pool, "liam_am", "--am_lr=0.1"))
    trained, other = training_of(first), training_of(make_rollout(words(pool, "liam_am")))
    trained.train(*played(first))
    state = trained.optimiser_state()
    assert state is not None
    other.load_optimiser_state(state)
    found = other.optimiser_state()
    assert found is not None
    assert found["param_groups"][0]["lr"] == 0.001
    assert torch.equal(found["state"][0]["exp_avg"], state["state"][0]["exp_avg"])


def test_features_carry_no_gradient(pool: Path) -> None:
    for model in ("liam_am", own(TrainedEcho)):
        rollout = make_rollout(words(pool, model))
        assert not training_of(rollout).features(*played(rollout)).requires_grad
