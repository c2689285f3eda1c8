"""The opponent model beside a policy: its features, its own loss, and what cannot be trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from omg.components.trajectories import Trajectories
from omg.controllers.team import MultiModuleMAC
from omg.functional import Packing
from omg.learners import LEARNERS
from omg.learners.base import Metrics, Progress, load_optimisers, restore, state_of
from omg.learners.model_training import Alternatives, Lesson, OwnLossTraining
from omg.learners.q_learner import OMGLearner, QLearner
from omg.learners.subgoal_training import SubgoalTraining
from omg.modules.opponent_models.base import (
    Inferred,
    MemorylessModel,
    ModelRows,
    OpponentModel,
)
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
        super().__init__()
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


class Guess(MemorylessModel):
    """A model of a user's without memory: what the next seat does, from what is seen."""

    feature_dim = 1

    def __init__(self, *, own_dim: int) -> None:
        super().__init__()
        self.head = nn.Linear(own_dim, 1)

    def feature(self, rows: ModelRows) -> Tensor:
        told: Tensor = self.head(rows.own)
        return told

    def loss(self, rows: ModelRows) -> Mapping[str, Tensor]:
        assert rows.others_actions is not None
        wanted = rows.others_actions[:, :1].to(torch.float32)
        return {"am_loss": (self.feature(rows) - wanted).square().mean()}

    def files(self) -> Mapping[str, nn.Module]:
        return {"guess": self}


def own(kind: type[OpponentModel]) -> str:
    return f"{__name__}:{kind.__name__}"


def team_of(rollout: Rollout) -> MultiModuleMAC:
    assert isinstance(rollout.mac, MultiModuleMAC)
    return rollout.mac


def played(rollout: Rollout) -> Trajectories:
    batch = max((f.episodes for f in collect(rollout, 40)), key=len)
    return rollout.mac.trajectories(batch)


def training_of(rollout: Rollout) -> OwnLossTraining:
    team = team_of(rollout)
    return OwnLossTraining(config=team._config, mac=team, on_policy=False)


def features(training: OwnLossTraining, episodes: Trajectories) -> Tensor:
    """What the policy is fed at every slot; no value of the learner's is asked for."""

    def values(alternatives: Alternatives) -> Tensor:
        raise AssertionError("a model with its own loss chooses nothing")

    feature = training.prepare(episodes, Progress(0, 0, 0), values).feature
    assert feature is not None
    return feature


def trained(training: OwnLossTraining, episodes: Trajectories) -> Metrics:
    return training.train(Lesson(episodes))


def learner_of(rollout: Rollout) -> QLearner:
    team = team_of(rollout)
    learner = LEARNERS[team._config.learner](
        config=team._config, spec=rollout.env.spec, mac=team, device=CPU
    )
    assert isinstance(learner, QLearner)
    return learner


@pytest.mark.parametrize("kind", ["base_am", own(Guess)])
def test_the_loss_of_a_memoryless_model_is_that_of_the_transitions_only(
    pool: Path, kind: str
) -> None:
    rollout = make_rollout(words(pool, kind))
    model = team_of(rollout).model
    assert model is not None
    episodes = played(rollout)
    packing = episodes.packing
    rows = team_of(rollout).policy.rows.training(episodes)
    found = model.episode_loss(rows, packing)["am_loss"]
    last = torch.ones(len(packing.time), dtype=torch.bool)
    last[packing.now] = False
    assert int(last.sum()) >= len(episodes.team)
    rows.own[last] = 1e6  # where nobody acts any more
    assert torch.equal(model.episode_loss(rows, packing)["am_loss"], found)
    acted = rows.take(packing.now)
    if isinstance(model, Guess):
        assert found == model.loss(acted)["am_loss"]
        return
    assert isinstance(model, NaiveModel)
    assert acted.others_actions is not None
    logits = model.logits(acted).flatten(0, 1)
    expected = nn.functional.cross_entropy(logits, acted.others_actions.flatten())
    torch.testing.assert_close(found, expected)


def test_a_model_without_weights_has_features_and_nothing_to_train(pool: Path) -> None:
    rollout = make_rollout(words(pool, "control_am"))
    training = training_of(rollout)
    episodes = played(rollout)
    assert features(training, episodes).shape == (len(episodes.packing.time), 1, 2 * 3)
    assert trained(training, episodes) == {}
    assert training.optimisers() == {}
    assert set(state_of(training.saved())) == {"generator"}


