"""Our files for StarCraft II against what SMAC's class takes and what PyMARL sets; map shapes."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from omg.config.loader import load_command_line
from omg.envs.sc2.args import MAPS, OWN_ARGUMENTS, ally_columns

from .sc2_game import shipped, standin  # noqa: F401 - a fixture

# The documented arguments of smac.env.StarCraft2Env and their defaults.
DOCUMENTED = {
    "map_name": "8m",
    "step_mul": 8,
    "move_amount": 2,
    "difficulty": "7",
    "game_version": None,
    "seed": None,
    "continuing_episode": False,
    "obs_all_health": True,
    "obs_own_health": True,
    "obs_last_action": False,
    "obs_pathing_grid": False,
    "obs_terrain_height": False,
    "obs_instead_of_state": False,
    "obs_timestep_number": False,
    "state_last_action": True,
    "state_timestep_number": False,
    "reward_sparse": False,
    "reward_only_positive": True,
    "reward_death_value": 10,
    "reward_win": 200,
    "reward_defeat": 0,
    "reward_negative_scale": 0.5,
    "reward_scale": True,
    "reward_scale_rate": 20,
    "replay_dir": "",
    "replay_prefix": "",
    "window_size_x": 1920,
    "window_size_y": 1200,
    "heuristic_ai": False,
    "heuristic_rest": False,
    "debug": False,
}
# What SMACv2 adds.
DOCUMENTED_V2 = {
    "obs_own_pos": False,
    "obs_starcraft": True,
    "conic_fov": False,
    "num_fov_actions": 12,
    "use_unit_ranges": False,
    "min_attack_range": 2,
    "kill_unit_step_mul": 2,
    "fully_observable": False,
    "capability_config": {},
    "prob_obs_enemy": 1.0,
    "action_mask": True,
}
# What PyMARL's files set differently from the class, and what SMACv2's examples set.
PYMARL = {"map_name": "3m"}
SMACV2 = {"map_name": "10gen_terran", "obs_own_pos": True, "use_unit_ranges": True}
# Every key that PyMARL's sc2.yaml has, and heuristic_ai, which its descendants' files add.
PYMARL_KEYS = DOCUMENTED.keys() - {"seed", "window_size_x", "window_size_y", "heuristic_rest"}

# map: agents, enemies, actions, observation, state, limit
SHAPES = {
    "3m": (3, 3, 9, 30, 48, 60),
    "8m": (8, 8, 14, 80, 168, 120),
    "25m": (25, 25, 31, 250, 950, 150),
    "5m_vs_6m": (5, 6, 12, 55, 98, 70),
    "8m_vs_9m": (8, 9, 15, 85, 179, 120),
    "10m_vs_11m": (10, 11, 17, 105, 243, 150),
    "27m_vs_30m": (27, 30, 36, 285, 1170, 180),
    "MMM": (10, 10, 16, 160, 290, 150),
    "MMM2": (10, 12, 18, 176, 322, 180),
    "2s3z": (5, 5, 11, 80, 120, 120),
    "3s5z": (8, 8, 14, 128, 216, 150),
    "3s5z_vs_3s6z": (8, 9, 15, 136, 230, 170),
    "3s_vs_3z": (3, 3, 9, 36, 54, 150),
    "3s_vs_4z": (3, 4, 10, 42, 61, 200),
    "3s_vs_5z": (3, 5, 11, 48, 68, 250),
    "1c3s5z": (9, 9, 15, 162, 270, 180),
    "2m_vs_1z": (2, 1, 7, 16, 26, 150),
    "corridor": (6, 24, 30, 156, 282, 400),
    "6h_vs_8z": (6, 8, 14, 78, 140, 150),
    "2s_vs_1sc": (2, 1, 7, 17, 27, 300),
    "so_many_baneling": (7, 32, 38, 202, 397, 100),
    "bane_vs_bane": (24, 24, 30, 336, 984, 200),
    "2c_vs_64zg": (2, 64, 70, 332, 342, 400),
}


@pytest.mark.parametrize("name", ["sc2", "sc2_beta"])
def test_every_key_is_an_argument_of_smacs_class_with_its_default_or_pymarls_value(
    name: str,
) -> None:
    args = {k: v for k, v in shipped(name)["env_args"].items() if k not in OWN_ARGUMENTS}
    assert args == {key: {**DOCUMENTED, **PYMARL}[key] for key in args}
    assert args.keys() == PYMARL_KEYS


def test_every_key_of_smacv2_is_an_argument_with_its_default_or_its_examples_value() -> None:
    args = {k: v for k, v in shipped("smacv2")["env_args"].items() if k not in OWN_ARGUMENTS}
    config = args.pop("capability_config")
    assert args == {key: {**DOCUMENTED, **DOCUMENTED_V2, **SMACV2}[key] for key in args}
    assert config.keys() == {"n_units", "n_enemies", "team_gen", "start_positions"}
    assert sum(config["team_gen"]["weights"]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("package", "documented"),
    [("smac", DOCUMENTED), ("smacv2", {**DOCUMENTED, **DOCUMENTED_V2})],
)
def test_the_stand_in_takes_the_documented_arguments(
    standin: object,  # noqa: F811
    package: str,
    documented: dict[str, object],
) -> None:
    import smac.env
    import smacv2.env

    kind = {"smac": smac.env, "smacv2": smacv2.env}[package].StarCraft2Env
    parameters = inspect.signature(kind).parameters
    assert {name: parameter.default for name, parameter in parameters.items()} == documented


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("sc2", {"t_max": 2_050_000, "test_interval": 10_000, "test_nepisode": 32}),
        ("sc2_beta", {"t_max": 10_050_000, "test_interval": 20_000, "test_nepisode": 24}),
    ],
)
def test_schedules_are_pymarls(name: str, values: dict[str, int]) -> None:
    config = load_command_line(["--config=qmix", f"--env-config={name}"]).config.as_dict()
    logs = ("log_interval", "runner_log_interval", "learner_log_interval")
    wanted = {**values, "test_greedy": True, **dict.fromkeys(logs, values["test_interval"])}
    assert {key: config[key] for key in wanted} == wanted


@pytest.mark.parametrize("name", ["sc2", "sc2_beta", "smacv2"])
def test_coma_keeps_the_last_actions_out_of_the_state_as_in_pymarl(name: str) -> None:
    words = ["--config=coma", f"--env-config={name}"]
    loaded = load_command_line(words)
    assert loaded.config.env_args["state_last_action"] is False
    assert loaded.origins["env_args.state_last_action"] == "config/algs/coma.yaml"
    assert loaded.config.env_args["map_name"]
    asked = load_command_line([*words, "with", "env_args.state_last_action=True"])
    assert asked.config.env_args["state_last_action"] is True
    other = load_command_line(["--config=qmix", f"--env-config={name}"])
    assert other.config.env_args["state_last_action"] is True


def test_the_shapes_of_all_maps_are_smacs(standin: Any) -> None:  # noqa: F811
    from smac.widths import obs_width, state_width

    assert MAPS.keys() == SHAPES.keys()
    for name, info in MAPS.items():
        sizes = (obs_width(info), state_width(info), info.limit)
        assert (info.n_agents, info.n_enemies, info.n_actions, *sizes) == SHAPES[name], name


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({"obs_last_action": True}, 4 * 11),
        ({"obs_pathing_grid": True}, 8),
        ({"obs_terrain_height": True}, 9),
        ({"obs_timestep_number": True}, 1),
        ({"obs_all_health": False}, -2 * 9),
        ({"obs_all_health": False, "obs_own_health": False}, -2 * 10),
    ],
)
def test_options_change_the_width_of_observations(
    standin: Any,  # noqa: F811
    options: dict[str, bool],
    more: int,
) -> None:
    from smac.widths import obs_width

    assert obs_width(MAPS["2s3z"], **options) == 80 + more


def test_columns_of_allies_stand_first_and_only_where_the_state_adds_up() -> None:
    assert ally_columns(2, ally_width=3, others=5, state_size=11) == ((0, 1, 2), (3, 4, 5))
    assert ally_columns(2, ally_width=3, others=5, state_size=12) == ()
