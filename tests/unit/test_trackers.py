"""metrics.csv and Weights & Biases hold what metrics.jsonl holds, also after a resume."""

from __future__ import annotations

import csv
import json
import math
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omg.cli.train import train
from omg.experiment.output import read_metrics, readable_metrics
from omg.experiment.sinks import CsvTracker, scalars
from omg.experiment.training import RunInterrupted, TrainingLoop
from omg.types import OmgError

TINY = [
    *("--config=iql", "--env-config=foraging", "--rnn_hidden_dim=16", "--batch_size=4"),
    *("--batch_size_run=4", "--test_nepisode=4", "--test_interval=60", "--t_max=180"),
    *("--runner_log_interval=50", "--learner_log_interval=50", "--resume_interval=60"),
    *("--use_sacred=False", "--save_model=False", "--use_tensorboard=False", "--run_name=run"),
    *("with", "env_args.key=Foraging-5x5-2p-1f-v3", "env_args.max_episode_steps=15"),
]
Points = dict[tuple[str, int], float]


def run(folder: Path, *words: str) -> Path:
    return Path(train([*TINY, f"--local_results_path={folder}", *words]).folder)


def logged(folder: Path) -> Points:
    found = scalars(read_metrics(folder / "metrics.jsonl"))
    return {(name, step): value for name, value, step in found}


def in_csv(path: Path) -> Points:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    steps = [int(row["t_env"]) for row in rows]
    assert steps == sorted(set(steps))
    return {
        (name, int(row["t_env"])): float(value)
        for row in rows
        for name, value in row.items()
        if name != "t_env" and value
    }


def stopped(folder: Path, monkeypatch: pytest.MonkeyPatch, at: int, *words: str) -> None:
    """A run that dies at a step without saving anything more."""
    step = TrainingLoop._step

    def crashing(loop: Any) -> None:
        step(loop)
        if loop.counters.env_steps == at:
            raise PowerCutError

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "_step", crashing)
        with pytest.raises(PowerCutError):
            run(folder, *words)


class PowerCutError(Exception):
    """The end of a run that can save nothing more."""


