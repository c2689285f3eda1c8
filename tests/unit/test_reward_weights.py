"""Players of another character: `reward_weights` change what is learned from, not what is told."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from omg.config.loader import load_command_line
from omg.config.schema import Config
from omg.envs import make_batched
from omg.experiment.checks import check_reward_weights
from omg.runners.assembly import make_controller, make_rollout
from omg.runners.rewards import reweighting_of
from omg.runners.rollout import play_episodes
from omg.types import EnvSpec, OmgError

CPU = torch.device("cpu")


def spec_of(n_agents: int = 3, **more: object) -> EnvSpec:
    sizes = {"n_actions": 4, "obs_dim": 1, "state_dim": 1, "episode_limit": 5}
    return EnvSpec(name="game", n_agents=n_agents, **sizes, **more)  # type: ignore[arg-type]


def weighted(weights: dict, rewards: list[float], actions: list[int], **more: object) -> list:
    made = reweighting_of(weights, spec_of(len(rewards), **more))
    assert made is not None
    alive = np.ones((1, len(rewards)), bool)
    found = made(np.array([rewards], np.float32), np.array([actions]), alive)
    return found[0].tolist()


def test_without_weights_the_game_s_rewards_stay() -> None:
    assert reweighting_of({}, spec_of()) is None


def test_others_are_valued_by_their_mean() -> None:
    assert weighted({"others": -0.5}, [1, 0, 4], [0, 0, 0]) == [0.0, -1.25, 3.75]
    assert weighted({"own": 0, "others": 1}, [1, 0, 4], [0, 0, 0]) == [2.0, 2.5, 0.5]


def test_others_are_those_of_the_same_role() -> None:
    roles = ("predator", "predator", "prey")
    assert weighted({"others": 1}, [1, 2, -3], [0, 0, 0], roles=roles) == [3.0, 3.0, -3.0]


def test_a_power_values_large_rewards_more_or_all_alike() -> None:
    assert weighted({"power": 2}, [0.5, -2, 0], [0, 0, 0]) == [0.25, -4.0, 0.0]
    assert weighted({"power": 0}, [0.5, -2, 0], [0, 0, 0]) == [1.0, -1.0, 0.0]


def test_an_action_can_cost_something_and_who_left_pays_nothing() -> None:
    weights = {"actions": {0: -0.5, "3": 1}}
    assert weighted(weights, [1, 1, 1], [0, 1, 3]) == [0.5, 1.0, 2.0]
    made = reweighting_of(weights, spec_of())
    assert made is not None
    alive = np.array([[True, False, True]])
    found = made(np.zeros((1, 3), np.float32), np.zeros((1, 3), np.int64), alive)
    assert found.tolist() == [[-0.5, 0.0, -0.5]]


def config_of(*words: str) -> Config:
    return load_command_line(["--config=iql", "--env-config=foraging", *words]).config


def played(*words: str, learns: bool = True):
    config = config_of("--env_args.key=Foraging-5x5-2p-2f-v3", "--rnn_hidden_dim=8", *words)
    env = make_batched(config.env, config.env_args, n_copies=16)
    torch.manual_seed(0)
    mac = make_controller(config, env.spec, CPU)
    rollout = make_rollout(config, env=env, mac=mac, stream="test", device=CPU, learns=learns)
    return play_episodes(rollout, 16, round_number=0, env_steps=0)


def test_a_run_learns_from_weighted_rewards_and_tells_the_game_s() -> None:
    plain, other = played(), played("--reward_weights={'others': 1.0}")
    for before, after in zip(plain, other, strict=True):
        rewards, helped = before.episodes["reward"], after.episodes["reward"]
        assert torch.allclose(helped, rewards.sum(-1, keepdim=True).expand_as(helped))
        np.testing.assert_array_equal(before.stats.returns, after.stats.returns)
        np.testing.assert_array_equal(before.stats.team_returns, after.stats.team_returns)
    assert any(finished.stats.returns.any() for finished in plain)


def test_a_game_that_is_only_shown_has_its_own_rewards() -> None:
    plain, other = played(), played("--reward_weights={'others': 1.0}", learns=False)
    for before, after in zip(plain, other, strict=True):
        assert torch.equal(before.episodes["reward"], after.episodes["reward"])


@pytest.mark.parametrize("weights", ["{'other': 1}", "{'power': -1}", "{'actions': {'load': 1}}"])
def test_odd_weights_are_refused_with_what_is_possible(weights: str) -> None:
    with pytest.raises(OmgError, match=r"reward_weights=.*own, others, power"):
        config_of(f"--reward_weights={weights}")


def test_weights_without_effect_are_refused() -> None:
    config = config_of("--reward_weights.others=1")
    check_reward_weights(config, spec_of())
    with pytest.raises(OmgError, match="get the same"):
        check_reward_weights(config, spec_of(shared_reward=True))
    common = config_of("--reward_weights.others=1", "--common_reward=True")
    with pytest.raises(OmgError, match="common_reward=false"):
        check_reward_weights(common, spec_of())
    with pytest.raises(OmgError, match="each agent's own"):
        check_reward_weights(
            config_of("--reward_weights={'actions': {1: 1}}"), spec_of(shared_reward=True)
        )


def test_an_action_that_the_game_does_not_have_is_refused() -> None:
    with pytest.raises(OmgError, match="actions 0 to 3"):
        check_reward_weights(config_of("--reward_weights={'actions': {4: 1}}"), spec_of())
