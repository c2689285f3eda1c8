"""Four sources, one frozen configuration, and a sentence for everything that does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from omg.config.arguments import Arguments, parse_arguments
from omg.config.document import MARK, keys, markdown, rewritten
from omg.config.loader import (
    CONFIG_DIR,
    LoadedConfig,
    available,
    dump,
    load,
    load_command_line,
    load_saved,
    shipped_defaults,
)
from omg.config.schema import ALIASES, Config, marked
from omg.types import OmgError


def loaded(*words: str) -> LoadedConfig:
    return load_command_line(words)


def refusal(*words: str) -> str:
    with pytest.raises(OmgError) as caught:
        load_command_line(words)
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.fixture
def own(tmp_path: Path) -> Any:
    """Write a YAML file; return its path."""

    def write(text: str, name: str = "own.yaml") -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return write


# --- sources -----------------------------------------------------------------------------------


def test_each_source_wins_over_those_before_it(own: Any) -> None:
    env = own("{lr: 0.2, gamma: 0.2, t_max: 2}", "env.yaml")
    alg = own("{lr: 0.3, gamma: 0.3}", "alg.yaml")
    config = loaded("--lr=0.4", f"--config={alg}", f"--env-config={env}").config
    default = yaml.safe_load((CONFIG_DIR / "default.yaml").read_text())
    assert config.lr == 0.4  # command line
    assert config.gamma == 0.3  # algorithm
    assert config.t_max == 2  # environment
    assert config.batch_size == default["batch_size"]


def test_the_origin_of_every_value_is_known(own: Any) -> None:
    env = own("{env_args: {key: k, deep: {a: 1, b: 2}}, gamma: 0.2}", "env.yaml")
    result = loaded(
        f"--env-config={env}",
        "--config=qmix",
        "--seed=3",
        "with",
        "env_args.deep.b=5",
        "quiet=True",
    )
    origins = {key: origin for key, _, origin in result.rows()}
    assert origins["batch_size"] == "config/default.yaml"
    assert origins["gamma"] == env
    assert origins["env_args.key"] == env
    assert origins["env_args.deep.a"] == env
    assert origins["env_args.deep.b"] == "with env_args.deep.b=5"
    assert origins["mixer"] == "config/algs/qmix.yaml"
    assert origins["seed"] == "--seed=3"
    assert origins["quiet"] == "with quiet=True"
    assert "?" not in origins.values()
    values = {key: value for key, value, _ in result.rows()}
    assert values["env_args.deep.b"] == 5
    assert values.keys() - {k for k in values if "." in k} == Config.model_fields.keys() - {
        "env_args"
    }


def test_nested_values_merge_and_keep_their_siblings() -> None:
    config = loaded("--env-config=foraging", "with", "env_args.sight=2", "env_args.x.y=1").config
    assert config.env_args == {"key": "Foraging-8x8-2p-3f-v3", "sight": 2, "x": {"y": 1}}
    config = loaded("--env-config=foraging", "--env_args={'sight': 3}").config
    assert config.env_args == {"key": "Foraging-8x8-2p-3f-v3", "sight": 3}


def test_an_empty_mapping_merges_nothing() -> None:
    assert loaded("--env-config=foraging", "--env_args={}").config.env_args == {
        "key": "Foraging-8x8-2p-3f-v3"
    }


def test_keys_with_dots_or_numbers_inside_a_mapping_stay_as_they_are() -> None:
    config = loaded("--env_args={'a.b': 1, 'levels': {1: 2}}").config
    assert config.env_args == {"a.b": 1, "levels": {1: 2}}


def test_a_value_has_nothing_inside() -> None:
    assert "'gamma' holds one value" in refusal("--gamma.x=1")


@pytest.mark.parametrize("words", [["--agent=mlp"], ["with", "agent=mlp"]])
def test_pymarls_key_agent_means_policy_model(words: list[str], own: Any) -> None:
    assert ALIASES["agent"] == "policy_model"
    assert loaded("--config=qmix", *words).config.policy_model == "mlp"
    assert loaded(f"--config={own('agent: mlp')}").config.policy_model == "mlp"


def test_a_users_yaml_is_named_by_its_path_or_behind_with(own: Any) -> None:
    path = own("name: mine\nlr: 1e-3\n")
    assert loaded(f"--config={path}").config.name == "mine"
    assert loaded("--config=qmix", "with", path).config.lr == 0.001
    assert loaded("with", own('{"lr": 0.25}', "own.json")).config.lr == 0.25
    assert loaded(f"--config={own('')}").config == loaded().config


# --- frozen ------------------------------------------------------------------------------------


def test_an_algorithms_settings_for_an_environment_hold_there_only(own: Any) -> None:
    alg = own("name: mine\nlr: 0.1\nfor_env: {spread: {lr: 0.2, env_args: {n: 4}}}\n")
    loaded = load_command_line([f"--config={alg}", "--env-config=spread"])
    assert (loaded.config.lr, loaded.config.env_args["n"]) == (0.2, 4)
    assert len(loaded.config.env_args) > 1, "merged with the environment's own"
    assert loaded.origins["lr"] == str(alg)
    assert load_command_line([f"--config={alg}", "--env-config=foraging"]).config.lr == 0.1
    by_key = load_command_line([f"--config={alg}", "--env-config=foraging", "--env=spread"])
    assert by_key.config.lr == 0.2
    env = own("env: foraging\n", "env.yaml")
    assert load_command_line([f"--config={alg}", "--env=spread", "with", str(env)]).config.lr == 0.2
    words = [f"--config={alg}", "--env-config=spread", "with", str(env)]
    assert load_command_line(words).config.lr == 0.1
    assert load_command_line([*words[:2], "--lr=0.3"]).config.lr == 0.3


def test_a_frozen_algorithms_settings_for_the_environment_are_its_own() -> None:
    words = ["--config=1coma1iql_am", "--multi_algs", "--env-config=sc2"]
    config = load_command_line(words).config
    assert config.env_args["state_last_action"] is True, "the game is the learning agent's"
    assert config.team_algs["coma"]["env_args"] == {"state_last_action": False}
    assert "for_env" not in config.team_algs["coma"]
    assert (
        "env_args"
        not in load_command_line([*words[:2], "--env-config=foraging"]).config.team_algs["coma"]
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("for_env: {spraed: {lr: 0.2}}", "names no environment: 'spraed', did you mean 'spread'"),
        ("for_env: {spread: 3}", "holds 'spread' without settings"),
        ("for_env: 3", "holds 3 without settings"),
        ("for_env: {foraging: {gama: 1}}", "Unknown key 'gama'"),
    ],
)
def test_settings_for_an_environment_that_cannot_be_read_are_refused(
    own: Any, text: str, said: str
) -> None:
    alg = own(f"name: mine\n{text}\n")
    with pytest.raises(OmgError, match=said):
        load_command_line([f"--config={alg}", "--env-config=foraging"])


def test_a_configuration_cannot_be_changed() -> None:
    config = loaded("--env-config=foraging").config
    with pytest.raises(ValidationError, match="frozen"):
        config.lr = 1.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        config.env_args["key"] = "other"  # type: ignore[index]
    with pytest.raises(AttributeError):
        config.env_args.clear()  # type: ignore[attr-defined]


def test_changing_its_plain_copy_leaves_the_configuration_alone() -> None:
    config = loaded("--env_args={'size': [8, 8], 'deep': {'a': 1}}").config
    copy = config.as_dict()
    copy["env_args"]["size"].append(9)
    copy["env_args"]["deep"]["a"] = 2
    copy["mlp_hidden_dims"].append(1)
    assert config.env_args == {"size": [8, 8], "deep": {"a": 1}}
    assert config.mlp_hidden_dims == (64, 64)


# --- refusals ----------------------------------------------------------------------------------


def test_an_unknown_key_names_the_nearest_and_the_word_it_came_from() -> None:
    assert refusal("--batchsize=4") == (
        "Unknown key 'batchsize' (from --batchsize=4), did you mean 'batch_size'?"
    )
    assert refusal("with", "gama=4") == (
        "Unknown key 'gama' (from with gama=4), did you mean 'gamma'?"
    )
    assert "(from --agnt=rnn), did you mean 'agent'?" in refusal("--agnt=rnn")
    assert refusal("--zzqqy.a=1").startswith("Unknown key 'zzqqy' (from --zzqqy.a=1). ")


def test_a_key_of_pymarl_without_a_place_says_what_stands_in_it() -> None:
    assert refusal("--q_nstep=3") == (
        "'q_nstep' (from --q_nstep=3) is a key of PyMARL that is not used here. Targets are "
        "λ-returns: use td_lambda, in Q-learning q_lambda (0: one step), and leave 'q_nstep' out."
    )
    assert "mixing_embed_dim" in refusal("--network_size=big")


def test_an_unknown_key_in_a_file_names_the_file(own: Any) -> None:
    path = own("target_update_intervall: 3")
    assert refusal(f"--config={path}") == (
        f"Unknown key 'target_update_intervall' (from {path}), "
        "did you mean 'target_update_interval'?"
    )


def test_every_problem_is_told_in_its_own_line() -> None:
    lines = refusal("--gama=1", "--t_max=-1").splitlines()
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("t_max=-1", "greater than or equal to 1"),
        ("t_max=0", "greater than or equal to 1"),
        ("t_max=1.5", "a whole number"),
        ("t_max=many", "a whole number"),
        ("seed=-1", "greater than or equal to 0"),
        ("lr=0", "greater than 0"),
        ("lr=fast", "a number"),
        ("lr=inf", "a finite number"),
        ("gamma=1.01", "less than or equal to 1"),
        ("gamma=nan", ""),
        ("batch_size=0", "greater than or equal to 1"),
        ("hypernet_layers=3", "less than or equal to 2"),
        ("debug=maybe", "true or false"),
        ("double_q=2", "true or false"),
        ("device=gpu", "auto, cpu, mps, cuda or cuda:<n>"),
        ("device=cuda:x", "auto, cpu, mps, cuda or cuda:<n>"),
        ("optimizer=sgd", "'rmsprop' or 'adam'"),
        ("reward_scalarisation=max", "'sum' or 'mean'"),
        ("mlp_hidden_dims=64", "a list"),
        ("mlp_hidden_dims=[]", "a list that is not empty"),
        ("env_args=5", "a mapping, e.g. {'a': 1}"),
        ("name=", "text that is not empty"),
        ("mixer=[1]", "text"),
    ],
)
def test_a_value_that_is_not_possible_names_key_value_and_expectation(
    word: str, expected: str
) -> None:
    key, _, value = word.partition("=")
    sentence = refusal(f"--{word}")
    assert sentence.startswith(f"{key}=")
    assert value.strip("[]") in sentence
    assert f"(from --{word}) is not possible. Expected: {expected}" in sentence
    assert len(sentence.splitlines()) == 1
    assert "pydantic" not in sentence


@pytest.mark.parametrize("key", ["lr", "seed", "t_max", "gamma", "hypernet_layers", "label"])
def test_a_bare_flag_is_no_value_for_a_key_that_wants_one(key: str) -> None:
    assert refusal(f"--{key}").startswith(f"{key}=True (from --{key}) is not possible.")


def test_an_item_of_a_list_is_named_by_its_place() -> None:
    assert refusal("--mlp_hidden_dims=[64,-1]").startswith("mlp_hidden_dims.1=-1 (from ")


def test_a_wrong_value_in_a_file_names_the_file(own: Any) -> None:
    path = own("batch_size: [1]")
    assert f"batch_size=[1] (from {path})" in refusal(f"--config={path}")


def test_environment_arguments_hold_plain_values_only() -> None:
    sentence = refusal("--env_args.x=...")
    assert "(from --env_args.x=...)" in sentence
    assert "no ellipsis" in sentence


def test_keys_that_contradict_each_other_are_refused() -> None:
    assert "batch_size=64 episodes cannot be sampled from a buffer of buffer_size=32" in refusal(
        "--batch_size=64", "--buffer_size=32"
    )
    assert "epsilon_finish=0.5 is above epsilon_start=0.1" in refusal(
        "--epsilon_start=.1", "--epsilon_finish=.5"
    )


@pytest.mark.parametrize(
    ("option", "kind", "near", "name"),
    [("--config", "algs", "qmix", "qmx"), ("--env-config", "envs", "foraging", "forraging")],
)
def test_a_missing_configuration_lists_those_that_exist(
    option: str, kind: str, near: str, name: str
) -> None:
    sentence = refusal(f"{option}={name}")
    assert f"{option}={name}: there is no such configuration, did you mean '{near}'?" in sentence
    for known in available(kind):
        assert known in sentence
    for wrong in ("zzz", "../algs/qmix", "missing.yaml"):
        sentence = refusal(f"{option}={wrong}")
        assert near in sentence
        assert ". " in sentence


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("lr: [1, 2", "is not valid YAML"),
        ("a: b: c", "line 1"),
        ("- lr\n- gamma\n", "holds a list"),
        ("just words", "holds a str"),
        ("!!python/object/apply:os.system ['true']", "is not valid YAML"),
    ],
)
def test_a_damaged_yaml_is_named_with_the_place(own: Any, text: str, reason: str) -> None:
    path = own(text)
    sentence = refusal(f"--config={path}")
    assert sentence.startswith(path)
    assert reason in sentence


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "raw.yaml").write_bytes(b"\xff\xfe\x00\x81")
    assert "is not valid YAML" in refusal(f"--config={tmp_path / 'raw.yaml'}")


def test_a_word_behind_with_that_is_no_file_is_refused() -> None:
    assert "'with qmix' is neither key=value nor a .yaml" in refusal("with", "qmix")
    assert "missing.yaml cannot be read: No such file" in refusal("with", "missing.yaml")


# --- shipped files -----------------------------------------------------------------------------


@pytest.mark.parametrize("env", available("envs"))
@pytest.mark.parametrize("alg", available("algs"))
def test_every_shipped_algorithm_loads_with_every_environment(alg: str, env: str) -> None:
    config = loaded(f"--config={alg}", f"--env-config={env}").config
    assert config.name == alg


def test_the_default_file_and_the_schema_have_the_same_keys() -> None:
    content = yaml.safe_load((CONFIG_DIR / "default.yaml").read_text(encoding="utf-8"))
    assert content.keys() == Config.model_fields.keys()


def test_no_value_has_a_second_default_in_the_schema() -> None:
    assert [key for key, field in Config.model_fields.items() if not field.is_required()] == []


PYMARL = {
    "gamma": 0.99,
    "batch_size": 32,
    "buffer_size": 5000,
    "lr": 5e-4,
    "optimizer": "rmsprop",
    "optim_alpha": 0.99,
    "optim_eps": 1e-5,
    "grad_norm_clip": 10,
    "target_update_interval": 200,
    "epsilon_start": 1.0,
    "epsilon_finish": 0.05,
    "epsilon_anneal_time": 50_000,
    "rnn_hidden_dim": 64,
    "double_q": True,
    "obs_agent_id": True,
    "obs_last_action": True,
}


@pytest.mark.parametrize("alg", ["iql", "vdn", "qmix"])
def test_pymarls_published_defaults_hold(alg: str) -> None:
    for name in (alg, f"{alg}_beta"):
        values = loaded(f"--config={name}").config.as_dict()
        assert {key: values[key] for key in PYMARL} == PYMARL
    assert values["batch_size_run"] == 8  # the _beta settings
    assert values["runner"] == "parallel"


def test_pymarls_qmix_sizes_hold() -> None:
    config = loaded("--config=qmix").config
    assert (config.mixer, config.mixing_embed_dim) == ("qmix", 32)
    assert (config.hypernet_layers, config.hypernet_embed) == (2, 64)


# --- saved -------------------------------------------------------------------------------------


def test_a_dumped_configuration_is_read_back_unchanged(tmp_path: Path) -> None:
    config = loaded(
        "--config=qmix",
        "--env-config=foraging",
        "with",
        "env_args.field_size=(5, 7)",
        "env_args.deep={'a': [1, {'b': None}]}",
        "label=ε: {x} # no comment",
        "run_name='007'",
        "lr=1e-7",
        "mlp_hidden_dims=(32,)",
        "resume=true",
    ).config
    path = tmp_path / "config.yaml"
    path.write_text(dump(config), encoding="utf-8")
    again = load_saved(path, Arguments())
    assert again.config == config
    assert again.config.resume is True
    assert again.config.run_name == "007"
    assert set(again.origins.values()) == {str(path)}


def test_the_command_line_wins_over_a_saved_configuration(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(dump(loaded("--t_max=5").config), encoding="utf-8")
    assert load_saved(path, parse_arguments(["--t_max=9"])).config.t_max == 9


def test_a_saved_configuration_from_before_a_key_existed_has_its_default(tmp_path: Path) -> None:
    values = loaded("--am_history=True", "--gamma=0.5").config.as_dict()
    del values["am_history"]
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    again = load_saved(path, Arguments())
    assert again.config.am_history is False
    assert again.config.gamma == 0.5
    assert again.origins["am_history"] != str(path)
    asked = parse_arguments(["--am_history=True"])
    assert load_saved(path, asked).config.am_history is True


@pytest.mark.parametrize(
    ("word", "value"),
    [("--resume", True), ("--resume=true", True), ("--resume=False", False), ("--resume=a", "a")],
)
def test_resume_is_a_truth_value_or_a_path(word: str, value: bool | str) -> None:
    assert load(parse_arguments([word])).config.resume == value
    assert load(parse_arguments([word.replace("F", "f")])).config.resume == value


# --- what the docs say of keys -------------------------------------------------------------------


def test_every_key_has_a_default_a_type_and_a_meaning_in_the_docs() -> None:
    found = list(keys())
    assert [key.name for key in found] == list(shipped_defaults())
    assert {key.name for key in found} == set(Config.model_fields)
    assert not [key.name for key in found if not (key.kind and key.meaning)]


def test_the_table_of_keys_in_the_docs_is_todays() -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    again = rewritten(page, MARK, markdown())
    assert again == page, "run python -m omg.config.document docs/configuration.md"


def test_marks_say_what_a_continuation_and_a_study_may_change() -> None:
    assert marked(result=False) <= marked(resume=True)
    assert marked(result=False) <= marked(identity=False)
    assert marked(prior=True) <= marked(weights=True)
    assert marked(resume=True) - marked(result=False) - marked(place=True) == {
        "t_max",
        "keep_models",
    }
    assert not marked(weights=True) & marked(resume=True)


@pytest.mark.parametrize(
    ("config", "env", "literal"),
    [
        ("d3qn_omg", "foraging", {"epsilon_start": 0.5, "epsilon_finish": 0.05, "lr": 0.005}),
        ("d3qn_omg", "foraging", {"epsilon_anneal_time": 4500, "target_update_interval": 100}),
        ("d3qn_omg", "foraging", {"subgoal_horizon": 5, "am_lr": 0.001, "am_kl_weight": 0.001}),
        ("ppo_omg", "predator_prey", {"gamma": 0.99, "gae_lambda": 0.99, "eps_clip": 0.115}),
        ("ppo_omg", "predator_prey", {"ppo_epochs": 10, "lr": 0.0005, "grad_norm_clip": 0.5}),
        ("ppo_omg", "predator_prey", {"subgoal_horizon": 5, "prior_kl_weight": 1.0}),
        ("iql_omg", "sc2", {"subgoal_horizon": 10, "rnn_hidden_dim": 64, "lr": 0.0005}),
        ("iql_omg", "battle", {"subgoal_horizon": 10, "target_update_interval": 200}),
        ("iql_omg", "battle", {"epsilon_start": 1.0, "epsilon_anneal_time": 50000}),
    ],
)
def test_the_papers_presets_have_its_numbers(
    config: str, env: str, literal: dict[str, float]
) -> None:
    found = load_command_line([f"--config={config}", f"--env-config={env}"]).config
    assert {key: getattr(found, key) for key in literal} == literal
