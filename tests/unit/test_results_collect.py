"""`benchmarks.results_collect`: what is put beside a page is what the study's folder has."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import yaml

from benchmarks.results_collect import main
from benchmarks.results_tables import tables
from omg.config.loader import load_command_line

HEAD = (
    "task,method,tested,seeds,steps,max_return,max_low,max_high,max_at,"
    "average_return,average_low,average_high,last_returns\n"
)


def run(
    folder: Path,
    config: str,
    label: str,
    seed: int,
    tests: dict[int, dict[str, float]],
    *more: str,
) -> None:
    """A run that logged these tests, and something between them."""
    folder.mkdir(parents=True)
    words = [f"--config={config}", "--env-config=foraging", f"--label={label}", f"--seed={seed}"]
    words += ["--t_max=100", *more]
    (folder / "config.yaml").write_text(yaml.safe_dump(load_command_line(words).config.as_dict()))
    lines = [{"t_env": at, **values} for at, values in tests.items()] + [{"t_env": 7, "loss": 0.5}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_tests_of_agents_and_looks_are_gathered_and_tables_copied(tmp_path: Path) -> None:
    study, page = tmp_path / "study", tmp_path / "page"
    own, team = "test_own_return_mean", "test_return_mean"
    run(
        study / "agents/a-s2",
        "d3qn",
        "A",
        2,
        {0: {own: 0.1, team: 9.0}, 50: {own: 0.25, team: 9.0}},
    )
    run(study / "priors/places-s2", "d3qn_omg", "", 2, {})
    last = study / "priors/places-s2/models/last"
    last.mkdir(parents=True)
    (last / "meta.json").write_text('{"prior_accuracy": 0.9871234, "env_steps": 5}')
    (study / "crossplay.csv").write_text("method\nA\n")
    (study / "tuning.csv").write_text("method,score\nA,1\n")
    look = {
        "key": "k",
        "when": "now",
        "kind": "evaluation",
        "runs": ["a", "b"],
        "members": ["x", "y"],
        "command": "omg crossplay /home/a /home/b --pool=/home/p --split=both",
        "episodes": 9,
    }
    (study / "looks.jsonl").write_text(json.dumps(look) + "\n")
    line = {
        "when": "then",
        "sha256": "f00",
        "omg": "1",
        "commit": "c",
        "metric": "own_return",
        "baseline": "A",
        "methods": {"A": 3, "B": 2},
        "looks": 0,
        "steps": 0,
        "parts": {},
    }
    later = {**line, "when": "later", "looks": 1, "changed": ["method A", "metric"]}
    (study / "named.jsonl").write_text(f"{json.dumps(line)}\n{json.dumps(later)}\n")
    assert main([str(study), str(page)]) == 0
    assert rows(page / "curves.csv") == [
        {"method": "A", "seed": "2", "env_steps": "0", "own_return": "0.1"},
        {"method": "A", "seed": "2", "env_steps": "50", "own_return": "0.25"},
    ]
    assert rows(page / "priors.csv") == [{"prior": "places-s2", "prior_accuracy": "0.987123"}]
    told = {"when": "now", "kind": "evaluation", "runs": "2", "members": "2", "episodes": "9"}
    told |= {"opponents": "x y", "command": "omg crossplay --split=both"}
    assert rows(page / "looks.csv") == [told]
    first, second = rows(page / "named.csv")
    assert (first["when"], first["looks"], first["changed"]) == ("then", "0", "")
    assert (first["metric"], first["baseline"]) == ("own_return", "A")
    assert (first["methods"], first["sha256"]) == ("A (3); B (2)", "f00")
    assert (second["looks"], second["changed"]) == ("1", "method A; metric")
    assert (page / "tuning.csv").read_text() == "method,score\nA,1\n"
    assert not (page / "headroom.csv").exists()


def part(
    folder: Path,
    task: str,
    config: str,
    seed: int,
    tests: dict[int, float],
    random: float,
    *more: str,
) -> list[str]:
    """A benchmark's folder with one run; the command's words."""
    both = {"mappo": ("test_return_mean", "test_greedy_return_mean")}
    names = both.get(config, ("test_return_mean",))
    told = {at: dict.fromkeys(names, value) for at, value in tests.items()}
    run(folder / f"teams/{task}/{config}-s{seed}", config, config.upper(), seed, told, *more)
    line = f"{task},random play,as it plays,0,0,{random},,,0,{random},,,\n"
    (folder / "benchmark.csv").write_text(HEAD + line)
    return [str(folder), str(folder.with_name("page"))]


def test_parts_of_a_benchmark_join_and_the_table_is_of_all_their_runs(tmp_path: Path) -> None:
    page = tmp_path / "page"
    assert main(part(tmp_path / "a", "big", "qmix", 1, {0: 0.0, 100: 0.5}, 0.1)) == 0
    assert main(part(tmp_path / "b", "big", "qmix", 2, {0: 0.2, 100: 0.7, 200: 1.0}, 0.1)) == 0
    assert main(part(tmp_path / "c", "small", "mappo", 1, {100: 0.25}, 0.2)) == 0
    found = [[row[key] for key in ("task", "method", "tested", "seeds", "steps", "max_return",
                                   "average_return", "last_returns")]
             for row in rows(page / "benchmark.csv")]  # fmt: skip
    # Both seeds reach 100 steps: the mean is largest there, (0.5 + 0.7) / 2.
    assert found == [
        ["big", "QMIX", "greedy", "2", "100", "0.6", "0.35", "0.5 1"],
        ["big", "random play", "as it plays", "0", "0", "0.1", "0.1", ""],
        ["small", "MAPPO", "as it plays", "1", "100", "0.25", "0.25", "0.25"],
        ["small", "MAPPO", "greedy", "1", "100", "0.25", "0.25", "0.25"],
        ["small", "random play", "as it plays", "0", "0", "0.2", "0.2", ""],
    ]
    assert "| MAPPO | as it plays | 1 | 100 | 100 | 0.25 | 0.25 |" in tables(page)
    assert (page / "benchmark-small.png").stat().st_size > 0


def test_a_run_that_is_collected_again_stands_once(tmp_path: Path) -> None:
    page = tmp_path / "page"
    for folder, values in (("a", {0: 0.0, 100: 0.5}), ("b", {0: 0.1, 100: 0.9})):
        assert main(part(tmp_path / folder, "big", "qmix", 1, values, 0.1)) == 0
    told = [(row["seed"], row["env_steps"], row["return"]) for row in rows(page / "curves.csv")]
    assert told == [("1", "0", "0.1"), ("1", "100", "0.9")]
    assert rows(page / "benchmark.csv")[0]["seeds"] == "1"


def test_a_run_that_is_not_finished_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page"
    assert main(part(tmp_path / "a", "big", "qmix", 1, {0: 0.0, 100: 0.5}, 0.1)) == 0
    assert main(part(tmp_path / "b", "big", "qmix", 1, {0: 0.3, 50: 0.9}, 0.1)) == 0
    assert "50 of 100 steps and is left out" in capsys.readouterr().out
    assert [row["return"] for row in rows(page / "curves.csv")] == ["0", "0.5"]


def test_seeds_with_other_settings_are_refused_and_nothing_changes(tmp_path: Path) -> None:
    page = tmp_path / "page"
    assert main(part(tmp_path / "a", "big", "qmix", 1, {0: 0.0, 100: 0.5}, 0.1)) == 0
    before = (page / "curves.csv").read_text()
    with pytest.raises(SystemExit, match=r"QMIX on big have other settings"):
        main(part(tmp_path / "b", "big", "qmix", 2, {0: 0.0, 100: 0.5}, 0.1, "--lr=0.1"))
    assert (page / "curves.csv").read_text() == before


def test_a_folder_that_is_not_finished_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path), str(tmp_path / "page")])
    assert ended.value.code == 2
    assert "neither crossplay.csv nor benchmark.csv" in capsys.readouterr().err
    assert not (tmp_path / "page").exists()
