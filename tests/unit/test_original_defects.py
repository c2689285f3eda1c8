"""The ten defects of the original code cannot exist here: one section per defect.

| | defect of the original | tests, here unless a file is named |
|---|---|---|
| 1 | inference stored at 1 of 121 steps; other algorithms crashed | `test_1_stored_inference_reaches_the_learner_for_every_step`, `test_1_team_algorithms_run_with_store_inference`; test_diagnostics.py: `test_stored_inference_is_there_at_every_step_and_is_what_acting_used`, `test_storing_inference_works_without_subgoals_too` |
| 2 | lines commented in and out between the stages | test_omg.py: `test_the_three_original_commands_work_one_after_the_other`, `test_the_stages_run_one_after_the_other_and_resume_exactly` |
| 3 | another `obs_is_state` gave a traceback | test_stage_mismatches.py: `test_other_settings_are_named_with_the_checkpoint_and_the_remedy`, `test_opponents_that_were_fed_the_state_are_fed_the_state_whatever_the_agent_sees`, `test_a_run_is_not_continued_with_other_settings`; test_storage.py: `test_another_obs_is_state_names_checkpoint_settings_and_remedy` |
| 4 | with `obs_is_state` the prior's inputs did not match the mask | `test_4_with_the_state_as_observation_the_prior_learns_from_every_filled_slot`, `test_4_with_the_state_as_observation_both_stages_train`; test_inputs.py: `test_every_agent_is_fed_the_state_where_the_state_is_the_observation` |
| 5 | condition GRU detached at every step | `test_5_the_update_of_the_condition_is_that_of_a_loop_through_all_steps`; test_omg.py: `test_gradient_reaches_the_first_step_of_the_condition_from_the_last` |
| 6 | sizes written into the code | `test_6_the_whole_chain_runs_with_sizes_nobody_thought_of` |
| 7 | opponent models re-initialised | `test_7_weights_and_moments_of_an_opponent_model_go_on_from_a_checkpoint`, `test_7_the_loss_of_an_opponent_model_does_not_jump`; test_opponent_models.py: `test_every_model_trains_saves_and_resumes_exactly` |
| 8 | extra episodes to feed the opponent model | `test_8_no_step_is_made_beside_training_and_tests`, `test_8_the_opponent_model_learns_from_the_policys_own_batch` |
| 9 | time limits as terminations | test_rollout.py: `test_a_time_out_is_stored_as_a_truncation_and_an_emptied_field_as_a_termination`; test_q_learner.py: `test_values_of_the_two_state_game_are_those_solved_by_hand`; test_omg.py: `test_targets_equal_a_brute_force_loop` |
| 9 | targets not checkpointed | test_q_learner.py: `test_state_dict_restores_targets_and_optimiser_so_that_the_next_update_is_the_same` |
| 9 | parallel runner changed the updates | `test_9_worker_processes_give_the_same_training`; test_runs.py: `test_every_runner_makes_one_update_per_episode_after_the_first_batch` |
| 9 | statistics polluted by padding | `test_9_no_network_keeps_running_statistics`, `test_9_padding_changes_no_update`; test_q_learner.py: `test_padding_changes_neither_loss_nor_gradient` |
| 9 | evaluation on the training environments | `test_9_tests_leave_training_alone_whatever_their_interval`, `test_8_no_step_is_made_beside_training_and_tests`; test_runs.py: `test_testing_more_often_does_not_change_training` |
| 10 | `requirements.txt` could not be installed | `test_10_dependencies_are_plain_names_with_ranges_that_hold_here`, `test_10_every_imported_package_is_declared`, `test_10_every_list_of_requirements_can_be_installed` |
"""  # noqa: E501

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from torch import nn

from omg.cli.train import train
from omg.components.episodes import EpisodeBatch, environment_scheme
from omg.components.seeding import SeedTree
from omg.components.trajectories import ReplayBuffer, Trajectories
from omg.config.loader import load_command_line
from omg.controllers.team import MultiModuleMAC
from omg.envs.foraging.env import ForagingEnv
from omg.envs.registry import make_batched
from omg.experiment.output import read_metrics
from omg.functional import gaussian_kl
from omg.learners import LEARNERS
from omg.learners.am_learner import ModelLearner
from omg.learners.base import Learner, Progress
from omg.learners.q_learner import OMGLearner, QLearner
from omg.modules.opponent_models.omg_am import SubgoalModel
from omg.opponents.pool import OpponentPool
from omg.policies.inputs import ModelRowBuilder
from omg.runners.rollout import Rollout, run_test
from omg.storage.files import load_tensors