@pytest.mark.long
def test_a_recurrent_model_of_ones_own_is_trained_through_time(pool: Path) -> None:
    rollout = make_rollout(words(pool, own(TrainedEcho)))
    learner, model = learner_of(rollout), team_of(rollout).model
    batch = played(rollout).team
    losses = [float(learner.train(batch, Progress(0, 0, 0))["am_loss"]) for _ in range(60)]
    assert losses[-1] < 0.8 * losses[0]
    assert isinstance(model, TrainedEcho)
    assert model.rnn.weight_hh.grad is not None
    assert float(model.rnn.weight_hh.grad.abs().sum()) > 0
    assert set(learner.optimiser_state()) == {"policy", "am"}


@pytest.mark.parametrize(
    ("model", "answer"),
    [
        (own(Echo), r"does not train am_model=.*Echo.* Define episode_loss\(rows, packing\)"),
    ],
)
def test_weights_that_nothing_would_train_are_refused(pool: Path, model: str, answer: str) -> None:
    rollout = make_rollout(words(pool, model))
    with pytest.raises(OmgError, match=answer):
        learner_of(rollout)


def test_who_trains_a_model_follows_from_the_model_whatever_the_learner_is_called(
    pool: Path,
) -> None:
    """q_learner_4am with subgoals is omg_learner."""
    outcomes = []
    for name, kind in (("q_learner_4am", QLearner), ("omg_learner", OMGLearner)):
        rollout = make_rollout(words(pool, "omg_am", f"--learner={name}"))
        learner = learner_of(rollout)
        assert type(learner) is kind
        assert isinstance(learner._model, SubgoalTraining)
        found = learner.train(played(rollout).team, Progress(0, 0, 0))
        assert {"loss", "am_loss", "subgoal_k1"} <= set(found)
        outcomes.append((found, [p for n in learner.networks().values() for p in n.parameters()]))
    (one, mine), (other, theirs) = outcomes
    assert {k: float(v) for k, v in one.items()} == {k: float(v) for k, v in other.items()}
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_a_loss_without_the_term_that_is_minimised_is_refused(pool: Path) -> None:
    rollout = make_rollout(words(pool, own(NamelessLoss)))
    with pytest.raises(OmgError, match="NamelessLoss has no term am_loss"):
        trained(training_of(rollout), played(rollout))


@pytest.mark.parametrize("model", ["base_am", "liam_am"])
def test_a_training_continues_from_its_saved_state(pool: Path, model: str) -> None:
    first, second = (make_rollout(words(pool, model)) for _ in range(2))
    episodes = played(first)
    one, other = training_of(first), training_of(second)
    trained(one, episodes)
    torch.rand(3, generator=one.generator)
    team_of(second).model.load_state_dict(team_of(first).model.state_dict())
    restore(other.saved(), deepcopy(state_of(one.saved())))  # moments would be shared
    for training in (one, other):
        trained(training, episodes)
    weights = (team_of(rollout).model.state_dict() for rollout in (first, second))
    mine, theirs = weights
    assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    assert torch.equal(*(torch.rand(2, generator=t.generator) for t in (one, other)))


def test_moments_are_loaded_and_the_learning_rate_stays_the_configured_one(pool: Path) -> None:
    first = make_rollout(words(pool, "liam_am", "--am_lr=0.1"))
    one, other = training_of(first), training_of(make_rollout(words(pool, "liam_am")))
    trained(one, played(first))
    state = state_of(one.optimisers())["am"]
    assert state["param_groups"][0]["lr"] == 0.1
    load_optimisers(other.optimisers(), {"am": deepcopy(state)})
    found = state_of(other.optimisers())["am"]
    assert found["param_groups"][0]["lr"] == 0.001
    assert torch.equal(found["state"][0]["exp_avg"], state["state"][0]["exp_avg"])


def test_features_carry_no_gradient(pool: Path) -> None:
    for model in ("liam_am", own(TrainedEcho)):
        rollout = make_rollout(words(pool, model))
        assert not features(training_of(rollout), played(rollout)).requires_grad
