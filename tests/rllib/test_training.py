"""RLlib's PPO and DQN with our opponent models: what they play, learn, report and restore."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
import torch
from ray.rllib.algorithms.algorithm import Algorithm

from omg.integrations.rllib import export_module, export_policy, load_module
from omg.integrations.rllib.episodes import whole_episode
from omg.integrations.rllib.layout import Layout
from omg.integrations.rllib.modules import OmgPPOModule
from omg.integrations.rllib.settings import KEY
from omg.types import OmgError
from tests.rllib.playing import (
    HOSTS,
    LEAVERS,
    OMG,
    game_of,
    leaver_config,
    make_prior,
    settings_of,
)

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("local_ray")]
MOA = {"moa_goal": "discrete", "moa_min_size": 8, "moa_batch_size": 16, "updates_per_episode": 0.5}
ALGORITHMS = {"ppo": "ppo_moa", "dqn": "d3qn_moa"}
QUICK_DQN = {
    "num_steps_sampled_before_learning_starts": 40,
    "train_batch_size_per_learner": 16,
}


def built(host: str, **given: Any) -> Algorithm:
    """A host with MOA on the game of leavers, without remote workers."""
    config = leaver_config(host, alg=ALGORITHMS[host], **{**MOA, **given})
    config.env_runners(num_env_runners=0)
    if host == "dqn":
        config.training(**QUICK_DQN)
        config.reporting(min_sample_timesteps_per_iteration=64)
    return config.build_algo()


def learner_of(algorithm: Algorithm) -> Any:
    return algorithm.learner_group._learner


def told(results: dict[str, Any]) -> dict[str, float]:
    return {k: v for k, v in results["learners"]["shared"].items() if not isinstance(v, dict)}


def test_ppo_plays_as_many_episodes_as_rllib_asked_for_and_learns_from_each_once() -> None:
    algorithm = built("ppo")
    seen: list[Any] = []
    learner = learner_of(algorithm)
    collect = learner.collect

    def noting(episodes: Any) -> None:
        layout = Layout(settings.spec, settings.window)
        seen.extend(whole_episode(episode, layout) for episode in episodes)
        collect(episodes)

    settings = settings_of(algorithm.config)
    learner.collect = noting
    game = game_of(algorithm.env_runner)
    checked = game.episodes  # RLlib tries an environment when it is made
    results = [algorithm.train() for _ in range(3)][-1]
    asked = int(results["env_runners"]["num_episodes_lifetime"])
    assert game.episodes - checked == asked == len(seen)
    assert int(told(results)["am_episodes"]) == asked
    buffer = learner.models["shared"].buffer
    assert buffer.episodes_in_buffer == min(asked, 64)
    stored = buffer.take_all()
    for row, wanted in enumerate(seen[-64:]):
        length = int(wanted.lengths[0])
        assert int(stored.lengths[row]) == length
        for name in wanted.scheme.fields:
            torch.testing.assert_close(stored[[row]].raw(name)[:, :length], wanted.raw(name))
    algorithm.stop()


def test_dqn_plays_what_rllib_asked_for_and_passes_each_finished_episode_on() -> None:
    algorithm = built("dqn")
    game = game_of(algorithm.env_runner)
    checked = game.episodes
    results = [algorithm.train() for _ in range(2)][-1]
    finished = int(results["env_runners"]["num_episodes_lifetime"])
    assert finished <= game.episodes - checked <= finished + 1  # one may be running
    assert finished - 2 <= int(told(results)["am_episodes"]) <= finished
    steps = int(results["env_runners"]["num_env_steps_sampled_lifetime"])
    assert algorithm.local_replay_buffer.get_num_timesteps() == steps
    algorithm.stop()


@pytest.mark.parametrize("host", ["ppo", "dqn"])
def test_metrics_of_the_opponent_model_stand_in_rllib_s_results(host: str) -> None:
    algorithm = built(host)
    found: dict[str, float] = {}
    for _ in range(4):
        found |= told(algorithm.train())
    for name in ("moa_loss", "moa_accuracy", "am_updates", "am_episodes"):
        assert np.isfinite(found[name]), name
    assert 0.0 <= found["moa_accuracy"] <= 1.0
    algorithm.stop()


@pytest.mark.parametrize("host", ["ppo", "dqn"])
def test_a_restored_algorithm_goes_on_where_the_other_stopped(host: str, tmp_path: Path) -> None:
    algorithm = built(host)
    for _ in range(3):
        algorithm.train()
    path = algorithm.save_to_path(str(tmp_path / "checkpoint"))
    restored = Algorithm.from_checkpoint(path)
    for name, weights in learner_of(algorithm).module["shared"].state_dict().items():
        torch.testing.assert_close(
            learner_of(restored).module["shared"].state_dict()[name], weights
        )
    first, second = (learner_of(a).models["shared"] for a in (algorithm, restored))
    assert_same(first.state_dict(), second.state_dict())
    if host == "dqn":
        sizes = [a.local_replay_buffer.get_num_timesteps() for a in (algorithm, restored)]
        assert sizes[0] == sizes[1] > 0
        updated = [dict(learner_of(a).last_update_ts_by_mid) for a in (algorithm, restored)]
        assert updated[0] == updated[1]
    losses = [later(a) for a in (algorithm, restored)]
    assert losses[1]["am_updates"] == pytest.approx(losses[0]["am_updates"], abs=8)
    assert losses[1]["moa_loss"] == pytest.approx(losses[0]["moa_loss"], abs=0.25)
    for each in (algorithm, restored):
        each.stop()


def later(algorithm: Algorithm) -> dict[str, float]:
    """What two more iterations tell, in at least one of which MOA learns."""
    return {**told(algorithm.train()), **told(algorithm.train())}


def assert_same(first: Any, second: Any) -> None:
    """Equal in everything, however deep."""
    if isinstance(first, dict):
        assert first.keys() == second.keys()
        for name in first:
            assert_same(first[name], second[name])
    elif isinstance(first, torch.Tensor):
        torch.testing.assert_close(second, first)
    elif isinstance(first, list | tuple):
        for one, other in zip(first, second, strict=True):
            assert_same(one, other)
    else:
        assert first == second


def test_omg_learns_from_the_current_episodes_and_its_prior_stays(tmp_path: Path) -> None:
    prior = make_prior(tmp_path / "prior", "ppo_omg", env=LEAVERS, **OMG)
    algorithm = built_omg(prior)
    model = learner_of(algorithm).module["shared"].opponent_model
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found: dict[str, float] = {}
    for _ in range(3):
        found |= told(algorithm.train())
    for name, value in model.state_dict().items():
        if name.startswith("vae."):
            torch.testing.assert_close(value, before[name])
    changed = [n for n, v in model.state_dict().items() if not torch.equal(v, before[n])]
    assert any(name.startswith("inference.") for name in changed)
    assert np.isfinite(found["am_loss"])
    assert np.isfinite(found["am_kl"])
    module = algorithm.env_runner.module["shared"]
    assert isinstance(module, OmgPPOModule)
    for name, value in module.opponent_model.state_dict().items():
        torch.testing.assert_close(value, model.state_dict()[name])
    path = algorithm.save_to_path(str(tmp_path / "checkpoint"))
    algorithm.stop()
    shutil.rmtree(tmp_path / "prior")  # a restored algorithm has its weights and needs it no more
    restored = Algorithm.from_checkpoint(path)
    restored.train()
    restored.stop()


def built_omg(prior: str, **given: Any) -> Algorithm:
    config = leaver_config(alg="ppo_omg", init_param_path=prior, **{**OMG, **given})
    config.env_runners(num_env_runners=0)
    return config.build_algo()


def test_a_checkpoint_of_other_settings_is_refused(tmp_path: Path) -> None:
    algorithm = built("ppo")
    state = learner_of(algorithm).get_state()
    other = leaver_config("ppo", alg="ppo_am").env_runners(num_env_runners=0).build_algo()
    with pytest.raises(OmgError, match=r"lacks|opponent models"):
        learner_of(other).set_state(state)
    for each in (algorithm, other):
        each.stop()


def test_weights_travel_to_runners_without_the_models_buffers() -> None:
    algorithm = built("ppo")
    algorithm.train()
    learner = learner_of(algorithm)
    assert KEY not in learner.get_state(components=["rl_module"], inference_only=True)
    whole = learner.get_state()
    assert whole[KEY]["models"]["shared"]["episodes"] > 0
    learner.set_state({"rl_module": whole["rl_module"]})  # weights alone are taken
    with pytest.raises(OmgError, match="nothing of the opponent models of shared"):
        learner.set_state({name: part for name, part in whole.items() if name != KEY})
    algorithm.stop()


def test_two_runners_deliver_and_one_that_dies_is_replaced() -> None:
    # The game is a class outside omg: workers may import it because this program named it.
    config = leaver_config("ppo", alg="ppo_moa", **MOA)
    config.env_runners(num_env_runners=2)
    config.fault_tolerance(restart_failed_env_runners=True)
    algorithm = config.build_algo()
    first = algorithm.train()
    assert int(first["env_runners"]["num_episodes"]) >= 2
    group = algorithm.env_runner_group
    assert group.num_healthy_remote_workers() == 2
    ray.kill(group._worker_manager.actors()[1], no_restart=False)
    played = [int(algorithm.train()["env_runners"]["num_episodes"]) for _ in range(4)]
    assert all(played)
    for _ in range(20):
        if group.num_healthy_remote_workers() == 2:
            break
        algorithm.train()
    assert group.num_healthy_remote_workers() == 2
    results = algorithm.train()
    assert int(told(results)["am_episodes"]) > sum(played)
    algorithm.stop()


def test_a_trained_policy_is_exported_from_the_algorithm_and_from_its_checkpoint(
    tmp_path: Path,
) -> None:
    algorithm = built("ppo")
    algorithm.train()
    run = export_policy(algorithm, "shared", tmp_path / "live")
    path = algorithm.save_to_path(str(tmp_path / "checkpoint"))
    module = load_module(path, "shared")
    again = export_module(module, tmp_path / "again", env_steps=1)
    trained = learner_of(algorithm).module["shared"].state_dict()
    for folder in (run, again):
        files = sorted((folder / "models" / "last" / "ppo_moa").glob("*"))
        assert {"agent.th", "moa_counts.th", "player_1_to_2.pth"} <= {f.name for f in files}
        saved = torch.load(folder / "models/last/ppo_moa/agent.th", weights_only=True)
        for name, weights in saved.items():
            torch.testing.assert_close(weights, trained[f"network.{name}"])
    for wrong in ("nobody", "seat_0"):
        with pytest.raises(OmgError, match=wrong):
            load_module(path, wrong)
        with pytest.raises(OmgError, match=wrong):
            export_policy(algorithm, wrong, tmp_path / "none")
    algorithm.stop()


def test_policies_per_seat_have_models_of_their_own() -> None:
    config = leaver_config("ppo", alg="ppo_moa", policies="seat", **MOA)
    config.env_runners(num_env_runners=0)
    algorithm = config.build_algo()
    results = [algorithm.train() for _ in range(2)][-1]
    assert {"seat_0", "seat_1", "seat_2"} <= set(results["learners"])
    counted = {int(results["learners"][f"seat_{s}"]["am_episodes"]) for s in range(3)}
    assert len(counted) == 1
    algorithm.stop()


@pytest.mark.parametrize(
    ("host", "given", "told_of"),
    [
        ("ppo", {"alg": "d3qn_am"}, "agent_output_type"),
        ("dqn", {"alg": "ppo_am"}, "agent_output_type"),
        ("ppo", {"common_reward": True}, "common_reward"),
        ("ppo", {"alg": "ppo_omg"}, "subgoal_posterior"),
        ("ppo", {"alg": "ppo_omg", **OMG}, "init_param_path"),
        ("ppo", {"alg": "ppo_oracle"}, "am_model"),
        ("ppo", {"policies": "team"}, "policies"),
        ("ppo", {"window": 0}, "window"),
        ("ppo", {"lr_finish": 0.1}, "lr_finish"),
        ("ppo", {"standardise_rewards": True}, "standardise_rewards"),
        ("ppo", {"limit_terminates": True}, "limit_terminates"),
        ("dqn", {"alg": "d3qn_am", "q_lambda": 0.8}, "q_lambda"),
    ],
)
def test_what_rllib_cannot_do_is_refused_in_a_sentence(
    host: str, given: dict[str, Any], told_of: str
) -> None:
    with pytest.raises(OmgError, match=told_of):
        leaver_config(host, **given)


def test_opponents_do_not_share_a_reward() -> None:
    with pytest.raises(OmgError, match="rewards of opponents"):
        HOSTS["ppo"]("ppo", "predator_prey", common_reward=True)


def test_roles_have_a_policy_each() -> None:
    config = HOSTS["ppo"]("ppo", "predator_prey")
    assert set(config.rl_module_spec.rl_module_specs) == {"predator", "prey"}
    spec = settings_of(config).spec
    for seat, role in enumerate(spec.roles):
        assert config.policy_mapping_fn(f"seat_{seat}") == role
