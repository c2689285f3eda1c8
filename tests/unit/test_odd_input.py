"""Configurations nobody means: each is refused with a sentence, and nothing is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from omg.config.loader import load_command_line, masked
from omg.envs.registry import make_batched
from omg.experiment.checks import check_memory, sanity_check
from omg.modules.device import set_up_torch
from omg.runners import runner_of
from omg.types import OmgError, user_path

BOMB = "a0: &a0 [1, 1]\n" + "".join(
    f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}, *a{n - 1}]\n" for n in range(1, 12)
)
FILES = {
    "twice": ("lr: 0.1\ngamma: 0.9\nlr: 0.2\n", "'lr' stands twice"),
    "twice inside": ("env_args: {key: a, key: b}\n", "'key' stands twice"),
    "circular": ("env_args: &a {b: *a}\n", "nested deeper than"),
    "bomb": (BOMB, "more than 20,000 values"),
    "deep": ("env_args: " + "[" * 3000 + "]" * 3000, "nested"),
    "digits": ("seed: " + "9" * 6000, "is not valid YAML"),
    "bytes": ("name: \x00", "is not valid YAML"),
    "large": ("# " + "x" * 1_000_001, "larger than"),
    "date": ("seed: 2020-01-01\n", r"seed='2020-01-01' .*Expected: a whole number"),
    "infinite": ("entropy_coef: .inf\n", "Expected: a finite number"),
    "sequence": ("- 1\n", "holds a list"),
}


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_that_nobody_means_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    text, answer = FILES[name]
    path = tmp_path / "odd.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(OmgError, match=answer) as refused:
        load_command_line(["--config=qmix", "--env-config=foraging", "with", str(path)])
    assert len(str(refused.value)) < 600


WORDS = {
    "--run_name=../../x": "without '/'",
    "--run_name=.hidden": "not beginning with",
    f"--run_name={'x' * 5000}": "a shorter text",
    "--label=\x1b[31mred": "without control characters",
    f"--seed={'9' * 6000}": "a whole number",
    "--seed=99999999999999999999999": "less than or equal to",
    "--torch_threads=100000": "less than or equal to 1024",
    "--am_kl_weight=nan": "a finite number",
    "--lr=1e999": "a finite number",
}


@pytest.mark.parametrize("word", list(WORDS), ids=[word[:20] for word in WORDS])
def test_a_value_that_nobody_means_is_refused_in_a_sentence(word: str) -> None:
    with pytest.raises(OmgError, match=WORDS[word]) as refused:
        load_command_line(["--config=qmix", "--env-config=foraging", word])
    assert len(str(refused.value)) < 600
    assert "\x1b" not in str(refused.value)


def test_a_team_of_millions_is_refused() -> None:
    for team in ("99999999999iql1iql_am", "900iql900iql_am"):
        with pytest.raises(OmgError, match="more than 1000 players"):
            load_command_line([f"--config={team}", "--multi_algs", "--env-config=foraging"])


@pytest.mark.parametrize("path", ["~nosuchuser/x", "a\0b", "\x7fx", "x" * 300, "a/" * 3000])
def test_a_path_that_cannot_exist_is_refused(path: str) -> None:
    with pytest.raises(OmgError, match=r"no such user|cannot be a path"):
        user_path(path)


@pytest.mark.parametrize("password", ["plain", "a@b", "a/b", "p:w", "ü", "a@b/c:d@e"])
def test_no_character_of_a_password_is_shown(password: str) -> None:
    assert masked(f"mongodb://me:{password}@host/db") == "mongodb://me:***@host/db"
    assert masked("mongodb://host/db") == "mongodb://host/db"


NO_EFFECT = {
    "--load_step=3": "says which step of checkpoint_path",
    "--mongo_url=mongodb://me:secret@host --use_sacred=False": "is where Sacred records to",
    "--is_agent_shift": "is for one agent among others",
    "--agent_shift=1": "is for one agent among others",
    "--init_param_path=results": "is for one agent among others",
    "--team=2iql": "is for one agent among others",
}


@pytest.mark.parametrize("words", list(NO_EFFECT))
def test_an_option_without_effect_is_refused(words: str) -> None:
    config = load_command_line(["--config=qmix", "--env-config=foraging", *words.split()]).config
    with pytest.raises(OmgError, match=NO_EFFECT[words]) as refused:
        sanity_check(config)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("key", ["buffer_size", "batch_size_run", "test_batch_size_run"])
def test_what_no_machine_can_hold_is_refused_with_both_sizes(key: str) -> None:
    sizes = {"buffer_size": 64, "test_batch_size_run": 1, key: 1_000_000_000}
    words = [f"--{name}={value}" for name, value in sizes.items()]
    words += ["--test_nepisode=1000000000"]
    config = load_command_line(["--config=qmix", "--env-config=foraging", *words]).config
    spec = make_batched("foraging", {"key": "Foraging-5x5-2p-1f-v3"}, n_copies=1).spec
    with pytest.raises(OmgError, match=rf"{key}=1000000000 asks for .* GiB.* can have .* GiB"):
        check_memory(config, runner_of(config), spec)


def test_a_width_that_no_network_has_is_refused() -> None:
    for key in ("subgoal_dim", "rnn_hidden_dim", "mixing_embed_dim"):
        with pytest.raises(OmgError, match="less than or equal to 65536"):
            load_command_line(["--config=iql_omg", "--env-config=foraging", f"--{key}={2**61}"])


def test_more_threads_than_a_machine_of_this_size_starts_are_refused() -> None:
    config = load_command_line(["--config=iql", "--env-config=foraging", "--torch_threads=1000"])
    with pytest.raises(OmgError, match=r"torch_threads=1000, and this machine has \d+ cores"):
        set_up_torch(config.config)
