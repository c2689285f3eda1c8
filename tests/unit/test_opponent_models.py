"""Opponent models: what they see, what they predict, and that the future is not in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from omg.cli.train import train
from omg.components.trajectories import SeatOrder, Trajectories
from omg.config.loader import load_command_line
from omg.controllers.team import MultiModuleMAC
from omg.experiment.output import read_metrics
from omg.functional import Packing
from omg.learners.base import Metrics, Progress
from omg.learners.model_training import Lesson
from omg.learners.q_learner import QLearner
from omg.modules.opponent_models import OPPONENT_MODELS, ModelRows
from omg.modules.opponent_models.base_am import NaiveModel
from omg.storage.files import load_tensors
from omg.types import EnvSpec, OmgError

from .test_mixed_teams import CPU, SMALL, TASK, collect, make_rollout

MODELS = list(OPPONENT_MODELS)
AMONG_OTHERS = ("oracle_am", "types_am")  # refused where every seat learns
TRAINED_BY_4AM = [name for name in MODELS if name != "omg_am"]


@pytest.fixture(scope="module")
def pool(scripted_pool: Callable[..., Path]) -> Path:
    return scripted_pool("nearest_food", "highest_level")


def words(pool: Path, model: str, *more: str) -> list[str]:
    learn = ["--config=iql_am", f"--am_model={model}", f"--opponent_pool={pool}"]
    learn += ["--subgoal_posterior=mean", "--subgoal_feature=both"]
    return [*SMALL, *learn, *more, *TASK]


def features(mac: MultiModuleMAC, played: Trajectories) -> Tensor:
    """What the model makes of stored episodes, one row per slot and learning seat."""
    assert mac.model is not None
    return mac.model.unroll(mac.policy.rows.stored(played), played.rows, torch.Generator())


def test_others_are_ordered_from_the_own_seat_on() -> None:
    values = torch.tensor([[10, 11, 12], [20, 21, 22], [30, 31, 32]])
    order = SeatOrder(replace(SPEC, n_agents=3))
    found = order.relative(values, torch.tensor([0, 1, 2]))
    assert found.tolist() == [[11, 12], [22, 20], [30, 31]]


def test_others_of_the_own_role_come_first_and_a_role_keeps_its_place() -> None:
    roles = ("cat", "mouse", "cat", "mouse", "cat")
    order = SeatOrder(replace(SPEC, n_agents=5, roles=roles))
    assert order(torch.arange(5)).tolist() == [
        *([2, 4, 1, 3], [3, 0, 2, 4], [4, 0, 1, 3], [1, 0, 2, 4], [0, 2, 1, 3]),
    ]


def words_of_all(model: str, *more: str) -> list[str]:
    """As `words`, without others: every seat learns and models the others."""
    return [word for word in words(Path(), model, *more) if "opponent_pool" not in word]


@pytest.mark.parametrize(
    ("model", "seats"),
    [*((model, 1) for model in MODELS), *((m, 3) for m in MODELS if m not in AMONG_OTHERS)],
)
def test_features_while_acting_are_those_learned_from(pool: Path, model: str, seats: int) -> None:
    given = words(pool, model) if seats == 1 else words_of_all(model)
    rollout = make_rollout(given, greedy=True)
    mac = rollout.mac
    assert isinstance(mac, MultiModuleMAC)
    for finished in collect(rollout, 30):
        batch = finished.episodes
        played = mac.trajectories(batch)
        assert played.n_seats == seats
        feature = features(mac, played).view(len(played.packing.time), seats, -1)
        with torch.no_grad():
            inputs = mac.policy.inputs.packed(played, feature)
            q = played.packing.unpack(mac.policy.unroll(inputs, played))
        own = played.own
        q = q.masked_fill(~own["avail_actions"], -torch.inf)
        for row in range(len(batch)):
            length = int(batch.lengths[row]) - 1
            assert torch.equal(q[row, :length].argmax(-1), own["actions"][row, :length])


@pytest.mark.parametrize("model", MODELS)
def test_features_do_not_depend_on_the_future(pool: Path, model: str) -> None:
    rollout = make_rollout(words(pool, model))
    mac = rollout.mac
    assert isinstance(mac, MultiModuleMAC)
    batch = next(f for f in collect(rollout, 30) if f.stats.lengths.max() >= 8).episodes
    changed = batch.copy()
    for name in ("obs", "state", "actions"):
        field = changed.raw(name)
        field[:, 5:] = field[:, 5:].flip(1)
    before, after = (
        played.packing.unpack(features(mac, played))
        for played in map(mac.trajectories, (batch, changed))
    )
    assert torch.equal(before[:, :5], after[:, :5])


CONFIG = load_command_line(["--config=iql_am", "--am_hidden_dim=32"]).config
SPEC = EnvSpec(name="x", n_agents=3, n_actions=4, obs_dim=5, state_dim=6, episode_limit=9)


def rows(count: int, *, actions: torch.Tensor | None = None) -> ModelRows:
    torch.manual_seed(0)
    return ModelRows(
        own=torch.randn(count, 5),
        last_action=torch.zeros(count, dtype=torch.int64),
        others_last=torch.zeros(count, 2, dtype=torch.int64),
        seats=torch.arange(count) % 3,
        state=torch.randn(count, 6),
        others_actions=actions,
    )


def loss_of(model: NaiveModel, given: ModelRows) -> Mapping[str, Tensor]:
    """The model's loss of episodes that each have one of the rows as their only transition."""
    count = len(given.seats)
    packing = Packing.of(torch.ones(count, 2, dtype=torch.bool), torch.zeros(count, 2))
    assert torch.equal(packing.now, torch.arange(count))
    return model.episode_loss(given.take(torch.arange(count).repeat(2)), packing)


