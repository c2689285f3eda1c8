"""The belief over types: Bayes' rule step by step, what is learned, fed and kept in files."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from omg.cli.train import train
from omg.components.trajectories import SEAT, Trajectories
from omg.config.loader import load_command_line
from omg.controllers.team import MultiModuleMAC
from omg.experiment.output import read_metrics
from omg.functional import Packing
from omg.learners.base import Progress
from omg.learners.model_training import Lesson
from omg.learners.types_training import TypesLesson, TypesTraining
from omg.modules.opponent_models import ModelRows
from omg.modules.opponent_models.types_am import TypesModel
from omg.opponents.players import LINEUP
from omg.policies.policy import build_model
from omg.runners.rollout import Rollout
from omg.storage.files import load_tensors
from omg.storage.models import load_networks, save_models
from omg.types import EnvSpec, OmgError

from . import test_mixed_teams
from .test_liam import played, team_of
from .test_mixed_teams import SMALL, TASK, collect, make_rollout

PAIR = EnvSpec(name="x", n_agents=2, n_actions=2, obs_dim=1, state_dim=1, episode_limit=9)
SIZES = ["--am_hidden_dim=16", "--types_max=4"]
SCRIPTS = ("nearest_food", "highest_level", "farthest_food")


@pytest.fixture(scope="module")
def pool(scripted_pool: Callable[..., Path]) -> Path:
    return scripted_pool(*SCRIPTS)


def words(pool: Path, *more: str) -> list[str]:
    chosen = ["--config=iql_am", "--am_model=types_am", *SIZES, *more]
    return [*SMALL, *chosen, f"--opponent_pool={pool}", *TASK]


def types_of(rollout: Rollout) -> tuple[MultiModuleMAC, TypesModel]:
    team = team_of(rollout)
    assert isinstance(team.model, TypesModel)
    return team, team.model


def build(spec: EnvSpec, *more: str) -> TypesModel:
    torch.manual_seed(0)
    model = build_model(load_command_line(["--config=d3qn_types", *SIZES, *more]).config, spec)
    assert isinstance(model, TypesModel)
    return model


# Type 0 does action 0 in nine of ten steps, type 1 in three of ten.
CHANCES = ((0.9, 0.1), (0.3, 0.7))


def two_types(*more: str) -> TypesModel:
    """Types whose models do not look at anything; known as a and b."""
    model = build(PAIR, *more)
    model.meet(["a", "b"])
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        every = torch.zeros(1, 4, 2)
        every[0, :2] = torch.tensor(CHANCES).log()
        every[0, 2:] = 50.0  # places without a type
        model.heads.bias.copy_(every.flatten())
    return model


def played_rows(*actions: list[int], **more: Tensor) -> tuple[ModelRows, Packing]:
    """Episodes of one other who does this, one after the other; -1: nothing was seen of it."""
    slots = max(len(did) for did in actions) + 1
    filled = torch.zeros(len(actions), slots, dtype=torch.bool)
    did, last = (torch.full((len(actions), slots), -1) for _ in range(2))
    for episode, each in enumerate(actions):
        filled[episode, : len(each) + 1] = True
        did[episode, : len(each)] = torch.tensor(each)
        last[episode, 1 : len(each) + 1] = torch.tensor(each)
    packing = Packing.of(filled, torch.zeros_like(filled))
    count = len(packing.time)
    return ModelRows(
        own=torch.zeros(count, 1),
        last_action=torch.full((count,), -1),
        others_last=packing.pack(last).unsqueeze(1),
        seats=torch.zeros(count, dtype=torch.int64),
        state=torch.zeros(count, 1),
        others_actions=packing.pack(did).clamp(min=0).unsqueeze(1),
        **{name: packing.pack(value).unsqueeze(1) for name, value in more.items()},
    ), packing


def by_hand(did: list[int], floor: float) -> list[list[float]]:
    """Bayes' rule, one step after the other, in plain numbers; before each step and at the end."""
    belief, found = [0.5, 0.5], [[0.5, 0.5]]
    for action in did:
        joint = [b * (CHANCES[k][action] if action >= 0 else 1.0) for k, b in enumerate(belief)]
        belief = [(1 - floor) * j / sum(joint) + floor / 2 for j in joint]
        found.append(belief)
    return found


