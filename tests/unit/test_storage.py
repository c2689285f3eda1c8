"""Saved files: complete or absent, never executed, and refused with a reason."""

from __future__ import annotations

import errno
import json
import os
import pickle
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from omg.config.loader import load_command_line
from omg.experiment.output import MetricLogger, read_metrics
from omg.storage.files import (
    RunFolder,
    create_run_folder,
    find_run_to_resume,
    load_tensors,
    new_folder,
    read_json,
    save_tensors,
    write_text,
)
from omg.storage.models import (
    check_meta,
    find_model_folder,
    load_networks,
    prune_models,
    save_models,
    saved_steps,
)
from omg.types import OmgError, RunFailedError

META: dict[str, Any] = {
    "env": "foraging",
    "env_args": {"key": "Foraging-8x8-2p-3f-v3"},
    "shapes": {"n_agents": 2, "n_actions": 6, "obs_dim": 15, "state_dim": 15},
    "policy": {"policy_model": "rnn", "input_dim": 23, "obs_is_state": False},
}


def save(folder: Path, value: float = 0.0, size: int = 3, **meta: Any) -> nn.Linear:
    network = nn.Linear(size, 2)
    nn.init.constant_(network.weight, value)
    save_models(folder, networks={"agent": network}, optimiser={"lr": 0.1}, meta={**META, **meta})
    return network


def weight_in(folder: Path) -> float:
    return float(load_tensors(folder / "agent.th")["weight"][0, 0])


