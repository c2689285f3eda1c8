"""TensorBoard shows what metrics.jsonl holds, also after an interruption and a resume."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from omg.cli.train import train
from omg.experiment import tensorboard
from omg.experiment.output import read_metrics
from omg.experiment.training import RunInterrupted, TrainingLoop

TINY = [
    *("--config=iql", "--env-config=foraging", "--rnn_hidden_dim=16", "--batch_size=4"),
    *("--batch_size_run=4", "--test_nepisode=4", "--test_interval=60", "--t_max=300"),
    *("--runner_log_interval=50", "--learner_log_interval=50", "--resume_interval=120"),
    *("--use_sacred=False", "--save_model=False", "--quiet", "--run_name=tb", "with"),
    *("env_args.key=Foraging-5x5-2p-1f-v3", "env_args.max_episode_steps=15"),
]


def run(folder: Path, *words: str) -> Path:
    return Path(train([*TINY, f"--local_results_path={folder}", *words]).folder)


def in_events(run_folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(run_folder / "tb"))
    events.Reload()
    names = events.Tags()["scalars"]
    return {name: [(e.step, e.value) for e in events.Scalars(name)] for name in names}


def in_metrics(run_folder: Path) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for record in read_metrics(run_folder / "metrics.jsonl"):
        for name in record.keys() - {"t_env", "wall_s"}:
            found.setdefault(name, []).append((record["t_env"], record[name]))
    return found


def assert_the_same(run_folder: Path) -> None:
    shown, written = in_events(run_folder), in_metrics(run_folder)
    assert shown.keys() == written.keys()
    for name, points in written.items():
        assert [step for step, _ in shown[name]] == [step for step, _ in points], name
        values = [value for _, value in points]
        assert [value for _, value in shown[name]] == pytest.approx(values, rel=1e-5), name


def test_events_are_those_of_metrics_jsonl(tmp_path: Path) -> None:
    folder = run(tmp_path, "--use_tensorboard=True")
    steps = [step for step, _ in in_events(folder)["test_return_mean"]]
    assert steps == [0, 60, 120, 180, 240, 300]
    assert_the_same(folder)


def test_without_use_tensorboard_no_events_are_written(tmp_path: Path) -> None:
    assert not (run(tmp_path, "--use_tensorboard=False", "--t_max=60") / "tb").exists()


@pytest.mark.parametrize(
    ("protobuf", "remedy"),
    [("3.20.3", "pip install 'tensorboard<2.20'"), ("6.33.0", "pip install tensorboard,")],
)
def test_a_run_goes_on_without_a_tensorboard_that_cannot_be_imported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    protobuf: str,
    remedy: str,
) -> None:
    """As `smac` leaves it: an old protobuf beside a new TensorBoard."""
    for known in [name for name in sys.modules if "tensorboard" in name.split(".")[:3]]:
        monkeypatch.delitem(sys.modules, known)
    package = tmp_path / "broken" / "tensorboard"
    package.mkdir(parents=True)
    fault = "cannot import name 'runtime_version' from 'google.protobuf'"
    (package / "__init__.py").write_text(f"raise ImportError({fault!r})\n")
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setattr(tensorboard, "version", lambda _: protobuf)
    tensorboard._remark.cache_clear()
    folders = [run(tmp_path / name, "--t_max=120") for name in ("one", "two")]
    for folder in folders:
        assert not (folder / "tb").exists()
        assert read_metrics(folder / "metrics.jsonl")
    said = [record for record in caplog.records if record.name == "omg.output"]
    (remark,) = [record.getMessage() for record in said]  # once for two runs
    assert fault in remark
    assert remedy in remark
    assert "metrics.jsonl has everything" in remark


def test_a_finished_run_that_is_prolonged_keeps_all_its_events(tmp_path: Path) -> None:
    folder = run(tmp_path, "--t_max=120")
    assert run(tmp_path, "--resume", "--t_max=240") == folder
    steps = [step for step, _ in in_events(folder)["test_return_mean"]]
    assert steps == [0, 60, 120, 180, 240]
    assert_the_same(folder)


class PowerCutError(Exception):
    """The end of a run that can save nothing more."""


@pytest.mark.long
def test_a_resumed_run_shows_no_event_twice_and_misses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = TrainingLoop._step

    def crashing(loop: Any) -> None:
        step(loop)
        if loop.counters.env_steps == 220:
            raise PowerCutError  # with a resume state of step 120 and a later test, of step 180

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "_step", crashing)
        with pytest.raises(PowerCutError):
            run(tmp_path)
    folder = run(tmp_path, "--resume", "--t_max=360")
    steps = [step for step, _ in in_events(folder)["test_return_mean"]]
    assert steps == [0, 60, 120, 180, 240, 300, 360]
    assert_the_same(folder)


def test_an_interrupted_run_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = TrainingLoop._step

    def stopping(loop: Any) -> None:
        step(loop)
        loop.stop.requested = loop.counters.env_steps == 180

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "_step", stopping)
        with pytest.raises(RunInterrupted):
            run(tmp_path)
    folder = run(tmp_path, "--resume")
    steps = [step for step, _ in in_events(folder)["test_return_mean"]]
    assert steps == [0, 60, 120, 180, 240, 300]
    assert_the_same(folder)