def test_a_row_of_the_csv_file_is_a_step_and_a_column_a_metric(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    tracker = CsvTracker(path)
    assert not path.exists()  # so that a run that did nothing leaves nothing
    for call in (("a", 1.0, 0), ("b", 2.5, 0), ("a", 3.0, 10), ("c, d", math.nan, 20)):
        tracker(*call)
    tracker.close(failed=False)
    assert path.read_bytes() == b't_env,a,b,"c, d"\r\n0,1.0,2.5,\r\n10,3.0,,\r\n20,,,nan\r\n'


def test_the_csv_file_holds_what_metrics_jsonl_holds(tmp_path: Path) -> None:
    folder = run(tmp_path, "--quiet")
    assert len(logged(folder)) > 50
    assert in_csv(folder / "metrics.csv") == logged(folder)
    assert not (run(tmp_path, "--run_name=without", "--use_csv=False") / "metrics.csv").exists()


@pytest.mark.long
def test_a_resumed_run_has_every_row_of_the_csv_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(tmp_path, monkeypatch, 140)
    folder = run(tmp_path, "--resume", "--t_max=240")
    assert in_csv(folder / "metrics.csv") == logged(folder)
    assert max(step for _, step in logged(folder)) == 240


def test_a_link_in_place_of_the_csv_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").symlink_to(tmp_path / "mine")
    with pytest.raises(OmgError, match="is a link"):
        CsvTracker(tmp_path / "metrics.csv")


# --- Weights & Biases ----------------------------------------------------------------------------


def in_wandb(folder: Path) -> tuple[set[str], Points, list[dict[str, Any]]]:
    """Ids, points and settings of all offline files of a run."""
    from wandb.proto.wandb_internal_pb2 import Record

    ids, points, configs = set(), {}, []
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for data in _records_of(path.read_bytes()):
            record = Record.FromString(data)
            if record.HasField("run"):
                ids.add(record.run.run_id)
                values = {u.key: json.loads(u.value_json) for u in record.run.config.update}
                configs.append(values)
            for item in [record.history] if record.HasField("history") else []:
                values = {(i.key or i.nested_key[0]): json.loads(i.value_json) for i in item.item}
                step = values.pop("_step", item.step.num)
                points |= {(k, step): v for k, v in values.items() if not k.startswith("_")}
    return ids, points, configs


def _records_of(data: bytes) -> Iterator[bytes]:
    """The records of a .wandb file: 7 bytes, then blocks of 32 KiB as in LevelDB's log, in which a
    record is cut into pieces with a sum, a length and a kind (1 whole, 2 first, 4 last). A run that
    was killed may leave an unfinished piece at the end."""
    at, record = 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        record += data[at + 7 : at + 7 + size]
        at += 7 + size
        if at > len(data):
            return
        if kind in (1, 4):
            yield record
            record = b""


OFFLINE = ("--use_wandb", "--wandb_mode=offline")


@pytest.mark.long
def test_wandb_holds_what_metrics_jsonl_holds_and_the_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("wandb")
    folder = run(tmp_path, *OFFLINE)
    ids, points, configs = in_wandb(folder)
    assert points == pytest.approx(logged(folder))
    assert configs[0]["lr"] == 0.0005
    assert configs[0]["env_args"]["max_episode_steps"] == 15
    assert ids == {json.loads((folder / "wandb.json").read_text())["id"]}
    assert f"wandb sync {folder}" in " ".join(capsys.readouterr().out.split())


@pytest.mark.long
def test_a_resumed_run_continues_the_same_run_of_wandb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    stopped(tmp_path, monkeypatch, 140, *OFFLINE, "--quiet")
    folder = run(tmp_path, *OFFLINE, "--quiet", "--resume")
    ids, points, _ = in_wandb(folder)
    assert len(list(folder.glob("wandb/offline-run-*"))) == 2
    assert len(ids) == 1
    assert points == pytest.approx(logged(folder))


@pytest.mark.long
def test_wandb_that_is_switched_on_later_is_told_what_was_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    step = TrainingLoop._step

    def stop(loop: Any) -> None:
        step(loop)
        loop.stop.requested = loop.counters.env_steps == 80

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "_step", stop)
        with pytest.raises(RunInterrupted):
            run(tmp_path, "--quiet")
    folder = run(tmp_path, *OFFLINE, "--quiet", "--resume")
    assert in_wandb(folder)[1] == pytest.approx(logged(folder))


def test_wandb_without_its_package_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.delitem(sys.modules, "omg.integrations.wandb", raising=False)
    with pytest.raises(OmgError, match=r"needs the package 'wandb'.*omg-marl\[wandb\]"):
        run(tmp_path, *OFFLINE)
    assert not list(tmp_path.iterdir())


def test_settings_of_wandb_without_wandb_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OmgError, match="wandb_mode=offline has no effect without use_wandb=true"):
        run(tmp_path, "--wandb_mode=offline")


@pytest.mark.long
def test_wandb_that_refuses_a_run_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb")

    def refuse(**_: Any) -> None:
        raise wandb.errors.UsageError("No API key configured.\nUse `wandb login`.")

    monkeypatch.setattr(wandb, "init", refuse)
    with pytest.raises(OmgError, match=r"refuses this run: No API key configured\. Log in with"):
        run(tmp_path, "--use_wandb", "--quiet")


def test_damaged_lines_of_metrics_stop_no_run_and_hide_no_other_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [b'{"t_env": 1, "loss": 0.5}', b"3", b"\xff\xfe", b'{"loss": 2.0}', b'{"t_env": "x"}']
    lines += [b'{"t_env": 2, "loss": "low", "return": 1}', b'{"t_env": 3, "lo']
    path.write_bytes(b"\n".join(lines))
    records = readable_metrics(path)
    assert records[0] == {"t_env": 1, "loss": 0.5}
    assert list(scalars(records)) == [("loss", 0.5, 1), ("return", 1.0, 2)]