def everything_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@contextmanager
def files_limited_to(n_bytes: int) -> Iterator[None]:
    """The operating system refuses to write more, as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# --- writing -----------------------------------------------------------------------------------


def test_a_model_folder_holds_weights_optimiser_and_meta_and_nothing_else(tmp_path: Path) -> None:
    network = save(tmp_path / "models" / "100", 0.5)
    assert everything_in(tmp_path) == {
        "models",
        "models/100",
        "models/100/agent.th",
        "models/100/opt.th",
        "models/100/meta.json",
        "models/100/sha256.json",
    }
    fresh = nn.Linear(3, 2)
    load_networks(tmp_path / "models" / "100", {"agent": fresh})
    assert torch.equal(fresh.weight, network.weight)
    assert torch.equal(fresh.bias, network.bias)


def test_saving_again_replaces_the_whole_folder(tmp_path: Path) -> None:
    save(tmp_path / "best", 1.0)
    (tmp_path / "best" / "mixer.th").write_bytes(b"of another network")
    save(tmp_path / "best", 2.0)
    assert weight_in(tmp_path / "best") == 2.0
    assert not (tmp_path / "best" / "mixer.th").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), ValueError("bug"), OSError("disk")])
def test_a_failing_write_leaves_the_old_folder_and_no_remains(
    tmp_path: Path, failure: BaseException
) -> None:
    def fail_half_way() -> None:
        with new_folder(tmp_path / "best") as part:
            (part / "agent.th").write_bytes(b"half")
            raise failure

    save(tmp_path / "best", 1.0)
    with pytest.raises((type(failure), RunFailedError)):
        fail_half_way()
    assert weight_in(tmp_path / "best") == 1.0
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


def test_a_failing_rename_brings_the_old_folder_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "best", 1.0)
    rename = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if ".part-" in self.name:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(RunFailedError, match="Input/output error"):
        save(tmp_path / "best", 2.0)
    assert weight_in(tmp_path / "best") == 1.0
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


def test_a_folder_is_invisible_until_it_is_complete(tmp_path: Path) -> None:
    with new_folder(tmp_path / "100") as part:
        (part / "agent.th").touch()
        assert not (tmp_path / "100").exists()
        assert saved_steps(tmp_path) == []
    assert saved_steps(tmp_path) == [100]


def test_a_full_disk_is_told_and_keeps_the_previous_model(tmp_path: Path) -> None:
    save(tmp_path / "last", 1.0, size=10_000)
    with pytest.raises(RunFailedError) as caught, files_limited_to(16_384):
        save(tmp_path / "last", 2.0, size=10_000)
    assert caught.value.exit_code == 1
    assert f"{tmp_path / 'last'} could not be written: File too large" in str(caught.value)
    assert weight_in(tmp_path / "last") == 1.0
    assert [path.name for path in tmp_path.iterdir()] == ["last"]


def test_no_space_left_is_told_in_the_systems_words() -> None:
    with pytest.raises(OSError, match="No space left on device"):
        save_tensors(Path("/dev/full"), {"a": torch.zeros(100_000)})


def test_a_full_disk_keeps_the_previous_resume_state(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.save_resume(100, {"weights": torch.ones(50_000)})
    with (
        pytest.raises(RunFailedError, match="what was saved before is intact"),
        files_limited_to(16_384),
    ):
        run.save_resume(200, {"weights": torch.zeros(50_000)})
    assert run.resume_steps() == [100]
    assert run.load_resume()["weights"].sum() == 50_000
    assert [path.name for path in run.resume.iterdir()] == ["100"]


def test_an_error_of_torch_that_is_no_write_error_stays_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(torch, "save", broken)
    with pytest.raises(RuntimeError, match="out of memory"):
        save(tmp_path / "last")


def test_a_text_file_is_replaced_in_one_go(tmp_path: Path) -> None:
    write_text(tmp_path / "config.yaml", "old")
    with pytest.raises(RunFailedError), files_limited_to(10):
        write_text(tmp_path / "config.yaml", "new" * 100)
    assert (tmp_path / "config.yaml").read_text() == "old"
    write_text(tmp_path / "config.yaml", "new")
    assert (tmp_path / "config.yaml").read_text() == "new"
    assert everything_in(tmp_path) == {"config.yaml"}


# --- finding -----------------------------------------------------------------------------------


@pytest.fixture
def models(tmp_path: Path) -> Path:
    for step in (50, 1000, 200):
        save(tmp_path / "run" / "models" / str(step))
    save(tmp_path / "run" / "models" / "best")
    return tmp_path / "run" / "models"


def test_a_run_its_models_folder_and_one_model_are_all_found(models: Path) -> None:
    assert find_model_folder(str(models.parent), 0) == models / "1000"
    assert find_model_folder(str(models), 0) == models / "1000"
    assert find_model_folder(str(models / "50"), 0) == models / "50"
    assert find_model_folder(str(models / "best"), 0) == models / "best"


@pytest.mark.parametrize(
    ("load_step", "found"),
    [(0, 1000), (1, 50), (50, 50), (130, 200), (599, 200), (601, 1000), (10**9, 1000)],
)
def test_load_step_is_the_newest_or_the_nearest(models: Path, load_step: int, found: int) -> None:
    assert find_model_folder(str(models), load_step) == models / str(found)


def test_without_steps_the_last_and_then_the_best_model_is_taken(tmp_path: Path) -> None:
    save(tmp_path / "models" / "best")
    assert find_model_folder(str(tmp_path), 0) == tmp_path / "models" / "best"
    save(tmp_path / "models" / "last")
    assert find_model_folder(str(tmp_path), 0) == tmp_path / "models" / "last"


def test_a_home_folder_may_be_written_with_a_tilde(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(models.parent.parent))
    assert find_model_folder("~/run", 200) == models / "200"


def test_a_path_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OmgError, match=r"is not a folder\. Check the path"):
        find_model_folder(str(tmp_path / "missing"), 0)
    with pytest.raises(OmgError, match=r"holds no saved model\. Give a run's folder"):
        find_model_folder(str(tmp_path), 0)


def test_pruning_keeps_the_newest_and_never_touches_best_and_last(models: Path) -> None:
    save(models / "last")
    prune_models(models, 0)
    assert saved_steps(models) == [50, 200, 1000]
    prune_models(models, 2)
    assert saved_steps(models) == [200, 1000]
    prune_models(models, 5)
    assert {path.name for path in models.iterdir()} == {"200", "1000", "best", "last"}


# --- what does not fit -------------------------------------------------------------------------


def mismatch(folder: Path, **changes: Any) -> str:
    wanted = {key: changes.get(key, value) for key, value in META.items()}
    with pytest.raises(OmgError) as caught:
        check_meta(folder, wanted)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_weights_of_the_same_settings_fit(tmp_path: Path) -> None:
    save(tmp_path / "5")
    check_meta(tmp_path / "5", META)


def test_weights_of_another_environment_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "5")
    sentence = mismatch(tmp_path / "5", env="sc2")
    assert f"{tmp_path / '5'} was trained on env=foraging, this run uses env=sc2." in sentence
    assert "change --env-config" in sentence


def test_another_obs_is_state_names_checkpoint_settings_and_remedy(tmp_path: Path) -> None:
    save(tmp_path / "5")
    policy = {"policy_model": "rnn", "input_dim": 40, "obs_is_state": True}
    assert mismatch(tmp_path / "5", policy=policy) == (
        f"{tmp_path / '5'} does not fit this run: obs_is_state=False there, True here. Run with "
        "the settings it was trained with (obs_is_state=False), or load another."
    )


def test_other_sizes_name_both_and_the_environment_of_the_checkpoint(tmp_path: Path) -> None:
    save(tmp_path / "5")
    sentence = mismatch(tmp_path / "5", shapes={**META["shapes"], "n_agents": 4})
    assert "n_agents=2 there, 4 here" in sentence
    assert "env_args={'key': 'Foraging-8x8-2p-3f-v3'}; use the same" in sentence


def test_weights_without_meta_are_judged_by_their_shapes(tmp_path: Path) -> None:
    save(tmp_path / "5")
    (tmp_path / "5" / "meta.json").unlink()
    check_meta(tmp_path / "5", {**META, "env": "sc2"})
    with pytest.raises(
        OmgError, match=r"agent\.th: weight has shape \(2, 3\), this run needs \(2, 4\)"
    ):
        load_networks(tmp_path / "5", {"agent": nn.Linear(4, 2)})


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "5")
    with pytest.raises(OmgError, match=r"holds weight, bias; expected weight_ih.*policy_model"):
        load_networks(tmp_path / "5", {"agent": nn.GRUCell(3, 2)})
    (tmp_path / "5" / "sha256.json").unlink()  # as an older version would have left it
    save_tensors(tmp_path / "5" / "agent.th", [1, 2])
    with pytest.raises(OmgError, match="holds one list; expected"):
        load_networks(tmp_path / "5", {"agent": nn.Linear(3, 2)})
    save_tensors(tmp_path / "5" / "agent.th", {"weight": 1, "bias": 2})
    with pytest.raises(OmgError, match="weight has shape none"):
        load_networks(tmp_path / "5", {"agent": nn.Linear(3, 2)})


def test_no_weight_changes_when_one_of_the_networks_does_not_fit(tmp_path: Path) -> None:
    save(tmp_path / "5", 7.0)
    agent = nn.Linear(3, 2)
    before = agent.weight.clone()
    with pytest.raises(OmgError, match=r"mixer\.th does not exist"):
        load_networks(tmp_path / "5", {"agent": agent, "mixer": nn.Linear(1, 1)})
    assert torch.equal(agent.weight, before)


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "\x00"])
def test_a_damaged_meta_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "meta.json").write_text(text)
    with pytest.raises(OmgError, match=r"meta\.json is damaged"):
        read_json(tmp_path / "meta.json")


# --- damaged weights ---------------------------------------------------------------------------


def test_an_empty_file_of_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "agent.th").touch()
    with pytest.raises(OmgError, match=r"agent\.th is empty\. Use another checkpoint"):
        load_tensors(tmp_path / "agent.th")


def whole_file(tmp_path_factory: pytest.TempPathFactory, *, zipped: bool) -> bytes:
    path = tmp_path_factory.mktemp("weights") / "agent.th"
    state = nn.Linear(3, 2).state_dict()
    torch.save(state, path, _use_new_zipfile_serialization=zipped)
    return path.read_bytes()


@pytest.mark.long
@pytest.mark.parametrize("zipped", [True, False])
def test_a_truncated_file_of_weights_is_refused_wherever_it_ends(
    tmp_path_factory: pytest.TempPathFactory, zipped: bool
) -> None:
    whole = whole_file(tmp_path_factory, zipped=zipped)
    path = tmp_path_factory.mktemp("cut") / "agent.th"
    for end in range(1, len(whole) - 1, 31):
        path.write_bytes(whole[:end])
        with pytest.raises(OmgError, match=r"agent\.th is cut off, damaged or not a file of weig"):
            load_tensors(path)


@given(st.binary(min_size=1, max_size=64))
def test_any_garbage_is_refused_in_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "garbage.th"
    path.write_bytes(content)
    with pytest.raises(OmgError, match="is cut off, damaged or not a file of weights") as caught:
        load_tensors(path)
    assert len(str(caught.value).splitlines()) == 1


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.target),))


def test_code_in_a_file_of_weights_is_not_executed(tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    torch.save({"weight": Bomb(mark)}, tmp_path / "zipped.th")
    (tmp_path / "plain.th").write_bytes(pickle.dumps({"weight": Bomb(mark)}))
    with pytest.raises(OmgError, match="holds more than weights"):
        load_tensors(tmp_path / "zipped.th")
    with pytest.raises(OmgError, match="not a file of weights"):
        load_tensors(tmp_path / "plain.th")
    assert not mark.exists()


# --- run folders -------------------------------------------------------------------------------


def configuration(root: Path, *words: str) -> Any:
    return load_command_line(
        ["--config=iql", "--env-config=foraging", f"--local_results_path={root}", *words]
    ).config


def test_two_runs_in_the_same_second_get_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omg.storage.files.time.strftime", lambda _: "now")
    config = configuration(tmp_path, "--label=a b/c")
    first, second = create_run_folder(config), create_run_folder(config)
    assert first.path.name == "iql-Foraging-8x8-2p-3f-v3-a_b_c-s1-now"
    assert second.path.name == first.path.name + "-2"
    assert first.config.read_text() == second.config.read_text()


def test_a_run_name_is_given_once(tmp_path: Path) -> None:
    config = configuration(tmp_path, "--run_name=mine")
    create_run_folder(config)
    with pytest.raises(OmgError, match=r"A run called 'mine' exists .*--resume"):
        create_run_folder(config)


def test_a_results_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OmgError, match="cannot be written to: Not a directory") as caught:
        create_run_folder(configuration(tmp_path / "file" / "results"))
    assert caught.value.exit_code == 2


def test_only_an_unused_run_folder_is_discarded(tmp_path: Path) -> None:
    unused = create_run_folder(configuration(tmp_path, "--run_name=unused"))
    used = create_run_folder(configuration(tmp_path, "--run_name=used"))
    unused.metrics.touch()
    used.metrics.write_text("{}\n")
    unused.discard_if_unused()
    used.discard_if_unused()
    assert not unused.path.exists()
    assert used.config.is_file()


def test_the_newest_run_with_the_same_settings_and_a_resume_state_is_resumed(
    tmp_path: Path,
) -> None:
    made = {}
    for age, (name, *words) in enumerate(
        [("old",), ("new",), ("seed", "--seed=2"), ("other", "--env_args.sight=1"), ("unsaved",)]
    ):
        made[name] = create_run_folder(configuration(tmp_path, f"--run_name={name}", *words))
        os.utime(made[name].config, (age, age))
        if name != "unsaved":
            made[name].save_resume(10, {})
    assert find_run_to_resume(configuration(tmp_path)) == made["new"]
    assert find_run_to_resume(configuration(tmp_path, "--seed=2")) == made["seed"]
    assert find_run_to_resume(configuration(tmp_path, "--run_name=old")) == made["old"]
    with pytest.raises(OmgError, match=r"with seed=3 in .* has a resume state"):
        find_run_to_resume(configuration(tmp_path, "--seed=3"))
    with pytest.raises(OmgError, match="There is no run 'nobody'"):
        find_run_to_resume(configuration(tmp_path, "--run_name=nobody"))


def test_environment_arguments_written_as_a_tuple_are_found_again(tmp_path: Path) -> None:
    words = ("--run_name=a", "--env_args.field_size=(5, 5)")
    create_run_folder(configuration(tmp_path, *words)).save_resume(1, {})
    assert find_run_to_resume(configuration(tmp_path, words[1])).path.name == "a"


def test_a_newer_resume_state_replaces_the_older(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    for step in (90, 100, 100):
        run.save_resume(step, {"step": step})
    assert run.resume_steps() == [100]
    assert run.load_resume() == {"step": 100}


def test_a_missing_or_damaged_resume_state_is_told(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    with pytest.raises(OmgError, match="has no resume state"):
        run.load_resume()
    run.save_resume(7, {"step": 7})
    state = tmp_path / "resume" / "7" / "state.pt"
    state.write_bytes(state.read_bytes()[:-30])
    with pytest.raises(OmgError, match=f"checkpoint_path={tmp_path} loads its weights"):
        run.load_resume()
    (state.parent / "sha256.json").unlink()
    save_tensors(state, [1])
    with pytest.raises(OmgError, match="is not a resume state"):
        run.load_resume()


# --- metrics -----------------------------------------------------------------------------------


def test_metrics_are_one_json_line_each_and_reach_every_sink(tmp_path: Path) -> None:
    heard: list[tuple[str, float, int]] = []
    logger = MetricLogger(tmp_path / "m.jsonl", sinks=(lambda *call: heard.append(call),))
    logger.log({"loss": 0.5, "epsilon": float("nan")}, 10)
    logger.log({}, 15)
    logger.log({"loss": 0.25}, 20)
    logger.close()
    first, second = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert (first["t_env"], first["loss"], first["epsilon"]) == (10, 0.5, None)
    assert (second["t_env"], second["loss"]) == (20, 0.25)
    assert [call for call in heard if call[0] == "loss"] == [("loss", 0.5, 10), ("loss", 0.25, 20)]
    assert logger.latest["loss"] == 0.25


def test_a_resumed_run_first_cuts_off_what_was_written_after_the_state(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    logger = MetricLogger(path)
    logger.log({"loss": 1.0}, 10)
    position = logger.position()
    assert position == path.stat().st_size > 0
    logger.log({"loss": 2.0}, 20)
    logger.close()
    resumed = MetricLogger(path, resume_at=position)
    assert resumed.position() == position
    resumed.log({"loss": 3.0}, 20)
    resumed.close()
    assert [(r["t_env"], r["loss"]) for r in read_metrics(path)] == [(10, 1.0), (20, 3.0)]


def test_a_half_written_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    whole = '{"t_env": 1, "loss": 1.0}\n{"t_env": 2, "loss": 2.0}\n'
    for end in range(len(whole) - 2, whole.index("\n") + 1, -1):
        path.write_text(whole[:end])
        assert [record["t_env"] for record in read_metrics(path)] == [1]


def test_a_full_disk_while_logging_is_told_and_closing_stays_silent(tmp_path: Path) -> None:
    logger = MetricLogger(tmp_path / "m.jsonl")
    logger.log({"loss": 1.0}, 1)
    with files_limited_to(100):
        with pytest.raises(RunFailedError, match=r"m\.jsonl could not be written: .*--resume"):
            logger.log({f"value_{number}": 1.0 for number in range(50)}, 2)
        logger.close()
    assert read_metrics(tmp_path / "m.jsonl")[0]["loss"] == 1.0
