"""The adapter over a stand-in for SMAC: contract, ends, lost games, replays, columns."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omg.envs.check import check_batched_env
from omg.envs.registry import BatchFactory, environment_versions, make_batched
from omg.envs.sc2.adapter import SmacEnv, Smacv2Env
from omg.envs.sc2.args import MAPS
from omg.types import OmgError, RunFailedError

from .sc2_game import shipped, standin  # noqa: F401 - a fixture

STOP = [1, 1, 1]
ADVANCE = (6, 7, 8, 4, 1, 0)  # attack, else go east, else stay


@pytest.fixture
def make(standin: Any) -> Iterator[Any]:  # noqa: F811
    """Makes environments with the shipped arguments and some of one's own; closes them."""
    made: list[SmacEnv] = []

    def build(kind: type[SmacEnv] = SmacEnv, **args: Any) -> SmacEnv:
        file = {SmacEnv: "sc2", Smacv2Env: "smacv2"}[kind]
        made.append(kind(**{**shipped(file)["env_args"], **args}))
        return made[-1]

    yield build
    for env in made:
        env.close()


def possible(env: SmacEnv, wishes: tuple[int, ...]) -> list[int]:
    """For every agent the first of the wishes that is available."""
    return [next(a for a in wishes if row[a]) for row in env.get_avail_actions()]


def play(env: SmacEnv, wishes: tuple[int, ...] = ADVANCE) -> tuple[float, int, dict[str, Any]]:
    """The return, the number of steps and the last info of one episode."""
    env.reset()
    total, steps, ended, info = 0.0, 0, False, {}
    while not ended:
        reward, ended, info = env.step(possible(env, wishes))
        total, steps = total + reward, steps + 1
    return total, steps, info


# --- the contract --------------------------------------------------------------------------------


def failed_checks(name: str) -> dict[str, str]:
    make = BatchFactory(name, shipped(name)["env_args"])
    results = check_batched_env(
        lambda *, n_copies, first_copy: make(first_copy, n_copies), steps=40
    )
    return {result.name: result.detail for result in results if not result.ok}


@pytest.mark.long
def test_the_adapter_keeps_the_contract(standin: Any) -> None:  # noqa: F811
    standin.chance = False
    assert failed_checks("sc2") == {}


@pytest.mark.long
def test_with_chance_in_the_game_only_single_episodes_cannot_be_repeated(
    standin: Any,  # noqa: F811
) -> None:
    assert failed_checks("sc2").keys() == {"snapshot"}


@pytest.mark.long
def test_the_adapter_of_smacv2_keeps_the_contract(standin: Any) -> None:  # noqa: F811
    standin.chance = False
    assert failed_checks("smacv2") == {}


def test_every_copy_has_a_seed_of_its_own_unless_one_is_given(standin: Any) -> None:  # noqa: F811
    def seeds(**args: Any) -> list[Any]:
        env: Any = make_batched("sc2", {"map_name": "3m", **args}, n_copies=3)
        env.reset(1)
        found = [game._game.seed() for game in env._envs]
        env.close()
        return found

    assert len(set(seeds())) == 3
    assert seeds() == seeds()
    assert seeds(seed=5) == [5, 5, 5]


# --- spec ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["3m", "2s3z", "MMM2", "2m_vs_1z", "corridor"])
def test_agent_features_are_the_columns_of_each_ally(make: Any, name: str) -> None:
    env = make(map_name=name)
    columns = env.get_env_info()["agent_features"]
    assert len(columns) == MAPS[name].n_agents
    assert {len(block) for block in columns} == {MAPS[name].ally_width}
    env.reset()
    for agent, unit in env._game.agents.items():
        unit.x, unit.health = 16.0 + agent / 4, 9.0
    described = env.get_state()[np.array(columns)]
    np.testing.assert_allclose(described[:, 0], 0.2)
    np.testing.assert_allclose(described[:, 2], np.arange(len(columns)) / 128, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "given"),
    [
        ({"state_last_action": False}, True),
        ({"state_timestep_number": True}, True),
        ({"obs_instead_of_state": True}, False),
    ],
)
def test_agent_features_follow_the_options_of_the_state(
    make: Any, options: dict[str, bool], given: bool
) -> None:
    assert bool(make(**options).get_env_info()["agent_features"]) is given


