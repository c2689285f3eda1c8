"""Runs and pools that somebody else made run none of their code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import omg
from omg.cli.app import app

SMALL = {
    "env_args": {"key": "Foraging-5x5-2p-1f-v3", "max_episode_steps": 6},
    "t_max": 24,
    "batch_size": 2,
    "test_nepisode": 2,
    "rnn_hidden_dim": 8,
    "am_hidden_dim": 8,
    "quiet": True,
    "use_sacred": False,
    "use_tensorboard": False,
}
# Leaves a file behind when it is imported, and another when it is called.
TRAP = """
from pathlib import Path
from omg.envs.foraging.env import ForagingEnv
from omg.modules.agents.networks import RNNAgent
from omg.modules.opponent_models.base_am import NaiveModel

Path("sprung").touch()

class Env(ForagingEnv):
    pass

class Agent(RNNAgent):
    pass

class Model(NaiveModel):
    pass
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a team, one of an agent, and a pool."""
    folder = tmp_path_factory.mktemp("received")
    settings = {**SMALL, "local_results_path": str(folder)}
    team = omg.train("iql", "foraging", run_name="team", **settings)
    pool = omg.Pool.create(folder / "pool")
    pool.add_run(team.folder)
    pool.add_script("random", split="heldout")
    omg.train("iql_am", "foraging", run_name="agent", opponent_pool=str(pool.path), **settings)
    return folder


@pytest.fixture
def received(made: Path, tmp_path: Path) -> Path:
    subprocess.run(["cp", "-r", f"{made}/.", tmp_path], check=True)
    (tmp_path / "trap.py").write_text(TRAP)
    return tmp_path


def poison_config(folder: Path, run: str, **changes: Any) -> None:
    path = folder / run / "config.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **changes}))


def poison_json(path: Path, key: str, value: str) -> None:
    """Set a key wherever it stands in a JSON file, or in its policies."""

    def changed(content: Any) -> Any:
        if isinstance(content, dict):
            content = {k: changed(v) for k, v in content.items()}
            return {**content, key: value} if key in content else content
        return [changed(v) for v in content] if isinstance(content, list) else content

    path.write_text(json.dumps(changed(json.loads(path.read_text()))))


def omg_command(
    folder: Path, *words: str, program: tuple[str, ...] = ("-m", "omg")
) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "OMG_TRUST"}
    return subprocess.run(
        [sys.executable, *program, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.fixture
def stranger(received: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The received folder as the current one, of a program that trusts and has imported nothing."""
    monkeypatch.delenv("OMG_TRUST", raising=False)
    monkeypatch.chdir(received)
    monkeypatch.syspath_prepend(str(received))
    yield received
    sys.modules.pop("trap", None)


COMMANDS = {
    "resume": ("train", "--resume=team", "--t_max=48"),
    "evaluate": ("evaluate", "agent", "--pool=pool", "--episodes=2"),
    "play": ("envs", "play", "--policy=team", "--text", "--episodes=1"),
    "add": ("pool", "add", "other", "team"),
    "train": (
        *("train", "--config=iql_am", "--env-config=foraging", "--opponent_pool=pool"),
        *("--t_max=24", "--batch_size=2", "--test_nepisode=2", "--use_sacred=False"),
        *("--env_args.key=Foraging-5x5-2p-1f-v3", "--env_args.max_episode_steps=6"),
    ),
}


def poison(folder: Path, kind: str) -> None:
    """Let saved files name a module of the folder, or something else that could be called."""
    for run in ("team", "agent"):
        if kind == "adapter":
            poison_config(folder, run, env="gymnasium", env_args={"key": "trap:Env"})
        elif kind == "pymarl":
            poison_config(folder, run, env="pymarl", env_args={"key": "trap:Env"})
        elif kind == "network":
            poison_config(folder, run, policy_model="trap:Agent")
        else:
            named = {"class": "trap:Env", "function": "os:system"}[kind]
            poison_config(folder, run, env=named, env_args={"command": "touch sprung"})
    for path in folder.rglob("*.json"):
        poison_json(path, "env", "trap:Env" if kind == "class" else "foraging")
        poison_json(path, "policy_model", "trap:Agent")


@pytest.mark.parametrize("kind", ["class", "function", "adapter", "pymarl", "network"])
@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_no_command_runs_code_that_a_received_file_names(
    stranger: Path, kind: str, command: str
) -> None:
    poison(stranger, kind)
    done = CliRunner().invoke(app, COMMANDS[command])
    assert not (stranger / "sprung").exists(), done.stderr
    assert "trap" not in sys.modules
    assert "bug" not in done.stderr
    if command != "add":  # copies files and builds nothing
        assert done.exit_code == 2, done.stderr
        assert done.stderr.startswith("omg: ")


@pytest.mark.long
@pytest.mark.parametrize("start", ["module", "script"])
def test_a_file_beside_a_received_run_does_not_pass_for_a_package(
    received: Path, tmp_path_factory: pytest.TempPathFactory, start: str
) -> None:
    script = tmp_path_factory.mktemp("bin") / "omg"
    script.write_text("from omg.cli.app import main\n\nmain()\n")
    program = ("-m", "omg") if start == "module" else (str(script),)
    packages = ("gymnasium", "lbforaging", "matplotlib", "pandas", "sacred", "smac", "sympy")
    for package in packages:
        (received / f"{package}.py").write_text(TRAP)
    poison_config(received, "team", use_sacred=True)
    for words in (COMMANDS["resume"], COMMANDS["evaluate"]):
        done = omg_command(received, *words, program=program)
        assert not (received / "sprung").exists()
        assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_what_the_command_line_repeats_or_trusts_is_run(received: Path) -> None:
    poison_config(received, "team", policy_model="trap:Agent")
    refused = omg_command(received, "train", "--resume=team", "--t_max=48")
    assert "add --trust=trap to the command" in refused.stderr
    for word in ("--trust=trap:Agent", "--policy_model=trap:Agent"):
        done = omg_command(received, "train", "--resume=team", "--t_max=48", word)
        assert done.returncode == 0, done.stderr
        assert (received / "sprung").exists()


@pytest.mark.long
def test_worker_processes_trust_what_the_command_line_named(received: Path) -> None:
    done = omg_command(
        received,
        *("train", "--config=iql", "--env=trap:Env", "--runner=parallel", "--n_workers=1"),
        *("--t_max=12", "--batch_size=2", "--test_nepisode=2", "--use_sacred=False", "--quiet"),
        *("--env_args.key=Foraging-5x5-2p-1f-v3", "--env_args.max_episode_steps=6"),
    )
    assert done.returncode == 0, done.stderr


def test_in_python_a_module_that_was_imported_is_trusted(stranger: Path) -> None:
    poison_config(stranger, "team", policy_model="trap:Agent")
    with pytest.raises(omg.OmgError, match="in Python, import trap first"):
        omg.load("team")
    assert not (stranger / "sprung").exists()
    __import__("trap")
    with pytest.raises(omg.OmgError, match="policy_model=rnn there, trap:Agent here"):
        omg.load("team")  # the weights say who made them