def test_the_naive_model_gives_distributions_and_their_cross_entropy() -> None:
    model = NaiveModel(spec=SPEC, own_dim=5, config=CONFIG)
    actions = torch.randint(0, 4, (7, 2))
    given = rows(7, actions=actions)
    inferred = model.infer(given, torch.zeros(7, model.carry_dim), torch.Generator())
    feature = inferred.feature.view(7, 2, 4)
    assert not feature.requires_grad
    torch.testing.assert_close(feature.sum(-1), torch.ones(7, 2))
    picked = feature.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(loss_of(model, given)["am_loss"], -picked.log().mean())


def test_the_naive_model_learns_a_rule_that_depends_on_the_seat() -> None:
    torch.manual_seed(0)
    model = NaiveModel(spec=SPEC, own_dim=5, config=CONFIG)
    given = rows(300)
    first = (given.own[:, 0] > 0).long()
    given = rows(300, actions=torch.stack([first, given.seats], -1))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(150):
        optimiser.zero_grad()
        loss_of(model, given)["am_loss"].backward()
        optimiser.step()
    assert loss_of(model, given)["am_accuracy"] > 0.97


def test_the_control_shows_the_others_relative_to_oneself(pool: Path) -> None:
    rollout = make_rollout(words(pool, "control_am", "--scale_inputs=False"))
    mac = rollout.mac
    assert isinstance(mac, MultiModuleMAC)
    batch = collect(rollout, 20)[0].episodes
    played = mac.trajectories(batch)
    feature = played.packing.unpack(features(mac, played))
    players = batch["state"][0, 0, 6:].view(3, 3)  # two foods come first
    seat = int(batch["agent_idx"][0])
    expected = [players[(seat + k) % 3] - players[seat] for k in (1, 2)]
    torch.testing.assert_close(feature[0, 0], torch.cat(expected))


def test_a_control_without_declared_features_is_refused() -> None:
    with pytest.raises(OmgError, match="agent_features"):
        OPPONENT_MODELS["control_am"](spec=SPEC, own_dim=5, config=CONFIG)


def test_values_send_no_gradient_into_the_model_and_the_model_learns_by_its_own_loss(
    pool: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rollout = make_rollout(words(pool, "base_am"))
    mac = rollout.mac
    assert isinstance(mac, MultiModuleMAC)
    learner = QLearner(config=mac._config, spec=rollout.env.spec, mac=mac, device=CPU)
    batch = collect(rollout, 40)[-1].episodes
    before = [p.clone() for p in mac.model.parameters()]

    def untrained(lesson: Lesson) -> Metrics:
        assert lesson.feature is not None
        return {}

    with monkeypatch.context() as values_only:
        values_only.setattr(learner._model, "train", untrained)
        learner.train(batch, Progress(0, 0, 0))
    assert all(p.grad is None for p in mac.model.parameters())
    metrics = learner.train(batch, Progress(0, 0, 0))
    assert {"am_loss", "am_accuracy", "loss"} <= set(metrics)
    assert any(not torch.equal(a, b) for a, b in zip(before, mac.model.parameters(), strict=True))


def test_what_a_model_draws_while_learning_goes_on_from_the_saved_state(pool: Path) -> None:
    rollout = make_rollout(words(pool, "none_am"))
    mac = rollout.mac
    assert isinstance(mac, MultiModuleMAC)
    learner, other = (
        QLearner(config=mac._config, spec=rollout.env.spec, mac=mac, device=CPU) for _ in range(2)
    )
    torch.rand(3, generator=learner._model.generator)
    other.load_state_dict(learner.state_dict())
    ahead, same = (torch.rand(5, generator=each._model.generator) for each in (learner, other))
    assert torch.equal(ahead, same)


@pytest.mark.long
@pytest.mark.parametrize("model", TRAINED_BY_4AM)
def test_every_model_trains_saves_and_resumes_exactly(
    pool: Path, tmp_path: Path, model: str
) -> None:
    def run(*more: str) -> Path:
        return Path(train(words(pool, model, f"--local_results_path={tmp_path}", *more)).folder)

    whole = run("--run_name=whole", "--t_max=250")
    half = run("--run_name=half", "--t_max=150")
    run("--run_name=half", "--resume", "--t_max=250")
    files = ["agent.th"] + (["base_am.th"] if model == "base_am" else [])
    for name in files:
        mine, theirs = (
            load_tensors(path / "models" / "last" / "iql_am" / name) for path in (whole, half)
        )
        assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    assert any("loss" in record for record in read_metrics(whole / "metrics.jsonl"))


def test_a_checkpoint_with_another_opponent_model_is_refused(pool: Path, tmp_path: Path) -> None:
    common = [f"--local_results_path={tmp_path}"]
    made = train(words(pool, "base_am", *common, "--run_name=a", "--t_max=60")).folder
    with pytest.raises(OmgError, match="am_model"):
        train(words(pool, "control_am", *common, "--evaluate", f"--checkpoint_path={made}"))


@pytest.mark.long
def test_a_continued_opponent_model_is_not_initialised_anew(pool: Path, tmp_path: Path) -> None:
    common = [f"--local_results_path={tmp_path}"]
    made = Path(train(words(pool, "base_am", *common, "--run_name=a")).folder)
    again = [*common, "--run_name=b", "--t_max=10", f"--checkpoint_path={made}"]
    continued = Path(train(words(pool, "base_am", *again)).folder)
    old, new = (
        load_tensors(path / "models" / "last" / "iql_am" / "base_am.th")
        for path in (made, continued)
    )
    assert all(torch.equal(old[key], new[key]) for key in old)