@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_the_belief_is_that_of_bayes_rule_step_by_step(floor: float) -> None:
    model = two_types(f"--types_belief_floor={floor}")
    episodes = [[0, 0, 1, -1, 0, 1, 1], [1, 1], [0, 1, 1, 1]]
    rows, packing = played_rows(*episodes)
    found = packing.unpack(model.beliefs(rows, packing).squeeze(1))
    for episode, did in enumerate(episodes):
        expected = torch.tensor(by_hand(did, floor))
        torch.testing.assert_close(found[episode, : len(did) + 1], expected)


def test_the_policy_is_fed_the_most_probable_type_or_the_belief() -> None:
    did = [0, 1, 1, 1]
    rows, packing = played_rows(did)
    belief = torch.tensor(by_hand(did, 0.02))
    fed = two_types("--types_feature=belief").unroll(rows, packing, torch.Generator())
    torch.testing.assert_close(fed, torch.cat([belief, torch.zeros(5, 2)], -1))
    fed = two_types().unroll(rows, packing, torch.Generator())
    # Three to one after the first step for type 0; 3/7 of it after the second, and so on.
    assert fed.argmax(-1).tolist() == [0, 0, 1, 1, 1]
    assert torch.equal(fed.sum(-1), torch.ones(5))


def test_nothing_is_said_of_others_who_have_left_and_nothing_learned_of_them() -> None:
    model = two_types("--types_feature=belief")
    there = torch.tensor([[True, True, False, False]])
    rows, packing = played_rows([0, 1, -1], others_alive=there)
    rows = replace(rows, others_player=torch.zeros_like(rows.others_last))
    fed = model.unroll(rows, packing, torch.Generator())
    assert fed[:2].sum(-1).allclose(torch.ones(()))
    assert not fed[2:].any()
    loss = model.episode_loss(rows, packing)["am_loss"]
    expected = -(math.log(CHANCES[0][0]) + math.log(CHANCES[0][1])) / 2
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_each_type_learns_from_its_own_episodes_and_nobody_from_unknown_players() -> None:
    model = two_types()
    who = torch.tensor([0, 1, -1]).unsqueeze(1).expand(3, 4)
    rows, packing = played_rows([0, 0, 1], [0, 1, 1], [1, 1, 1], others_player=who)
    terms = model.episode_loss(rows, packing)
    told = [CHANCES[0][0], CHANCES[0][0], CHANCES[0][1], *(CHANCES[1][a] for a in (0, 1, 1))]
    expected = -sum(map(math.log, told)) / 6
    assert terms["am_loss"].item() == pytest.approx(expected, rel=1e-5)
    assert terms["am_accuracy"].item() == pytest.approx(4 / 6)
    terms["am_loss"].backward()
    assert model.heads.bias.grad is not None
    slopes = model.heads.bias.grad.view(4, 2)
    # The slope of a logit is its chance minus how often it was done, as a share of all six steps.
    by_type = [[3 * 0.9 - 2, 3 * 0.1 - 1], [3 * 0.3 - 1, 3 * 0.7 - 2], [0, 0], [0, 0]]
    torch.testing.assert_close(slopes, torch.tensor(by_type) / 6, atol=1e-6, rtol=1e-5)


def test_how_often_the_most_probable_type_was_the_true_one() -> None:
    model = two_types()
    who = torch.tensor([[1] * 5, [0] * 5, [-1] * 5])
    rows, packing = played_rows([0, 1, 1, 1], [0, 0, 1, 0], [1, 1, 1, 1], others_player=who)
    belief = model.beliefs(rows, packing)
    # Most probable before each step: 0 0 1 1 (true 1) and 0 0 0 0 (true 0); the third is unknown.
    assert float(model.type_accuracy(belief, rows, packing)) == pytest.approx(6 / 8)
    recorded = {
        "am_belief": torch.cat([belief, torch.zeros(len(belief), 1, 2)], -1).flatten(1),
        "am_prediction": torch.tensor([[1.0, 0.0]]).expand(len(belief), 2),
    }
    told = model.judge(rows, packing, recorded)
    torch.testing.assert_close(told["type_accuracy"], torch.tensor([0.5, 1.0, 0.5]))
    torch.testing.assert_close(told["prediction_accuracy"], torch.tensor([0.25, 0.75, 0.0]))