from . import odd_game
from .odd_game import ODD
from .test_mixed_teams import CPU, SMALL, TASK

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PLAIN = [word for word in SMALL if not word.startswith("--env-config")]
SUBGOALS = ["--config=iql_omg", "--subgoal_dim=7", "--am_hidden_dim=36", "--prior_min_accuracy=0"]
SUBGOALS += ["--subgoal_horizon=3"]


class Workshop:
    """Small runs on Foraging against scripts, or on the odd game against a team trained there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.scripts = OpponentPool.create(root / "scripts")
        for name in ("nearest_food", "highest_level"):
            self.scripts.add_script(name)
        self._priors: dict[tuple[str, ...], Path] = {}
        self._odd_pool: Path | None = None

    def foraging(self, *words: str) -> list[str]:
        return [*SMALL, f"--opponent_pool={self.scripts.path}", *words, *TASK]

    def odd(self, *words: str) -> list[str]:
        return [*PLAIN, f"--env={ODD}", f"--opponent_pool={self.odd_pool}", *words]

    @property
    def odd_pool(self) -> Path:
        if self._odd_pool is None:
            common = [*PLAIN, f"--env={ODD}", "--rnn_hidden_dim=13", "--t_max=30"]
            run = self.run([*common, "--config=iql"])
            self._odd_pool = self.root / "odd_pool"
            OpponentPool.create(self._odd_pool).add_run(run)
        return self._odd_pool

    def run(self, words: list[str]) -> Path:
        return Path(train([*words, f"--local_results_path={self.root}"]).folder)

    def prior(self, words: list[str]) -> str:
        """The word that names a prior of these settings."""
        key = tuple(words)
        if key not in self._priors:
            self._priors[key] = self.run([*words, "--learner=am_learner", "--t_max=120"])
        return f"--init_param_path={self._priors[key]}"


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("workshop"))


def seated(words: list[str], *, copies: int = 6) -> Rollout:
    """Games of what a command line describes, in this process."""
    config = load_command_line(words).config
    env = make_batched(config.env, config.env_args, n_copies=copies)
    torch.manual_seed(0)
    mac = MultiModuleMAC(config=config, spec=env.spec, device=CPU)
    return Rollout(
        env=env,
        mac=mac,
        scheme=environment_scheme(env.spec, common_reward=False).extend(mac.record_fields()),
        seeds=SeedTree(1),
        stream="train",
        device=CPU,
        common_reward=False,
        reward_scalarisation="sum",
    )


def mac_of(rollout: Rollout) -> MultiModuleMAC:
    assert isinstance(rollout.mac, MultiModuleMAC)
    return rollout.mac


def learner_of(rollout: Rollout) -> Learner:
    mac = mac_of(rollout)
    kind = LEARNERS[mac._config.learner]
    return kind(config=mac._config, spec=rollout.env.spec, mac=mac, device=CPU)


def unequal(rollout: Rollout, count: int = 6) -> EpisodeBatch:
    """A sample of episodes of different lengths, as a learner gets them."""
    buffer = ReplayBuffer(
        rollout._staging.scheme, capacity=99, max_seq_length=rollout.env.spec.episode_limit + 1
    )
    while not buffer.can_sample(count):
        finished = rollout.step(0)
        if finished is not None:
            buffer.insert_episode_batch(finished.episodes)
    batch = buffer.sample(count, SeedTree(3).numpy("sample"))
    assert len(set(batch.lengths.tolist())) > 1
    return batch


def networks(run: Path) -> dict[str, dict[str, torch.Tensor]]:
    """All weights a run left, by file."""
    last = run / "models" / "last"
    files = [path for path in last.glob("**/*.th") if path.name != "opt.th"]
    return {str(path.relative_to(last)): load_tensors(path) for path in files}


def assert_same_weights(one: Path, other: Path) -> None:
    mine, theirs = networks(one), networks(other)
    assert mine.keys() == theirs.keys() != set()
    for name, state in mine.items():
        assert all(torch.equal(value, theirs[name][key]) for key, value in state.items()), name


def logged(run: Path, name: str) -> list[float]:
    return [r[name] for r in read_metrics(run / "metrics.jsonl") if name in r]


# --- 1: stored inference -----------------------------------------------------------------------


@pytest.mark.long
def test_1_stored_inference_reaches_the_learner_for_every_step(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = workshop.foraging(*SUBGOALS)
    sampled: list[EpisodeBatch] = []
    sample = ReplayBuffer.sample

    def watched(self: ReplayBuffer, *args: Any) -> EpisodeBatch:
        sampled.append(sample(self, *args))
        return sampled[-1]

    monkeypatch.setattr(ReplayBuffer, "sample", watched)
    workshop.run([*words, workshop.prior(words), "--store_inference", "--t_max=150"])
    episodes = [batch for batch in sampled if "am_mean" in batch.scheme.fields]
    assert episodes
    for batch in episodes:
        time = torch.arange(batch.max_seq_length)
        acted = time < (batch.lengths - 1).unsqueeze(1)
        for name in ("am_mean", "am_log_var"):
            there = batch[name].abs().sum(-1) > 0
            assert torch.equal(there, acted), name
        means = batch["am_mean"]
        moved = (means[:, 1:] - means[:, :-1]).abs().sum(-1)[acted[:, 1:]]
        assert (moved > 0).all(), "every step has an inference of its own"


@pytest.mark.parametrize("config", ["iql", "qmix"])
def test_1_team_algorithms_run_with_store_inference(workshop: Workshop, config: str) -> None:
    run = workshop.run([*SMALL, f"--config={config}", "--store_inference", "--t_max=150", *TASK])
    assert logged(run, "loss")


# --- 4: the state as observation ---------------------------------------------------------------


@pytest.mark.parametrize("source", ["state", "opponents"])
def test_4_with_the_state_as_observation_the_prior_learns_from_every_filled_slot(
    workshop: Workshop, source: str
) -> None:
    """Three agents, unequal lengths: the loss is that of a loop over episodes and steps."""
    words = workshop.odd(*SUBGOALS, "--obs_is_state", f"--subgoal_source={source}")
    rollout = seated([*words, "--learner=am_learner"])
    learner, mac = learner_of(rollout), mac_of(rollout)
    assert isinstance(learner, ModelLearner)
    assert isinstance(mac.model, SubgoalModel)
    batch = unequal(rollout)
    played = mac.trajectories(batch)
    packing, rows = played.packing, mac.policy.rows.stored(played)
    assert rows.own.shape == (int(batch.lengths.sum()), odd_game.STATE)
    divergences, places = [], []
    for row in range(len(batch)):
        seat = batch["agent_idx"][row].reshape(1)
        for t in range(int(batch.lengths[row])):
            state = batch["state"][row, t].reshape(1, -1)
            mean, log_var = mac.model.vae.encode(mac.model.source(state, seat))
            zeros = torch.zeros_like(mean)
            divergences.append(gaussian_kl(mean, log_var, zeros, zeros))
            places.append(((packing.episode == row) & (packing.time == t)).nonzero().item())
            assert torch.equal(rows.own[places[-1]], state[0])
    assert sorted(places) == list(range(len(rows.own)))
    expected = torch.cat(divergences).mean().detach()
    found = learner.train(batch, Progress(0, 0, 0))["prior_kl"]
    torch.testing.assert_close(found, expected)


@pytest.mark.long
@pytest.mark.parametrize("game", ["odd", "foraging"])
def test_4_with_the_state_as_observation_both_stages_train(workshop: Workshop, game: str) -> None:
    words = getattr(workshop, game)(*SUBGOALS, "--obs_is_state")
    if game == "foraging":  # so that observation and state differ in width there, too
        words.append("env_args.observe_agent_levels=False")
    run = workshop.run([*words, workshop.prior(words), "--t_max=150"])
    losses = logged(run, "am_loss")
    assert losses
    assert all(loss == loss for loss in losses)


# --- 5: gradient through time ------------------------------------------------------------------


def test_5_the_update_of_the_condition_is_that_of_a_loop_through_all_steps(
    workshop: Workshop,
) -> None:
    words = workshop.odd(*SUBGOALS, "--subgoal_posterior=mean", "--subgoal_mode=fixed")
    rollout = seated([*words, "--am_kl_weight=1"])
    learner, model = learner_of(rollout), mac_of(rollout).model
    assert isinstance(learner, OMGLearner)
    assert isinstance(model, SubgoalModel)
    batch = unequal(rollout)
    played = mac_of(rollout).trajectories(batch)
    packing, rows = played.packing, mac_of(rollout).policy.rows.stored(played)
    prior = model.vae.encode(model.source(rows.state, rows.seats))

    def slow(detach: bool) -> torch.Tensor:
        """The gradient of the same loss, one step of one episode at a time."""
        kls, recons = [], []
        for row in range(len(batch)):
            slots = [
                int(((packing.episode == row) & (packing.time == t)).nonzero())
                for t in range(int(batch.lengths[row]))
            ]
            hidden = torch.zeros(1, 27)
            before = torch.zeros(1, odd_game.OBS)
            for slot, following in pairwise(slots):
                here = rows.take(torch.tensor([slot]))
                hidden = hidden.detach() if detach else hidden
                hidden = model.cond_rnn(model._history(here, before), hidden)
                before = here.own
                mean, log_var = model.inference.encode(model._embed(here), hidden)
                goal = (prior[0][[following]], prior[1][[following]])
                kls.append(gaussian_kl(mean, log_var, *goal))
                recons.append(model.reconstruction(here, mean, hidden))
        loss = torch.stack(recons).mean() + torch.cat(kls).mean()
        (gradient,) = torch.autograd.grad(loss, [model.cond_rnn.weight_hh])
        return gradient

    through, cut = slow(detach=False), slow(detach=True)
    assert not torch.allclose(through, cut, rtol=0.05), "the test must tell them apart"
    learner.train(batch, Progress(0, 0, 0))
    assert model.cond_rnn.weight_hh.grad is not None
    torch.testing.assert_close(model.cond_rnn.weight_hh.grad, through, atol=1e-5, rtol=1e-3)


# --- 6: sizes ----------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("source", ["state", "opponents"])
def test_6_the_whole_chain_runs_with_sizes_nobody_thought_of(
    workshop: Workshop, source: str
) -> None:
    """Opponents, prior, agent, acting and tests with 3 agents, 5 actions, 7-d subgoals."""
    words = workshop.odd(*SUBGOALS, f"--subgoal_source={source}", "--rnn_hidden_dim=11")
    run = workshop.run([*words, workshop.prior(words), "--subgoal_feature=both", "--t_max=150"])
    assert logged(run, "loss")
    assert logged(run, "test_hit_ratio_mean")
    saved = {
        name.removeprefix("iql_omg/"): {key: tuple(value.shape) for key, value in state.items()}
        for name, state in networks(run).items()
    }
    encoded = {"state": 11, "opponents": 2 * 3 + 2}[source]
    assert saved["vae.th"]["encoder.0.weight"] == (36, encoded)
    assert saved["vae.th"]["encoder.4.weight"] == (2 * 7, 36)
    assert saved["fc.th"]["weight"] == (9, 4)
    assert saved["cond_rnn.th"]["weight_ih"] == (3 * 27, 4 + 3 * 5)
    assert saved["cvae.th"]["encoder.0.weight"] == (36, 9 + 27)
    assert saved["cvae.th"]["decoder.0.weight"] == (36, 7 + 27)
    # Observation, last action, seat, subgoal, and where the two others will be.
    assert saved["agent.th"]["fc1.weight"] == (11, 4 + 5 + 3 + 7 + 2 * 3)


# --- 7: opponent models are continued ----------------------------------------------------------


def agent_words(workshop: Workshop, model: str) -> list[str]:
    if model == "naive":
        return workshop.foraging("--config=iql_am", "--am_hidden_dim=36")
    if model == "moa":
        return workshop.foraging("--config=iql_moa", "--moa_goal=none", "--moa_min_size=1")
    words = workshop.foraging(*SUBGOALS)
    return [*words, workshop.prior(words)]


def moments(run: Path) -> Mapping[int, Mapping[str, torch.Tensor]]:
    state = load_tensors(run / "models" / "last" / "opt.th")["am"]["state"]
    assert state
    return dict(state)


@pytest.mark.long
@pytest.mark.parametrize("model", ["naive", "subgoals"])
def test_7_weights_and_moments_of_an_opponent_model_go_on_from_a_checkpoint(
    workshop: Workshop, model: str
) -> None:
    words = agent_words(workshop, model)
    first = workshop.run([*words, "--t_max=150"])
    assert logged(first, "am_loss")
    # Too short for an update: what it saves is what it loaded.
    second = workshop.run([*words, f"--checkpoint_path={first}", "--t_max=4"])
    assert not logged(second, "am_loss")
    files = {"naive": {"base_am.th"}, "subgoals": {"vae.th", "cvae.th", "cond_rnn.th", "fc.th"}}
    assert {name.split("/")[1] for name in networks(first)} == {"agent.th", *files[model]}
    assert_same_weights(first, second)
    old, new = moments(first), moments(second)
    assert old.keys() == new.keys()
    for number, state in old.items():
        assert {"step", "exp_avg", "exp_avg_sq"} <= state.keys()
        for name, value in state.items():
            assert torch.equal(value, new[number][name]), name
        assert state["step"] > 1


@pytest.mark.long
def test_7_the_loss_of_an_opponent_model_does_not_jump(workshop: Workshop) -> None:
    """Neither within a run nor where a second one goes on from the first."""
    words = [*agent_words(workshop, "naive"), "--am_lr=0.01", "--updates_per_episode=3"]
    words += ["--learner_log_interval=1", "--batch_size=8"]
    first = workshop.run([*words, "--t_max=250"])
    second = workshop.run([*words, "--t_max=150", f"--checkpoint_path={first}"])
    losses = logged(first, "am_loss"), logged(second, "am_loss")
    begun = losses[0][0]
    settled = max(losses[0][-5:])
    assert settled < 0.75 * begun
    later = [*losses[0][len(losses[0]) // 2 :], *losses[1]]
    assert max(later) < 0.85 * begun


# --- 8: no extra episodes ----------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(("model", "loss"), [("subgoals", "am_loss"), ("moa", "moa_loss")])
def test_8_no_step_is_made_beside_training_and_tests(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, model: str, loss: str
) -> None:
    """Steps are counted where they happen, in the environment."""
    words = [*agent_words(workshop, model), "--t_max=120", "--test_interval=100"]
    made: Counter[int] = Counter()
    environments: dict[int, ForagingEnv] = {}
    in_tests = 0
    step = ForagingEnv.step

    def counting(self: ForagingEnv, actions: Any) -> Any:
        environments[id(self)] = self
        made[id(self)] += self.n_copies
        return step(self, actions)

    def testing_only(rollout: Rollout, *args: Any, **options: Any) -> Any:
        nonlocal in_tests
        before = Counter(made)
        result = run_test(rollout, *args, **options)
        assert set(made - before) == {id(rollout.env)}, "tests have environments of their own"
        in_tests += sum((made - before).values())
        return result

    monkeypatch.setattr(ForagingEnv, "step", counting)
    monkeypatch.setattr("omg.experiment.training.run_test", testing_only)
    run = workshop.run(words)
    steps = [r["t_env"] for r in read_metrics(run / "metrics.jsonl")]
    assert len(environments) == 2, "one for training, one for tests"
    assert len(logged(run, "test_return_mean")) >= 4
    assert logged(run, loss)
    assert sum(made.values()) == steps[-1] + in_tests
    assert steps[-1] in made.values()


@pytest.mark.long
@pytest.mark.parametrize(("model", "learner"), [("naive", QLearner), ("subgoals", OMGLearner)])
def test_8_the_opponent_model_learns_from_the_policys_own_batch(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, model: str, learner: type[Any]
) -> None:
    words = [*agent_words(workshop, model), "--t_max=120"]
    sampled: list[EpisodeBatch] = []
    learned: list[EpisodeBatch] = []
    seen_by_model: list[EpisodeBatch] = []
    sample, learn, rows = ReplayBuffer.sample, learner.train, ModelRowBuilder.stored
    judge, judging = MultiModuleMAC.judge, False

    def sampling(self: ReplayBuffer, *args: Any) -> EpisodeBatch:
        sampled.append(sample(self, *args))
        return sampled[-1]

    def learning(self: Any, batch: EpisodeBatch, progress: Progress) -> Any:
        learned.append(batch)
        return learn(self, batch, progress)

    def building(self: ModelRowBuilder, played: Trajectories, *who: Any) -> Any:
        if not judging:
            seen_by_model.append(played.team)
        return rows(self, played, *who)

    def judged(self: MultiModuleMAC, episodes: EpisodeBatch) -> Any:
        nonlocal judging  # hit ratios of finished tests: nothing is learned from them
        judging = True
        found = judge(self, episodes)
        judging = False
        return found

    monkeypatch.setattr(ReplayBuffer, "sample", sampling)
    monkeypatch.setattr(learner, "train", learning)
    monkeypatch.setattr(ModelRowBuilder, "stored", building)
    monkeypatch.setattr(MultiModuleMAC, "judge", judged)
    run = workshop.run(words)
    assert len(learned) == logged(run, "updates")[-1] > 3
    assert [id(batch) for batch in learned] == [id(batch) for batch in sampled]
    in_order = [id(batch) for batch in dict.fromkeys(seen_by_model)]
    assert in_order == [id(batch) for batch in learned]


# --- 9: runners, tests, padding ----------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("model", ["naive", "subgoals"])
def test_9_tests_leave_training_alone_whatever_their_interval(
    workshop: Workshop, model: str
) -> None:
    words = [*agent_words(workshop, model), "--t_max=200"]
    rarely = workshop.run([*words, "--test_interval=100000"])
    often = workshop.run([*words, "--test_interval=50", "--test_nepisode=3"])
    assert len(logged(often, "test_return_mean")) > 5 > len(logged(rarely, "test_return_mean"))
    assert_same_weights(rarely, often)
    assert logged(rarely, "loss") == logged(often, "loss")


@pytest.mark.long
def test_9_worker_processes_give_the_same_training(workshop: Workshop) -> None:
    words = [*agent_words(workshop, "naive"), "--t_max=120", "--n_workers=2"]
    here = workshop.run([*words, "--runner=batch"])
    there = workshop.run([*words, "--runner=parallel"])
    assert logged(here, "updates")[-1] > 3
    for name in ("updates", "episodes", "loss", "am_loss"):
        assert logged(here, name) == logged(there, name), name
    assert_same_weights(here, there)


LEARNED = {
    "naive": ("q_learner_4am", ["--config=iql_am"]),
    "subgoals": ("omg_learner", SUBGOALS),
    "prior": ("am_learner", SUBGOALS),
}


@pytest.mark.parametrize("what", LEARNED)
def test_9_padding_changes_no_update(workshop: Workshop, what: str) -> None:
    """Garbage behind the episodes' ends and longer padding: the same numbers and weights."""
    learner_name, own = LEARNED[what]
    outcomes = []
    for garbage in (False, True):
        rollout = seated(workshop.odd(*own, f"--learner={learner_name}"))
        batch = unequal(rollout)
        learner = learner_of(rollout)
        if garbage:
            batch = padded_with_garbage(batch)
        metrics = learner.train(batch, Progress(0, 0, 0))
        weights = [p.clone() for n in learner.networks().values() for p in n.parameters()]
        outcomes.append((metrics, weights))
    (clean, weights), (dirty, same) = outcomes
    for name, value in clean.items():
        torch.testing.assert_close(value, dirty[name], atol=1e-6, rtol=1e-5, msg=name)
    for mine, theirs in zip(weights, same, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=1e-5)


