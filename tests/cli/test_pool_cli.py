"""`omg pool …`: what a user types and gets back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from torch.nn import Linear
from typer.testing import CliRunner

from omg.cli.app import app
from omg.modules.agents.networks import RNNAgent
from omg.opponents.pool import OpponentPool
from omg.storage.models import save_models


@dataclass(frozen=True)
class Answer:
    """What a command gave back."""

    code: int
    out: str
    err: str


def pool(*words: str | Path) -> Answer:
    result = CliRunner().invoke(app, ["pool", *map(str, words)])
    return Answer(result.exit_code, result.stdout, result.stderr)


def done(*words: str | Path) -> str:
    answer = pool(*words)
    assert answer.code == 0, answer
    return answer.out


def refused(*words: str | Path) -> str:
    """The one line that a refused command prints."""
    answer = pool(*words)
    assert answer.code == 2, answer
    (line,) = answer.err.splitlines()
    assert line.startswith("omg: ")
    return line


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs each of IQL and QMIX in `results`, seen from the folder above."""
    monkeypatch.chdir(tmp_path)
    for algorithm in ("iql", "qmix"):
        for seed in (1, 2):
            for step in (100, 200, 300):
                meta: dict[str, Any] = {
                    "algorithm": algorithm,
                    "seed": seed,
                    "common_reward": algorithm == "qmix",
                    "env": "foraging",
                    "env_args": {"key": "Foraging-5x5-2p-1f-v3"},
                    "shapes": {"n_agents": 2, "n_actions": 3, "obs_dim": 4, "state_dim": 5},
                    "policy": {"policy_model": "rnn"},
                    "env_steps": step,
                }
                save_models(
                    Path("results", f"{algorithm}-s{seed}", "models", str(step)),
                    networks={"agent": RNNAgent(input_dim=4, n_actions=3, hidden_dim=8)},
                    optimiser={},
                    meta=meta,
                )
    return Path("results")


def test_a_pool_is_filled_listed_and_split(runs: Path) -> None:
    out = done("add", "pools/demo", runs / "iql-s1", "--steps=early,middle,final", "--split=train")
    assert "Added iql-s1-100 (iql, early, seen)" in out
    assert "3 seen (to train with), 0 unseen (held out)" in out
    done("add", "pools/demo", runs / "iql-s2", runs / "qmix-s1", runs / "qmix-s2")
    done("add", "pools/demo", "--script=nearest_food", "--noise=0.05")

    out = done("list", "pools/demo")
    rows = [line.split("│")[1:-1] for line in out.splitlines() if line.startswith("│")]
    cells = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}
    assert cells["iql-s1-200"] == ["iql", "iql-s1", "1", "middle", "200", "own", "any", "seen"]
    assert cells["qmix-s2-300"] == [
        "qmix",
        "qmix-s2",
        "2",
        "final",
        "300",
        "common",
        "any",
        "seen",
    ]
    assert cells["script-nearest_food-0.05"][3:5] == ["noise 0.05", "-"]
    assert len(cells) == 7

    out = done("split", "pools/demo", "--heldout=0.4", "--seed=1")
    assert out == done("split", "pools/demo", "--heldout=0.4", "--seed=1")
    held = {m.run for m in OpponentPool.open("pools/demo").members("heldout")}
    assert {run.partition("-")[0] for run in held} == {"iql", "qmix"}
    assert f"unseen  {', '.join(sorted(held))}" in out
    assert all(run in done("list", "pools/demo", "--split=unseen") for run in held)

    done("split", "pools/demo", "--heldout=iql-s2,qmix-s1")
    held = {m.run for m in OpponentPool.open("pools/demo").members("heldout")}
    assert held == {"iql-s2", "qmix-s1"}


def test_a_run_on_both_sides_is_pointed_out(runs: Path) -> None:
    done("add", "pools/demo", runs / "iql-s1", "--steps=early,final")
    out = done("split", "pools/demo", "--heldout=iql-s1-300", "--by=member")
    assert "On several sides: iql-s1." in out


def test_show_tells_everything_and_notices_damage(runs: Path) -> None:
    done("add", "pools/demo", runs / "qmix-s1", "--name=renamed")
    out = done("show", "pools/demo", "renamed-300")
    content = json.loads(out[: out.rindex("}") + 1])
    assert content["common_reward"] is True
    assert content["run"] == "renamed"
    assert "intact" in out
    weights = Path("pools/demo/members/renamed-300/agent.th")
    weights.write_bytes(weights.read_bytes()[:-1])
    assert str(weights) in refused("show", "pools/demo", "renamed-300")
    assert "did you mean 'renamed-300'" in refused("show", "pools/demo", "renamed-30")


def test_an_agent_with_an_opponent_model_is_added_and_its_damage_noticed(runs: Path) -> None:
    meta = json.loads((runs / "iql-s1" / "models" / "300" / "meta.json").read_text())
    meta |= {"algorithm": "iql_am", "policy": {"policy_model": "rnn", "am_model": "base_am"}}
    networks = {
        "iql_am/agent": RNNAgent(input_dim=4, n_actions=3, hidden_dim=8),
        "iql_am/base_am": Linear(2, 2),
    }
    save_models(runs / "naive" / "models" / "300", networks=networks, optimiser={}, meta=meta)
    assert "Added naive-300 (iql_am, final, seen)" in done("add", "pools/demo", runs / "naive")
    out = done("show", "pools/demo", "naive-300")
    assert list(json.loads(out[: out.rindex("}") + 1])["model"]) == ["base_am"]
    assert "intact" in out
    model = Path("pools/demo/members/naive-300/base_am.th")
    model.write_bytes(model.read_bytes()[:-1])
    assert str(model) in refused("show", "pools/demo", "naive-300")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["list", "nowhere"], "nowhere is not a pool"),
        (["split", "nowhere", "--heldout=0.4"], "nowhere is not a pool"),
        (["add", "pools/demo"], "--script"),
        (["add", "pools/demo", "results/iql-s1", "--script=random"], "not both"),
        (["add", "pools/demo", "results/none"], "results/none is not a folder"),
        (["add", "pools/demo", "results"], "no saved steps"),
        (["add", "pools/demo", "results/iql-s1", "--split=test"], "split=test"),
        (["add", "pools/demo", "results/iql-s1", "--steps=lats"], "steps=lats"),
        (["add", "pools/demo", "--script=neerest_food"], "nearest_food"),
        (["add", "results", "results/iql-s1"], "results holds other files"),
    ],
)
def test_a_wrong_command_is_one_sentence(runs: Path, words: list[str], expected: str) -> None:
    assert expected in refused(*words)


def test_a_refused_first_add_leaves_no_pool(runs: Path) -> None:
    refused("add", "pools/demo", "results/none")
    refused("add", "pools/demo", "--script=neerest_food")
    refused("add", "pools/demo", runs / "iql-s1", "results/none")
    assert sorted(path.name for path in Path().iterdir()) == ["results"]
    done("add", "pools/demo", runs / "iql-s1")


def test_a_refused_split_changes_nothing(runs: Path) -> None:
    done("add", "pools/demo", runs / "iql-s1", runs / "iql-s2")
    before = Path("pools/demo/pool.json").read_text()
    assert "fraction" in refused("split", "pools/demo", "--heldout=4")
    assert "'iql-s3'" in refused("split", "pools/demo", "--heldout=iql-s3")
    assert "by=seed" in refused("split", "pools/demo", "--heldout=0.5", "--by=seed")
    assert Path("pools/demo/pool.json").read_text() == before