# --- who the types are ---------------------------------------------------------------------------


def test_the_types_are_the_players_of_the_run(pool: Path) -> None:
    rollout = make_rollout(words(pool))
    team, model = types_of(rollout)
    assert model.types == tuple(dict.fromkeys(team.players()))
    assert len(model.types) == 3
    episodes = played(rollout)
    rows, packing = team.training_rows(episodes), episodes.packing
    assert rows.others_player is not None
    for slot in range(0, len(rows.seats), 3):
        episode, seat = int(packing.episode[slot]), int(rows.seats[slot])
        members = episodes.team[LINEUP][episode].tolist()
        for k in (1, 2):
            name = team.players()[members[(seat + k) % 3]]
            assert model.types[int(rows.others_player[slot, k - 1])] == name


def test_a_run_without_named_opponents_and_one_with_too_many_are_refused() -> None:
    with pytest.raises(OmgError, match=r"apart by their names, and nobody.*Give opponent_pool"):
        build(PAIR).meet([])
    with pytest.raises(OmgError, match=r"5 training opponents.*types_max=4\. Set types_max=5"):
        build(PAIR).meet(list("abcde"))
    with pytest.raises(OmgError, match="am_model=types_am models the other agents, and x has only"):
        build(replace(PAIR, n_agents=1))


def test_a_file_brings_its_types_and_other_players_are_of_no_known_type(tmp_path: Path) -> None:
    saved = two_types()
    save_models(tmp_path / "m", networks=saved.files(), optimiser=None, meta={})
    for met in ([], ["b", "c", "d"]):
        loaded = build(PAIR)
        if met:
            loaded.meet(met)
        load_networks(tmp_path / "m", loaded.files())
        assert loaded.types == ("a", "b")
        numbers = loaded.players(["c", "b", "a"])
        assert numbers is not None
        assert numbers.tolist() == [-1, 1, 0]
        assert torch.equal(loaded.names, saved.names)
    with pytest.raises(OmgError, match="names 2 types of opponents, more than types_max=1"):
        load_networks(tmp_path / "m", {"types_am": _narrow()})


def _narrow() -> TypesModel:
    """One place, and heads as wide as those of four: what is left to refuse are the names."""
    model = build(PAIR)
    model._places = 1
    return model


# --- acting and learning -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["most_probable", "belief"])
def test_features_while_acting_are_those_of_the_unroll_and_ignore_the_names(
    pool: Path, kind: str
) -> None:
    rollout = make_rollout(words(pool, f"--types_feature={kind}"))
    team, model = types_of(rollout)
    episodes = played(rollout)
    rows, packing = team.model_rows(episodes), episodes.packing
    nameless = replace(rows, others_player=None)
    unrolled = model.unroll(nameless, packing, torch.Generator())
    assert torch.equal(model.unroll(rows, packing, torch.Generator()), unrolled)
    carry, start = torch.zeros(len(episodes.team), model.carry_dim), 0
    for size in packing.sizes.tolist():
        now = torch.arange(start, start + size)
        inferred = model.infer(rows.take(now), carry[:size], torch.Generator())
        torch.testing.assert_close(inferred.feature, unrolled[now], atol=1e-5, rtol=1e-5)
        carry, start = inferred.carry, start + size
        widths = {name: value.shape[1] for name, value in inferred.record.items()}
        assert widths == dict(model.record_dims())
    assert start == len(unrolled)


def test_the_belief_depends_on_the_own_view_and_on_what_was_done_before(pool: Path) -> None:
    rollout = make_rollout(words(pool, "--types_feature=belief"))
    team, model = types_of(rollout)
    episodes = played(rollout)
    later, hidden = episodes.team.copy(), episodes.team.copy()
    for name in ("obs", "state", "actions"):
        field = later.raw(name)
        field[:, 5:] = field[:, 5:].flip(1)
    for row, seat in enumerate(hidden[SEAT].tolist()):
        for other in {0, 1, 2} - {seat}:
            hidden.raw("obs")[row, :, other] = 7
    hidden.raw("state")[:] = 7

    def fed(played: Trajectories) -> Tensor:
        rows = team.model_rows(played)
        return played.packing.unpack(model.unroll(rows, played.rows, torch.Generator()))

    seen, future, without = (fed(team.trajectories(b)) for b in (episodes.team, later, hidden))
    assert torch.equal(seen[:, :5], future[:, :5])
    assert not torch.equal(seen[:, 5:], future[:, 5:])
    assert torch.equal(seen, without)


