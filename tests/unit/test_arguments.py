"""The command line: what PyMARL and Sacred users type, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omg.config.arguments import (
    SACRED_COMMANDS,
    SACRED_FLAGS,
    Arguments,
    Update,
    parse_arguments,
    parse_value,
    split_sacred,
)
from omg.config.loader import load
from omg.experiment.sacred import changes
from omg.types import OmgError

sacred = pytest.importorskip("sacred.arg_parser")

SACRED_UPDATES = [
    "seed=3",
    "t_max=-1",
    "lr=5e-4",
    "lr=.5",
    "t_max=2_050_000",
    "batch=0x10",
    "mlp_hidden_dims=[64, 32]",
    "size=(8, 8)",
    "env_args={'key': 'Foraging-8x8-2p-3f-v3', 'sight': 2}",
    "env_args.key=Foraging-8x8-2p-3f-v3",
    "a.b.c=1",
    "mixer=None",
    "debug=True",
    "debug=False",
    "debug=true",
    "label='quoted text'",
    'label="quoted text"',
    'label="5"',
    "label='it''s'",
    "label=plain text with spaces",
    "label=a=b",
    "label=007",
    "label=",
    "mongo_url=mongodb://localhost:27017/?a=b",
    "  lr  =  0.1  ",
    "path=/tmp/a.b/c",
    "label=1e",
    "label=[1, 2",
]


def in_json(value: Any) -> Any:
    """Sacred passes values through JSON: tuples become lists, and so they do in our schema."""
    return json.loads(json.dumps(value))


def as_nested(updates: tuple[Update, ...]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for update in updates:
        node = nested
        *above, last = update.path.split(".")
        for part in above:
            node = node.setdefault(part, {})
        node[last] = update.value
    return nested


@pytest.mark.parametrize("update", SACRED_UPDATES)
def test_an_update_behind_with_means_what_sacred_says_it_means(update: str) -> None:
    expected, named = sacred.get_config_updates([update])
    assert not named
    assert in_json(as_nested(parse_arguments(["with", update]).updates)) == expected


def test_many_updates_at_once_equal_sacreds_reading() -> None:
    words = [word for word in SACRED_UPDATES if not word.startswith(("env_args={", "a.b"))]
    expected, _ = sacred.get_config_updates(words)
    assert in_json(as_nested(parse_arguments(["with", *words]).updates)) == expected


@pytest.mark.long
@given(st.text(alphabet="abc019.-+eE_'\"[](){},:= \\#@", max_size=12))
@settings(max_examples=300, deadline=None)
def test_any_value_is_read_as_sacred_reads_it(text: str) -> None:
    try:
        expected = sacred._convert_value(text.strip())
    except TypeError:  # Sacred stumbles over sets, bytes and unhashable literals such as {[]: 1}
        return
    assert in_json(parse_value(text.strip())) == expected


@pytest.mark.parametrize("text", ["{[]: 1}", "{{}: 1}", "(" * 5000])
def test_a_literal_that_python_cannot_build_stays_text(text: str) -> None:
    assert parse_value(text) == text


def test_an_empty_word_behind_with_is_ignored_as_in_sacred() -> None:
    assert parse_arguments(["with", "", "lr=1"]) == parse_arguments(["with", "lr=1"])


def test_every_part_of_a_command_line_is_read() -> None:
    words = "--config=qmix --env-config=foraging --lr=0.1 --debug with env_args.sight=2 my.yaml"
    assert parse_arguments(words.split()) == Arguments(
        alg="qmix",
        env="foraging",
        updates=(
            Update("lr", 0.1, "--lr=0.1"),
            Update("debug", True, "--debug"),
            Update("env_args.sight", 2, "with env_args.sight=2"),
        ),
        files=("my.yaml",),
    )


@pytest.mark.long
@given(
    st.permutations(
        [
            "--config=qmix",
            "--env-config=foraging",
            "--t_max=500",
            "--quiet",
            "--env_args.sight=2",
            "--batch-size=4",
            "--gamma=.9",
        ]
    ),
    st.permutations(["lr=0.1", "env_args.penalty=.5", "mixer=None"]),
    st.data(),
)
@settings(max_examples=40, deadline=None)
def test_the_order_of_the_words_does_not_matter(
    options: list[str], updates: list[str], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(options)))
    words = [*options[:at], "with", updates[0], *options[at:], *updates[1:]]
    config = load(parse_arguments(words)).config
    reference = load(parse_arguments([*sorted(options), "with", *sorted(updates)])).config
    assert config == reference
    assert (config.name, config.env, config.t_max, config.lr) == ("qmix", "foraging", 500, 0.1)
    assert (config.quiet, config.batch_size, config.mixer) == (True, 4, None)
    assert config.env_args["sight"] == 2
    assert config.env_args["penalty"] == 0.5


def test_of_two_values_for_one_key_the_later_wins() -> None:
    words = ["--lr=0.1", "with", "lr=0.2", "--lr=0.3"]
    assert [u.value for u in parse_arguments(words).updates] == [0.1, 0.2, 0.3]
    assert load(parse_arguments(words)).config.lr == 0.3


@pytest.mark.parametrize(
    ("word", "key"),
    [("--batch-size=3", "batch_size"), ("--env_args.key=x", "env_args.key"), ("--a.b=1", "a.b")],
)
def test_hyphens_in_a_key_are_underscores_and_dots_nest(word: str, key: str) -> None:
    assert parse_arguments([word]).updates[0].path == key


def test_hyphens_in_a_value_stay() -> None:
    assert parse_arguments(["--label=a-b--c"]).updates[0].value == "a-b--c"
    assert parse_arguments(["--config=my-alg", "--env_config=e"]).alg == "my-alg"


def test_a_bare_flag_is_true_and_an_empty_value_is_empty_text() -> None:
    flag, empty = parse_arguments(["--evaluate", "--label="]).updates
    assert flag.value is True
    assert empty.value == ""


def test_the_same_configuration_may_be_named_twice_but_not_two() -> None:
    assert parse_arguments(["--config=iql", "--config=iql"]).alg == "iql"
    with pytest.raises(OmgError, match=r"--config is given twice \('iql' and 'vdn'\)"):
        parse_arguments(["--config=iql", "--config=vdn"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--config"], r"'--config' names nothing\. Write --config=<name>"),
        (["--env-config="], r"'--env-config=' names nothing\. Write --env-config=<name>"),
        (["t_max=5"], r"'t_max=5' stands alone\. Write '--t_max=5' or 'with t_max=5'"),
        (["qmix"], r"'qmix' is not understood\. Write --config=<alg>"),
        (["print_confg"], r"not understood, did you mean 'print_config'\? Write --config=<alg>"),
        (["--config", "iql", "foo"], r"'foo' is not understood\. Write --config=<alg>"),
        (["--t_max", "5"], r"'--t_max 5': a value follows '='\. Write --t_max=5\."),
        (["-x"], r"'-x' is not understood"),
        (["--"], r"'--' is not understood"),
        (["--=5"], r"'--=5' has no key"),
        (["with", "=5"], r"'with =5' has no key"),
        (["with", "a..b=5"], r"'with a\.\.b=5' has no key"),
        (["--.a=5"], r"'--\.a=5' has no key"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_way_to_write_it(
    words: list[str], sentence: str
) -> None:
    with pytest.raises(OmgError, match=sentence) as caught:
        parse_arguments(words)
    assert caught.value.exit_code == 2


# --- Sacred's own commands and flags -------------------------------------------------------------


@pytest.fixture(scope="module")
def experiment() -> Any:
    return pytest.importorskip("sacred").Experiment("x", save_git_info=False)


def test_every_flag_and_command_of_sacred_is_known_here(experiment: Any) -> None:
    theirs = {(*option.get_flags(), bool(option.arg)) for option in experiment.all_cli_options}
    ours = {(f"-{flag.short}", f"--{flag.long}", flag.valued) for flag in SACRED_FLAGS}
    assert ours == theirs
    assert {name for name, _ in experiment.gather_commands()} | {"my_main", "help"} == set(
        SACRED_COMMANDS
    )


@pytest.mark.parametrize(
    "line",
    [
        "-F runs",
        "-Fruns",
        "--file_storage=runs",
        "--file_storage runs",
        "-pu",
        "-puFruns",
        "-c comment -n name with seed=3 -b 2",
        "with seed=3 -l DEBUG",
        "print_config with seed=3",
        "print_config -d",
        "--print-config --beat-interval=3 --enforce_clean",
        "-c print_config with lr=1",
        "-i 12 -C sys -m localhost:27017:db -D",
        "--name=foo --id 3 --capture fd --mongo_db db",
    ],
)
def test_flags_are_read_as_sacred_reads_them(experiment: Any, line: str) -> None:
    docopt = pytest.importorskip("docopt").docopt
    _, _, usage = experiment.get_usage("x")
    theirs = docopt(usage, line.split(), default_help=False)
    words, rest = split_sacred(line.split())
    assert words.command == (theirs["COMMAND"] or "")
    given_there = {key.removeprefix("--"): value for key, value in theirs.items() if "--" in key}
    given_there = {key: "" if v is True else v for key, v in given_there.items() if v}
    assert words.flags == given_there
    updates = {u.path: u.value for u in parse_arguments(rest).updates}
    ours = {"name", "debug", "use_sacred"}
    expected, _ = sacred.get_config_updates(theirs["UPDATE"])
    assert {key: value for key, value in updates.items() if key not in ours} == expected


def test_flags_that_are_keys_of_ours_become_keys() -> None:
    _, rest = split_sacred(["-u", "-d", "--name=foo"])
    assert {u.path: u.value for u in parse_arguments(rest).updates} == {
        "use_sacred": False,
        "debug": True,
        "name": "foo",
    }
    assert split_sacred(["-n", "foo", "--debug=False"])[1] == ["--debug=False"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("-q", "Nothing here takes runs from a queue"),
        ("--queue", "Nothing here takes runs from a queue"),
        ("-P 3", "so a run has no priority"),
        ("-pf", "here those are errors"),
        ("-F", "names nothing"),
        ("-c with seed=1", "names nothing"),
        ("--unobserved=3", "takes no value"),
        ("-pZ", "Sacred has no flag -Z"),
        ("print_config save_config", "two commands"),
    ],
)
def test_what_makes_no_sense_beside_our_runs_is_refused(line: str, said: str) -> None:
    with pytest.raises(OmgError, match=said):
        split_sacred(line.split())


def test_what_the_command_line_changed_is_told_apart_from_what_was_before() -> None:
    words = ["--config=iql", "--env-config=foraging", "with", "env_args.sight=2", "lr=0.1"]
    arguments = parse_arguments([*words, "gamma=0.95"])
    given, before = changes(arguments, load(arguments).config)
    assert given == {"env_args": {"sight": 2}, "lr": 0.1}, "foraging.yaml says gamma: 0.95"
    plain = load(parse_arguments(words[:2])).config.as_dict()
    assert before == plain


def test_config_and_env_config_may_be_followed_by_a_space() -> None:
    words = ["--config", "qmix", "--t_max=5", "--env-config", "foraging", "with", "lr=0.1"]
    spaced = parse_arguments(words)
    assert (spaced.alg, spaced.env) == ("qmix", "foraging")
    assert [update.path for update in spaced.updates] == ["t_max", "lr"]
    for words in (["--config"], ["--config", "--t_max=5"], ["--env-config", "with", "lr=0.1"]):
        with pytest.raises(OmgError, match=r"names nothing. Write --(env-)?config=<name>"):
            parse_arguments(words)


def test_a_value_after_a_space_is_answered_with_how_to_write_it() -> None:
    with pytest.raises(OmgError, match=r"Write --t_max=500\."):
        parse_arguments(["--config=qmix", "--t_max", "500"])
