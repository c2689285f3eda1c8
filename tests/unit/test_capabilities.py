"""What a learner cannot train is refused with a sentence that says what to set."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from omg.catalogue.algorithms import algorithms, describe_algorithm
from omg.cli.app import app
from omg.config.loader import available, load_command_line
from omg.envs.registry import make_batched
from omg.learners import LEARNERS
from omg.learners.base import check_supported
from omg.policies.policy import check_options
from omg.types import EnvSpec, OmgError

# SYSTEM section 3: names that a PyMARL user types.
ORIGINAL = (
    *("coma", "iql", "iql_am", "iql_beta", "iql_idv", "iql_omg", "qmix", "qmix_beta", "qtran"),
    *("vdn", "vdn_beta"),
)


@pytest.fixture(scope="module")
def spec() -> EnvSpec:
    return make_batched("foraging", {"key": "Foraging-5x5-2p-1f-v3"}, n_copies=1).spec


def check(spec: EnvSpec, *words: str) -> None:
    config = load_command_line([*words, "--env-config=foraging"]).config
    check_supported(config, LEARNERS[config.learner].able, spec)


@pytest.mark.parametrize("name", available("algs"))
def test_every_shipped_algorithm_is_supported_as_it_stands(spec: EnvSpec, name: str) -> None:
    check(spec, f"--config={name}")


@pytest.mark.parametrize(
    "words",
    [
        ["--config=iql", "--mac=multi_module_mac", "--am_model=liam_am"],
        ["--config=qmix", "--mac=multi_module_mac", "--am_model=base_am"],
        ["--config=d3qn", "--mac=basic_mac"],
        ["--config=mappo", "--mac=multi_module_mac", "--am_model=base_am"],
        ["--config=d3qn_am", "--mixer=vdn", "--common_reward=True"],
    ],
)
def test_values_and_policies_are_trained_with_and_without_an_opponent_model(
    spec: EnvSpec, words: list[str]
) -> None:
    check(spec, *words)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--config=qtran", "--mac=multi_module_mac"], "Set mac=basic_mac"),
        (["--config=coma", "--mac=multi_module_mac"], "Set mac=basic_mac"),
        (["--config=d3qn_am", "--mac=basic_mac"], "has no use for am_model=base_am"),
        (["--config=qmix", "--agent_output_type=pi_logits"], "Set agent_output_type=q"),
        (["--config=coma", "--agent_output_type=q"], "Set agent_output_type=pi_logits"),
        (["--config=coma", "--mixer=qmix"], "Set mixer=null"),
        (["--config=qtran", "--mixer=null"], "needs a mixer"),
        (["--config=iql", "--critic=cv"], "Set critic=null"),
        (["--config=coma", "--critic=null"], "Set critic=coma"),
        (["--config=coma", "--critic=cv"], "Set critic=coma"),
        (["--config=mappo", "--critic=coma"], "Set critic=ac or cv"),
        (["--config=qmix", "--common_reward=False"], "Set common_reward=true"),
        (["--config=qtran", "--common_reward=False"], "Set common_reward=true"),
        (["--config=mappo", "--updates_per_episode=2"], "Leave it at 1"),
        (["--config=coma", "--action_selector=epsilon_greedy"], "action_selector=multinomial"),
        (
            ["--config=d3qn", "--mixer=vdn", "--common_reward=True", "--opponent_pool=p"],
            "Set mixer=null",
        ),
        (["--config=iql", "--opponent_pool=p"], "has no use for opponent_pool=p"),
        (["--config=coma", "--am_model=liam_am"], "has no use for am_model=liam_am"),
        (["--config=qmix", "--am_present=True"], "has no use for am_present=True"),
    ],
)
def test_an_impossible_combination_is_refused_with_the_remedy(
    spec: EnvSpec, words: list[str], sentence: str
) -> None:
    with pytest.raises(OmgError, match=r"learner=|mixer=|mac=") as refused:
        check(spec, *words)
    assert sentence in str(refused.value)


def test_the_list_of_algorithms_says_what_each_can_do() -> None:
    rows = {row.name: row for row in algorithms()}
    assert set(rows) == set(available("algs"))
    assert set(ORIGINAL) <= set(rows)
    assert rows["coma"].learning == "on-policy"
    assert rows["qmix"].learning == "off-policy"
    assert rows["qmix"].reward == "team"
    assert rows["iql"].reward == "own (or team)"
    assert rows["d3qn_omg"].opponent_model == "omg_am"
    assert not rows["d3qn"].recurrent
    assert rows["iql"].recurrent
    assert all(row.about.endswith(".") and len(row.about) < 130 for row in rows.values())


def test_the_command_lists_all_of_them_for_people_and_for_programs() -> None:
    shown = CliRunner().invoke(app, ["algorithms"])
    assert shown.exit_code == 0
    named = set(re.findall(r"^[│ ]*(\w+)", shown.output, re.MULTILINE))  # rows, or paragraphs
    assert named >= set(available("algs"))
    printed = CliRunner().invoke(app, ["algorithms", "--json"])
    rows = json.loads(printed.output)
    assert {row["name"] for row in rows} == set(available("algs"))
    one = describe_algorithm("mappo")
    assert next(row for row in rows if row["name"] == "mappo")["parts"] == one.parts


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (
            ["--config=d3qn", "--am_history=True"],
            "am_history=True is an option of am_model=base_am",
        ),
        (["--config=d3qn_liam", "--am_history=True"], "not of liam_am"),
        (["--config=d3qn_am", "--am_feature=both"], "am_feature=both is an option of"),
        (["--config=d3qn_am", "--am_history=True"], ""),
        (["--config=d3qn_liam", "--am_feature=both"], ""),
        (["--config=d3qn_am", "--liam_others_actions"], "liam_others_actions=True is an option of"),
    ],
)
def test_an_option_of_another_opponent_model_is_refused(words: list[str], refused: str) -> None:
    config = load_command_line([*words, "--env-config=foraging"]).config
    if not refused:
        check_options(config)
        return
    with pytest.raises(OmgError) as caught:
        check_options(config)
    assert refused in str(caught.value)


def test_a_policys_batch_may_be_larger_than_the_buffer_it_does_not_use() -> None:
    words = ["--env-config=foraging", "--batch_size=64", "--buffer_size=8"]
    assert load_command_line(["--config=coma", *words]).config.batch_size == 64
    with pytest.raises(OmgError, match="buffer_size=8"):
        load_command_line(["--config=iql", *words])