def prepared(team: MultiModuleMAC, episodes: Trajectories) -> tuple[TypesTraining, TypesLesson]:
    training = TypesTraining(config=team._config, mac=team, on_policy=False)
    lesson = training.prepare(episodes, Progress(0, 0, 0), lambda alternatives: torch.zeros(0))
    return training, lesson


@pytest.mark.parametrize("teacher", [False, True])
def test_with_a_teacher_the_policy_learns_with_the_true_types_else_with_the_inferred(
    pool: Path, teacher: bool
) -> None:
    rollout = make_rollout(words(pool, f"--types_teacher={teacher}"))
    team, model = types_of(rollout)
    episodes = played(rollout)
    _, lesson = prepared(team, episodes)
    rows = team.model_rows(episodes)
    assert lesson.feature is not None
    assert rows.others_player is not None
    found = lesson.feature.view(-1, 2, 4).argmax(-1)
    assert torch.equal(found, rows.others_player) == teacher
    inferred = model.unroll(rows, episodes.rows, torch.Generator())
    assert torch.equal(lesson.feature.flatten(1), inferred) != teacher
    unknown = replace(rows, others_player=torch.full_like(rows.others_player, -1))
    belief = model.beliefs(rows, episodes.rows)
    assert torch.equal(model.taught(belief, unknown), inferred)


def test_a_teacher_is_refused_to_learners_that_learn_from_what_they_did() -> None:
    config = load_command_line(["--config=ppo_types", "--types_teacher=True"]).config
    with pytest.raises(OmgError, match=r"types_teacher=true .*learner=ppo_learner_4am"):
        TypesTraining.check(config, on_policy=True)
    TypesTraining.check(config, on_policy=False)


@pytest.mark.long
def test_it_learns_what_each_type_does_and_tells_them_apart(
    scripted_pool: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "Foraging-6x6-2p-2f-v3"
    monkeypatch.setattr(test_mixed_teams, "KEY", {"key": key, "max_episode_steps": 8})
    pool = scripted_pool("top_left", "bottom_right")
    learn = words(pool, "--am_hidden_dim=64", "--am_lr=0.003", "with", f"env_args.key={key}")
    rollout = make_rollout(learn[: -len(TASK)], copies=64)
    team, _ = types_of(rollout)
    batches = [finished.episodes for finished in collect(rollout, 80)]
    episodes = [team.trajectories(batch) for batch in batches if len(batch) > 3]
    learned, fresh = episodes[:-4], episodes[-4:]

    def accuracy() -> float:
        found = [prepared(team, some)[1].accuracy for some in fresh]
        return float(sum(a for a in found if a is not None) / len(found))

    before = accuracy()
    training, _ = prepared(team, learned[0])
    for _ in range(10):
        for some in learned:
            training.train(Lesson(some))
    assert before < 0.65
    assert accuracy() > 0.75


@pytest.mark.long
@pytest.mark.parametrize("alg", ["d3qn_types", "ppo_types"])
def test_the_presets_train_log_the_accuracy_and_keep_the_names(
    pool: Path, tmp_path: Path, alg: str
) -> None:
    given = [w for w in words(pool, f"--local_results_path={tmp_path}") if "iql_am" not in w]
    made = Path(train([f"--config={alg}", *given]).folder)
    logged = set().union(*(set(record) for record in read_metrics(made / "metrics.jsonl")))
    assert {"am_loss", "am_accuracy", "am_type_accuracy"} <= logged
    assert {"test_type_accuracy_mean", "test_prediction_accuracy_mean"} <= logged
    kept = load_tensors(made / "models" / "last" / alg / "types_am.th")
    assert all(name in bytes(kept["names"].tolist()).decode() for name in SCRIPTS)
