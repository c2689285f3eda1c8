"""LIAM's losses and embedding, and the features every opponent model can be given."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
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
from omg.learners.model_training import Lesson, OwnLossTraining
from omg.learners.q_learner import OMGLearner, QLearner
from omg.modules.opponent_models import ModelRows, OpponentModel
from omg.modules.opponent_models.base_am import NaiveModel
from omg.modules.opponent_models.liam_am import LiamModel
from omg.modules.opponent_models.omg_am import SubgoalModel
from omg.policies.inputs import StepView
from omg.policies.policy import Policy, build_model
from omg.runners.rollout import Rollout
from omg.storage.files import load_tensors
from omg.types import EnvSpec, OmgError

from . import test_mixed_teams
from .test_mixed_teams import CPU, SMALL, TASK, collect, make_rollout

HISTORY = ("--am_model=base_am", "--am_history=True")
LIAM = "--am_model=liam_am"
ACTIONS = "--liam_others_actions=True"
KINDS = [
    pytest.param((LIAM, "--am_feature=latent"), id="latent"),
    pytest.param((LIAM, "--am_feature=decoded"), id="decoded"),
    pytest.param((LIAM, "--am_feature=both"), id="both"),
    pytest.param((LIAM, ACTIONS), id="others_actions"),
    pytest.param(HISTORY, id="history"),
]


@pytest.fixture(scope="module")
def pool(scripted_pool: Callable[..., Path]) -> Path:
    return scripted_pool("nearest_food", "highest_level")


def words(pool: Path, *more: str) -> list[str]:
    small = ["--am_hidden_dim=16", "--liam_embed_dim=5"]
    return [*SMALL, "--config=iql_am", f"--opponent_pool={pool}", *small, *more, *TASK]


def team_of(rollout: Rollout) -> MultiModuleMAC:
    assert isinstance(rollout.mac, MultiModuleMAC)
    return rollout.mac


def model_of(team: MultiModuleMAC) -> OpponentModel:
    assert team.model is not None
    return team.model


def played(rollout: Rollout) -> Trajectories:
    batch = max((f.episodes for f in collect(rollout, 40)), key=len)
    return team_of(rollout).trajectories(batch)


def features(team: MultiModuleMAC, episodes: Trajectories) -> Tensor:
    rows = team.policy.rows.stored(episodes)
    return model_of(team).unroll(rows, episodes.rows, torch.Generator())


def settings(*more: str) -> Any:
    return load_command_line(["--config=iql_liam", *more]).config


# --- the losses by hand --------------------------------------------------------------------------

# Two agents that see one number each and have two actions; no features in the state.
TINY = EnvSpec(name="x", n_agents=2, n_actions=2, obs_dim=1, state_dim=1, episode_limit=3)


def tiny(spec: EnvSpec = TINY, *more: str) -> LiamModel:
    """h_t = (h_{t-1} + tanh o_t) / 2, z = h; it tells 2z + 0.1 for the other's observation and
    logits (z, 0) for its action."""
    sizes = ["--am_hidden_dim=1", "--liam_embed_dim=1", "--liam_action_weight=0.5"]
    model = build_model(settings(*sizes, *more), spec)
    assert isinstance(model, LiamModel)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        model.fc.weight[0, 0] = 1.0
        model.rnn.weight_ih[2, 0] = 1.0
        model.embedding.weight[0, 0] = 1.0
        for decoder in (model.obs_decoder, model.action_decoder):
            decoder[0].weight[0, 0] = 1.0
        model.obs_decoder[2].weight[0, 0], model.obs_decoder[2].bias[0] = 2.0, 0.1
        model.action_decoder[2].weight[0, 0] = 1.0
    return model


def two_episodes() -> tuple[ModelRows, Packing]:
    """Episode 0 of two transitions with z = 0.4, 0.6; episode 1 of one with z = 0.25."""
    filled = torch.tensor([[1, 1, 1], [1, 1, 0]], dtype=torch.bool)
    packing = Packing.of(filled, torch.zeros(2, 3, dtype=torch.bool))
    own = torch.atanh(torch.tensor([[0.8, 0.8, 0.1], [0.5, 0.3, 0.0]]))
    others_obs = torch.tensor([[1.0, 1.0, 99.0], [0.4, 99.0, 99.0]])
    actions = torch.tensor([[0, 1, 0], [0, 0, 0]])
    return ModelRows(
        own=packing.pack(own).unsqueeze(1),
        last_action=torch.full((5,), -1),
        others_last=torch.full((5, 1), -1),
        seats=torch.zeros(5, dtype=torch.int64),
        state=torch.zeros(5, 1),
        others_actions=packing.pack(actions).unsqueeze(1),
        others_obs=packing.pack(others_obs).view(5, 1, 1),
    ), packing


def test_the_losses_are_those_computed_by_hand() -> None:
    model, (rows, packing) = tiny(), two_episodes()
    z = packing.unpack(model.embed(rows, packing)).squeeze(-1)
    torch.testing.assert_close(z[0, :2], torch.tensor([0.4, 0.6]))
    torch.testing.assert_close(z[1, 0], torch.tensor(0.25))
    terms = {name: value.item() for name, value in model.episode_loss(rows, packing).items()}
    # It tells 0.9, 1.3 and 0.6 where 1, 1 and 0.4 were seen.
    assert terms["am_obs_loss"] == pytest.approx((0.01 + 0.09 + 0.04) / 3, rel=1e-4)
    entropies = (
        math.log(1 + math.exp(-0.4)),  # action 0 with logits (0.4, 0)
        math.log(1 + math.exp(0.6)),  # action 1 with logits (0.6, 0)
        math.log(1 + math.exp(-0.25)),
    )
    assert terms["am_action_loss"] == pytest.approx(sum(entropies) / 3, rel=1e-5)
    assert terms["am_accuracy"] == pytest.approx(2 / 3)
    total = terms["am_obs_loss"] + 0.5 * terms["am_action_loss"]
    assert terms["am_loss"] == pytest.approx(total, rel=1e-6)
    assert set(terms) == {"am_loss", "am_obs_loss", "am_action_loss", "am_accuracy"}


PLACED = replace(TINY, state_dim=3, agent_features=((1,), (2,)))


def test_decoded_features_are_what_the_others_do_and_where_they_are_from_here() -> None:
    model, (rows, packing) = tiny(PLACED, "--am_feature=both"), two_episodes()
    assert model.place_decoder is not None
    with torch.no_grad():
        model.place_decoder[2].bias[0] = 0.7  # tells 0.7 for the other's place, always
    state = torch.tensor([[9.0, 0.2, 0.5]]).repeat(5, 1)
    for seat, own in ((0, 0.2), (1, 0.5)):
        given = replace(rows, state=state, seats=torch.full((5,), seat))
        found = packing.unpack(model.unroll(given, packing, torch.Generator()))[0, 0]
        share = 1 / (1 + math.exp(-0.4))
        expected = torch.tensor([0.4, share, 1 - share, 0.7 - own])
        torch.testing.assert_close(found, expected)
        # The target is the other's own feature: 0.5 for seat 0, 0.2 for seat 1.
        terms = model.episode_loss(given, packing)
        other = 0.5 if seat == 0 else 0.2
        assert terms["am_place_loss"].item() == pytest.approx((0.7 - other) ** 2, rel=1e-4)
        parts = terms["am_obs_loss"] + 0.5 * terms["am_action_loss"] + terms["am_place_loss"]
        torch.testing.assert_close(terms["am_loss"], parts)


def test_without_declared_features_the_decoded_part_is_what_the_others_see() -> None:
    model, (rows, packing) = tiny(TINY, "--am_feature=decoded"), two_episodes()
    found = packing.unpack(model.unroll(rows, packing, torch.Generator()))[0, 1]
    share = 1 / (1 + math.exp(-0.6))
    torch.testing.assert_close(found, torch.tensor([share, 1 - share, 2 * 0.6 + 0.1]))


# --- what it sees, and when ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_features_while_acting_are_those_of_the_unroll(pool: Path, kind: tuple[str, ...]) -> None:
    rollout = make_rollout(words(pool, *kind))
    team = team_of(rollout)
    model, episodes = model_of(team), played(rollout)
    rows, packing = team.policy.rows.stored(episodes), episodes.packing
    unrolled, generator = features(team, episodes), torch.Generator()
    carry, start = torch.zeros(len(episodes.team), model.carry_dim), 0
    assert model.carry_dim > 0
    for size in packing.sizes.tolist():  # slots are ordered by time, episodes by length
        now = torch.arange(start, start + size)
        inferred = model.infer(rows.take(now), carry[:size], generator)
        torch.testing.assert_close(inferred.feature, unrolled[now], atol=1e-5, rtol=1e-5)
        carry, start = inferred.carry, start + size
        widths = {name: value.shape[1] for name, value in inferred.record.items()}
        assert widths == dict(model.record_dims())
    assert start == len(unrolled)


@pytest.mark.parametrize("kind", KINDS)
def test_features_do_not_depend_on_the_future(pool: Path, kind: tuple[str, ...]) -> None:
    rollout = make_rollout(words(pool, *kind))
    team, episodes = team_of(rollout), played(rollout)
    changed = episodes.team.copy()
    for name in ("obs", "state", "actions"):
        field = changed.raw(name)
        field[:, 5:] = field[:, 5:].flip(1)
    before, after = (
        episodes.packing.unpack(features(team, e)) for e in (episodes, team.trajectories(changed))
    )
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.equal(before[:, 5:], after[:, 5:])


@pytest.mark.parametrize("kind", ["latent", "both"])
def test_liam_acts_on_nothing_that_only_the_others_know(pool: Path, kind: str) -> None:
    rollout = make_rollout(words(pool, LIAM, f"--am_feature={kind}"))
    team, episodes = team_of(rollout), played(rollout)
    changed = episodes.team.copy()
    for row, seat in enumerate(changed[SEAT].tolist()):
        for other in {0, 1, 2} - {seat}:
            changed.raw("obs")[row, :, other] = 7
            changed.raw("actions")[row, :, other] = 1
            columns = list(rollout.env.spec.agent_features[other])
            changed.raw("state")[row][:, columns] = 7
    assert torch.equal(features(team, episodes), features(team, team.trajectories(changed)))


def test_the_option_shows_liam_the_others_last_actions_and_nothing_else_of_them(pool: Path) -> None:
    rollout = make_rollout(words(pool, LIAM, ACTIONS))
    team, episodes = team_of(rollout), played(rollout)
    hidden, shown = episodes.team.copy(), episodes.team.copy()
    for row, seat in enumerate(hidden[SEAT].tolist()):
        for other in {0, 1, 2} - {seat}:
            hidden.raw("obs")[row, :, other] = 7
            hidden.raw("state")[row] = 7
            acted = shown.raw("actions")[row, 2, other]
            shown.raw("actions")[row, 2, other] = (acted + 1) % 3
    known = features(team, episodes)
    assert torch.equal(known, features(team, team.trajectories(hidden)))
    changed = features(team, team.trajectories(shown))
    now, then = (episodes.packing.unpack(f) for f in (known, changed))
    assert torch.equal(now[:, :3], then[:, :3])  # an action is seen one step after it
    assert not torch.isclose(now[:, 3], then[:, 3]).all(-1).any()


@pytest.mark.parametrize("kind", [(LIAM,), (LIAM, ACTIONS), HISTORY])
def test_the_gradient_of_the_last_step_reaches_the_first(pool: Path, kind: tuple[str, ...]) -> None:
    rollout = make_rollout(words(pool, *kind))
    team, episodes = team_of(rollout), played(rollout)
    rows, packing = team.policy.rows.training(episodes), episodes.packing
    own = rows.own.clone().requires_grad_()
    # Of the loss only one episode's last transition: its step before last, as the last has no act.
    slot = int(packing.now[packing.time[packing.now].argmax()])
    assert int(packing.time[slot]) >= 5
    only = replace(packing, now=torch.tensor([slot]))
    model_of(team).episode_loss(replace(rows, own=own), only)["am_loss"].backward()
    assert own.grad is not None
    reached = packing.unpack(own.grad.abs().sum(1))
    episode = int(packing.episode[slot])
    assert reached[episode, 0] > 0
    assert float(reached.sum()) == pytest.approx(float(reached[episode].sum()))
    assert float(reached[episode, int(packing.time[slot]) + 1 :].sum()) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_policys_loss_sends_no_gradient_into_the_model(
    pool: Path, kind: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    rollout = make_rollout(words(pool, *kind))
    team = team_of(rollout)
    learner = QLearner(config=team._config, spec=rollout.env.spec, mac=team, device=CPU)
    model, batch = model_of(team), played(rollout).team
    with monkeypatch.context() as values_only:
        values_only.setattr(learner._model, "train", lambda lesson: {})
        learner.train(batch, Progress(0, 0, 0))
    assert all(weight.grad is None for weight in model.parameters())
    learner.train(batch, Progress(0, 0, 0))
    assert all(weight.grad is not None for weight in model.parameters())


def test_targets_hold_the_next_seat_first_in_every_seat(pool: Path) -> None:
    rollout = make_rollout(words(pool, LIAM, "--am_feature=decoded"))
    team = team_of(rollout)
    batches = [finished.episodes for finished in collect(rollout, 40)]
    met: set[int] = set()
    for batch in batches:
        episodes = team.trajectories(batch)
        rows, packing = team.policy.rows.training(episodes), episodes.packing
        assert rows.others_obs is not None
        assert rows.others_actions is not None
        assert isinstance(team.model, LiamModel)
        places = team.model.source.places(rows.state, rows.seats)
        for slot in range(0, len(rows.seats), 3):
            seat, moment = int(rows.seats[slot]), (packing.episode[slot], packing.time[slot])
            met.add(seat)
            for k in (1, 2):
                other = (seat + k) % 3
                obs = batch["obs"][moment][other] * rollout.env.spec.obs_scale
                torch.testing.assert_close(rows.others_obs[slot, k - 1], obs)
                assert rows.others_actions[slot, k - 1] == batch["actions"][moment][other]
                columns = list(rollout.env.spec.agent_features[other])
                place = batch["state"][moment][columns] * rollout.env.spec.state_scale
                torch.testing.assert_close(places[slot, k - 1], place)
    assert met == {0, 1, 2}


# --- learning ------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_prediction_of_scripted_players_gets_better(
    pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "Foraging-6x6-2p-2f-v3"
    monkeypatch.setattr(test_mixed_teams, "KEY", {"key": key, "max_episode_steps": 6})
    learn = words(pool, LIAM, "--am_hidden_dim=64", "--am_lr=0.003", "with", f"env_args.key={key}")
    rollout = make_rollout(learn[: -len(TASK)], copies=64)
    team = team_of(rollout)
    batches = [finished.episodes for finished in collect(rollout, 60)]
    episodes = [team.trajectories(batch) for batch in batches if len(batch) > 3]
    learned, fresh = episodes[:-4], episodes[-4:]
    training = OwnLossTraining(config=team._config, mac=team, on_policy=False)

    def held_out() -> tuple[float, float]:
        """Share of right guesses in fresh episodes, and of the commonest action in them."""
        right, taken = [], []
        for some in fresh:
            rows = team.policy.rows.training(some)
            right.append(float(model_of(team).episode_loss(rows, some.rows)["am_accuracy"]))
            assert rows.others_actions is not None
            taken.append(rows.others_actions[some.packing.now].flatten())
        counts = torch.bincount(torch.cat(taken))
        return float(np.mean(right)), float(counts.max() / counts.sum())

    before, commonest = held_out()
    for _ in range(10):
        for some in learned:
            training.train(Lesson(some))
    after, _ = held_out()
    assert after > max(before, commonest) + 0.15


def history_case(length: int, episodes: int) -> tuple[ModelRows, Packing, EnvSpec]:
    """The other repeats what the agent saw two steps ago: the present does not tell it."""
    generator = torch.Generator().manual_seed(0)
    filled = torch.ones(episodes, length + 1, dtype=torch.bool)
    packing = Packing.of(filled, torch.zeros_like(filled))
    seen = torch.randint(0, 2, (episodes, length + 1), generator=generator)
    acts = torch.zeros_like(seen)
    acts[:, 2:] = seen[:, :-2]
    count = len(packing.time)
    rows = ModelRows(
        own=packing.pack(seen).unsqueeze(1).to(torch.float32),
        last_action=torch.full((count,), -1),
        others_last=torch.full((count, 1), -1),
        seats=torch.zeros(count, dtype=torch.int64),
        state=torch.zeros(count, 1),
        others_actions=packing.pack(acts).unsqueeze(1),
    )
    return rows, packing, TINY


@pytest.mark.long
@pytest.mark.parametrize("history", [True, False])
def test_only_with_its_history_the_naive_model_learns_what_the_past_decides(history: bool) -> None:
    rows, packing, spec = history_case(8, 32)
    torch.manual_seed(0)
    chosen = ["--am_model=base_am", f"--am_history={history}", "--am_hidden_dim=32"]
    model = build_model(settings(*chosen), spec)
    assert (model.carry_dim > 0) == history
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(200):
        optimiser.zero_grad()
        model.episode_loss(rows, packing)["am_loss"].backward()
        optimiser.step()
    accuracy = float(model.episode_loss(rows, packing)["am_accuracy"])
    assert accuracy > 0.99 if history else accuracy < 0.8


def test_the_naive_model_with_history_sees_what_the_subgoal_inference_sees(pool: Path) -> None:
    rollout = make_rollout(words(pool, *HISTORY))
    naive = team_of(rollout).model
    subgoals = team_of(make_rollout(words(pool, "--am_model=omg_am"))).model
    assert isinstance(naive, NaiveModel)
    assert isinstance(subgoals, SubgoalModel)
    naive.fc.load_state_dict(subgoals.fc.state_dict())
    naive.cond_rnn.load_state_dict(subgoals.cond_rnn.state_dict())
    episodes = played(rollout)
    rows = team_of(rollout).policy.rows.stored(episodes)
    _, _, condition = subgoals.posterior(rows, episodes.rows)
    assert torch.equal(naive._conditions(rows, episodes.rows), condition)
    assert torch.equal(naive._embed(rows), subgoals._embed(rows))


# --- am_present: the others' present beside any model --------------------------------------------


def step_view(rollout: Rollout) -> StepView:
    view = rollout._view
    copies, agents = view.obs.shape[:2]
    return StepView(
        obs=torch.from_numpy(view.obs),
        state=torch.from_numpy(view.state),
        avail=torch.from_numpy(view.avail),
        last_actions=torch.full((copies, agents), -1),
    )


MODELS = ["none_am", "base_am", "liam_am", "omg_am", "oracle_am"]


@pytest.mark.parametrize("scaled", ["True", "False"])
def test_the_present_is_what_the_control_shows(pool: Path, scaled: str) -> None:
    scale = f"--scale_inputs={scaled}"
    control = team_of(make_rollout(words(pool, "--am_model=control_am", scale)))
    rollout = make_rollout(words(pool, "--am_model=none_am", "--am_present=True", scale))
    team = team_of(rollout)
    episodes = played(rollout)
    inputs = team.policy.inputs.packed(episodes).squeeze(1)
    assert torch.equal(inputs[:, -6:], features(control, episodes))
    assert torch.equal(inputs[:, :-6], control.policy.inputs.packed(episodes).squeeze(1))
    assert len(set(episodes.team[SEAT].tolist())) > 1


@pytest.mark.parametrize("model", MODELS)
def test_the_present_stands_before_the_features_of_any_model_and_is_not_exchanged(
    pool: Path, model: str
) -> None:
    chosen = [f"--am_model={model}", "--subgoal_posterior=mean", "--oracle_kind=target"]
    rollout = make_rollout(words(pool, *chosen, "--am_present=True"), greedy=True)
    rollout._carry["seat"][:] = torch.tensor([0, 1, 0, 0])
    team = team_of(rollout)
    width = team.policy.feature_dim
    without = team_of(make_rollout(words(pool, *chosen))).policy.inputs.dim
    assert team.policy.inputs.dim == without + 6
    fed: list[Tensor] = []
    step = team.policy.network.step

    def watched(inputs: Tensor, *args: Any) -> Any:
        fed.append(inputs)
        return step(inputs, *args)

    team.policy.network.step = watched  # type: ignore[method-assign]
    with torch.inference_mode():
        view = step_view(rollout)
        rows = team.policy.rows.acting(view, rollout._carry["seat"].unsqueeze(1))
        for who in (team, team.sibling(permute=True)):
            generator = torch.Generator().manual_seed(1)
            who.act(view, rollout._carry, env_steps=0, greedy=True, generator=generator)
    control = model_of(team_of(make_rollout(words(pool, "--am_model=control_am"))))
    present = control.infer(rows, torch.zeros(4, 0), torch.Generator()).feature
    for inputs in fed:
        assert torch.equal(inputs[:, inputs.shape[1] - width - 6 :][:, :6], present)
    if width:
        real, exchanged = (inputs[:, -width:] for inputs in fed)
        assert not torch.allclose(real[0], exchanged[0])
        assert torch.equal(real[1], exchanged[1])  # alone in its seat


def test_a_permuted_liam_is_fed_anothers_embedding_from_its_own_place(pool: Path) -> None:
    rollout = make_rollout(words(pool, LIAM, "--am_feature=both"), greedy=True)
    team = team_of(rollout)
    assert isinstance(team.model, LiamModel)
    with torch.inference_mode():
        view, seats, carry = step_view(rollout), torch.tensor([0, 1, 0, 0]), torch.zeros(4, 16)
        rows = team.policy.rows.acting(view, seats.unsqueeze(1))
        feature, inferred = team.policy.infer(
            view, seats.unsqueeze(1), carry, torch.Generator(), permute=True
        )
        found = feature.squeeze(1)
        donor = torch.tensor([3, 1, 0, 2])
        assert torch.equal(found[:, :5], inferred.feature[donor, :5])
        told = team.model._places(inferred.record["am_embedding"][donor])
        own = rows.state.gather(1, torch.tensor(rollout.env.spec.agent_features)[seats])
        torch.testing.assert_close(found[:, -6:], (told - own.unsqueeze(1)).flatten(1))


@pytest.mark.long
def test_omg_learns_with_the_present_beside_its_subgoals(pool: Path) -> None:
    chosen = ["--am_model=omg_am", "--am_present=True", "--learner=omg_learner"]
    rollout = make_rollout(words(pool, *chosen, "--subgoal_feature=decoded"))
    team = team_of(rollout)
    learner = OMGLearner(config=team._config, spec=rollout.env.spec, mac=team, device=CPU)
    batch = played(rollout).team
    losses = [float(learner.train(batch, Progress(0, 0, 0))["loss"]) for _ in range(40)]
    assert losses[-1] < losses[0]
    fc1 = team.policy.network.get_parameter("fc1.weight")
    assert fc1.shape[1] == team.policy.inputs.dim
    present = fc1.grad[:, -12:-6] if fc1.grad is not None else torch.zeros(1)
    assert float(present.abs().sum()) > 0


def test_the_present_needs_to_know_whose_features_are_whose() -> None:
    config = settings("--am_present=True")
    with pytest.raises(OmgError, match=r"am_present=true needs .*agent_features"):
        Policy(config=config, spec=TINY, device=CPU, model=build_model(config, TINY))


# --- whole runs ----------------------------------------------------------------------------------


def run(pool: Path, folder: Path, *more: str) -> Path:
    return Path(train(words(pool, f"--local_results_path={folder}", *more)).folder)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ((LIAM, "--am_feature=both", "--am_present=True"), "liam_am"),
        (HISTORY, "base_am"),
    ],
)
def test_a_run_resumes_exactly_and_its_checkpoint_loads(
    pool: Path, tmp_path: Path, kind: tuple[str, ...], file: str
) -> None:
    whole = run(pool, tmp_path, *kind, "--run_name=whole", "--t_max=250")
    run(pool, tmp_path, *kind, "--run_name=half", "--t_max=150")
    half = run(pool, tmp_path, *kind, "--run_name=half", "--resume", "--t_max=250")
    for name in ("agent", file):
        mine, theirs = (
            load_tensors(path / "models" / "last" / "iql_am" / f"{name}.th")
            for path in (whole, half)
        )
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    records = list(read_metrics(whole / "metrics.jsonl"))
    assert any("am_accuracy" in record for record in records)
    load = ["--run_name=again", "--t_max=10", f"--checkpoint_path={whole}"]  # too few to learn
    again = load_tensors(
        run(pool, tmp_path, *kind, *load) / "models" / "last" / "iql_am" / f"{file}.th"
    )
    assert all(torch.equal(mine[key], again[key]) for key in mine)


@pytest.mark.parametrize(
    ("there", "here", "answer"),
    [
        ((), ("--am_present=True",), "am_present=False there, True here"),
        ((), ("--am_feature=both",), "am_feature=latent there, both here"),
        ((), ("--liam_embed_dim=6",), "liam_embed_dim=5 there, 6 here"),
        ((), (ACTIONS,), "liam_others_actions=False there, True here"),
        (("--am_model=base_am",), HISTORY, "am_history=False there, True here"),
    ],
)
def test_a_checkpoint_with_other_features_is_refused_with_both_named(
    pool: Path, tmp_path: Path, there: tuple[str, ...], here: tuple[str, ...], answer: str
) -> None:
    made = run(pool, tmp_path, LIAM, *there, "--t_max=40", "--run_name=a")
    with pytest.raises(OmgError, match=answer) as refused:
        run(pool, tmp_path, LIAM, *there, *here, "--evaluate", f"--checkpoint_path={made}")
    assert "input_dim" not in str(refused.value)


@pytest.mark.long
@pytest.mark.parametrize("alg", ["iql_liam", "d3qn_liam", "ppo_liam"])
def test_the_presets_train_and_log_the_models_terms(pool: Path, tmp_path: Path, alg: str) -> None:
    given = [w for w in words(pool, f"--local_results_path={tmp_path}") if "iql_am" not in w]
    made = Path(train([f"--config={alg}", *given]).folder)
    logged = set().union(*(set(record) for record in read_metrics(made / "metrics.jsonl")))
    assert {"am_loss", "am_obs_loss", "am_action_loss", "am_accuracy"} <= logged
    assert (made / "models" / "last" / alg / "liam_am.th").is_file()


def test_what_was_inferred_is_stored_with_the_episodes(pool: Path) -> None:
    rollout = make_rollout(words(pool, LIAM, "--store_inference=True"))
    team = team_of(rollout)
    episodes, model = played(rollout), team.model
    packing = episodes.packing
    assert isinstance(model, LiamModel)
    stored = episodes.now("am_embedding")
    embedded = model.embed(team.policy.rows.stored(episodes), packing)[packing.now]
    torch.testing.assert_close(stored, embedded.detach(), atol=1e-5, rtol=1e-4)
    predicted = episodes.now("am_prediction").view(-1, 2, 6)
    torch.testing.assert_close(predicted.sum(-1), torch.ones(len(stored), 2))
