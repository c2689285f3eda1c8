"""`omg export` and `Run.export`: files that act as the run does."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import omg
from omg.cli.app import app
from omg.experiment import export as exporting

from .small_runs import Runs

pytestmark = pytest.mark.long
onnxruntime = pytest.importorskip("onnxruntime")
CLI = CliRunner()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("exported"))


@pytest.fixture(scope="module")
def team(runs: Runs) -> Path:
    return runs.run("qmix", "--run_name=a team")


def played(run: Path, path: Path, games: int, steps: int = 14) -> int:
    """Let a file of ONNX act beside `omg.load(run)`; how many actions were equal."""
    session = onnxruntime.InferenceSession(path)
    agent, env = omg.load(run), omg.Run(run).make_env(games)
    names = [port.name for port in session.get_inputs()]
    shapes = {port.name: port.shape for port in session.get_inputs()}
    last = np.full((games, env.spec.n_agents), -1, np.int64)
    carry = np.zeros((games, *shapes.get("carry", [0, 0])[1:]), np.float32)
    view, equal = env.reset(7), 0
    for _ in range(steps):
        known = {"obs": view.obs, "state": view.state, "avail": view.avail}
        known |= {"last_actions": last, "carry": carry}
        known |= {"alive": getattr(view, "alive", None)}
        out = session.run(None, {k: np.asarray(known[k], _kind(known[k])) for k in names})
        last = agent.act(view)
        equal += int((out[0] == last).all())
        view = env.step(last)
        ended = view.terminated | view.truncated
        if len(out) > 2:
            carry = np.where(ended[:, None, None], 0, out[2])
        last = np.where(ended[:, None], -1, last)
    env.close()
    assert equal == steps
    return equal


def _kind(value: np.ndarray) -> type:
    return {"b": np.bool_, "i": np.int64}.get(value.dtype.kind, np.float32)


@pytest.mark.parametrize(
    "name",
    [
        *("qmix", "iql_idv", "d3qn_omg_tuned", "ippo", "d3qn_control", "d3qn_moa"),
        *("d3qn_meliba", "d3qn_types"),
    ],
)
def test_an_exported_policy_acts_as_the_loaded_agent_in_any_number_of_games(
    runs: Runs, name: str
) -> None:
    run = runs.run(name)
    made = omg.Run(run).export()
    assert made.path == run / "agent.onnx"
    assert made.difference < 1e-5
    for games in (1, 5):
        played(run, made.path, games)


def test_a_torch_export_program_can_be_read_with_torch_alone(team: Path, tmp_path: Path) -> None:
    made = omg.Run(team).export(tmp_path / "team.pt2")
    told: dict[str, str] = {"omg.json": ""}
    program = torch.export.load(made.path, extra_files=told).module()
    module = omg.load(team).module()
    given = tuple(
        torch.rand(4, *port.shape) if port.dtype is torch.float32 else example
        for port, example in zip(module.inputs, module.example(4), strict=True)
    )
    for found, wanted in zip(program(*given), module(*given), strict=True):
        torch.testing.assert_close(found, wanted)
    about = json.loads(told["omg.json"])
    assert about["algorithm"] == "qmix"
    assert about["inputs"]["obs"]["shape"] == ["games", 2, 9]


def test_the_command_tells_what_the_file_takes_and_gives(team: Path, tmp_path: Path) -> None:
    done = CLI.invoke(app, ["export", str(team), f"--out={tmp_path / 'a.onnx'}"])
    assert done.exit_code == 0, done.output
    for word in ("last_actions", "next_carry", "games, 2, 6", "The same actions", "Wrote "):
        assert word in " ".join(done.output.split())
    metadata = onnxruntime.InferenceSession(tmp_path / "a.onnx").get_modelmeta()
    assert json.loads(metadata.custom_metadata_map["omg"])["env"] == "foraging"
    shape = onnxruntime.InferenceSession(tmp_path / "a.onnx").get_inputs()[0].shape
    assert shape == ["games", 2, 9]


def test_sampled_subgoals_become_their_mean_and_that_is_said(runs: Runs) -> None:
    made = omg.Run(runs.run("d3qn_omg")).export(format="pt2")
    assert "takes their mean" in made.notes[0]


def test_a_file_that_acts_differently_is_not_kept(
    team: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = exporting._reader

    def worse(path: Path, kind: str) -> exporting.Runnable:
        run = read(path, kind)
        return lambda given: [x + 0.01 if x.is_floating_point() else x for x in run(given)]

    monkeypatch.setattr(exporting, "_reader", worse)
    with pytest.raises(omg.OmgError, match="does not act as the run does: outputs differ by"):
        omg.Run(team).export(tmp_path / "a.pt2")
    assert not list(tmp_path.iterdir())


def test_memory_that_gets_lost_in_the_file_is_noticed(
    team: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = exporting._reader

    def forgets(path: Path, kind: str) -> exporting.Runnable:
        run = read(path, kind)
        return lambda given: [*run(given)[:2], given[-1] * 0]

    monkeypatch.setattr(exporting, "_reader", forgets)
    with pytest.raises(omg.OmgError, match="does not act as the run does"):
        omg.Run(team).export(tmp_path / "a.pt2")


def test_what_cannot_be_exported_is_refused_in_a_sentence(
    runs: Runs, team: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = omg.Run(team)
    for words, told in (
        ({"out": tmp_path / "a.th"}, r"should end in \.onnx or \.pt2"),
        ({"out": tmp_path / "a.pt2", "format": "onnx"}, r"should end in \.onnx"),
        ({"format": "jit"}, "format=jit is not known. Choose onnx or pt2"),
        ({"out": tmp_path / "no" / "a.onnx"}, "is not a folder"),
        ({"which": "17"}, "has no model '17'"),
    ):
        with pytest.raises(omg.OmgError, match=told):
            run.export(**words)  # type: ignore[arg-type]
    with pytest.raises(omg.OmgError, match="is told what the others are about to do"):
        omg.Run(runs.run("d3qn_oracle")).export()
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: False)  # sorts rows by value
    with pytest.raises(omg.OmgError, match="am_model=moa cannot be exported"):
        omg.Run(runs.run("d3qn_moa")).export()
    monkeypatch.undo()
    find = importlib.util.find_spec
    monkeypatch.setattr(exporting, "find_spec", lambda name: None if name == "onnx" else find(name))
    with pytest.raises(omg.OmgError, match=r"ONNX needs onnx\. .*omg-marl\[export\]"):
        run.export()


@pytest.mark.parametrize("name", ["iql_am", "iql_moa"])
def test_agents_that_leave_a_game_tell_the_file_who_is_there(tmp_path: Path, name: str) -> None:
    """With MOA also beliefs over goals, step by step."""
    more = {"am_history": True} if name == "iql_am" else {}
    run = omg.train(
        name,
        "stag_hunt",
        local_results_path=str(tmp_path),
        t_max=40,
        batch_size=2,
        batch_size_run=3,
        test_nepisode=2,
        quiet=True,
        use_sacred=False,
        use_tensorboard=False,
        **more,
    )
    made = run.export()
    assert "alive" in [port.name for port in made.inputs]
    played(run.folder, made.path, 3, steps=30)
