"""EPyMARL's curves on Spread: a checkout stands in that plays one episode instead of learning."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from benchmarks.epymarl_learning import main
from tests.unit.test_results_collect import run

# Stands still for an episode of 25 steps and notes its return as EPyMARL's observer does.
LEARNER = """
import json, pathlib, sys
import gymnasium
game = gymnasium.make("spread").unwrapped
seen, _ = game.reset(seed=int(next(w for w in sys.argv if w.startswith("seed="))[5:]))
assert len(seen) == 3 and seen[0].shape == (18,) and "use_rnn=False" in sys.argv
total = sum(sum(game.step([0, 0, 0])[1]) for _ in range(25))
kept = pathlib.Path(sys.argv[0]).parents[1] / "results/sacred/iql/spread"
run = kept / str(len(list(kept.glob("*"))) + 1)
run.mkdir(parents=True)
tests = {"steps": [25], "values": [{"dtype": "float64", "value": total}]}
(run / "metrics.json").write_text(json.dumps({"test_return_mean": tests}))
"""
# Every agent collides with itself and is 2 from everything: -3 a step.
WORLD = """
import types
import numpy as np
class Scenario:
    def make_world(self):
        agents = [types.SimpleNamespace(action=types.SimpleNamespace()) for _ in range(3)]
        return types.SimpleNamespace(agents=agents, step=lambda: None)
    def reset_world(self, world):
        pass
    def observation(self, agent, world):
        return np.zeros(18)
    def reward(self, agent, world):
        return -3.0
"""


def played(folder: Path, *words: str) -> list[dict[str, str]]:
    out = folder / "kept" / "epymarl.csv"
    assert main(["--epymarl", str(folder), "--out", str(out), *words]) == 0
    with out.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def checkouts(tmp_path: Path) -> Path:
    for name, text in (
        ("src/main.py", LEARNER),
        ("multiagent/scenarios/simple_spread.py", WORLD),
    ):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_older_world_s_returns_are_told_in_our_unit(checkouts: Path) -> None:
    particles = ("--particles", str(checkouts), "--games", "particles")
    rows = played(checkouts, *particles, "--seeds", "4,2")
    assert [(row["game"], row["seed"], row["env_steps"]) for row in rows] == [
        ("particles", "2", "25"),
        ("particles", "4", "25"),
    ]
    # 3 agents, 25 steps, -3 each: 75 are their own collisions; of the rest half counts with us.
    assert [float(row["return"]) for row in rows] == [-(3 * 25 * 3 - 75) / 2] * 2


def test_runs_join_a_file_and_replace_their_like(checkouts: Path) -> None:
    pytest.importorskip("mpe2")
    first = played(checkouts, "--seeds", "1,2")
    assert {row["game"] for row in first} == {"mpe2"}
    assert all(-150 < float(row["return"]) < -20 for row in first)
    assert first[0]["return"] != first[1]["return"]
    assert played(checkouts, "--seeds", "2") == first
    with_both = played(checkouts, "--particles", str(checkouts), "--seeds", "1")
    assert [(row["game"], row["seed"]) for row in with_both] == [
        ("mpe2", "1"),
        ("mpe2", "2"),
        ("particles", "1"),
    ]


def test_a_run_that_fails_is_told_in_its_own_words(checkouts: Path) -> None:
    (checkouts / "src/main.py").write_text("raise RuntimeError('no torch here')")
    with pytest.raises(SystemExit, match="no torch here"):
        played(checkouts, "--seeds", "1")
    with pytest.raises(SystemExit):
        played(checkouts, "--games", "particles")


def test_our_own_runs_stand_beside_them(checkouts: Path) -> None:
    particles = ("--particles", str(checkouts), "--games", "particles", "--seeds", "1")
    theirs = played(checkouts, *particles)
    run(checkouts / "iql-s3", "iql", "IQL", 3, {0: {"test_return_mean": -80.0}})
    out = checkouts / "kept" / "epymarl.csv"
    for _ in range(2):  # the second replaces the first
        assert main(["--ours", str(checkouts / "iql-s3"), "--out", str(out)]) == 0
    own = {"method": "IQL", "game": "mpe2", "seed": "3", "env_steps": "0", "return": "-80.0000"}
    with out.open(encoding="utf-8") as file:
        assert list(csv.DictReader(file)) == [*theirs, own]
    with pytest.raises(SystemExit):
        main(["--out", str(out)])