def test_an_older_package_that_names_no_features_is_described_by_its_map(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import smac.env

    ours = make(map_name="2s3z").get_env_info()["agent_features"]
    told = smac.env.StarCraft2Env.get_env_info

    def older(game: Any) -> dict[str, Any]:
        return {key: value for key, value in told(game).items() if "features" not in key}

    monkeypatch.setattr(smac.env.StarCraft2Env, "get_env_info", older)
    assert make(map_name="2s3z").get_env_info()["agent_features"] == ours


def test_a_state_that_does_not_add_up_is_left_undescribed(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import smac.env

    monkeypatch.setattr(smac.env.StarCraft2Env, "get_state_size", lambda game: 49)
    assert make().get_env_info()["agent_features"] == ()


@pytest.mark.parametrize("instead", [False, True])
def test_observations_with_the_time_have_the_width_that_is_announced(
    make: Any, instead: bool
) -> None:
    env = make(obs_timestep_number=True, obs_instead_of_state=instead)
    env.reset()
    env.step(STOP)
    obs, info = env.get_obs(), env.get_env_info()
    assert {len(row) for row in obs} == {info["obs_shape"]} == {31}
    assert [row[-1] for row in obs] == pytest.approx([1 / 60] * 3)
    assert all(row[-2] == 1 for row in obs)  # one's own health is kept
    assert len(env.get_state()) == info["state_shape"]


# --- episodes ------------------------------------------------------------------------------------


def test_a_won_battle_is_worth_the_scale_and_counts(make: Any, standin: Any) -> None:  # noqa: F811
    standin.peaceful = True
    env = make()
    for _ in range(2):
        total, steps, info = play(env)
        assert total == pytest.approx(20, rel=1e-6)
        assert steps < 60
        assert info == {
            "episode_limit": False,
            "battle_won": True,
            "dead_allies": 0,
            "dead_enemies": 3,
            "restarts": 0,
        }
    assert env.get_stats() == {
        "battles_won": 2,
        "battles_game": 2,
        "battles_draw": 0,
        "timeouts": 0,
        "restarts": 0,
        "win_rate": 1.0,
    }


def test_an_older_package_that_counts_no_dead_is_counted_for(
    make: Any,
    standin: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import smac.env

    outcome = smac.env.StarCraft2Env._outcome

    def older(game: Any, reward: float) -> tuple[float, bool, dict[str, Any]]:
        reward, ended, info = outcome(game, reward)
        return reward, ended, {"battle_won": info["battle_won"]}

    monkeypatch.setattr(smac.env.StarCraft2Env, "_outcome", older)
    standin.peaceful = True
    info = play(make())[2]
    assert (info["dead_allies"], info["dead_enemies"]) == (0, 3)


@pytest.mark.parametrize("continuing", [False, True])
def test_the_limit_is_a_truncation_in_both_modes(
    standin: Any,  # noqa: F811
    continuing: bool,
) -> None:
    standin.peaceful = True
    args = {"map_name": "3m", "continuing_episode": continuing}
    env = make_batched("sc2", args, n_copies=1)
    env.reset(0)
    for _ in range(60):
        step = env.step(np.array([STOP]))
    assert step.truncated.tolist() == [True]
    assert step.terminated.tolist() == [False]
    assert step.info["battle_won"].tolist() == [0]
    env.close()


@pytest.mark.parametrize("continuing", [False, True])
def test_a_defeat_in_the_last_step_is_a_termination(make: Any, continuing: bool) -> None:
    env = make(continuing_episode=continuing)
    env.reset()
    env._game._episode_steps = 59
    for unit in env._game.agents.values():
        unit.x, unit.health = 16.0, 1.0
    _, ended, info = env.step(STOP)
    assert ended
    assert info["dead_allies"] == 3
    assert info["episode_limit"] is False


def test_abandoning_the_first_episode_starts_no_second_game_and_keeps_the_reward_scale(
    make: Any,
    standin: Any,  # noqa: F811
) -> None:
    standin.peaceful = True
    env = make()
    env.reset()
    scale = env._game.max_reward
    env.step(STOP)
    env.reset()
    assert standin.requests["launch"] == 1
    assert env._game.max_reward == scale


def test_wrong_actions_are_no_failure_of_the_game(make: Any) -> None:
    env = make()
    env.reset()
    with pytest.raises(AssertionError, match="cannot do 0"):
        env.step([0, 0, 0])


def test_a_step_before_reset_is_refused(make: Any) -> None:
    env = make()
    env.close()
    with pytest.raises(OmgError, match="reset"):
        env.step(STOP)


# --- lost games ----------------------------------------------------------------------------------


def test_a_broken_connection_drops_the_episode(make: Any, standin: Any) -> None:  # noqa: F811
    standin.faults["step"] = {3: "break"}
    env = make()
    env.reset()
    env.step(STOP)
    env.step(STOP)
    assert env.step(STOP) == (0.0, True, {"dropped": True})
    assert play(env)[2]["restarts"] == 1
    assert play(env)[2]["restarts"] == 0
    assert env.get_stats()["restarts"] == 1


def test_a_dropped_episode_is_reported_by_the_batch(standin: Any) -> None:  # noqa: F811
    standin.faults["step"] = {4: "break"}  # the second step of copy 1
    env = make_batched("sc2", {"map_name": "3m"}, n_copies=2)
    env.reset(0)
    actions = np.array([STOP, STOP])
    assert env.step(actions).dropped.tolist() == []
    step = env.step(actions)
    assert step.dropped.tolist() == [1]
    assert not (step.terminated | step.truncated).any()
    assert env.step(actions).dropped.tolist() == []
    env.close()


def test_a_hanging_step_is_ended_by_killing_the_game(
    make: Any,
    standin: Any,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    standin.faults["step"] = {2: "hang"}
    env = make(timeout_seconds=0.2)
    env.reset()
    env.step(STOP)
    (process,) = standin.alive
    before = time.monotonic()
    with caplog.at_level(logging.WARNING):
        assert env.step(STOP) == (0.0, True, {"dropped": True})
    assert 0.2 <= time.monotonic() - before < 5
    assert process.ended.is_set()
    assert "did not answer within 0.2 seconds" in caplog.text
    assert standin.requests["launch"] == 1  # not started again inside the hanging call
    assert play(env)[2]["restarts"] == 1
    assert len(standin.alive) == 1


@pytest.mark.parametrize("request_name", ["launch", "observe"])
def test_a_hanging_reset_is_tried_again(
    make: Any,
    standin: Any,  # noqa: F811
    request_name: str,
) -> None:
    standin.faults[request_name] = {1: "hang"}
    env = make(timeout_seconds=0.2)
    env.reset()
    assert standin.requests["launch"] == 2
    assert len(standin.alive) == 1
    assert play(env)[2]["restarts"] == 1


@pytest.mark.long
def test_a_slow_answer_within_the_time_is_no_failure(
    make: Any,
    standin: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slow(*_: Any) -> None:
        time.sleep(0.1)

    env = make(timeout_seconds=1.0)
    env.reset()
    monkeypatch.setattr(standin, "request", slow)
    for _ in range(8):  # longer than the limit altogether, not one by one
        assert env.step(STOP)[2] == {}


def test_without_a_time_limit_nobody_watches(make: Any) -> None:
    before = threading.active_count()
    env = make(timeout_seconds=0)
    env.reset()
    assert threading.active_count() == before
    watched = make(timeout_seconds=9)
    watched.reset()
    assert threading.active_count() == before + 1
    watched.close()
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() == before


@pytest.mark.parametrize("request_name", ["launch", "step", "observe"])
def test_a_crash_is_answered_with_a_new_game(
    make: Any,
    standin: Any,  # noqa: F811
    request_name: str,
) -> None:
    standin.faults[request_name] = {1: "crash"}
    env = make()
    env.reset()
    if request_name == "step":
        assert env.step(STOP) == (0.0, True, {"dropped": True})
    assert play(env)[2]["restarts"] == 1
    assert len(standin.alive) == 1


def test_a_game_that_replaces_another_gets_another_seed(
    make: Any,
    standin: Any,  # noqa: F811
) -> None:
    standin.faults["step"] = {1: "crash"}
    env = make(seed=3)
    env.reset()
    assert env._game.seed() == 3
    env.step(STOP)
    env.reset()
    assert env._game.seed() != 3


def test_too_many_failures_in_a_row_end_the_run(make: Any, standin: Any) -> None:  # noqa: F811
    standin.faults["launch"] = dict.fromkeys(range(1, 9), "crash")
    env = make(max_restarts=2)
    with pytest.raises(RunFailedError, match=r"failed 3 times in a row: SC2 crashed in launch"):
        env.reset()
    assert standin.requests["launch"] == 3
    assert not standin.alive


def test_a_finished_episode_between_failures_starts_the_count_anew(
    make: Any,
    standin: Any,  # noqa: F811
) -> None:
    env = make(max_restarts=1)
    for _ in range(3):
        play(env)
        standin.faults["step"] = {standin.requests["step"] + 1: "break"}
        env.reset()
        env.step(STOP)
    assert env.get_stats()["restarts"] == 3
    standin.faults["step"] = {standin.requests["step"] + 1: "break"}
    env.reset()
    with pytest.raises(RunFailedError, match="failed 2 times in a row"):
        env.step(STOP)


# --- replays, pictures, versions -----------------------------------------------------------------


def test_replays_lie_where_replay_dir_says(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    env = make(replay_dir="mine", replay_prefix="first")
    play(env)
    env.save_replay()
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["first_1.SC2Replay"]
    env = make()
    play(env)
    env.save_replay()
    own = tmp_path / "StarCraftII" / "Replays"
    assert [path.name for path in own.iterdir()] == ["3m_1.SC2Replay"]


def test_a_replay_that_is_not_saved_is_reported(make: Any, standin: Any) -> None:  # noqa: F811
    standin.faults["save_replay"] = {1: "break"}
    env = make()
    env.reset()
    with pytest.raises(RunFailedError, match="did not save a replay"):
        env.save_replay()


def test_a_picture_is_the_games(make: Any) -> None:
    env = make()
    env.reset()
    assert env.render().shape == (32, 32, 3)


def test_versions_name_the_game_that_is_started(standin: Any, tmp_path: Path) -> None:  # noqa: F811
    assert environment_versions("sc2", {})["StarCraft II"] == "4.10.75689"
    asked = environment_versions("smacv2", {"game_version": "4.6.2"})
    assert (asked["StarCraft II"], asked["smacv2"]) == ("4.6.2", "unknown")
    (tmp_path / "StarCraftII" / "Versions" / "Base90136").mkdir()
    assert environment_versions("sc2", {})["StarCraft II"] == "build 90136"
    assert environment_versions("foraging", {}) == {}


# --- smacv2 --------------------------------------------------------------------------------------


def test_smacv2_does_not_write_into_the_arguments(make: Any) -> None:
    config = shipped("smacv2")["env_args"]["capability_config"]
    before = str(config)
    env = make(Smacv2Env, capability_config=config)
    env.reset()
    assert str(config) == before
    assert env.get_env_info()["n_agents"] == 5
    assert len(env.get_env_info()["agent_features"]) == 5


def test_a_hanging_game_of_smacv2_is_ended_too(make: Any, standin: Any) -> None:  # noqa: F811
    standin.faults["step"] = {1: "hang"}
    env = make(Smacv2Env, timeout_seconds=0.2)
    env.reset()
    assert env.step([1] * 5) == (0.0, True, {"dropped": True})
    env.reset()
    assert len(standin.alive) == 1
