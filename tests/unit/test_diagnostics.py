"""Oracle, recorded inference, hit ratio, permutation, supervised ablation, discounted returns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from omg.cli.train import train
from omg.components.trajectories import SEAT
from omg.config.loader import load_command_line
from omg.controllers.team import MultiModuleMAC
from omg.envs.registry import make_batched
from omg.experiment.checks import sanity_check
from omg.experiment.output import read_metrics
from omg.functional import hit_ratio
from omg.learners.base import Progress
from omg.learners.q_learner import OMGLearner
from omg.modules.opponent_models.omg_am import SubgoalModel
from omg.modules.opponent_models.subgoal_hits import subgoal_hits
from omg.opponents.pool import OpponentPool
from omg.opponents.scripted_foraging import (
    MEMORY_DIM,
    SCRIPTS,
    act_together,
    board_of,
    make_script,
)
from omg.policies.inputs import StepView
from omg.runners import assembly
from omg.runners.rollout import Rollout
from omg.storage.files import load_tensors
from omg.types import OmgError

from .test_mixed_teams import CPU, KEY, SMALL, TASK, collect, make_rollout

SUBGOALS = ["--config=iql_omg", "--subgoal_dim=8", "--am_hidden_dim=32", "--prior_min_accuracy=0"]


@pytest.fixture(scope="module")
def pool(scripted_pool: Callable[..., Path]) -> Path:
    return scripted_pool("nearest_food", "highest_level", "top_left")


def words(pool: Path, *more: str) -> list[str]:
    return [*SMALL, f"--opponent_pool={pool}", *more, *TASK]


def mac_of(rollout: Rollout) -> MultiModuleMAC:
    assert isinstance(rollout.mac, MultiModuleMAC)
    return rollout.mac


# --- the oracle ------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("steps", [1, 4])
def test_the_oracle_foresees_where_the_others_are_if_one_stands_still(
    pool: Path, steps: int
) -> None:
    """Replay: the real game goes on with the learning agent standing still; what was foreseen
    `steps` ago must be where the others are now."""
    rollout = make_rollout(
        words(pool, "--config=d3qn_oracle", f"--oracle_steps={steps}"), copies=5, greedy=True
    )
    mac = mac_of(rollout)
    mac.policy.selector.select = lambda *args, **kw: torch.zeros(5, 1, dtype=torch.int64)  # type: ignore[assignment,method-assign]
    episodes = collect(rollout, 40)
    checked = 0
    for finished in episodes:
        batch = finished.episodes
        for row in range(len(batch)):
            length = int(batch.lengths[row])
            seat = int(batch[SEAT][row])
            players = batch["state"][row].view(-1, 5, 3)[:, 2:]
            others = [(seat + k) % 3 for k in (1, 2)]
            for t in range(length - 1):
                then = min(t + steps, length - 1)
                assert torch.equal(batch["foresight"][row, t], players[then, others])
                checked += 1
    assert checked > 50


@pytest.mark.long
def test_looking_ahead_leaves_the_game_and_the_others_memory_alone(pool: Path) -> None:
    """A game watched by the oracle equals one that is not, where the agent ignores what it sees."""
    played = []
    for model in ("none_am", "oracle_am"):
        rollout = make_rollout(words(pool, "--config=d3qn", f"--am_model={model}"), copies=5)
        mac = mac_of(rollout)
        mac.policy.selector.select = (  # type: ignore[method-assign]
            lambda outputs, avail, **kw: avail.int().argmax(-1)
        )
        played.append([f.episodes["state"] for f in collect(rollout, 30)])
    assert len(played[0]) == len(played[1]) > 0
    assert all(torch.equal(a, b) for a, b in zip(*played, strict=True))


def test_the_target_oracle_names_the_food_that_scripts_go_for(pool: Path) -> None:
    rollout = make_rollout(
        words(pool, "--config=d3qn_oracle", "--oracle_kind=target"), copies=5, greedy=True
    )
    foods_left = 0
    for finished in collect(rollout, 30):
        batch = finished.episodes
        for row in range(len(batch)):
            for t in range(int(batch.lengths[row]) - 1):
                foods = batch["state"][row, t].view(5, 3)[:2]
                foods_left += int((foods[:, 2] > 0).any())
                for target in batch["foresight"][row, t]:
                    assert any(torch.equal(target, food) for food in foods if food[2] > 0)
    assert foods_left > 30


@pytest.mark.long
def test_the_target_oracle_refuses_trained_opponents(pool: Path, tmp_path: Path) -> None:
    train([*SMALL, "--config=iql", f"--local_results_path={tmp_path}", "--run_name=iql", *TASK])
    mixed = OpponentPool.create(tmp_path / "mixed")
    mixed.add_script("nearest_food")
    mixed.add_run(tmp_path / "iql")
    with pytest.raises(OmgError, match="oracle_kind=future"):
        make_rollout(words(tmp_path / "mixed", "--config=d3qn_oracle", "--oracle_kind=target"))


def test_an_oracle_needs_games_that_can_be_copied(pool: Path) -> None:
    rollout = make_rollout(words(pool, "--config=d3qn_oracle"))
    mac, view = mac_of(rollout), rollout._view
    seen = StepView(
        obs=torch.from_numpy(view.obs),
        state=torch.from_numpy(view.state),
        avail=torch.from_numpy(view.avail),
        last_actions=torch.full((4, 3), -1),
    )
    with pytest.raises(OmgError, match="oracle_kind"):
        mac.act(seen, rollout._carry, env_steps=0, greedy=True, generator=torch.Generator())


def test_an_oracle_cannot_look_into_worker_processes(pool: Path) -> None:
    with pytest.raises(OmgError, match="runner=batch"):
        sanity_check(
            load_command_line(words(pool, "--config=d3qn_oracle", "--runner=parallel")).config
        )


def test_scripts_that_act_together_act_as_each_would_alone() -> None:
    env = make_batched("foraging", KEY, n_copies=60)
    view = env.reset(3)
    names = [name for name in SCRIPTS if name != "random"]
    scripts = [make_script(name) for name in names]
    members = np.arange(60) % len(scripts)
    seats = np.arange(60) % 3
    board = board_of(KEY)
    memory = np.zeros((60, MEMORY_DIM), np.int64)
    rng = np.random.default_rng(0)
    for _ in range(8):
        avail = view.avail[np.arange(60), seats]
        actions, after = act_together(
            scripts, members, view.state, seats, avail, memory, rng, board
        )
        for row in range(60):
            one = slice(row, row + 1)
            alone = act_together(
                [scripts[members[row]]],
                np.zeros(1, np.int64),
                view.state[one],
                seats[one],
                avail[one],
                memory[one],
                rng,
                board,
            )
            assert alone[0][0] == actions[row]
            assert (alone[1][0] == after[row]).all()
        memory = after
        joint = np.zeros((60, 3), np.int64)
        joint[np.arange(60), seats] = actions
        view = env.step(joint)


def test_only_the_players_of_the_training_side_play_in_pretraining(tmp_path: Path) -> None:
    """Beside the learning seat and in it, where a frozen player sits then."""
    split = OpponentPool.create(tmp_path / "split")
    for name in ("nearest_food", "highest_level"):
        split.add_script(name)
    for name in ("top_left", "centre", "random"):
        split.add_script(name, split="heldout")
    given = words(tmp_path / "split", *SUBGOALS, "--learner=am_learner")
    config, env = load_command_line(given).config, make_batched("foraging", KEY, n_copies=8)
    mac = assembly.make_controller(config, env.spec, CPU)
    rollout = assembly.make_rollout(config, env=env, mac=mac, stream="train", device=CPU)
    assert set(mac.players()) == {m.id for m in split.members("train")}
    drawn = torch.cat([f.episodes["lineup"] for f in collect(rollout, 40)])
    assert set(drawn.flatten().tolist()) == {0, 1}


# --- recorded inference ------------------------------------------------------------------------


def test_stored_inference_is_there_at_every_step_and_is_what_acting_used(pool: Path) -> None:
    """The original stored it at one step of 121 only."""
    rollout = make_rollout(words(pool, *SUBGOALS, "--store_inference", "--subgoal_posterior=mean"))
    mac = mac_of(rollout)
    assert isinstance(mac.model, SubgoalModel)
    steps = 0
    for finished in collect(rollout, 30):
        batch = finished.episodes
        played = mac.trajectories(batch)
        packing = played.packing
        with torch.no_grad():
            mean, log_var, _ = mac.model.posterior(mac.policy.rows.stored(played), packing)
        mean, log_var = packing.unpack(mean), packing.unpack(log_var)
        for row in range(len(batch)):
            acted = int(batch.lengths[row]) - 1
            stored = batch["am_mean"][row, :acted]
            assert (stored.abs().sum(-1) > 0).all()
            assert torch.allclose(stored, mean[row, :acted], atol=1e-5)
            assert torch.allclose(batch["am_log_var"][row, :acted], log_var[row, :acted], atol=1e-5)
            steps += acted
    assert steps > 50


@pytest.mark.long
@pytest.mark.parametrize("config", ["iql_am", "d3qn", "d3qn_control", "d3qn_oracle"])
def test_storing_inference_works_without_subgoals_too(
    pool: Path, tmp_path: Path, config: str
) -> None:
    """In the original it crashed every other algorithm."""
    run = [f"--config={config}", "--store_inference", f"--local_results_path={tmp_path}"]
    train(words(pool, *run, "--run_name=x", "--t_max=250"))
    assert (tmp_path / "x" / "models" / "last").is_dir()


def test_predictions_of_the_naive_model_are_stored_as_distributions(pool: Path) -> None:
    rollout = make_rollout(words(pool, "--config=iql_am", "--store_inference"))
    batch = collect(rollout, 20)[0].episodes
    acted = int(batch.lengths[0]) - 1
    assert torch.allclose(
        batch["am_prediction"][0, :acted].view(acted, 2, 6).sum(-1), torch.ones(acted, 2)
    )


# --- hit ratio ---------------------------------------------------------------------------------


class Teller(torch.nn.Module):
    """A decoder that says where the others are `ahead` steps later; -1: nowhere."""

    def __init__(self, answers: torch.Tensor) -> None:
        super().__init__()
        self.answers = torch.nn.Parameter(answers)

    def decode(self, subgoal: torch.Tensor) -> torch.Tensor:
        return self.answers


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_hit_ratios_of_episodes_equal_a_loop_over_them(pool: Path, ahead: int) -> None:
    rollout = make_rollout(
        words(pool, *SUBGOALS, "--store_inference", "--subgoal_source=opponents"), copies=8
    )
    mac = mac_of(rollout)
    model = mac.model
    assert isinstance(model, SubgoalModel)
    batch = max((f.episodes for f in collect(rollout, 40)), key=len)
    played = mac.trajectories(batch)
    packing, rows = played.packing, mac.policy.rows.stored(played)
    encoded = model.source(rows.state, rows.seats)
    slots, _ = packing.future(torch.arange(len(encoded)), max(ahead, 1))
    told = encoded[slots[:, -1]] if ahead else torch.full_like(encoded, -1.0)
    model.vae = Teller(told + 0.02)  # type: ignore[assignment]
    found = mac.judge(batch)["hit_ratio"]
    assert np.array_equal(found, subgoal_hits(model, rows, packing, played.pack("am_mean")))
    for row in range(len(batch)):
        length, seat = int(batch.lengths[row]), int(batch[SEAT][row])
        players = batch["state"][row, :length].view(length, 5, 3)[:, 2:]
        others = players[:, [(seat + 1) % 3, (seat + 2) % 3]].flatten(1)
        path = [tuple(state.tolist()) for state in others]
        predicted = [path[min(t + ahead, length - 1)] for t in range(length - 1)]
        expected = hit_ratio(predicted, path) if ahead else 0.0
        assert found[row] == pytest.approx(expected)
    assert (found.max() > 0) == (ahead > 0)


@pytest.mark.long
def test_the_hit_ratio_is_logged_in_tests_of_subgoal_agents(pool: Path, tmp_path: Path) -> None:
    common = words(pool, *SUBGOALS, f"--local_results_path={tmp_path}")
    train([*common, "--learner=am_learner", "--run_name=prior"])
    train([*common, f"--init_param_path={tmp_path / 'prior'}", "--run_name=agent"])
    records = list(read_metrics(tmp_path / "agent" / "metrics.jsonl"))
    ratios = [r["test_hit_ratio_mean"] for r in records if "test_hit_ratio_mean" in r]
    assert len(ratios) >= 2
    assert all(0 <= ratio <= 1 for ratio in ratios)


# --- permutation, ablation, returns --------------------------------------------------------------


def test_a_permuted_agent_is_fed_what_was_inferred_in_another_game(pool: Path) -> None:
    rollout = make_rollout(
        words(pool, *SUBGOALS, "--subgoal_feature=both", "--subgoal_posterior=mean"),
        copies=4,
        greedy=True,
    )
    rollout._carry["seat"][:] = torch.tensor([0, 1, 0, 2])
    mac = mac_of(rollout)
    permuted = mac.sibling(permute=True)
    assert permuted.model is mac.model
    assert permuted.policy is mac.policy
    fed: list[torch.Tensor] = []
    step = mac.policy.step

    def watched(*args: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        fed.append(args[3].squeeze(1))
        return step(*args)

    mac.policy.step = watched  # type: ignore[method-assign,assignment]
    with torch.inference_mode():
        view = rollout._view
        seen = StepView(
            obs=torch.from_numpy(view.obs),
            state=torch.from_numpy(view.state),
            avail=torch.from_numpy(view.avail),
            last_actions=torch.full((4, 3), -1),
        )
        for who in (mac.recording(), permuted):
            generator = torch.Generator().manual_seed(1)
            acted = who.act(seen, rollout._carry, env_steps=0, greedy=True, generator=generator)
            if who is not permuted:
                mean = torch.from_numpy(acted.extras["am_mean"].copy())
    latent = slice(0, 8)
    # copies 0 and 2 have the same seat and exchange; the others are alone in theirs
    assert torch.allclose(fed[1][:, latent], mean[[2, 1, 0, 3]])
    assert not torch.allclose(fed[1][0, latent], mean[0])


@pytest.mark.long
def test_the_supervised_ablation_learns_the_selected_subgoal_itself(pool: Path) -> None:
    rollout = make_rollout(
        words(pool, *SUBGOALS, "--subgoal_inference=mlp", "--subgoal_mode=fixed"), copies=8
    )
    mac = mac_of(rollout)
    assert isinstance(mac.model, SubgoalModel)
    assert set(mac.model.files()) == {"vae", "mlp", "cond_rnn", "fc"}
    learner = OMGLearner(config=mac._config, spec=rollout.env.spec, mac=mac, device=CPU)
    batch = max((f.episodes for f in collect(rollout, 40)), key=len)
    losses = [float(learner.train(batch, Progress(0, 0, 0))["am_loss"]) for _ in range(300)]
    assert losses[-1] < 0.3 * losses[0]
    played = mac.trajectories(batch)
    packing, rows = played.packing, mac.policy.rows.stored(played)
    with torch.no_grad():
        mean, _, _ = mac.model.posterior(rows, packing)
        target, _ = mac.model.vae.encode(mac.model.source(rows.state, rows.seats))
        error = (mean[packing.now] - target[packing.next]).square().mean()
        shuffled = (mean[packing.now] - target[packing.next.flip(0)]).square().mean()
    assert error < 0.5 * shuffled


@pytest.mark.long
def test_the_supervised_ablation_runs_saves_and_loads(pool: Path, tmp_path: Path) -> None:
    common = words(pool, *SUBGOALS, f"--local_results_path={tmp_path}")
    train([*common, "--learner=am_learner", "--run_name=prior"])
    ablation = [*common, "--subgoal_inference=mlp", f"--init_param_path={tmp_path / 'prior'}"]
    train([*ablation, "--run_name=agent"])
    saved = load_tensors(tmp_path / "agent" / "models" / "last" / "iql_omg" / "mlp.th")
    assert saved
    train([*ablation, "--evaluate", f"--checkpoint_path={tmp_path / 'agent'}"])
    with pytest.raises(OmgError, match="subgoal_inference"):
        train([*common, "--evaluate", f"--checkpoint_path={tmp_path / 'agent'}"])


def test_discounted_returns_are_those_of_the_learning_seats_rewards(pool: Path) -> None:
    rollout = make_rollout(words(pool, "--config=d3qn"), gamma=0.9)
    seen = False
    for finished in collect(rollout, 60):
        batch, info = finished.episodes, finished.stats.info
        for row in range(len(batch)):
            rewards = batch["reward"][row, :, int(batch[SEAT][row])]
            discounts = 0.9 ** torch.arange(len(rewards))
            expected = float((discounts * rewards).sum())
            assert info["own_discounted_return"][row] == pytest.approx(expected, abs=1e-5)
            seen |= expected > 0
    assert seen