def padded_with_garbage(batch: EpisodeBatch) -> EpisodeBatch:
    longer = EpisodeBatch(
        batch.scheme, batch_size=len(batch), max_seq_length=batch.max_seq_length + 4
    )
    longer.filled[:, : batch.max_seq_length] = batch.filled
    for name, field in batch.scheme.fields.items():
        place = longer.raw(name)
        if field.episode_const:
            place.copy_(batch.raw(name))
            continue
        place[:, : batch.max_seq_length] = batch.raw(name)
        place[~longer.filled] = 1 if name in ("terminated", "actions", "avail_actions") else 77
    return longer


@pytest.mark.parametrize("config", ["iql", "qmix", "iql_am", "iql_omg", "d3qn_omg_tuned"])
def test_9_no_network_keeps_running_statistics(workshop: Workshop, config: str) -> None:
    config_words = [f"--config={config}"]
    words = workshop.foraging(*config_words)
    if config in ("iql", "qmix"):
        words = [*SMALL, *config_words, *TASK]
    from omg.controllers import CONTROLLERS

    read = load_command_line(words).config
    spec = make_batched(read.env, read.env_args, n_copies=1).spec
    mac = CONTROLLERS[read.mac](config=read, spec=spec, device=CPU)
    learner = LEARNERS[read.learner](config=read, spec=spec, mac=mac, device=CPU)
    for network in learner.networks().values():
        assert not [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._NormBase)]
        saved = {name for name, _ in network.named_parameters()}
        assert set(network.state_dict()) == saved, "all that is saved is learned"


