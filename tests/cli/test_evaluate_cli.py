"""`omg evaluate` and `omg crossplay`: what a user types and gets back."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from omg.cli.app import app
from omg.opponents.pool import OpponentPool

from ..unit.studies import MEMBERS, make_study


@dataclass(frozen=True)
class Answer:
    """What a command gave back."""

    code: int
    out: str
    err: str


def omg(*words: str | Path) -> Answer:
    result = CliRunner().invoke(app, [*map(str, words)])
    return Answer(result.exit_code, result.stdout, result.stderr)


def done(*words: str | Path) -> str:
    answer = omg(*words)
    assert answer.code == 0, answer
    assert answer.err == ""
    return answer.out


def refused(*words: str | Path) -> str:
    """The one line that a refused command prints."""
    answer = omg(*words)
    assert answer.code == 2, answer
    (line,) = answer.err.splitlines()
    assert line.startswith("omg: ")
    return line


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_study(tmp_path_factory.mktemp("study"))


def rows(out: str, title: str) -> list[list[str]]:
    """The cells of the table behind a title."""
    lines = out[out.index(title) :].splitlines()
    end = next(i for i, line in enumerate(lines) if line.startswith("└"))
    return [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in lines[:end]
        if line.startswith("│")
    ]


def test_crossplay_prints_and_writes_everything(study: Path, tmp_path: Path) -> None:
    agents = [study / name for name in ("naive-s1", "naive-s2", "omg-s1")]
    out = done("crossplay", *agents, "--episodes=5", f"--out={tmp_path}", "--replays=1")

    content = json.loads((tmp_path / "crossplay.json").read_text())
    said = {"train": "seen", "heldout": "unseen"}
    summary = {(r["method"], said[r["split"]], r["metric"]): r for r in content["summary"]}
    shown = rows(out, "own return, mean")
    assert [row[:3] for row in shown] == [
        [method, side, "homologue"]
        for side in ("seen", "unseen")
        for method in ("Naive", "iql_omg")
    ]
    for row in shown:
        r = summary[row[0], row[1], "own_return"]
        each = f" (seeds {r['seeds'][0]:.3f}, {r['seeds'][-1]:.3f})" if r["agents"] > 1 else ""
        assert row[3] == f"{r['mean']:.3f}{each}"
        assert row[4] == f"{r['iqm']:.3f}"
    assert [row[5:] for row in shown] == [["2", "2"], ["1", "2"]] * 2
    differences = rows(out, "own return: difference to Naive")
    assert [row[0] for row in differences] == ["iql_omg", "iql_omg"]
    (r,) = [r for r in content["paired"] if (r["split"], r["metric"]) == ("train", "own_return")]
    assert differences[0][3:] == [f"{r['difference']:+.3f}", f"{r['higher']:.2f}"]
    assert "Fewer than three seeds have no interval, so each seed is shown." in out

    with (tmp_path / "crossplay.csv").open() as file:
        cells = list(csv.DictReader(file))
    assert {(cell["split"], cell["side"]) for cell in cells} == set(said.items())
    assert len(cells) == len(content["cells"]) == 3 * 4
    assert float(cells[5]["own_return"]) == content["cells"][5]["metrics"]["own_return"]
    assert {row["hit_ratio"] == "" for row in cells if row["method"] == "Naive"} == {True}
    with (tmp_path / "summary.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(content["summary"])
    with (tmp_path / "paired.csv").open() as file:
        paired = list(csv.DictReader(file))
    assert {(row["method"], row["baseline"]) for row in paired} == {
        ("iql_omg", "Naive"),
        ("Naive", "iql_omg"),
    }
    scores = json.loads((tmp_path / "rliable.json").read_text())["own_return"]
    assert [len(scores["train homologue"][m]) for m in ("Naive", "iql_omg")] == [2, 1]
    with (tmp_path / "profiles.csv").open() as file:
        assert {row["metric"] for row in csv.DictReader(file)} >= {"own_return", "ep_length"}
    assert (tmp_path / "crossplay.png").read_bytes().startswith(b"\x89PNG")
    replays = sorted(path.name for path in (tmp_path / "replays").iterdir())
    assert replays == [
        f"{agent}-vs-{MEMBERS['heldout'][0]}-0.json" for agent in ("iql_omg-s1", "naive-s1")
    ]


def test_crossplay_takes_a_metric_a_side_and_a_baseline(study: Path, tmp_path: Path) -> None:
    words = ["crossplay", study / "naive-s1", study / "omg-s1", "--episodes=3"]
    words += ["--split=heldout", "--metric=ep_length", "--baseline=iql_omg", f"--out={tmp_path}"]
    out = done(*words)
    assert rows(out, "ep length: difference to iql_omg")[0][0] == "Naive"
    assert "There is one seed: the numbers describe this run only." in out
    header = (tmp_path / "crossplay.csv").read_text().splitlines()[0]
    assert header.split("episodes,")[1].startswith("ep_length,own_return")
    content = json.loads((tmp_path / "crossplay.json").read_text())
    assert {cell["split"] for cell in content["cells"]} == {"heldout"}
    assert not (tmp_path / "replays").exists()


def test_a_metric_may_be_named_as_runs_log_it(study: Path, tmp_path: Path) -> None:
    words = ["crossplay", study / "naive-s1", "--episodes=1", "--split=heldout"]
    done(*words, "--metric=own_discounted_return", f"--out={tmp_path}")
    header = (tmp_path / "crossplay.csv").read_text().splitlines()[0]
    assert header.split("episodes,")[1].startswith("discounted_return,")


def test_evaluate_shows_every_opponent_of_the_held_out_side(study: Path, tmp_path: Path) -> None:
    out = done("evaluate", study / "omg-s1", "--episodes=4", "--finetune-episodes=2")
    folder = study / "omg-s1" / "evaluation"
    content = json.loads((folder / "crossplay.json").read_text())
    assert content["finetune_episodes"] == 2
    shown = rows(out, "iql_omg-s1:")
    assert [row[0] for row in shown] == MEMBERS["heldout"]
    assert [row[4] for row in shown] == [
        f"{cell['metrics']['own_return']:.3f}" for cell in content["cells"]
    ]
    assert "hit ratio" in out
    (replay, *_) = (folder / "replays").glob("*.json")
    assert json.loads(replay.read_text())["subgoals"]
    assert "is replaced" not in out
    # Again into the same folder, with fewer replays: the older ones go, and that is said.
    again = done("evaluate", study / "omg-s1", "--episodes=1", "--replays=1")
    assert f"{folder} is replaced; --out=<folder>" in " ".join(again.split())
    assert len(list((folder / "replays").iterdir())) == 1


def test_the_permutation_test_is_printed_and_explained(study: Path, tmp_path: Path) -> None:
    out = done("evaluate", study / "omg-s1", "--episodes=4", "--permute", f"--out={tmp_path}")
    (row,) = rows(out, "own return: permutation test")
    (found,) = [
        r
        for r in json.loads((tmp_path / "crossplay.json").read_text())["permutation"]
        if r["metric"] == "own_return"
    ]
    assert row[3:5] == [f"{found['mean']:.3f}", f"{found['permuted']:.3f}"]
    assert "does not get worse, it does not use what it infers" in " ".join(out.split())


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["evaluate", "nowhere"], "nowhere is not a run"),
        (["evaluate", "iql", "--pool=seen"], "trained a whole team"),
        (["evaluate", "iql", "--permute"], "permute would have no effect"),
        (["evaluate", "naive-s1", "--which=99"], "no model '99'"),
        (["evaluate", "naive-s1", "--pool=nowhere"], "nowhere is not a pool"),
        (["evaluate", "naive-s1", "--split=test"], "split=test"),
        (["evaluate", "naive-s1", "--episodes=0"], "episodes=0"),
        (["evaluate", "naive-s1", "--replays=-1"], "replays=-1"),
        (["evaluate", "naive-s1", "--pool=seen", "--split=unseen"], "seen has no heldout members"),
        (["crossplay", "naive-s1", "--baseline=Naiv"], "did you mean 'Naive'"),
        (["crossplay", "naive-s1", "--lineup=some"], "lineup=some"),
        (["crossplay", "naive-s1", "naive-s1"], "both 'Naive' with seed 1"),
        (["crossplay", "naive-s1", "--out=iql/config.yaml"], "out=iql/config.yaml cannot be"),
    ],
)
def test_a_wrong_command_is_one_sentence(
    study: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], expected: str
) -> None:
    monkeypatch.chdir(study)
    OpponentPool.create("seen", exist_ok=True)
    if not OpponentPool.open("seen").members():
        OpponentPool.open("seen").add_script("random")
    assert expected in refused(*words)
    assert not Path("crossplay", "crossplay.json").exists()


def test_an_unknown_metric_is_refused_before_anything_is_played(
    study: Path, tmp_path: Path
) -> None:
    words = ["crossplay", study / "naive-s1", "--episodes=1000000", "--metric=retrun"]
    line = refused(*words, f"--out={tmp_path}")
    assert "no metric 'retrun', did you mean 'return'?" in line
    assert "own_return, discounted_return, return" in line
    assert not (tmp_path / "crossplay.json").exists()


def test_in_a_narrow_window_names_are_whole_and_metrics_are_left_out_with_a_remark(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = done("evaluate", study / "omg-s1", "--split=both", "--episodes=2", f"--out={tmp_path}")
    assert [line for line in out.splitlines() if len(line) > 80 and " " in line.strip()] == []
    cells = [
        row for row in rows(out, "omg-s1: ") if row[0] in (*MEMBERS["train"], *MEMBERS["heldout"])
    ]
    assert len(cells) == 4
    assert "more columns show in a wider window; all are in crossplay.csv" in out


def test_a_metric_that_only_one_model_tells_can_be_asked_for(study: Path, tmp_path: Path) -> None:
    agents = [study / name for name in ("naive-s1", "omg-s1")]
    words = ["--episodes=2", "--metric=hit_ratio", f"--out={tmp_path}"]
    assert "hit ratio, mean" in done("crossplay", *agents, *words)


@pytest.mark.parametrize("command", ["evaluate", "crossplay"])
def test_a_seed_below_zero_is_refused_in_a_sentence(
    study: Path, tmp_path: Path, command: str
) -> None:
    line = refused(command, study / "naive-s1", "--seed=-1", f"--out={tmp_path}")
    assert line == "omg: seed=-1 is not possible. Use 0 or more."
