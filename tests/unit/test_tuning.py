"""The choice among tuned configurations: by the mean over validation opponents and seeds."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import yaml

from omg.evaluation.crossplay_files import write_tables
from omg.evaluation.crossplay_table import Agent, Cell, Crossplay
from omg.studies.tuning import choose
from omg.types import OmgError


def played(
    folder: Path, scores: dict[int, tuple[float, ...]], *, metric: str = "own_return"
) -> Path:
    """Cross-play of configurations whose learning rate is their number / 10."""
    agents, cells = [], []
    for number, seeds in scores.items():
        for seed, value in enumerate(seeds):
            run = folder / f"c{number}-s{seed}"
            run.mkdir()
            (run / "config.yaml").write_text(
                yaml.safe_dump({"lr": number / 10, "a": {"b": number}})
            )
            name = f"c{number}-s{seed}"
            agents.append(Agent(name, f"D3QN c{number}", seed, run=str(run), env_steps=7))
            cells += [
                Cell(name, o, "homologue", "validation", 3, {metric: value + extra, "return": 9.0})
                for o, extra in (("x", 1.0), ("y", -1.0))
            ]
    out = folder / "scores"
    out.mkdir()
    table = Crossplay(
        format=1, env="e", metric=metric, agents=tuple(agents), opponents=(), cells=tuple(cells)
    )
    write_tables(table, out)
    return out


def test_the_best_mean_over_seeds_and_opponents_is_chosen(tmp_path: Path) -> None:
    scores = played(tmp_path, {0: (1.0, 1.0), 1: (3.0, 2.0), 2: (5.0, -1.0)})
    trials = choose(scores, method="D3QN", keys=["lr", "a.b"], out=tmp_path)
    assert [(t.configuration, t.mean, t.chosen) for t in trials] == [
        (0, 1.0, False),
        (1, 2.5, True),
        (2, 2.0, False),
    ]
    assert yaml.safe_load((tmp_path / "tuning/d3qn.yaml").read_text()) == {"lr": 0.1, "a": {"b": 1}}
    with (tmp_path / "tuning.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["settings"] for row in rows] == ["lr=0.0, a.b=0", "lr=0.1, a.b=1", "lr=0.2, a.b=2"]
    assert rows[1]["chosen"] == "True"
    assert rows[1]["seeds"] == "3 2"


def test_of_equals_the_method_s_own_settings_are_kept(tmp_path: Path) -> None:
    scores = played(tmp_path, {0: (2.0,), 1: (2.0,)})
    assert choose(scores, method="D3QN", keys=["lr"], out=tmp_path)[0].chosen


def test_where_less_is_better_the_least_is_chosen(tmp_path: Path) -> None:
    scores = played(tmp_path, {0: (5.0,), 1: (4.0,)}, metric="ep_length")
    assert choose(scores, method="D3QN", keys=["lr"], out=tmp_path)[1].chosen


def test_the_lists_of_all_methods_stand_together(tmp_path: Path) -> None:
    scores = played(tmp_path, {0: (5.0,), 1: (4.0,)})
    choose(scores, method="D3QN", keys=["lr"], out=tmp_path)
    text = (tmp_path / "tuning/d3qn.csv").read_text()
    (tmp_path / "tuning/liam.csv").write_text(text.replace("D3QN", "LIAM"))
    choose(scores, method="D3QN", keys=["lr"], out=tmp_path)
    with (tmp_path / "tuning.csv").open() as file:
        assert [row["method"] for row in csv.DictReader(file)] == ["D3QN"] * 2 + ["LIAM"] * 2


def test_games_of_another_method_are_refused(tmp_path: Path) -> None:
    scores = played(tmp_path, {0: (5.0,)})
    with pytest.raises(OmgError, match="'D3QN c0' is no configuration of 'LIAM'"):
        choose(scores, method="LIAM", keys=["lr"], out=tmp_path)