# --- 10: installing ----------------------------------------------------------------------------


def project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: dict[str, Any] = tomllib.load(file)["project"]
    return found


def declared(*, without: str = "") -> dict[str, Requirement]:
    """Every requirement of pyproject.toml by name, those of extras included but `without`."""
    told = project()
    extras = [list_ for name, list_ in told["optional-dependencies"].items() if name != without]
    found = [Requirement(line) for list_ in (told["dependencies"], *extras) for line in list_]
    return {canonicalize_name(r.name): r for r in found if r.name != told["name"]}


def test_10_dependencies_are_plain_names_with_ranges_that_hold_here() -> None:
    """Nothing is a file, an address or one exact build, and what is installed satisfies it."""
    required = {canonicalize_name(Requirement(r).name) for r in project()["dependencies"]}
    for name, requirement in declared().items():
        assert requirement.url is None, name
        exact = [s for s in requirement.specifier if s.operator in ("==", "===")]
        assert not exact, f"{name} is pinned; constraints.txt is the place for that"
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            assert name not in required, name
            continue
        assert requirement.specifier.contains(version, prereleases=True), (name, version)


def imports(path: Path) -> Iterator[str]:
    """Top-level modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.split(".")[0]


@pytest.mark.long
def test_10_every_imported_package_is_declared() -> None:
    brought_by = metadata.packages_distributions()
    known = declared(without="dev")
    used: dict[str, Path] = {}
    for path in sorted((ROOT / "omg").rglob("*.py")):
        used.update(dict.fromkeys(imports(path), path))
    foreign = {m: p for m, p in used.items() if m not in sys.stdlib_module_names and m != "omg"}
    assert {"torch", "numpy", "yaml"} <= foreign.keys()
    for module, path in foreign.items():
        names = {canonicalize_name(name) for name in brought_by.get(module, [module])}
        assert names & known.keys(), f"{path} imports {module}, which pyproject.toml lacks"


def test_10_every_list_of_requirements_can_be_installed() -> None:
    """Each line names a package and versions that agree with pyproject.toml."""
    lists = [*ROOT.glob("requirements*.txt"), *ROOT.glob("constraints*.txt")]
    assert [path.name for path in lists] == ["constraints.txt"]
    for path in lists:
        for line in path.read_text(encoding="utf-8").splitlines():
            text = line.partition("#")[0].strip()
            if not text:
                continue
            try:
                pin = Requirement(text)
            except InvalidRequirement as error:
                pytest.fail(f"{path.name}: {line}: {error}")
            assert pin.url is None, line
            asked = declared().get(canonicalize_name(pin.name))
            for exact in (s.version for s in pin.specifier if s.operator == "=="):
                assert asked is None or asked.specifier.contains(exact), line


# --- the table ---------------------------------------------------------------------------------


def test_every_test_named_in_the_table_exists() -> None:
    assert __doc__ is not None
    named = set(re.findall(r"`(test_\w+)`", __doc__))
    assert len(named) > 25
    defined = {
        match
        for path in (ROOT / "tests").rglob("test_*.py")
        for match in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert named <= defined, named - defined
    here = {name for name in globals() if re.match(r"test_\d", name)}
    assert here <= named, here - named
