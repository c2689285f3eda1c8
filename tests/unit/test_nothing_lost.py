"""Interrupted, misled and refused runs: what was saved stays, and a sentence says what to do."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

import omg
from omg.config.loader import load_command_line
from omg.envs.foraging.env import ForagingEnv
from omg.experiment.provenance import provenance
from omg.storage.files import RunFolder, remove_leftovers
from omg.storage.locks import release_lock, take_lock
from omg.storage.sums import write_sums
from omg.types import RunFailedError, TimeStep

from .counter_game import CounterEnv as Counter

SMALL = {
    "env_args": {"key": "Foraging-5x5-2p-1f-v3", "max_episode_steps": 6},
    "t_max": 24,
    "batch_size": 2,
    "test_nepisode": 2,
    "rnn_hidden_dim": 8,
    "resume_interval": 12,
    "quiet": True,
    "use_sacred": False,
    "use_tensorboard": False,
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for name in ("qmix", "iql"):
        omg.train(name, "foraging", run_name=name, local_results_path=str(folder), **SMALL)
    return folder


@pytest.fixture
def runs(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "runs"))


def state_of(run: Path) -> Path:
    (found,) = run.glob("resume/*/state.pt")
    return found


def files_of(run: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in run.rglob("*") if p.is_file()}


# --- links ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [".lock", "metrics.jsonl"])
def test_a_link_in_a_received_run_does_not_lead_to_a_file_that_is_changed(
    runs: Path, name: str
) -> None:
    mine = runs / "mine"
    mine.write_text("precious")
    (runs / "qmix" / name).unlink(missing_ok=True)
    (runs / "qmix" / name).symlink_to(mine)
    identity = (runs / "qmix" / "run.json").read_text()
    with pytest.raises(omg.OmgError, match=f"{name} is a link"):
        omg.train(resume=runs / "qmix", t_max=48)
    assert mine.read_text() == "precious"
    assert (runs / "qmix" / "run.json").read_text() == identity


def test_a_link_in_a_received_pool_does_not_lead_to_a_file_that_is_changed(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("precious")
    pool = omg.Pool.create(tmp_path / "pool")
    (pool.path / ".pool.lock").symlink_to(mine)
    with pytest.raises(omg.OmgError, match=r"\.pool\.lock is a link"):
        pool.add_script("random", env="foraging")
    assert mine.read_text() == "precious"


# --- resume states -------------------------------------------------------------------------------


def damaged_states(runs: Path) -> dict[str, Any]:
    good = torch.load(state_of(runs / "qmix"), weights_only=True)
    other = torch.load(state_of(runs / "iql"), weights_only=True)
    return {
        "empty": {},
        "incomplete": {k: v for k, v in good.items() if k != "buffer"},
        "another algorithm": other,
        "wrong types": {**good, "counters": [1, 2]},
        "wrong counters": {**good, "counters": {"steps": 3}},
        "no mapping": [1],
    }


@pytest.mark.parametrize(
    "kind",
    ["empty", "incomplete", "another algorithm", "wrong types", "wrong counters", "no mapping"],
)
def test_a_state_that_is_not_this_runs_is_refused_and_overwrites_nothing(
    runs: Path, kind: str
) -> None:
    run = runs / "qmix"
    torch.save(damaged_states(runs)[kind], state_of(run))
    write_sums(state_of(run).parent, run=RunFolder(run).id)
    before = files_of(run)
    with pytest.raises(omg.OmgError) as refused:
        omg.train(resume=run, t_max=48)
    assert "checkpoint_path" in str(refused.value)
    assert files_of(run) == before


def test_a_resume_state_that_is_refused_leaves_no_record_of_sacred(runs: Path) -> None:
    state = state_of(runs / "qmix")
    torch.save({}, state)
    write_sums(state.parent)
    with pytest.raises(omg.OmgError, match="cannot be continued from"):
        omg.train(resume=runs / "qmix", t_max=48, use_sacred=True)
    assert not (runs / "sacred").exists()
    state.unlink()
    with pytest.raises(omg.OmgError, match=r"state\.pt was not saved|state\.pt cannot be read"):
        omg.train(resume=runs / "qmix", t_max=48)


def test_a_refused_continuation_leaves_a_run_that_has_only_its_settings(runs: Path) -> None:
    shutil.rmtree(runs / "qmix" / "resume")
    shutil.rmtree(runs / "qmix" / "models")
    (runs / "qmix" / "metrics.jsonl").unlink()
    before = files_of(runs / "qmix")
    with pytest.raises(omg.OmgError, match="has no resume state"):
        omg.train(resume=runs / "qmix", t_max=48)
    assert files_of(runs / "qmix") == before


@pytest.mark.long
def test_a_source_that_a_full_disk_cut_off_is_recorded_again(tmp_path: Path) -> None:
    settings = {**SMALL, "use_sacred": True, "local_results_path": str(tmp_path)}
    omg.train("iql", "foraging", run_name="one", **settings)
    (copy,) = tmp_path.glob("sacred/_sources/gru_*.c")
    whole = copy.read_bytes()
    copy.write_bytes(whole[:100])
    omg.train("iql", "foraging", run_name="two", **settings)
    assert copy.read_bytes() == whole


# --- checksums -----------------------------------------------------------------------------------


def flip(path: Path, at: float) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[int(at * (len(content) - 1))] ^= 1 << 4
    path.write_bytes(content)


FILES = ("agent.th", "mixer.th", "opt.th", "meta.json")


@pytest.mark.parametrize("at", [0.0, 0.3, 0.5, 0.7, 1.0])
@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_of_a_model_is_refused_by_name(runs: Path, name: str, at: float) -> None:
    path = runs / "qmix" / "models" / "last" / name
    flip(path, at)
    settings = {**SMALL, "run_name": "new", "local_results_path": str(runs)}
    with pytest.raises(omg.OmgError, match=rf"last/{name} is damaged or was changed"):
        omg.train("qmix", "foraging", checkpoint_path=path.parent, **settings)
    if name in ("agent.th", "meta.json"):
        with pytest.raises(omg.OmgError, match=rf"last/{name} is damaged or was changed"):
            omg.load(runs / "qmix")
    assert not (runs / "new").exists()


@pytest.mark.parametrize("at", [0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
def test_a_flipped_bit_of_a_resume_state_is_refused_by_name(runs: Path, at: float) -> None:
    path = state_of(runs / "qmix")
    flip(path, at)
    with pytest.raises(omg.OmgError, match=r"state\.pt is damaged or was changed"):
        omg.train(resume=runs / "qmix", t_max=48)


def test_the_state_of_another_run_of_the_same_kind_is_refused(runs: Path, tmp_path: Path) -> None:
    settings = {**SMALL, "run_name": "twin", "local_results_path": str(runs)}
    omg.train("qmix", "foraging", seed=7, **settings)
    for name in ("state.pt", "sha256.json"):
        shutil.copy(state_of(runs / "twin").with_name(name), state_of(runs / "qmix").parent)
    with pytest.raises(omg.OmgError, match="is the resume state of another run"):
        omg.train(resume=runs / "qmix", t_max=48)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused_by_name(runs: Path, value: float) -> None:
    path = runs / "qmix" / "models" / "last" / "agent.th"
    weights = torch.load(path, weights_only=True)
    weights["rnn.weight_hh"][0, 0] = value
    torch.save(weights, path)
    write_sums(path.parent)
    with pytest.raises(omg.OmgError, match=r"agent\.th: rnn\.weight_hh holds numbers that are not"):
        omg.load(runs / "qmix")


def test_a_model_without_checksums_loads_with_one_remark(
    runs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (runs / "qmix" / "models" / "last" / "sha256.json").unlink()
    for _ in range(2):
        omg.load(runs / "qmix")
    told = [record.getMessage() for record in caplog.records if "checksums" in record.getMessage()]
    assert len(told) == 1


@pytest.mark.parametrize("text", ["", "{", "[]", '{"files": 3}', '{"files": {"agent.th": 1}}'])
def test_damaged_checksums_are_refused(runs: Path, text: str) -> None:
    (runs / "qmix" / "models" / "last" / "sha256.json").write_text(text)
    with pytest.raises(omg.OmgError, match=r"sha256\.json is damaged"):
        omg.load(runs / "qmix")


# --- locks and left-overs ------------------------------------------------------------------------


def test_a_run_that_is_being_trained_is_not_trained_twice(runs: Path) -> None:
    run = runs / "qmix"
    held = take_lock(run / ".lock", str)
    try:
        with pytest.raises(omg.OmgError, match=rf"is being trained by process {os.getpid()} on"):
            omg.train(resume=run, t_max=48)
    finally:
        release_lock(run / ".lock", held)
    omg.train(resume=run, t_max=48)
    assert not (run / ".lock").exists()


def test_the_lock_of_a_dead_process_is_taken_over(runs: Path) -> None:
    (runs / "qmix" / ".lock").write_text("process 1 on elsewhere\n")
    omg.train(resume=runs / "qmix", t_max=48)


def test_what_killed_processes_left_is_removed_and_what_they_replaced_comes_back(
    runs: Path,
) -> None:
    run = runs / "qmix"
    ended = subprocess.Popen(["true"])
    ended.wait()
    (run / "models" / f".24.part-{ended.pid}").mkdir()
    (run / f".config.yaml.part-{ended.pid}").touch()
    alive = run / "models" / f".x.part-{os.getpid()}"
    alive.mkdir()
    (run / "models" / "last").rename(run / "models" / f".last.old-{ended.pid}")
    remove_leftovers(run)
    assert (run / "models" / "last" / "agent.th").is_file()
    assert [path.name for path in (run / "models").glob(".*")] == [alive.name]
    assert not list(run.glob(".config*"))


# --- provenance ----------------------------------------------------------------------------------


def test_a_run_says_what_it_was_made_with_and_every_continuation_too(runs: Path) -> None:
    run = runs / "qmix"
    first = json.loads((run / "run.json").read_text())
    (session,) = first["sessions"]
    assert session["packages"]["torch"] == version("torch")
    assert session["python"] == platform.python_version()
    assert isinstance(session["kernels"], bool)

    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
    if head.returncode == 0:
        assert session["commit"].partition("+")[0] == head.stdout.strip()
    omg.train(resume=run, t_max=48)
    again = json.loads((run / "run.json").read_text())
    assert again["id"] == first["id"]
    assert len(again["sessions"]) == 2
    assert omg.load(run).run.meta["run"] == first["id"]


def test_kernels_that_could_not_be_built_are_recorded_as_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = load_command_line(["--config=qmix", "--env-config=foraging"]).config
    monkeypatch.setattr(
        "omg.experiment.provenance.load_library", lambda name: (None, "no C compiler found")
    )
    assert provenance(config)["kernels"] is False


# --- signals -------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_closed_terminal_is_an_interruption_like_others(tmp_path: Path) -> None:
    words = [f"--{k}={v}" for k, v in SMALL.items() if k not in ("env_args", "t_max", "use_sacred")]
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "omg", "train", "--config=iql", "--env-config=foraging"),
            *(*words, "--t_max=100000000", "--run_name=long", "--local_results_path=."),
            *("with", "env_args.key=Foraging-5x5-2p-1f-v3", "env_args.max_episode_steps=6"),
        ],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("long/resume/*/state.pt")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGHUP)
    try:
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, told
    assert "interrupted" in told
    assert "--resume=" in told
    (record,) = tmp_path.glob("sacred/*/run.json")
    assert '"INTERRUPTED"' in record.read_text()


# --- environments that end the program -----------------------------------------------------------


class Quitting(ForagingEnv):
    """Leaves after a few steps, as a script with `sys.exit` would."""

    def step(self, actions: Any) -> TimeStep:
        if os.environ.get("QUIT", "") == "now":
            sys.exit(3)
        return super().step(actions)


@pytest.mark.parametrize(
    "runner", ["batch", "episode", pytest.param("parallel", marks=pytest.mark.long)]
)
def test_an_environment_that_ends_the_program_is_a_failure_with_a_sentence(
    runner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUIT", "now")
    settings = {**SMALL, "local_results_path": str(tmp_path), "runner": runner, "n_workers": 1}
    with pytest.raises(RunFailedError, match=r"SystemExit"):
        omg.train("iql", env=Quitting, **settings)


class Stubborn(ForagingEnv):
    """Never comes up, or leaves an agent no action."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        if os.environ.get("STUBBORN") == "start":
            time.sleep(600)
        super().__init__(*args, **settings)

    def step(self, actions: Any) -> TimeStep:
        found = super().step(actions)
        if os.environ.get("STUBBORN") == "actions":
            found.avail[0, 1] = False
        return found


def stubborn(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **more: Any) -> omg.Run:
    monkeypatch.setenv("STUBBORN", how)
    return omg.train("iql", env=Stubborn, **{**SMALL, "local_results_path": str(tmp_path), **more})


@pytest.mark.long
def test_a_constructor_that_hangs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omg.runners.assembly.IMPORT_SECONDS", 6.0)
    with pytest.raises(RunFailedError, match="did not answer within 7 seconds"):
        stubborn("start", tmp_path, monkeypatch, runner="parallel", n_workers=1, worker_timeout=1)


def test_an_agent_without_any_action_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RunFailedError, match=r"Agent 1 of .* has no available action"):
        stubborn("actions", tmp_path, monkeypatch)


class Unclosable(Counter):
    def close(self) -> None:
        raise SystemExit(4)


def test_a_game_that_will_not_close_is_remarked_upon_and_nothing_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {**SMALL, "env_args": {}, "local_results_path": str(tmp_path)}
    run = omg.train("iql", env=Unclosable, **settings)
    assert (run.folder / "models" / "last" / "agent.th").is_file()
    assert "Unclosable.close() failed (SystemExit: 4); nothing is lost." in caplog.messages
